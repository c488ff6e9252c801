//! `_include` and `_revinclude` (FHIR R4, search): the references of matches whose targets are added to the
//! results, and the references of other resources to matches.

use std::collections::BTreeSet;

use fhir::search_parameters::{self, SearchParameter, ValueComparison};
use serde_json::value::RawValue;

use crate::body::json::values;
use crate::body::references::{local, split_version};
use crate::search::filter::value::reference_text;

/// The parts of `Type:parameter:Target`.
struct IncludeParts<'a> {
    source: &'a str,
    code: &'a str,
    target: Option<&'a str>,
}

impl<'a> IncludeParts<'a> {
    fn read(text: &'a str) -> Result<Self, &'static str> {
        let mut parts = text.split(':');
        let (source, code, target) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if parts.next().is_some() {
            return Err("has more than three parts");
        }
        Ok(Self { source, code: code.ok_or("names no search parameter")?, target })
    }
}

/// The reference parameter of a type with this code, or all of them for `*`.
fn reference_parameters(kind: &str, code: &str) -> Vec<SearchParameter> {
    let is_reference = |parameter: &SearchParameter| parameter.comparison == ValueComparison::Reference;
    match code {
        "*" => search_parameters::parameters(kind).filter(is_reference).collect(),
        code => search_parameters::find(kind, code).filter(is_reference).into_iter().collect(),
    }
}

/// A value of `_include`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Include {
    parameters: Vec<SearchParameter>,
    /// The only type of targets, if the value has one.
    target: Option<&'static str>,
}

impl Include {
    /// Parses `Type:parameter` or `Type:parameter:Target` for a search of `kind`. The parameter `*` stands
    /// for all reference parameters.
    ///
    /// # Errors
    /// Returns a text that describes why the value is not accepted.
    pub fn read(kind: &str, text: &str) -> Result<Self, String> {
        let expected = format!("{kind}:PARAMETER or {kind}:PARAMETER:TARGET");
        let wrong = |reason: &str| format!("_include: '{text}' {reason}; expected {expected}");
        let IncludeParts { source, code, target } = IncludeParts::read(text).map_err(wrong)?;
        if source != kind {
            return Err(wrong("does not begin with the type of the search"));
        }
        let target = match target {
            Some(target) => {
                Some(fhir::resource_type(target).ok_or_else(|| wrong("names an unknown target type"))?)
            }
            None => None,
        };
        let parameters = reference_parameters(kind, code);
        if parameters.is_empty() {
            return Err(wrong("does not name a reference parameter"));
        }
        Ok(Self { parameters, target })
    }

    /// Adds type and id of the local targets of a resource to `out`, until it contains `limit` targets. A
    /// version that a reference names follows the id, as in `p/_history/2`.
    pub fn targets(
        &self,
        resource: &[u8],
        fhir_base: &str,
        limit: usize,
        out: &mut BTreeSet<(&'static str, String)>,
    ) {
        let Ok(resource) = serde_json::from_slice::<&RawValue>(resource) else { return };
        for place in self.parameters.iter().flat_map(|parameter| &parameter.places) {
            let mut references = Vec::new();
            values(resource, &place.path, &mut references);
            for value in references {
                let Some(text) = reference_text(place.data, value) else { continue };
                let Some((kind, id)) = local(&text, fhir_base) else { continue };
                let is_wanted = |only: Option<&str>| only.is_none_or(|only| only == kind);
                if out.len() >= limit {
                    return;
                }
                if is_wanted(self.target) && is_wanted(place.only) {
                    let version = split_version(&text).1;
                    let version = version.map(|version| format!("/_history/{version}")).unwrap_or_default();
                    out.insert((kind, format!("{id}{version}")));
                }
            }
        }
    }
}

/// A value of `_revinclude`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseInclude {
    /// The type of the resources that are added.
    pub kind: &'static str,
    codes: Vec<&'static str>,
}

impl ReverseInclude {
    /// Parses `Type:parameter` or `Type:parameter:Target` for a search of `kind`. The parameter `*` stands
    /// for all reference parameters.
    ///
    /// # Errors
    /// Returns a text that describes why the value is not accepted.
    pub fn read(kind: &str, text: &str) -> Result<Self, String> {
        let expected = format!("TYPE:PARAMETER or TYPE:PARAMETER:{kind}");
        let wrong = |reason: &str| format!("_revinclude: '{text}' {reason}; expected {expected}");
        let IncludeParts { source, code, target } = IncludeParts::read(text).map_err(wrong)?;
        if target.is_some_and(|target| target != kind) {
            return Err(wrong("does not end with the type of the search"));
        }
        let source = fhir::resource_type(source).ok_or_else(|| wrong("names an unknown type"))?;
        let codes: Vec<_> =
            reference_parameters(source, code).into_iter().map(|parameter| parameter.code).collect();
        if codes.is_empty() {
            return Err(wrong("does not name a reference parameter"));
        }
        Ok(Self { kind: source, codes })
    }

    /// The searches for the resources that refer to some resources of a type, each as `Type?parameter=…`.
    pub fn searches(&self, targets: &[(&str, &str)]) -> Vec<String> {
        let chunks = || targets.chunks(TARGETS_AT_ONCE);
        let search = |code: &str, targets: &[(&str, &str)]| {
            let targets: Vec<_> = targets.iter().map(|(kind, id)| format!("{kind}/{id}")).collect();
            format!("{}?{code}={}", self.kind, targets.join(","))
        };
        self.codes.iter().flat_map(|code| chunks().map(|targets| search(code, targets))).collect()
    }
}

/// Number of targets in one search.
const TARGETS_AT_ONCE: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_the_named_parameters_are_found() {
        let observation = br#"{"subject":{"reference":"Patient/p"},"encounter":{"reference":"https://h/r4/Encounter/e"},
            "performer":[{"reference":"Practitioner/d"},{"reference":"Patient/p"},{"reference":"https://x/Patient/q"}]}"#;
        #[track_caller]
        fn check(observation: &[u8], include: &str, expected: &[&str]) {
            let mut targets = BTreeSet::new();
            let include = Include::read("Observation", include).unwrap();
            include.targets(observation, "https://h/r4", 2, &mut targets);
            include.targets(observation, "https://h/r4", 2, &mut targets);
            let targets: Vec<_> = targets.iter().map(|(kind, id)| format!("{kind}/{id}")).collect();
            assert_eq!(targets, expected);
        }
        check(observation, "Observation:subject", &["Patient/p"]);
        check(observation, "Observation:patient", &["Patient/p"]);
        check(observation, "Observation:encounter", &["Encounter/e"]);
        check(observation, "Observation:performer", &["Patient/p", "Practitioner/d"]);
        check(observation, "Observation:performer:Practitioner", &["Practitioner/d"]);
        check(observation, "Observation:*:Encounter", &["Encounter/e"]);
        check(observation, "Observation:device", &[]);
        for (bad, reason) in [
            ("Observation", "names no search parameter"),
            ("Patient:organization", "does not begin with the type"),
            ("Observation:code", "does not name a reference parameter"),
            ("Observation:subject:Pony", "unknown target type"),
            ("Observation:subject:Patient:x", "more than three parts"),
        ] {
            assert!(Include::read("Observation", bad).unwrap_err().contains(reason), "{bad}");
        }
    }

    #[test]
    fn reverse_includes_become_searches() {
        let searches = |text: &str| {
            ReverseInclude::read("Patient", text).unwrap().searches(&[("Patient", "a"), ("Patient", "b")])
        };
        assert_eq!(searches("Provenance:target"), ["Provenance?target=Patient/a,Patient/b"]);
        assert_eq!(searches("Observation:subject:Patient"), ["Observation?subject=Patient/a,Patient/b"]);
        assert!(searches("Observation:*").len() > 5);
        let many: Vec<_> = (0..401).map(|_| ("Patient", "a")).collect();
        assert_eq!(ReverseInclude::read("Patient", "Provenance:target").unwrap().searches(&many).len(), 3);
        for (text, reason) in [
            ("Pony:target", "names an unknown type"),
            ("Provenance", "names no search parameter"),
            ("Observation:code", "does not name a reference parameter"),
            ("Observation:subject:Group", "does not end with the type of the search"),
            ("Observation:subject:Patient:x", "has more than three parts"),
        ] {
            assert!(ReverseInclude::read("Patient", text).unwrap_err().contains(reason), "{text}");
        }
    }
}
