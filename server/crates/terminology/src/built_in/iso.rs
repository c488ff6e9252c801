//! ISO 3166-1 countries (alpha-2, alpha-3, numeric) and ISO 4217 currencies.

use serde_json::json;

use super::{ISO_3166, ISO_4217, resource, rows};
use crate::catalog::Resource;
use crate::code_system::CodeSystem;

/// `urn:iso:std:iso:3166`: each country has three codes here.
pub(super) fn countries() -> Resource<CodeSystem> {
    let table: Vec<_> = rows(include_str!("data/countries.tsv")).collect();
    let column = |at: usize| {
        table.iter().map(move |row| {
            let others = (0..3).filter(|other| *other != at);
            let same: Vec<_> = others.map(|n| json!({ "code": KINDS[n], "valueString": row[n] })).collect();
            json!({ "code": row[at], "display": row[3], "property": same })
        })
    };
    let concepts = column(0).chain(column(1)).chain(column(2)).collect();
    resource(ISO_3166, "ISO 3166-1 Codes for countries", true, &KINDS, concepts)
}

const KINDS: [&str; 3] = ["alpha-2", "alpha-3", "numeric"];

/// `urn:iso:std:iso:4217`.
pub(super) fn currencies() -> Resource<CodeSystem> {
    let concept = |row: Vec<&str>| json!({ "code": row[0], "display": row[2], "property": [{ "code": "numeric", "valueString": row[1] }] });
    let concepts = rows(include_str!("data/currencies.tsv")).map(concept).collect();
    resource(ISO_4217, "ISO 4217 Currency codes", true, &["numeric"], concepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(system: &Resource<CodeSystem>, code: &str, display: Option<&str>) {
        let system = system.get().unwrap();
        assert_eq!(system.find(code).and_then(|at| system.display(at)), display, "{code}");
    }

    #[test]
    fn countries_have_three_codes() {
        let countries = countries();
        for code in ["CH", "CHE", "756"] {
            check(&countries, code, Some("Switzerland"));
        }
        for code in ["ch", "XX", "UK", "000", "", "Switzerland"] {
            check(&countries, code, None);
        }
        assert_eq!(countries.get().unwrap().len(), 3 * 249);
    }

    #[test]
    fn currencies_have_one() {
        let currencies = currencies();
        for (code, display) in [("EUR", "Euro"), ("USD", "US Dollar"), ("XXX", "No currency")] {
            let system = currencies.get().unwrap();
            assert!(system.find(code).is_some(), "{code} {display}");
        }
        for code in ["eur", "DEM", "978", "€"] {
            check(&currencies, code, None);
        }
    }
}
