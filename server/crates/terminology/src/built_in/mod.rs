//! Code systems that every validator meets and nobody loads: languages, countries, currencies, media
//! types, units.
//!
//! Lists (ISO 3166-1 and -2, ISO 4217) are code systems like any other, compiled once. Grammars (BCP 47,
//! BCP 13, UCUM) have no end of codes, so a code becomes a code system of one concept when it is
//! asked for; [`Memory`] keeps those. A stored complete system of the same URL wins over what is
//! here, and this wins over a stored fragment.
//!
//! Codes and names are facts of the registries that keep them. No more is taken from those than that, and it stands in
//! tables of our own:
//!
//! | file | registry |
//! |---|---|
//! | `data/countries.tsv` | ISO 3166-1 |
//! | `data/subdivisions.tsv` | ISO 3166-2, with English names of Unicode's CLDR 48.2 (`data/LICENSE-UNICODE`) |
//! | `data/currencies.tsv` | ISO 4217 |
//! | `data/languages.tsv`, `data/long-codes.tsv` | ISO 639, as in IANA's Language Subtag Registry |
//! | `data/scripts.tsv` | ISO 15924, as in the same |
//! | `data/units.tsv` | UCUM |
//!
//! Variants of languages and top-level media types, in the modules, are IANA's. Long names may be cut short.

mod iso;
mod languages;
mod media_types;
mod units;

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::catalog::Resource;
use crate::code_system::CodeSystem;
use crate::kept::Kept;

/// After how many remembered codes a fresh [`Memory`] is due.
const ENOUGH: usize = 8_192;
/// Bytes that a remembered code takes, about.
const WORD_BYTES: usize = 2_048;
/// Longest code that is looked at, in bytes.
const LONGEST: usize = 512;

/// The canonical URLs, sorted.
pub(crate) const URLS: &[&str] = &[UCUM, BCP_13, BCP_47, ISO_3166, ISO_3166_2, ISO_4217];
const UCUM: &str = "http://unitsofmeasure.org";
const BCP_13: &str = "urn:ietf:bcp:13";
const BCP_47: &str = "urn:ietf:bcp:47";
const ISO_3166: &str = "urn:iso:std:iso:3166";
const ISO_3166_2: &str = "urn:iso:std:iso:3166:-2";
const ISO_4217: &str = "urn:iso:std:iso:4217";

/// A code that a grammar accepts.
#[derive(Debug, Default)]
struct Word {
    /// In the spelling that the standard prefers.
    code: String,
    display: Option<String>,
    properties: Vec<(&'static str, String)>,
}

/// A system of endless codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    Languages,
    MediaTypes,
    Units,
}

impl Grammar {
    /// The grammar of a system.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url {
            BCP_47 => Some(Self::Languages),
            BCP_13 => Some(Self::MediaTypes),
            UCUM => Some(Self::Units),
            _ => None,
        }
    }

    /// Reads a code; the error says what is wrong with it.
    fn read(self, code: &str) -> Result<Word, String> {
        if code.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        match self {
            Self::Languages => languages::read(code),
            Self::MediaTypes => media_types::read(code),
            Self::Units => units::read(code),
        }
    }

    fn system(self, word: Option<Word>) -> Resource<CodeSystem> {
        let (url, name, exact, properties): (_, _, _, &[&str]) = match self {
            Self::Languages => (BCP_47, "Tags for Identifying Languages", false, languages::PROPERTIES),
            Self::MediaTypes => (BCP_13, "Media Types", false, &[]),
            Self::Units => (UCUM, "Unified Code for Units of Measure", true, units::PROPERTIES),
        };
        let concept = word.map(|word| {
            let property = |(code, value): &(&str, String)| json!({ "code": code, "valueString": value });
            let properties: Vec<_> = word.properties.iter().map(property).collect();
            let mut concept = json!({ "code": word.code, "property": properties });
            if let Some(display) = word.display {
                concept["display"] = display.into();
            }
            concept
        });
        resource(url, name, exact, properties, concept.into_iter().collect())
    }
}

/// What is wrong with a code that the grammar of its system refuses.
pub(crate) fn fault(url: &str, code: &str) -> Option<String> {
    Grammar::of(url)?.read(code).err()
}

/// What a filter of a value set compares with, where that is not the value as it is written: UCUM's `canonical` names a
/// unit by any expression that is comparable to it (FHIR R4, Using UCUM with FHIR).
///
/// # Errors
/// What is wrong with the value.
pub(crate) fn compared(url: &str, property: &str, value: &str) -> Result<Option<String>, String> {
    match (url, property) {
        (UCUM, units::CANONICAL) => units::canonical(value).map(Some),
        _ => Ok(None),
    }
}

/// A system that is built in, without the codes of a grammar.
pub(crate) fn system(url: &str) -> Option<&'static Resource<CodeSystem>> {
    static SYSTEMS: [OnceLock<Resource<CodeSystem>>; URLS.len()] = [const { OnceLock::new() }; URLS.len()];
    let at = URLS.iter().position(|known| *known == url)?;
    Some(SYSTEMS[at].get_or_init(|| match Grammar::of(url) {
        Some(grammar) => grammar.system(None),
        None if url == ISO_3166 => iso::countries(),
        None if url == ISO_3166_2 => iso::subdivisions(),
        None => iso::currencies(),
    }))
}

fn resource(
    url: &str,
    name: &str,
    exact: bool,
    properties: &[&str],
    concepts: Vec<Value>,
) -> Resource<CodeSystem> {
    let property = |code: &&str| json!({ "code": code, "type": "string" });
    let json = json!({
        "resourceType": "CodeSystem",
        "url": url,
        "name": name,
        "status": "active",
        "content": "complete",
        "caseSensitive": exact,
        "language": "en",
        "property": properties.iter().map(property).collect::<Vec<_>>(),
        "concept": concepts,
    });
    Resource::new(format!("built-in {url}"), json.to_string().into_bytes().into())
}

/// Codes of grammars that were asked for, each a code system of one concept. Wrong codes are not kept.
#[derive(Debug, Default)]
pub(crate) struct Memory(Kept<Resource<CodeSystem>, ENOUGH>);

impl Memory {
    /// Is a fresh one due?
    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// The code system of one code; `None` where the grammar refuses the code.
    pub(crate) fn concept(&self, grammar: Grammar, code: &str) -> Option<&Resource<CodeSystem>> {
        let key = format!("{grammar:?} {code}");
        if let Some(known) = self.0.get(&key) {
            return Some(known);
        }
        let word = grammar.read(code).ok()?;
        Some(self.0.insert(key, grammar.system(Some(word)), WORD_BYTES))
    }
}

/// The lines of a table, split at tabs.
fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().map(|line| line.split('\t').collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;

    #[test]
    fn urls_are_sorted_and_each_is_a_system() {
        assert!(URLS.is_sorted());
        for url in URLS {
            assert_eq!(system(url).unwrap().get(&Budget::default()).unwrap().url, *url);
        }
        assert!(system("urn:other").is_none());
    }

    #[test]
    fn a_memory_gives_one_answer_to_many_threads() {
        let memory = Memory::default();
        let ask = || {
            let one = |n: usize| {
                let code = format!("{n}mg");
                assert!(memory.concept(Grammar::Units, &code).is_none());
                let code = format!("mg/{{{n}}}");
                let system = memory.concept(Grammar::Units, &code).unwrap().get(&Budget::default()).unwrap();
                assert_eq!(system.code(0), code);
                std::ptr::from_ref(system) as usize
            };
            (0..500).map(one).collect::<Vec<_>>()
        };
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(!memory.is_full());
    }
}
