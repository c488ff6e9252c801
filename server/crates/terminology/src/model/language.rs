//! Lists of language ranges (RFC 9110, Accept-Language), and the choice of a text by such a list.

use super::TxError;
use super::concept_text::{ConceptText, TextKind};
use super::dialects::{self, Acceptability};
use super::error::malformed;

/// Maximum number of language ranges in a list.
pub const MAX_LANGUAGES: usize = 32;

/// The languages of the caller, best first (RFC 9110, Accept-Language).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LanguageRanges {
    ranges: Vec<LanguageRange>,
    /// The list in order of weight, as messages show it.
    pub(crate) named: String,
    /// `*`: any other language is acceptable.
    any: bool,
    /// `*;q=0`: only the listed languages are acceptable.
    pub(crate) only: bool,
}

/// A language or region, and the language reference set of SNOMED CT that is meant by it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LanguageRange {
    /// Language tag in lower case; empty if only the reference set is stated.
    tag: String,
    /// Id of the language reference set.
    reference_set: Option<String>,
}

/// The rank of a text in a list of languages, of which the lowest is best: the number of the range, whether
/// the text is a fully specified name, its acceptability in the language reference set of the range, and how
/// near its language is.
type TextRank = (usize, bool, Acceptability, u8);

impl LanguageRange {
    fn parse(range: &str) -> Self {
        let range = range.to_ascii_lowercase();
        let (tag, reference_set) = dialects::split_tag(&range);
        Self { tag: tag.to_owned(), reference_set }
    }

    /// How near a language is to this one; `None` if it is another language. Regions are preferences only:
    /// `en-AU` also matches `en` and `en-US`, but with a higher rank.
    fn nearness(&self, language: &str) -> Option<u8> {
        let range = self.tag.as_str();
        let primary = |tag: &str| tag.split('-').next().map(str::len).unwrap_or_default();
        match language.strip_prefix(range).filter(|_| !range.is_empty()) {
            Some("") => Some(0),
            Some(rest) if rest.starts_with('-') => Some(1),
            _ => (language[..primary(language)] == range[..primary(range)]).then_some(2),
        }
    }
}

impl LanguageRanges {
    /// Parses a list such as `de, en;q=0.5, *;q=0`.
    ///
    /// # Errors
    /// [`TxError`] if an item is not a language range or its weight is not a number from 0 to 1.
    pub(crate) fn parse(list: &str) -> Result<Self, TxError> {
        let wrong = || TxError::DisplayLanguage(list.to_owned());
        if list.bytes().filter(|byte| *byte == b',').count() >= MAX_LANGUAGES {
            let reason =
                format!("it lists more than {MAX_LANGUAGES} languages; list only the most important ones");
            return Err(malformed("displayLanguage", reason));
        }
        let mut weighted = Vec::new();
        let mut out = Self::default();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (range, weight) = item.split_once(';').map_or((item, None), |(r, w)| (r.trim(), Some(w)));
            let weight = match weight {
                None => 1.0,
                Some(weight) => {
                    let number = weight.trim().strip_prefix("q=").ok_or_else(wrong)?;
                    number.trim().parse::<f32>().ok().filter(|q| (0.0..=1.0).contains(q)).ok_or_else(wrong)?
                }
            };
            let is_tag =
                |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
            if range != "*" && !range.split('-').all(is_tag) {
                return Err(wrong());
            }
            match range {
                "*" if weight == 0.0 => out.only = true,
                "*" => out.any = true,
                _ => {}
            }
            weighted.push((range, weight));
        }
        // The sort is stable: ranges of the same weight keep their order.
        weighted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let name = |(range, weight): &(&str, f32)| match weight {
            1.0 => (*range).to_owned(),
            _ => format!("{range}; q={weight}"),
        };
        out.named = weighted.iter().map(name).collect::<Vec<_>>().join(", ");
        let ranges = weighted.iter().filter(|(range, weight)| *range != "*" && *weight > 0.0);
        out.ranges = ranges.map(|(range, _)| LanguageRange::parse(range)).collect();
        Ok(out)
    }

    /// The number of steps that a search of the list takes.
    pub(crate) fn steps(&self) -> usize {
        self.ranges.len() / 4
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns whether a text must not be shown (`*;q=0`).
    pub(crate) fn refuses(&self, text: &ConceptText<'_>) -> bool {
        self.only && self.rank(text).is_none()
    }

    /// Returns whether the list includes the language of a text. A term of SNOMED CT must be in the language
    /// reference set that a range means.
    pub(crate) fn covers(&self, text: &ConceptText<'_>) -> bool {
        let Some(language) = text.language.map(str::to_ascii_lowercase) else { return false };
        let is_covered = |range: &LanguageRange| match &range.reference_set {
            Some(id) if !text.dialects.is_empty() => {
                dialects::acceptability(text.dialects, id) != Acceptability::NotAccepted
            }
            _ => range.nearness(&language).is_some(),
        };
        self.any || self.ranges.iter().any(is_covered)
    }

    /// The rank of a text; `None` if the list does not include its language.
    ///
    /// A text without a language matches any list. A term in the language reference set that a range means is
    /// included whatever its language is.
    pub(crate) fn rank(&self, text: &ConceptText<'_>) -> Option<TextRank> {
        let is_name = text.kind == TextKind::FullySpecifiedName;
        let last = (self.ranges.len(), is_name, Acceptability::NotAccepted, 0);
        let Some(language) = text.language else { return Some(last) };
        let language = language.to_ascii_lowercase();
        let best = self.ranges.iter().enumerate().find_map(|(index, range)| {
            let matching = range
                .reference_set
                .as_ref()
                .map_or(Acceptability::NotAccepted, |id| dialects::acceptability(text.dialects, id));
            let is_member = matching != Acceptability::NotAccepted;
            let near = range.nearness(&language).or(is_member.then_some(0))?;
            Some((index, is_name, matching, near))
        });
        best.or_else(|| self.any.then_some(last))
    }

    /// The text to show: the best one in the languages of the list, or else the first one. A definition is
    /// never shown as a display.
    pub(crate) fn choose<'a>(&self, displays: &[ConceptText<'a>]) -> Option<&'a str> {
        let names = || displays.iter().filter(|display| display.kind != TextKind::Definition);
        let current = || names().filter(|display| display.retired.is_none());
        let best = current()
            .filter_map(|d| Some(((self.rank(d)?, d.kind, d.preference), d)))
            .min_by_key(|(rank, _)| *rank);
        let best_text = match best {
            Some((_, best)) if !self.is_empty() => Some(best),
            _ => current().next().or(names().next()),
        };
        best_text.map(|display| display.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::concept_text::tests::cold_displays;

    #[test]
    fn language_lists_are_sorted_by_weight() {
        let languages = LanguageRanges::parse("en;q=0.4, de-CH , *;q=0").unwrap();
        assert_eq!(languages.named, "de-CH, en; q=0.4, *; q=0");
        assert!(languages.only);
        for bad in ["-", "de;x=1", "de;q=2", "d e", "über"] {
            assert_eq!(LanguageRanges::parse(bad), Err(TxError::DisplayLanguage(bad.to_owned())));
        }
    }

    #[test]
    fn the_best_language_is_shown() {
        for (list, expected) in [
            ("", "Cold"),
            ("de-AT", "Schnupfen"),
            ("fr", "Cold"),
            ("fr, de;q=0.1", "Schnupfen"),
            ("*", "Cold"),
        ] {
            assert_eq!(
                LanguageRanges::parse(list).unwrap().choose(&cold_displays()),
                Some(expected),
                "{list}"
            );
        }
    }
}
