//! Comparison of the display in a request with the displays of the concept.

use crate::model::concept_text::{ConceptText, TextKind};
use crate::model::language::LanguageRanges;
use crate::model::text_folding::same_folded;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DisplayVerdict<'a> {
    /// The display is one of the displays of the concept.
    Right,
    /// The display is correct, but not in a requested language, and the concept has no display in these
    /// languages.
    RightByDefault { languages: String },
    /// The display is no longer correct.
    Retired { right: Vec<&'a str> },
    /// The display is wrong, and the concept has no display in the requested languages.
    WrongByDefault {
        languages: String,
        /// Default display of the concept.
        default: Option<&'a str>,
    },
    Wrong {
        /// Whether it differs by white space only.
        whitespace: bool,
        /// Requested languages, or `--`.
        languages: String,
        right: Vec<ConceptText<'a>>,
    },
}

/// Compares a display with those of the concept. Case is ignored, because `CodeSystem.caseSensitive` applies
/// to codes only.
pub(crate) fn compare_display<'a>(
    sent_display: &str,
    displays: &[ConceptText<'a>],
    languages: &LanguageRanges,
) -> DisplayVerdict<'a> {
    let same = |a: &str, b: &str| a == b || same_folded(a, b);
    let fits = |display: &&ConceptText<'a>| languages.is_empty() || languages.rank(display).is_some();
    let current = || displays.iter().filter(|display| display.retired.is_none());
    let preferred: Vec<ConceptText<'a>> = current().filter(fits).copied().collect();
    if preferred.iter().any(|display| same(display.text, sent_display)) {
        return DisplayVerdict::Right;
    }
    let mut retired = displays.iter().filter(fits).filter(|display| display.retired.is_some());
    if retired.any(|display| same(display.text, sent_display)) {
        return DisplayVerdict::Retired {
            right: preferred_displays(preferred).iter().map(|display| display.text).collect(),
        };
    }
    if preferred.is_empty() {
        // The default language is the language of the first display.
        let default = current().next();
        let in_default =
            |display: &&ConceptText<'a>| default.is_some_and(|first| first.language == display.language);
        let languages_named = languages.named.clone();
        return match current().filter(in_default).any(|display| same(display.text, sent_display)) {
            true if !languages.only => DisplayVerdict::RightByDefault { languages: languages_named },
            _ => DisplayVerdict::WrongByDefault {
                languages: languages_named,
                default: default.map(|d| d.text),
            },
        };
    }
    // In a dialect, only its own term is proposed.
    let in_dialect = || {
        let best = languages.choose(&preferred).filter(|_| !languages.is_empty())?;
        preferred.iter().find(|text| text.text == best && !text.dialects.is_empty()).copied()
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    DisplayVerdict::Wrong {
        whitespace: preferred.iter().any(|display| same(&words(display.text), &words(sent_display))),
        languages: if languages.is_empty() { "--".to_owned() } else { languages.named.clone() },
        right: in_dialect().map_or_else(|| preferred_displays(preferred.clone()), |text| vec![text]),
    }
}

/// The displays without synonyms and other designations of a special use; all of them if no others exist.
fn preferred_displays(all: Vec<ConceptText<'_>>) -> Vec<ConceptText<'_>> {
    match all.iter().any(|display| display.kind == TextKind::Display) {
        true => all.into_iter().filter(|display| display.kind == TextKind::Display).collect(),
        false => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::concept_text::tests::cold_displays;

    #[test]
    fn displays_are_compared_in_the_requested_languages() {
        let check = |display, list| {
            let languages = LanguageRanges::parse(list).unwrap();
            match compare_display(display, &cold_displays(), &languages) {
                DisplayVerdict::Right => "right",
                DisplayVerdict::RightByDefault { .. } => "right by default",
                DisplayVerdict::Retired { .. } => "retired",
                DisplayVerdict::WrongByDefault { .. } => "wrong by default",
                DisplayVerdict::Wrong { whitespace: true, .. } => "white space",
                DisplayVerdict::Wrong { .. } => "wrong",
            }
        };
        for (given, list, expected) in [
            ("Cold", "", "right"),
            ("cold", "", "right"),
            ("Schnupfen", "", "right"),
            ("Schnupfen", "en", "wrong"),
            ("Schnupfen", "en, *;q=0.1", "right"),
            ("Schnupfen", "de-CH", "right"),
            ("Cold", "fr", "right by default"),
            ("Cold", "fr, *;q=0", "wrong by default"),
            ("Hot", "fr", "wrong by default"),
            ("Katarrh", "de", "retired"),
            (" Cold ", "", "white space"),
        ] {
            assert_eq!(check(given, list), expected, "{given} in '{list}'");
        }
    }
}
