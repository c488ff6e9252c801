//! The URLs of attachments in exported resources. A client finds a Binary of this server only by an absolute
//! URL (Bulk Data Access 2.0.0, Attachments), while resources refer to it by a relative one.

use memchr::memmem;
use store::LinePage;

/// The positions in stored resources at which the base URL must be inserted. Stored JSON has no whitespace
/// between tokens, and a quotation mark inside a string is escaped. Therefore the searched bytes occur only
/// at the beginning of a member `url`.
fn relative_urls(resources: &[u8]) -> impl Iterator<Item = usize> {
    const MEMBER: &[u8] = br#""url":"Binary"#;
    const TYPE: usize = "Binary".len();
    memmem::find_iter(resources, MEMBER).map(|at| at + MEMBER.len()).filter_map(|end| {
        // Some clients escape each slash.
        let rest = &resources[end..];
        let has_id = rest.starts_with(b"/") || rest.starts_with(br"\/");
        has_id.then_some(end - TYPE)
    })
}

/// Inserts `fhir_base` and a slash at each of these positions.
fn inserted(resources: &[u8], urls: &[usize], fhir_base: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(resources.len() + urls.len() * (fhir_base.len() + 1));
    let mut copied = 0;
    for &at in urls {
        text.extend_from_slice(&resources[copied..at]);
        text.extend_from_slice(fhir_base.as_bytes());
        text.push(b'/');
        copied = at;
    }
    text.extend_from_slice(&resources[copied..]);
    text
}

/// A page of lines with absolute URLs. A page without relative ones is not copied.
pub(crate) fn absolute_lines(page: LinePage, fhir_base: &str) -> LinePage {
    let urls: Vec<_> = relative_urls(&page.text).collect();
    if urls.is_empty() {
        return page;
    }
    let before = |end: usize| urls.partition_point(|&at| at < end);
    let ends = page.ends.iter().map(|&end| end + before(end) * (fhir_base.len() + 1)).collect();
    LinePage { text: inserted(&page.text, &urls, fhir_base).into(), ends, ..page }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_relative_urls_of_binaries_become_absolute() {
        #[track_caller]
        fn check(resource: &'static str, expected: &str) {
            let text = Bytes::from_static(resource.as_bytes());
            let page = absolute_lines(LinePage { text, ..LinePage::default() }, "https://h/r4");
            assert_eq!(std::str::from_utf8(&page.text).unwrap(), expected);
        }
        check(r#"{"content":{"url":"Binary/b"}}"#, r#"{"content":{"url":"https://h/r4/Binary/b"}}"#);
        check(
            r#"[{"url":"Binary\/b"},{"url":"Binary/c/_history/2","size":1}]"#,
            r#"[{"url":"https://h/r4/Binary\/b"},{"url":"https://h/r4/Binary/c/_history/2","size":1}]"#,
        );
        for same in [
            r#"{"url":"https://h/r4/Binary/b"}"#,
            r#"{"url":"BinaryWorld"}"#,
            r#"{"reference":"Binary/b"}"#,
            r#"{"title":"\"url\":\"Binary/b"}"#,
            r#"{"url":"Binary"#,
        ] {
            check(same, same);
        }
    }

    #[test]
    fn the_ends_of_lines_move() {
        let lines = ["{}", r#"{"url":"Binary/b"}"#, "{}", r#"[{"url":"Binary/c"},{"url":"Binary/d"}]"#];
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for line in lines {
            text.extend_from_slice(&[line.as_bytes(), b"\n"].concat());
            ends.push(text.len());
        }
        let page = absolute_lines(LinePage { text: text.into(), ends, ..LinePage::default() }, "b");
        let expected =
            ["{}", r#"{"url":"b/Binary/b"}"#, "{}", r#"[{"url":"b/Binary/c"},{"url":"b/Binary/d"}]"#];
        let mut start = 0;
        for (end, line) in page.ends.iter().zip(expected) {
            assert_eq!(&page.text[start..*end], [line.as_bytes(), b"\n"].concat());
            start = *end;
        }
        assert_eq!(start, page.text.len());
    }
}
