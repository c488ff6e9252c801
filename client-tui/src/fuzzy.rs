//! Fuzzy search in lists.

use std::cmp::Reverse;

use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// The items whose text matches, the best matches first. Each word of `typed` must match. Without words, all
/// items are returned in their order.
pub fn matching<T>(typed: &str, items: impl IntoIterator<Item = T>, text: impl Fn(&T) -> String) -> Vec<T> {
    let mut matcher = Matcher::new(Config::DEFAULT);
    let pattern = Pattern::new(typed, CaseMatching::Ignore, Normalization::Smart, AtomKind::Fuzzy);
    let mut characters = Vec::new();
    let scored = items.into_iter().filter_map(|item| {
        let score = pattern.score(Utf32Str::new(&text(&item), &mut characters), &mut matcher)?;
        Some((Reverse(score), item))
    });
    let mut matches: Vec<_> = scored.collect();
    // Items with the same score keep their order.
    matches.sort_by_key(|(score, _)| *score);
    matches.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: &[&str]) {
        let items = ["http://loinc.org", "http://snomed.info/sct", "urn:iso:std:iso:3166"];
        assert_eq!(matching(typed, items, |item| (*item).to_owned()), expected);
    }

    #[test]
    fn characters_may_be_left_out() {
        check("snsct", &["http://snomed.info/sct"]);
        check("LOINC", &["http://loinc.org"]);
        check("iso 31", &["urn:iso:std:iso:3166"]);
        check("", &["http://loinc.org", "http://snomed.info/sct", "urn:iso:std:iso:3166"]);
        check("icd", &[]);
    }
}
