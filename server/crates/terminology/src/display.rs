//! Displays and languages: which text fits, and which one to show.

use crate::TxError;
use crate::code_system::Display;
use crate::code_system::codes::same_folded;
use crate::input::malformed;
use crate::load::{SNOMED_CT, SNOMED_CT_DEFINITION};

/// Language ranges that one list may have.
const RANGES: usize = 32;

/// What a text of a concept is for; what comes first is shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextKind {
    /// To be the display in its language.
    Display,
    /// A synonym or the like: right when given, but not what is proposed.
    Other,
    /// It says what the concept means, and is no name of it.
    Definition,
}

impl TextKind {
    /// That of a designation by its `use`.
    pub(crate) fn of(system: Option<&str>, code: Option<&str>) -> Self {
        match (system.unwrap_or_default(), code.unwrap_or_default()) {
            ("http://terminology.hl7.org/CodeSystem/designation-usage", "display")
            | ("http://terminology.hl7.org/CodeSystem/hl7TermMaintInfra", "preferredForLanguage")
            | (SNOMED_CT, "900000000000548007") => Self::Display,
            ("http://terminology.hl7.org/CodeSystem/designation-usage", "definition")
            | (SNOMED_CT, SNOMED_CT_DEFINITION) => Self::Definition,
            _ => Self::Other,
        }
    }
}

/// The languages that the caller reads, best first (RFC 9110, Accept-Language).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Languages {
    /// Lower-case ranges.
    ranges: Vec<String>,
    /// The list in order of weight, as messages name it.
    named: String,
    /// `*`: any other language will do as well.
    any: bool,
    /// `*;q=0`: nothing but the languages named will do.
    only: bool,
}

impl Languages {
    /// Reads a list such as `de, en;q=0.5, *;q=0`.
    ///
    /// # Errors
    /// When an item is no language range or its weight is no number from 0 to 1.
    pub(crate) fn parse(list: &str) -> Result<Self, TxError> {
        let wrong = || TxError::DisplayLanguage(list.to_owned());
        if list.bytes().filter(|byte| *byte == b',').count() >= RANGES {
            let why = format!("it lists more than {RANGES} languages; name those that are read");
            return Err(malformed("displayLanguage", why));
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
        weighted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let name = |(range, weight): &(&str, f32)| match weight {
            1.0 => (*range).to_owned(),
            _ => format!("{range}; q={weight}"),
        };
        out.named = weighted.iter().map(name).collect::<Vec<_>>().join(", ");
        let wanted = weighted.iter().filter(|(range, weight)| *range != "*" && *weight > 0.0);
        out.ranges = wanted.map(|(range, _)| range.to_ascii_lowercase()).collect();
        Ok(out)
    }

    /// Steps that finding a language in the list takes.
    pub(crate) fn steps(&self) -> usize {
        self.ranges.len() / 4
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Are texts in other languages than those named of no use (`*;q=0`)?
    pub(crate) fn refuses(&self, language: Option<&str>) -> bool {
        self.only && self.rank(language).is_none()
    }

    /// Does this list cover a language?
    pub(crate) fn covers(&self, language: Option<&str>) -> bool {
        language.is_some() && self.rank(language).is_some()
    }

    /// Rank of a language, the least being the best; `None` where it is not wanted. A text without
    /// a language fits any. Regions are wishes only: `en-AU` takes `en` and `en-US` too, but after
    /// its own.
    fn rank(&self, language: Option<&str>) -> Option<(usize, u8)> {
        let last = (self.ranges.len(), 0);
        let Some(language) = language else { return Some(last) };
        let language = language.to_ascii_lowercase();
        let primary = |tag: &str| tag.split('-').next().map(str::len).unwrap_or_default();
        let near = |range: &str| match language.strip_prefix(range) {
            Some("") => Some(0),
            Some(rest) if rest.starts_with('-') => Some(1),
            _ => (language[..primary(&language)] == range[..primary(range)]).then_some(2),
        };
        let best = self.ranges.iter().enumerate().find_map(|(at, range)| Some((at, near(range)?)));
        best.or_else(|| self.any.then_some(last))
    }

    /// The text to show: the best one in the languages asked for, else the first one. Definitions are not shown as names.
    pub(crate) fn choose<'a>(&self, displays: &[Display<'a>]) -> Option<&'a str> {
        let names = || displays.iter().filter(|display| display.kind != TextKind::Definition);
        let current = || names().filter(|display| display.retired.is_none());
        let best = current()
            .filter_map(|d| Some(((self.rank(d.language)?, d.kind), d)))
            .min_by_key(|(rank, _)| *rank);
        let chosen = match best {
            Some((_, best)) if !self.is_empty() => Some(best),
            _ => current().next().or(names().next()),
        };
        chosen.map(|display| display.text)
    }
}

/// How a display that the caller gave compares with those of the concept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// It is one of them.
    Right,
    /// It is right, but not in a language asked for: there is none in those.
    RightByDefault {
        /// The languages asked for.
        languages: String,
    },
    /// It was right once.
    Retired {
        /// What is right now.
        right: Vec<&'a str>,
    },
    /// It is wrong, and there is no display in the languages asked for.
    WrongByDefault {
        /// The languages asked for.
        languages: String,
        /// The default display.
        default: Option<&'a str>,
    },
    /// It is wrong.
    Wrong {
        /// Does it differ in white space only?
        whitespace: bool,
        /// The languages asked for, or `--`.
        languages: String,
        /// The right ones with their languages.
        right: Vec<Display<'a>>,
    },
}

/// Judges a display. Case does not matter: `CodeSystem.caseSensitive` speaks of codes.
pub(crate) fn judge<'a>(given: &str, displays: &[Display<'a>], languages: &Languages) -> Verdict<'a> {
    let same = |a: &str, b: &str| a == b || same_folded(a, b);
    let fits = |display: &&Display<'a>| languages.is_empty() || languages.rank(display.language).is_some();
    let current = || displays.iter().filter(|display| display.retired.is_none());
    let wanted: Vec<Display<'a>> = current().filter(fits).copied().collect();
    if wanted.iter().any(|display| same(display.text, given)) {
        return Verdict::Right;
    }
    let mut retired = displays.iter().filter(fits).filter(|display| display.retired.is_some());
    if retired.any(|display| same(display.text, given)) {
        return Verdict::Retired { right: proper(wanted).iter().map(|display| display.text).collect() };
    }
    if wanted.is_empty() {
        // The default language is that of the first display.
        let default = current().next();
        let in_default =
            |display: &&Display<'a>| default.is_some_and(|first| first.language == display.language);
        let languages_named = languages.named.clone();
        return match current().filter(in_default).any(|display| same(display.text, given)) {
            true if !languages.only => Verdict::RightByDefault { languages: languages_named },
            _ => Verdict::WrongByDefault { languages: languages_named, default: default.map(|d| d.text) },
        };
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Verdict::Wrong {
        whitespace: wanted.iter().any(|display| same(&words(display.text), &words(given))),
        languages: if languages.is_empty() { "--".to_owned() } else { languages.named.clone() },
        right: proper(wanted),
    }
}

/// The displays in the strict sense, without synonyms and other designations of a special use;
/// where there are only such, all of them.
fn proper(all: Vec<Display<'_>>) -> Vec<Display<'_>> {
    match all.iter().any(|display| display.kind == TextKind::Display) {
        true => all.into_iter().filter(|display| display.kind == TextKind::Display).collect(),
        false => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displays() -> Vec<Display<'static>> {
        let display = |text, language, retired| Display { text, language, retired, kind: TextKind::Display };
        vec![
            display("Cold", Some("en"), None),
            display("Schnupfen", Some("de"), None),
            display("Katarrh", Some("de"), Some("withdrawn")),
        ]
    }

    #[test]
    fn language_lists_are_read_by_weight() {
        let languages = Languages::parse("en;q=0.4, de-CH , *;q=0").unwrap();
        assert_eq!(languages.named, "de-CH, en; q=0.4, *; q=0");
        assert!(languages.only);
        for bad in ["-", "de;x=1", "de;q=2", "d e", "über"] {
            assert_eq!(Languages::parse(bad), Err(TxError::DisplayLanguage(bad.to_owned())));
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
            assert_eq!(Languages::parse(list).unwrap().choose(&displays()), Some(expected), "{list}");
        }
    }

    #[test]
    fn displays_are_judged_in_the_languages_asked_for() {
        let check = |given, list| {
            let languages = Languages::parse(list).unwrap();
            match judge(given, &displays(), &languages) {
                Verdict::Right => "right",
                Verdict::RightByDefault { .. } => "right by default",
                Verdict::Retired { .. } => "retired",
                Verdict::WrongByDefault { .. } => "wrong by default",
                Verdict::Wrong { whitespace: true, .. } => "white space",
                Verdict::Wrong { .. } => "wrong",
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
