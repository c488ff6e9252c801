//! Literal references of FHIR R4, and the type and id that they contain.

use memchr::memmem;

/// The type and id in a literal reference: `Patient/p`, also after any base URL. A version (`/_history/2`) is
/// removed. Returns `None` for other references: `#p`, `urn:…`, or a search.
///
/// ```
/// use trefoil_resources::references::target;
/// assert_eq!(target("https://example.org/fhir/Patient/p/_history/2"), Some(("Patient", "p")));
/// assert_eq!(target("#p"), None);
/// ```
pub fn target(reference: &str) -> Option<(&'static str, &str)> {
    let (unversioned, _) = split_version(reference);
    let (before, id) = unversioned.rsplit_once('/')?;
    let kind = match before.rsplit_once('/') {
        Some((base, kind)) if base.contains("://") => kind,
        Some(_) => return None,
        None => before,
    };
    Some((fhir::resource_type(kind)?, id)).filter(|_| fhir::is_id(id))
}

/// A reference without its version, and the version (`/_history/2`), if it has one.
pub(crate) fn split_version(reference: &str) -> (&str, Option<&str>) {
    match reference.rsplit_once("/_history/") {
        Some((before, version)) if fhir::is_id(version) => (before, Some(version)),
        _ => (reference, None),
    }
}

/// The type and id of a reference to a resource on the server at `fhir_base`, or `None` for other servers.
pub fn local<'a>(reference: &'a str, fhir_base: &str) -> Option<(&'static str, &'a str)> {
    match reference.strip_prefix(fhir_base).and_then(|rest| rest.strip_prefix('/')) {
        Some(local) => target(local),
        None if reference.contains("://") => None,
        None => target(reference),
    }
}

/// The positions of the values of all members `reference` in a stored resource, each as the rest of the
/// resource from the opening quotation mark on.
///
/// Stored JSON has no whitespace between tokens, and a quotation mark inside a string is escaped. Therefore
/// the searched bytes occur only before such a value.
pub(crate) fn values(resource: &[u8]) -> impl Iterator<Item = &[u8]> {
    const MEMBER: &[u8] = br#""reference":""#;
    memmem::find_iter(resource, MEMBER).map(|at| &resource[at + MEMBER.len() - 1..])
}

/// Returns type and id of each resource of the server at `fhir_base` that a stored resource refers to.
pub fn local_targets<'a>(
    resource: &'a [u8],
    fhir_base: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    values(resource).filter_map(move |value| {
        let text = &value[1..];
        let end = memchr::memchr(b'"', text).unwrap_or(text.len());
        local(std::str::from_utf8(&text[..end]).ok()?, fhir_base)
    })
}

/// The values of all members of a stored resource that `member` begins, such as `"reference":"`.
pub(crate) fn texts_of<'a>(
    resource: &'a [u8],
    member: &'static [u8],
) -> impl Iterator<Item = std::borrow::Cow<'a, str>> {
    memmem::find_iter(resource, member).filter_map(move |start| {
        let text = &resource[start + member.len()..];
        let plain = std::str::from_utf8(&text[..memchr::memchr(b'"', text)?]).ok()?;
        if !plain.contains('\\') {
            return Some(plain.into());
        }
        // Some clients escape each slash.
        let value = &resource[start + member.len() - 1..];
        let value = serde_json::Deserializer::from_slice(value).into_iter::<String>().next()?.ok()?;
        Some(value.into())
    })
}

/// The ids of the Binaries of the server at `fhir_base` that the attachments of a stored resource name.
pub fn attached_binaries<'a>(resource: &'a [u8], fhir_base: &'a str) -> impl Iterator<Item = String> + 'a {
    const MEMBER: &[u8] = br#""url":""#;
    memmem::find_iter(resource, MEMBER).filter_map(move |at| {
        let value = &resource[at + MEMBER.len() - 1..];
        // Some clients escape each slash.
        let url = serde_json::Deserializer::from_slice(value).into_iter::<String>().next()?.ok()?;
        local(&url, fhir_base).filter(|(kind, _)| *kind == "Binary").map(|(_, id)| id.to_owned())
    })
}

/// The values of members `reference` that are a search.
pub(crate) fn conditional_texts(text: &[u8]) -> Vec<String> {
    let unescaped = |value: &[u8]| {
        let mut values = serde_json::Deserializer::from_slice(value).into_iter::<String>();
        values.next()?.ok()
    };
    // Few references are searches, and only those are unescaped.
    let has_query = |value: &&[u8]| {
        let end = memchr::memchr(b'"', &value[1..]).map_or(value.len(), |end| end + 1);
        memchr::memchr(b'?', &value[..end]).is_some()
    };
    let is_search =
        |value: &String| value.split_once('?').is_some_and(|(kind, _)| fhir::resource_type(kind).is_some());
    values(text).filter(has_query).filter_map(unescaped).filter(is_search).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_references_are_parsed() {
        #[track_caller]
        fn check(reference: &str, expected: Option<&str>) {
            let key = target(reference).map(|(kind, id)| format!("{kind}/{id}"));
            assert_eq!(key.as_deref(), expected, "{reference}");
        }
        check("Patient/p", Some("Patient/p"));
        check("Patient/p/_history/1", Some("Patient/p"));
        check("https://example.org/fhir/Patient/p", Some("Patient/p"));
        check("http://localhost:8080/Patient/p/_history/12", Some("Patient/p"));
        check("Observation/o.1-a", Some("Observation/o.1-a"));
        check("Patient", None);
        check("Patient/", None);
        check("/Patient/p", None);
        check("x/Patient/p", None);
        check("patient/p", None);
        check("Patient/p/_history/", None);
        check("Patient/p q", None);
        check("Patient?identifier=1", None);
        check("#p", None);
        check("urn:uuid:5b6a2a52-6b05-4a1c-9c0e-0a6d3cf8d7f4", None);
        check("", None);
    }

    #[test]
    fn attachments_name_binaries_of_this_server() {
        let text = br#"{"content":[{"attachment":{"url":"Binary/a"}},{"attachment":{"url":"https:\/\/h\/r4\/Binary\/b"}},
            {"attachment":{"url":"https://other/Binary/c"}},{"attachment":{"url":"Patient/d"}}],"x":"\"url\":\"Binary/e\""}"#;
        assert_eq!(attached_binaries(text, "https://h/r4").collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn only_references_that_are_searches_are_found() {
        let text =
            br##"{"subject":{"reference":"Patient/p"},"text":"\"reference\":\"Patient?x=1\"","performer":[
            {"reference":"Practitioner?identifier=http://x|1"},{"reference":"Pony?x=1"},{"reference":"#a?b"},
            {"reference":"Patient?name=\u00e9"}],"url":"Patient?y=1","reference":"Group?_id=1"}"##;
        assert_eq!(
            conditional_texts(text),
            ["Practitioner?identifier=http://x|1", "Patient?name=é", "Group?_id=1"]
        );
    }
}
