//! Displays and languages: which text fits, and which one to show.

use crate::TxError;
use crate::code_system::Display;
use crate::code_system::codes::same_folded;

/// The languages that the caller reads, best first (RFC 9110, Accept-Language).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Languages {
    /// Lower-case ranges.
    ranges: Vec<String>,
    /// As given, without weights: what messages name.
    named: String,
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
                "*" => out.only |= weight == 0.0,
                _ if weight == 0.0 => {}
                _ => weighted.push((range, weight)),
            }
        }
        weighted.sort_by(|a, b| b.1.total_cmp(&a.1));
        out.named = weighted.iter().map(|(range, _)| *range).collect::<Vec<_>>().join(", ");
        out.ranges = weighted.iter().map(|(range, _)| range.to_ascii_lowercase()).collect();
        Ok(out)
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Rank of a language, 0 being the best; `None` where it is not wanted. A text without a
    /// language fits any.
    fn rank(&self, language: Option<&str>) -> Option<usize> {
        let Some(language) = language else { return Some(self.ranges.len()) };
        let language = language.to_ascii_lowercase();
        let covers = |range: &String| {
            language.strip_prefix(range.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.ranges.iter().position(covers)
    }

    /// The text to show: the best one in the languages asked for, else the first one.
    pub(crate) fn choose<'a>(&self, displays: &[Display<'a>]) -> Option<&'a str> {
        let current = || displays.iter().filter(|display| display.retired.is_none());
        let best = current().filter_map(|d| Some((self.rank(d.language)?, d))).min_by_key(|(rank, _)| *rank);
        let chosen = match best {
            Some((_, best)) if !self.is_empty() => Some(best),
            _ => current().next().or(displays.first()),
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
        /// Its standards status.
        status: &'a str,
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

/// Judges a display. With `exact`, case matters.
pub(crate) fn judge<'a>(
    given: &str,
    displays: &[Display<'a>],
    languages: &Languages,
    exact: bool,
) -> Verdict<'a> {
    let same = |a: &str, b: &str| a == b || (!exact && same_folded(a, b));
    let fits = |display: &&Display<'a>| languages.is_empty() || languages.rank(display.language).is_some();
    let current = || displays.iter().filter(|display| display.retired.is_none());
    let wanted: Vec<Display<'a>> = current().filter(fits).copied().collect();
    if wanted.iter().any(|display| same(display.text, given)) {
        return Verdict::Right;
    }
    let retired = displays.iter().filter(fits).find(|display| same(display.text, given));
    if let Some(status) = retired.and_then(|display| display.retired) {
        return Verdict::Retired { status, right: wanted.iter().map(|display| display.text).collect() };
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
        right: wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displays() -> Vec<Display<'static>> {
        let display = |text, language, retired| Display { text, language, retired };
        vec![
            display("Cold", Some("en"), None),
            display("Schnupfen", Some("de"), None),
            display("Katarrh", Some("de"), Some("withdrawn")),
        ]
    }

    #[test]
    fn language_lists_are_read_by_weight() {
        let languages = Languages::parse("en;q=0.4, de-CH , *;q=0").unwrap();
        assert_eq!(languages.named, "de-CH, en");
        assert!(languages.only);
        for bad in ["-", "de;x=1", "de;q=2", "d e", "über"] {
            assert_eq!(Languages::parse(bad), Err(TxError::DisplayLanguage(bad.to_owned())));
        }
    }

    #[test]
    fn the_best_language_is_shown() {
        for (list, expected) in
            [("", "Cold"), ("de", "Schnupfen"), ("fr", "Cold"), ("fr, de;q=0.1", "Schnupfen")]
        {
            assert_eq!(Languages::parse(list).unwrap().choose(&displays()), Some(expected), "{list}");
        }
    }

    #[test]
    fn displays_are_judged_in_the_languages_asked_for() {
        let check = |given, list, exact| {
            let languages = Languages::parse(list).unwrap();
            match judge(given, &displays(), &languages, exact) {
                Verdict::Right => "right",
                Verdict::RightByDefault { .. } => "right by default",
                Verdict::Retired { .. } => "retired",
                Verdict::WrongByDefault { .. } => "wrong by default",
                Verdict::Wrong { whitespace: true, .. } => "white space",
                Verdict::Wrong { .. } => "wrong",
            }
        };
        for (given, list, exact, expected) in [
            ("Cold", "", true, "right"),
            ("cold", "", true, "wrong"),
            ("cold", "", false, "right"),
            ("Schnupfen", "", true, "right"),
            ("Schnupfen", "en", true, "wrong"),
            ("Cold", "fr", true, "right by default"),
            ("Cold", "fr, *;q=0", true, "wrong by default"),
            ("Hot", "fr", true, "wrong by default"),
            ("Katarrh", "de", true, "retired"),
            (" Cold ", "", true, "white space"),
        ] {
            assert_eq!(check(given, list, exact), expected, "{given} in '{list}'");
        }
    }
}
