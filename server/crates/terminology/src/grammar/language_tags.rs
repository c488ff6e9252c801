//! Language tags (BCP 47) by the grammar of RFC 5646 2.1, with the subtags of ISO 639, ISO 15924 and ISO 3166-1, the
//! region numbers of the UN, and the registered variants. A well-formed subtag that is not registered is rejected, as
//! RFC 5646 2.2.9 requires for valid tags.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{ParsedCode, table_rows};

/// Properties of a language tag, one for each kind of subtag.
pub(crate) const PROPERTIES: &[&str] =
    &["language", "extlang", "script", "region", "variant", "extension", "private-use"];

/// Registered variants, sorted.
const VARIANTS: &[&str] = &[
    "1606nict", "1694acad", "1901", "1959acad", "1994", "1996", "abl1943", "akuapem", "alalc97", "aluku",
    "anpezo", "ao1990", "aranes", "arevela", "arevmda", "asante", "auvern", "baku1926", "balanka", "barla",
    "basiceng", "bauddha", "bciav", "bcizbl", "biscayan", "biske", "blasl", "bohoric", "boont", "bornholm",
    "cisaup", "colb1945", "cornu", "creiss", "dajnko", "ekavsk", "emodeng", "fascia", "fodom", "fonipa",
    "fonkirsh", "fonnapa", "fonupa", "fonxsamp", "gallo", "gascon", "gherd", "grclass", "grital", "grmistr",
    "hepburn", "heploc", "hognorsk", "hsistemo", "ijekavsk", "itihasa", "ivanchov", "jauer", "jyutping",
    "kkcor", "kleinsch", "kociewie", "kscor", "laukika", "lemosin", "lengadoc", "lipaw", "ltg1929",
    "ltg2007", "luna1918", "mdcegyp", "mdctrans", "metelko", "monoton", "ndyuka", "nedis", "newfound",
    "nicard", "njiva", "nulik", "osojs", "oxendict", "pahawh2", "pahawh3", "pahawh4", "pamaka", "peano",
    "petr1708", "pinyin", "polyton", "provenc", "puter", "rigik", "rozaj", "rumgr", "scotland", "scouse",
    "simple", "solba", "sotav", "spanglis", "surmiran", "sursilv", "sutsilv", "synnejyl", "tarask",
    "tongyong", "tunumiit", "uccor", "ucrcor", "ulster", "unifon", "vaidika", "valbadia", "valencia",
    "vallader", "vecdruka", "vivaraup", "wadegile", "xsistemo",
];

/// Tags from before RFC 4646 that do not consist of subtags.
const IRREGULAR: &[&str] = &[
    "art-lojban",
    "cel-gaulish",
    "en-GB-oed",
    "i-ami",
    "i-bnn",
    "i-default",
    "i-enochian",
    "i-hak",
    "i-klingon",
    "i-lux",
    "i-mingo",
    "i-navajo",
    "i-pwn",
    "i-tao",
    "i-tay",
    "i-tsu",
    "no-bok",
    "no-nyn",
    "sgn-BE-FR",
    "sgn-BE-NL",
    "sgn-CH-DE",
    "zh-guoyu",
    "zh-hakka",
    "zh-min",
    "zh-min-nan",
    "zh-xiang",
];

/// Extended language subtags in use, each with its primary language.
const EXTLANGS: &[(&str, &str)] = &[
    ("zh", "cmn"),
    ("zh", "yue"),
    ("zh", "nan"),
    ("zh", "hak"),
    ("zh", "wuu"),
    ("zh", "gan"),
    ("zh", "hsn"),
    ("ar", "arb"),
    ("ar", "arz"),
    ("ar", "ary"),
    ("ar", "apc"),
    ("sgn", "ase"),
    ("sgn", "bfi"),
    ("sgn", "gsg"),
    ("sgn", "fsl"),
    ("sgn", "asf"),
    ("sgn", "nzs"),
    ("ms", "zsm"),
    ("sw", "swh"),
];

/// Regions larger than countries (UN M49).
const AREAS: &[(&str, &str)] = &[
    ("001", "World"),
    ("002", "Africa"),
    ("003", "North America"),
    ("005", "South America"),
    ("009", "Oceania"),
    ("011", "Western Africa"),
    ("013", "Central America"),
    ("014", "Eastern Africa"),
    ("015", "Northern Africa"),
    ("017", "Middle Africa"),
    ("018", "Southern Africa"),
    ("019", "Americas"),
    ("021", "Northern America"),
    ("029", "Caribbean"),
    ("030", "Eastern Asia"),
    ("034", "Southern Asia"),
    ("035", "South-Eastern Asia"),
    ("039", "Southern Europe"),
    ("053", "Australia and New Zealand"),
    ("054", "Melanesia"),
    ("057", "Micronesia"),
    ("061", "Polynesia"),
    ("142", "Asia"),
    ("143", "Central Asia"),
    ("145", "Western Asia"),
    ("150", "Europe"),
    ("151", "Eastern Europe"),
    ("154", "Northern Europe"),
    ("155", "Western Europe"),
    ("202", "Sub-Saharan Africa"),
    ("419", "Latin America and the Caribbean"),
];

struct SubtagRegistry {
    languages: HashMap<&'static str, &'static str>,
    /// Two-letter codes of languages by their three-letter codes.
    long: HashMap<&'static str, &'static str>,
    scripts: HashMap<&'static str, &'static str>,
    regions: HashMap<&'static str, &'static str>,
}

static REGISTRY: LazyLock<SubtagRegistry> = LazyLock::new(|| {
    let pairs = |table| table_rows(table).map(|row| (row[0], row[1])).collect();
    let countries = table_rows(include_str!("../../data/countries.tsv")).map(|row| (row[0], row[3]));
    SubtagRegistry {
        languages: pairs(include_str!("../../data/languages.tsv")),
        long: pairs(include_str!("../../data/long-codes.tsv")),
        scripts: pairs(include_str!("../../data/scripts.tsv")),
        regions: countries.chain(AREAS.iter().copied()).collect(),
    }
});

/// Parses a language tag.
pub(super) fn parse_language_tag(code: &str) -> Result<ParsedCode, String> {
    if let Some(tag) = IRREGULAR.iter().find(|tag| tag.eq_ignore_ascii_case(code)) {
        return Ok(ParsedCode { code: (*tag).to_owned(), ..ParsedCode::default() });
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

/// A language tag that is being parsed.
#[derive(Default)]
struct LanguageTag {
    parts: Vec<(&'static str, String)>,
    name: String,
    details: Vec<&'static str>,
}

impl LanguageTag {
    fn add_part(&mut self, kind: &'static str, text: String) {
        self.parts.push((kind, text));
    }

    fn has_part(&self, kind: &str, begin: &str) -> bool {
        self.parts.iter().any(|(k, text)| *k == kind && text.split('-').next() == Some(begin))
    }

    fn parse_language(&mut self, part: &str) -> Result<(), String> {
        if let Some(short) = REGISTRY.long.get(part) {
            return Err(format!("'{part}' is '{short}' in language tags"));
        }
        let is_private = part.len() == 3 && ("qaa"..="qtz").contains(&part);
        match REGISTRY.languages.get(part) {
            Some(name) => self.name = (*name).to_owned(),
            None if is_private => self.name = format!("Private use ({part})"),
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
        let letters = |part: &str| part.bytes().all(|b| b.is_ascii_alphabetic());
        let starts_with_digit = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        if let Some(part) = parts.next_if(|part| part.len() == 3 && letters(part)) {
            let language = self.parts[0].1.as_str();
            if !EXTLANGS.contains(&(language, part)) {
                return Err(format!("'{part}' is not a registered extension of the language '{language}'"));
            }
            self.details.extend(REGISTRY.languages.get(part));
            self.add_part("extlang", part.to_owned());
        }
        if let Some(part) = parts.next_if(|part| part.len() == 4 && letters(part)) {
            let script = format!("{}{}", part[..1].to_ascii_uppercase(), &part[1..]);
            match REGISTRY.scripts.get(script.as_str()) {
                Some(name) => self.details.push(name),
                None if ("qaaa"..="qabx").contains(&part) => {}
                None => return Err(format!("'{part}' is not a registered script")),
            }
            self.add_part("script", script);
        }
        let is_region = |part: &str| part.len() == 2 || (part.len() == 3 && starts_with_digit(part));
        if let Some(part) = parts.next_if(|part| is_region(part)) {
            let region = part.to_ascii_uppercase();
            let is_private = matches!(region.as_str(), "AA" | "ZZ")
                || (letters(part)
                    && (("QM"..="QZ").contains(&&*region) || ("XA"..="XZ").contains(&&*region)));
            match REGISTRY.regions.get(region.as_str()) {
                Some(name) => self.details.push(name),
                None if is_private => {}
                None => return Err(format!("'{part}' is not a registered region")),
            }
            self.add_part("region", region);
        }
        let is_variant = |part: &str| part.len() >= 5 || (part.len() == 4 && starts_with_digit(part));
        while let Some(part) = parts.next_if(|part| is_variant(part)) {
            if VARIANTS.binary_search(&part).is_err() {
                return Err(format!("'{part}' is not a registered variant"));
            }
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
        let display = match self.details.as_slice() {
            [] => self.name,
            details => format!("{} ({})", self.name, details.join(", ")),
        };
        ParsedCode {
            code: code.join("-"),
            display: Some(display).filter(|display| !display.is_empty()),
            properties: self.parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        assert!(VARIANTS.is_sorted() && IRREGULAR.is_sorted_by_key(|tag| tag.to_ascii_lowercase()));
    }

    #[test]
    fn valid_tags_are_normalized() {
        for (given, code, display) in [
            ("en", "en", "English"),
            ("EN-us", "en-US", "English (United States of America)"),
            ("zh-hant-tw", "zh-Hant-TW", "Chinese (Han, Taiwan, Province of China)"),
            ("zh-yue-HK", "zh-yue-HK", "Chinese (Cantonese, Hong Kong)"),
            ("es-419", "es-419", "Spanish (Latin America and the Caribbean)"),
            ("de-CH-1996", "de-CH-1996", "German (Switzerland)"),
            ("sl-rozaj-biske", "sl-rozaj-biske", "Slovenian"),
            ("de-u-co-phonebk", "de-u-co-phonebk", "German"),
            ("en-x-old", "en-x-old", "English"),
            ("x-whatever-1", "x-whatever-1", ""),
            ("I-KLINGON", "i-klingon", ""),
            ("qaa-Qaaa-QM", "qaa-Qaaa-QM", "Private use (qaa)"),
            ("haw", "haw", "Hawaiian"),
        ] {
            let word = parse_language_tag(given).unwrap_or_else(|why| panic!("{given}: {why}"));
            assert_eq!(word.code, code);
            // The names of countries come from the ISO table, so only the part before them is compared.
            let begin = display.split(" (").next().unwrap();
            assert!(word.display.unwrap_or_default().starts_with(begin), "{given}");
        }
    }

    #[test]
    fn invalid_tags_are_rejected_with_a_reason() {
        for (given, why) in [
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
            assert!(error.contains(why), "{given}: {error}");
        }
    }
}
