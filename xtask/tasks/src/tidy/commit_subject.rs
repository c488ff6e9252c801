//! The form of commit subjects: a prefix, then an imperative, as far as a program can see it.

/// First words that no imperative begins with.
const NOT_IMPERATIVE: [&str; 12] =
    ["a", "all", "an", "each", "more", "new", "no", "of", "one", "some", "the", "two"];
/// Imperatives that look like another form.
const IMPERATIVE: [&str; 9] =
    ["bring", "embed", "feed", "focus", "need", "pass", "process", "shed", "string"];

/// Returns what is wrong with a subject, or `None`.
pub fn fault(subject: &str) -> Option<String> {
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || " ,-/".contains(c);
    let Some((area, rest)) =
        subject.split_once(": ").filter(|(area, _)| !area.is_empty() && area.chars().all(is_area))
    else {
        return Some("it has no prefix, such as 'terminology: '".to_owned());
    };
    let first = rest.split([' ', ',']).next().unwrap_or_default().to_ascii_lowercase();
    let has_other_form =
        ["ing", "ed", "s"].iter().any(|ending| first.ends_with(ending)) && !first.ends_with("ss");
    let is_other =
        NOT_IMPERATIVE.contains(&first.as_str()) || has_other_form && !IMPERATIVE.contains(&first.as_str());
    is_other.then(|| format!("'{first}' is not an imperative; write for example '{area}: add …'"))
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn subjects_have_a_prefix_and_an_imperative() {
        for subject in [
            "terminology: reject constraints nested deeper than 32",
            "bulk, docs: pass the lease",
            "fixtures: add words",
        ] {
            assert_eq!(fault(subject), None, "{subject}");
        }
        for subject in [
            "Reject constraints",
            "docs: memory, disks and clocks: nothing",
            "tests: waiting for the server",
            "store: a node that ended",
            "server: starts on a full disk",
            "bulk: fixed a race",
        ] {
            let is_seen = fault(subject).is_some();
            // Some nouns are also imperatives.
            assert_eq!(is_seen, !subject.starts_with("docs"), "{subject}");
        }
    }
}
