//! Code systems that are available without import: languages, countries, currencies, media types and units,
//! and the genders and publication statuses of FHIR R4.
//!
//! Lists (ISO 3166-1 and -2, ISO 4217) are ordinary code systems, which are compiled once. Grammars (BCP 47,
//! BCP 13, UCUM) have an unlimited number of codes, so each requested code becomes a code system of one
//! concept, and [`GrammarCodeCache`] caches these. A stored complete code system with the same URL takes
//! precedence over a built-in one, and a built-in one over a stored fragment.
//!
//! The tables contain only codes and names of the registries. Their first lines contain source, version and
//! date; `cargo xtask gen-vocabularies` generates and compares them:
//!
//! | file | registry |
//! |---|---|
//! | `data/countries.tsv` | ISO 3166-1 |
//! | `data/former-countries.tsv` | ISO 3166-3, the codes that were withdrawn |
//! | `data/subdivisions.tsv` | ISO 3166-2, with English names of Unicode's CLDR (`data/LICENSE-UNICODE`) |
//! | `data/currencies.tsv` | ISO 4217 |
//! | `data/former-currencies.tsv` | ISO 4217, the currencies that were withdrawn |
//! | `data/language-subtags.tsv` | IANA's Language Subtag Registry |
//! | `data/long-codes.tsv` | alpha-3 codes of ISO 639 that language tags replace with alpha-2 codes |
//! | `data/units.tsv` | UCUM |
//!
//! Top-level media types are constants in their module of `grammar`, from IANA's registry.

mod fhir;
mod iso;
mod resource;

use std::sync::{Arc, OnceLock};

use serde_json::json;

pub(crate) use self::iso::is_same_country;
use self::resource::resource;
use super::StoredResource;
use super::append_cache::AppendCache;
use crate::code_system::CodeSystem;
use crate::expression::{self, ExpressionFault};
use crate::grammar::{CodeGrammar, ParsedCode, language_tags, units};
use crate::model::Budget;
use crate::model::known_systems::{
    ADMINISTRATIVE_GENDER, BCP_13, BCP_47, ISO_3166, ISO_3166_2, ISO_4217, PUBLICATION_STATUS, UCUM,
};

/// Number of cached codes at which the cache is full.
const ENOUGH: usize = 8_192;
/// Approximate size of a cached code, in bytes.
const WORD_BYTES: usize = 2_048;
/// Canonical URLs of the built-in code systems, sorted.
pub(crate) const URLS: &[&str] =
    &[ADMINISTRATIVE_GENDER, PUBLICATION_STATUS, UCUM, BCP_13, BCP_47, ISO_3166, ISO_3166_2, ISO_4217];

/// The built-in code system with this URL. A code system with a grammar contains no codes here.
pub(crate) fn system(url: &str) -> Option<&'static StoredResource<CodeSystem>> {
    static SYSTEMS: [OnceLock<StoredResource<CodeSystem>>; URLS.len()] =
        [const { OnceLock::new() }; URLS.len()];
    let index = URLS.iter().position(|candidate| *candidate == url)?;
    Some(SYSTEMS[index].get_or_init(|| match CodeGrammar::for_system(url) {
        Some(grammar) => of_grammar(grammar, None),
        None if url == ADMINISTRATIVE_GENDER => fhir::administrative_gender(),
        None if url == PUBLICATION_STATUS => fhir::publication_status(),
        None if url == ISO_3166 => iso::countries(),
        None if url == ISO_3166_2 => iso::subdivisions(),
        None => iso::currencies(),
    }))
}

/// The code system of a grammar that contains only the code `word`, or no code.
fn of_grammar(grammar: CodeGrammar, word: Option<ParsedCode>) -> StoredResource<CodeSystem> {
    let (url, name, exact, properties): (_, _, _, &[&str]) = match grammar {
        CodeGrammar::Languages => {
            (BCP_47, "Tags for Identifying Languages", false, language_tags::PROPERTIES)
        }
        CodeGrammar::MediaTypes => (BCP_13, "Media Types", false, &[]),
        CodeGrammar::Units => (UCUM, "Unified Code for Units of Measure", true, units::PROPERTIES),
    };
    let concept = word.map(|word| {
        let property = |(code, value): &(&str, String)| json!({ "code": code, "valueString": value });
        let properties: Vec<_> = word.properties.iter().map(property).collect();
        let mut concept = json!({ "code": word.code, "property": properties });
        if let Some(display) = word.display {
            concept["display"] = display.into();
        }
        concept["designation"] =
            word.other_displays.into_iter().map(|value| json!({ "value": value })).collect();
        concept
    });
    resource(url, name, exact, properties, concept.into_iter().collect())
}

/// A cache of valid codes of grammars, each stored as a code system of one concept. Invalid codes are not
/// cached.
#[derive(Debug, Default)]
pub(crate) struct GrammarCodeCache(AppendCache<StoredResource<CodeSystem>, ENOUGH>);

impl GrammarCodeCache {
    /// Returns whether the cache has reached a limit, so that its owner should replace it.
    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// A code system that contains only this code; `None` if the grammar rejects the code.
    pub(crate) fn concept(&self, grammar: CodeGrammar, code: &str) -> Option<&StoredResource<CodeSystem>> {
        let key = format!("{grammar:?} {code}");
        if let Some(cached) = self.0.get(&key) {
            return Some(cached);
        }
        let word = grammar.parse_code(code).ok()?;
        Some(self.0.insert(key, of_grammar(grammar, Some(word)), WORD_BYTES))
    }

    /// A code system that contains the concepts that concern an expression of SNOMED CT.
    ///
    /// # Errors
    /// [`ExpressionFault`] if the expression is not valid in this code system, or the budget is spent.
    pub(crate) fn expression(
        &self,
        system: &CodeSystem,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<&StoredResource<CodeSystem>, ExpressionFault> {
        let key = format!("{} {code}", system.instance());
        if let Some(cached) = self.0.get(&key) {
            return Ok(cached);
        }
        let excerpt = expression::expression_system(system, code, budget)?;
        let bytes = excerpt.memory_bytes();
        let resource = StoredResource::from_compiled(key.clone(), excerpt.header.clone(), Arc::new(excerpt));
        Ok(self.0.insert(key, resource, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_url_is_a_code_system() {
        assert!(URLS.is_sorted());
        for url in URLS {
            assert_eq!(system(url).unwrap().get(&Budget::default()).unwrap().url, *url);
        }
        assert!(system("urn:other").is_none());
    }

    #[test]
    fn the_cache_returns_one_code_system_to_all_threads() {
        let memory = GrammarCodeCache::default();
        let read_all = || {
            let one = |n: usize| {
                let code = format!("{n}mg");
                assert!(memory.concept(CodeGrammar::Units, &code).is_none());
                let code = format!("mg/{{{n}}}");
                let system =
                    memory.concept(CodeGrammar::Units, &code).unwrap().get(&Budget::default()).unwrap();
                assert_eq!(system.code(0), code);
                std::ptr::from_ref(system) as usize
            };
            (0..500).map(one).collect::<Vec<_>>()
        };
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(read_all)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(!memory.is_full());
    }
}
