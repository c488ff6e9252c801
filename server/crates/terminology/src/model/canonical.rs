//! Canonical URLs and versions: which of two versions is newer, and which versions match a pattern.

use std::cmp::Ordering;

/// Splits `url|version`. The version is `None` if there is none. The URL of an implicit value set of SNOMED
/// CT contains its version, and its constraint may contain bars, so it is not split.
pub(crate) fn split(canonical: &str) -> (&str, Option<&str>) {
    match memchr::memrchr(b'|', canonical.as_bytes()) {
        Some(bar) if !canonical.contains("?fhir_vs") => {
            (&canonical[..bar], Some(&canonical[bar + 1..]).filter(|v| !v.is_empty()))
        }
        _ => (canonical, None),
    }
}

/// Joins the two parts that [`split`] returns.
pub(crate) fn join(url: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{url}|{version}"),
        None => url.to_owned(),
    }
}

/// Compares two versions; the newer one is greater.
///
/// Runs of digits compare as numbers and the rest as text, which orders semantic versions, dates and the URIs
/// of SNOMED CT correctly. A version that lacks the last parts of another one is older, except that a
/// pre-release (`1.0.0-beta`) is older than its release.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (parts(a), parts(b));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return a.cmp(b),
            (None, Some(more)) => {
                return if more.starts_with('-') { Ordering::Greater } else { Ordering::Less };
            }
            (Some(more), None) => {
                return if more.starts_with('-') { Ordering::Less } else { Ordering::Greater };
            }
            (Some(a), Some(b)) => match (number(a), number(b)) {
                (Some(a), Some(b)) => a.cmp(&b),
                (None, None) => a.cmp(b),
                (Some(_), None) => Ordering::Greater,
                (None, Some(_)) => Ordering::Less,
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn number(part: &str) -> Option<u128> {
    part.parse().ok()
}

/// Splits a version into runs of digits and runs of other characters, without the dots.
fn parts(version: &str) -> impl Iterator<Item = &str> {
    let mut rest = version;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        let first = rest.chars().next()?;
        let other = |c: char| c == '.' || c.is_ascii_digit() != first.is_ascii_digit();
        let (part, more) = rest.split_at(rest.find(other).unwrap_or(rest.len()));
        rest = more;
        Some(part)
    })
}

/// Returns whether a version is a pattern: `*`, or one with `x` parts such as `1.0.x`.
pub(crate) fn is_pattern(version: &str) -> bool {
    version == "*" || version.split('.').any(is_wild)
}

/// Returns whether a version or pattern matches this version. A trailing `x` matches any number of parts.
pub(crate) fn matches(requested: &str, version: &str) -> bool {
    if requested == version || requested == "*" {
        return true;
    }
    if !is_pattern(requested) {
        // SNOMED CT: an edition without a date matches each of its releases.
        return version.strip_prefix(requested).is_some_and(|rest| rest.starts_with("/version/"));
    }
    let mut parts = version.split('.');
    let mut last_wild = false;
    for part in requested.split('.') {
        last_wild = is_wild(part);
        match parts.next() {
            Some(part_of_version) if last_wild || part == part_of_version => {}
            _ => return false,
        }
    }
    last_wild || parts.next().is_none()
}

fn is_wild(part: &str) -> bool {
    matches!(part, "x" | "X" | "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_greater() {
        let sorted = [
            "",
            "beta",
            "0.9",
            "1.0.0-beta",
            "1.0.0",
            "1.2.0",
            "1.2.0.1",
            "1.10.0",
            "2",
            "2018-08-12",
            "20250101",
            "20250909",
        ];
        for (index, older) in sorted.iter().enumerate() {
            assert_eq!(compare(older, older), Ordering::Equal);
            for newer in &sorted[index + 1..] {
                assert_eq!(compare(older, newer), Ordering::Less, "{older} < {newer}");
                assert_eq!(compare(newer, older), Ordering::Greater, "{newer} > {older}");
            }
        }
    }

    #[test]
    fn patterns_match_versions() {
        for (requested, version, expected) in [
            ("1.0.0", "1.0.0", true),
            ("1.0.x", "1.0.7", true),
            ("1.0.x", "1.1.0", false),
            ("1.x.x", "1.2.0", true),
            ("1.x", "1.2.0", true),
            ("*", "anything", true),
            ("1", "1.0.0", false),
            ("1.x.0", "1.2.0", true),
            ("1.x.0", "1.2.0.1", false),
            ("1.x.x", "1", false),
        ] {
            assert_eq!(matches(requested, version), expected, "{requested} {version}");
        }
        assert!(is_pattern("1.x.x") && is_pattern("*") && !is_pattern("1.0.0"));
    }

    #[test]
    fn canonicals_split_at_the_last_bar() {
        assert_eq!(split("http://x|1|2"), ("http://x|1", Some("2")));
        assert_eq!(split("http://x"), ("http://x", None));
        assert_eq!(split("http://x|"), ("http://x", None));
        assert_eq!(join("a", Some("1")), "a|1");
    }
}
