//! Language tags (BCP 47) by the grammar of RFC 5646 2.1, with all subtags and tags of IANA's registry. A
//! well-formed subtag that is not registered is rejected, as RFC 5646 2.2.9 requires for valid tags. A
//! deprecated one is valid.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::parsed_code::{ParsedCode, table_rows};

/// Properties of a language tag: one for each kind of subtag, and two for a deprecated one.
pub(crate) const PROPERTIES: &[&str] = &[
    "language",
    "extlang",
    "script",
    "region",
    "variant",
    "extension",
    "private-use",
    "status",
    "preferred-value",
];

/// Maximum number of displays of a tag, of which each subtag can have several names.
const MOST_DISPLAYS: usize = 24;

/// A registered subtag, or a registered tag from before RFC 4646.
struct RegisteredSubtag {
    /// Its descriptions, separated by `|`.
    names: &'static str,
    is_deprecated: bool,
    /// The subtag or tag that the registry prefers.
    preferred: Option<&'static str>,
    /// The language that an extended language follows.
    prefix: &'static str,
}

/// IANA's registry: subtags by their kind and lower-case spelling.
struct SubtagRegistry {
    subtags: HashMap<(&'static str, String), RegisteredSubtag>,
    /// Two-letter codes of languages by their three-letter codes.
    long: HashMap<&'static str, &'static str>,
    /// Names of countries in ISO 3166-1, which are more formal than those of the registry.
    countries: HashMap<&'static str, &'static str>,
}

impl RegisteredSubtag {
    fn names(&self) -> Vec<&'static str> {
        self.names.split('|').collect()
    }
}

impl SubtagRegistry {
    fn find(&self, kind: &'static str, subtag: &str) -> Option<&RegisteredSubtag> {
        self.subtags.get(&(kind, subtag.to_ascii_lowercase()))
    }
}

static REGISTRY: LazyLock<SubtagRegistry> = LazyLock::new(|| {
    let subtag = |row: Vec<&'static str>| {
        let column = |at: usize| row.get(at).copied().unwrap_or_default();
        let registered = RegisteredSubtag {
            names: column(2),
            is_deprecated: column(3) == "deprecated",
            preferred: Some(column(4)).filter(|preferred| !preferred.is_empty()),
            prefix: column(5),
        };
        ((column(0), column(1).to_ascii_lowercase()), registered)
    };
    let pairs = |table, name: usize| table_rows(table).map(|row| (row[0], row[name])).collect();
    SubtagRegistry {
        subtags: table_rows(include_str!("../../data/language-subtags.tsv")).map(subtag).collect(),
        long: pairs(include_str!("../../data/long-codes.tsv"), 1),
        countries: pairs(include_str!("../../data/countries.tsv"), 3),
    }
});

pub(super) fn parse_language_tag(code: &str) -> Result<ParsedCode, String> {
    if let Some(registered) = REGISTRY.find("grandfathered", code) {
        let mut tag = LanguageTag { names: owned(registered.names()), ..LanguageTag::default() };
        tag.add_remarks(registered);
        let parsed = tag.into_parsed_code();
        return Ok(ParsedCode { code: grandfathered_spelling(code), ..parsed });
    }
    let is_subtag =
        |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    if let Some(part) = code.split('-').find(|part| !is_subtag(part)) {
        return Err(format!("'{part}' is not a subtag of one to eight letters or digits"));
    }
    let lower = code.to_ascii_lowercase();
    let mut parts = lower.split('-').peekable();
    let mut tag = LanguageTag::default();
    if parts.peek() != Some(&"x") {
        tag.parse_language(parts.next().unwrap_or_default())?;
        tag.parse_named_subtags(&mut parts)?;
    }
    while let Some(singleton) = parts.next() {
        let shortest = if singleton == "x" { 1 } else { 2 };
        let mut text = singleton.to_owned();
        while let Some(part) = parts.next_if(|part| singleton == "x" || part.len() >= shortest) {
            text = format!("{text}-{part}");
        }
        if text == singleton {
            return Err(format!("nothing follows '{singleton}'"));
        }
        match singleton {
            "x" => tag.add_part("private-use", text),
            "t" | "u" if tag.has_part("extension", singleton) => {
                return Err(format!("the extension '{singleton}' occurs twice"));
            }
            "t" | "u" => tag.add_part("extension", text),
            _ => return Err(format!("'{singleton}' is not a registered subtag or extension here")),
        }
    }
    Ok(tag.into_parsed_code())
}

/// A tag from before RFC 4646 in the spelling of the registry: regions in capitals, all else in small
/// letters.
fn grandfathered_spelling(code: &str) -> String {
    let spell = |(index, part): (usize, &str)| {
        let is_region = index > 0 && part.len() == 2 && !code.starts_with(['i', 'I']);
        if is_region { part.to_ascii_uppercase() } else { part.to_ascii_lowercase() }
    };
    code.split('-').enumerate().map(spell).collect::<Vec<_>>().join("-")
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// A language tag that is being parsed.
#[derive(Default)]
struct LanguageTag {
    parts: Vec<(&'static str, String)>,
    /// Properties of subtags that are deprecated.
    remarks: Vec<(&'static str, String)>,
    /// Names of the language; the first one is preferred.
    names: Vec<String>,
    /// Names of each other subtag that has one.
    details: Vec<Vec<&'static str>>,
}

impl LanguageTag {
    fn add_part(&mut self, kind: &'static str, text: String) {
        self.parts.push((kind, text));
    }

    /// Adds the status and the replacement of a deprecated subtag.
    fn add_remarks(&mut self, registered: &RegisteredSubtag) {
        if registered.is_deprecated && self.remarks.is_empty() {
            self.remarks.push(("status", "deprecated".to_owned()));
            self.remarks
                .extend(registered.preferred.map(|preferred| ("preferred-value", preferred.to_owned())));
        }
    }

    fn has_part(&self, kind: &str, begin: &str) -> bool {
        self.parts.iter().any(|(k, text)| *k == kind && text.split('-').next() == Some(begin))
    }

    fn parse_language(&mut self, part: &str) -> Result<(), String> {
        if let Some(short) = REGISTRY.long.get(part) {
            return Err(format!("'{part}' is '{short}' in language tags"));
        }
        let is_private = part.len() == 3 && ("qaa"..="qtz").contains(&part);
        match REGISTRY.find("language", part) {
            Some(registered) => {
                self.names = owned(registered.names());
                self.add_remarks(registered);
            }
            None if is_private => self.names = vec![format!("Private use ({part})")],
            None => return Err(format!("'{part}' is not a registered language")),
        }
        self.add_part("language", part.to_owned());
        Ok(())
    }

    /// Parses extended language, script, region and variants, in this order.
    fn parse_named_subtags<'p>(
        &mut self,
        parts: &mut std::iter::Peekable<impl Iterator<Item = &'p str>>,
    ) -> Result<(), String> {
        // The order of the subtags is fixed, and their kind follows from length and letters (RFC 5646 section
        // 2.1).
        let letters = |part: &str| part.bytes().all(|b| b.is_ascii_alphabetic());
        let starts_with_digit = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        if let Some(part) = parts.next_if(|part| part.len() == 3 && letters(part)) {
            let language = self.parts[0].1.as_str();
            let registered =
                REGISTRY.find("extlang", part).filter(|registered| registered.prefix == language);
            let Some(registered) = registered else {
                return Err(format!("'{part}' is not a registered extension of the language '{language}'"));
            };
            self.details.push(registered.names());
            self.add_remarks(registered);
            self.add_part("extlang", part.to_owned());
        }
        if let Some(part) = parts.next_if(|part| part.len() == 4 && letters(part)) {
            let script = format!("{}{}", part[..1].to_ascii_uppercase(), &part[1..]);
            match REGISTRY.find("script", part) {
                Some(registered) => self.details.push(registered.names()),
                None if ("qaaa"..="qabx").contains(&part) => {}
                None => return Err(format!("'{part}' is not a registered script")),
            }
            self.add_part("script", script);
        }
        let is_region = |part: &str| part.len() == 2 || (part.len() == 3 && starts_with_digit(part));
        if let Some(part) = parts.next_if(|part| is_region(part)) {
            let region = part.to_ascii_uppercase();
            // ISO 3166-1 reserves these codes for private use.
            let is_private = matches!(region.as_str(), "AA" | "ZZ")
                || (letters(part)
                    && (("QM"..="QZ").contains(&&*region) || ("XA"..="XZ").contains(&&*region)));
            match REGISTRY.find("region", part) {
                Some(registered) => {
                    let mut names = registered.names();
                    names.extend(REGISTRY.countries.get(region.as_str()));
                    self.details.push(names);
                    self.add_remarks(registered);
                }
                None if is_private => {}
                None => return Err(format!("'{part}' is not a registered region")),
            }
            self.add_part("region", region);
        }
        let is_variant = |part: &str| part.len() >= 5 || (part.len() == 4 && starts_with_digit(part));
        while let Some(part) = parts.next_if(|part| is_variant(part)) {
            let Some(registered) = REGISTRY.find("variant", part) else {
                return Err(format!("'{part}' is not a registered variant"));
            };
            self.add_remarks(registered);
            if self.has_part("variant", part) {
                return Err(format!("the variant '{part}' occurs twice"));
            }
            self.add_part("variant", part.to_owned());
        }
        match parts.peek() {
            Some(part) if part.len() > 1 => Err(format!("'{part}' is not allowed here")),
            _ => Ok(()),
        }
    }

    fn into_parsed_code(self) -> ParsedCode {
        let code: Vec<_> = self.parts.iter().map(|(_, text)| text.as_str()).collect();
        let details = self.details.iter().fold(vec![String::new()], |before, names| {
            let joined = |before: &String| {
                let comma = if before.is_empty() { "" } else { ", " };
                names.iter().map(move |name| format!("{before}{comma}{name}")).collect::<Vec<_>>()
            };
            before.iter().flat_map(joined).take(MOST_DISPLAYS).collect()
        });
        let displays = self.names.iter().flat_map(|name| {
            details.iter().map(move |details| match details.is_empty() {
                true => name.clone(),
                false => format!("{name} ({details})"),
            })
        });
        let mut displays = displays.take(MOST_DISPLAYS);
        let display = displays.next();
        let mut other_displays: Vec<String> =
            displays.filter(|other| Some(other) != display.as_ref()).collect();
        other_displays.dedup();
        ParsedCode {
            code: code.join("-"),
            display,
            other_displays,
            properties: self.parts.into_iter().chain(self.remarks).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_complete() {
        let count = |kind| REGISTRY.subtags.keys().filter(|(own, _)| *own == kind).count();
        let kinds = ["language", "extlang", "script", "region", "variant", "grandfathered"];
        assert_eq!(kinds.map(count), [8_267, 256, 224, 303, 134, 26]);
    }

    #[test]
    fn deprecated_tags_are_valid_and_name_their_replacement() {
        for (given, code, replacement) in [
            ("iw", "iw", Some("he")),
            ("iw-IL", "iw-IL", Some("he")),
            ("en-BU", "en-BU", Some("MM")),
            ("de-an", "de-AN", None),
            ("I-Klingon", "i-klingon", Some("tlh")),
            ("sgn-be-fr", "sgn-BE-FR", Some("sfb")),
            ("en-gb-oed", "en-GB-oed", Some("en-GB-oxendict")),
        ] {
            let word = parse_language_tag(given).unwrap();
            assert_eq!(word.code, code);
            let property =
                |name| word.properties.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str());
            assert_eq!(
                (property("status"), property("preferred-value")),
                (Some("deprecated"), replacement),
                "{given}"
            );
        }
        assert!(parse_language_tag("he").unwrap().properties.iter().all(|(name, _)| *name != "status"));
    }

    #[test]
    fn valid_tags_are_normalized() {
        for (given, code, display) in [
            ("en", "en", "English"),
            ("EN-us", "en-US", "English (United States)"),
            ("zh-hant-tw", "zh-Hant-TW", "Chinese (Han (Traditional variant), Taiwan, Province of China)"),
            ("zh-yue-HK", "zh-yue-HK", "Chinese (Yue Chinese, Hong Kong)"),
            ("es-419", "es-419", "Spanish (Latin America and the Caribbean)"),
            ("de-CH-1996", "de-CH-1996", "German (Switzerland)"),
            ("sl-rozaj-biske", "sl-rozaj-biske", "Slovenian"),
            ("de-u-co-phonebk", "de-u-co-phonebk", "German"),
            ("en-x-old", "en-x-old", "English"),
            ("x-whatever-1", "x-whatever-1", ""),
            ("I-KLINGON", "i-klingon", "Klingon"),
            ("gsw", "gsw", "Swiss German"),
            ("arz-EG", "arz-EG", "Egyptian Arabic (Egypt)"),
            ("en-XK", "en-XK", "English"),
            ("qaa-Qaaa-QM", "qaa-Qaaa-QM", "Private use (qaa)"),
            ("haw", "haw", "Hawaiian"),
        ] {
            let word = parse_language_tag(given).unwrap_or_else(|reason| panic!("{given}: {reason}"));
            assert_eq!(word.code, code);
            assert_eq!(word.display.unwrap_or_default(), display, "{given}");
        }
    }

    #[test]
    fn invalid_tags_are_rejected_with_a_reason() {
        for (given, reason) in [
            ("", "not a subtag"),
            ("en_US", "not a subtag"),
            ("en-", "not a subtag"),
            ("xy", "'xy' is not a registered language"),
            ("eng", "'eng' is 'en'"),
            ("ger", "'ger' is 'de'"),
            ("english", "not a registered language"),
            ("en-UK", "'uk' is not a registered region"),
            ("en-Latx", "not a registered script"),
            ("en-US-Latn", "'latn' is not allowed here"),
            ("de-yue", "not a registered extension of the language 'de'"),
            ("en-abcdef", "not a registered variant"),
            ("sl-rozaj-rozaj", "occurs twice"),
            ("de-u", "nothing follows 'u'"),
            ("de-u-co-u-nu", "occurs twice"),
            ("de-b-co", "not a registered subtag or extension"),
            ("x", "nothing follows 'x'"),
            ("de-999", "not a registered region"),
        ] {
            let error = parse_language_tag(given).unwrap_err();
            assert!(error.contains(reason), "{given}: {error}");
        }
    }
}
