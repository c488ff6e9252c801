//! ISO 3166-1 countries (alpha-2, alpha-3, numeric) with the former ones of ISO 3166-3, ISO 3166-2
//! subdivisions, and ISO 4217 currencies with the former ones.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::resource::resource;
use super::{ISO_3166, ISO_3166_2, ISO_4217};
use crate::catalog::StoredResource;
use crate::code_system::{CodeSystem, USER_ASSIGNED};
use crate::grammar::table_rows;

/// `urn:iso:std:iso:3166`, in which each country has an alpha-2, an alpha-3 and a numeric code.
pub(super) fn countries() -> StoredResource<CodeSystem> {
    let table: Vec<_> = table_rows(include_str!("../../../data/countries.tsv")).collect();
    let column = |index: usize| {
        table.iter().map(move |row| {
            let others = (0..3).filter(|other| *other != index);
            let same: Vec<_> = others.map(|n| json!({ "code": KINDS[n], "valueString": row[n] })).collect();
            json!({ "code": row[index], "display": row[3], "property": same })
        })
    };
    let codes: HashSet<&str> = table.iter().flat_map(|row| row[..3].iter().copied()).collect();
    let current = column(0).chain(column(1)).chain(column(2));
    let concepts = current.chain(former_countries(codes)).chain(user_assigned()).collect();
    resource(ISO_3166, "ISO 3166-1 Codes for countries", true, &KINDS, concepts)
}

/// The codes that ISO has withdrawn and not assigned again, as inactive concepts: a record may be older.
fn former_countries(mut codes: HashSet<&'static str>) -> Vec<Value> {
    let mut concepts = Vec::new();
    for row in table_rows(include_str!("../../../data/former-countries.tsv")) {
        for index in 0..KINDS.len() {
            let code = row[index + 1];
            if code.is_empty() || !codes.insert(code) {
                continue;
            }
            let others = (0..3).filter(|other| *other != index && !row[other + 1].is_empty());
            let mut property: Vec<_> =
                others.map(|n| json!({ "code": KINDS[n], "valueString": row[n + 1] })).collect();
            property.push(json!({ "code": "inactive", "valueBoolean": true }));
            concepts.push(json!({ "code": code, "display": row[4], "property": property }));
        }
    }
    concepts
}

/// Whether two codes of `urn:iso:std:iso:3166` name the same country.
pub(crate) fn is_same_country(a: &str, b: &str) -> bool {
    let codes = |row: &Vec<&str>, code: &str| row[..3].contains(&code);
    let row = table_rows(include_str!("../../../data/countries.tsv")).find(|row| codes(row, a));
    row.is_some_and(|row| codes(&row, b))
}

/// The codes that ISO 3166-1 leaves to its users (section 8.1.3): AA, QM to QZ, XA to XZ and ZZ, and the
/// alpha-3 codes that begin with these. XK is in wide use for Kosovo.
fn user_assigned() -> impl Iterator<Item = Value> {
    let letters = || 'A'..='Z';
    let two: Vec<String> = std::iter::once("AA".to_owned())
        .chain(('M'..='Z').map(|letter| format!("Q{letter}")))
        .chain(letters().map(|letter| format!("X{letter}")))
        .chain(std::iter::once("ZZ".to_owned()))
        .collect();
    let three =
        two.clone().into_iter().flat_map(move |two| letters().map(move |letter| format!("{two}{letter}")));
    two.into_iter().chain(three).map(|code| match &*code {
        "XK" | "XKX" => json!({ "code": code, "display": "Kosovo" }),
        _ => {
            let property = json!([{ "code": USER_ASSIGNED, "valueBoolean": true }]);
            json!({ "code": code, "display": "User-assigned", "property": property })
        }
    })
}

const KINDS: [&str; 3] = ["alpha-2", "alpha-3", "numeric"];

/// `urn:iso:std:iso:3166:-2`, in which each code starts with the code of its country.
pub(super) fn subdivisions() -> StoredResource<CodeSystem> {
    let concept = |row: Vec<&str>| json!({ "code": row[0], "display": row[1], "property": [{ "code": "country", "valueString": &row[0][..2] }] });
    let concepts = table_rows(include_str!("../../../data/subdivisions.tsv")).map(concept).collect();
    resource(ISO_3166_2, "ISO 3166-2 Codes for subdivisions of countries", true, &["country"], concepts)
}

/// `urn:iso:std:iso:4217`, with the numeric code of each currency as a property. Currencies that ISO has
/// withdrawn are inactive: a record may be older.
pub(super) fn currencies() -> StoredResource<CodeSystem> {
    let concept = |row: Vec<&str>| json!({ "code": row[0], "display": row[2], "property": [{ "code": "numeric", "valueString": row[1] }] });
    let current = table_rows(include_str!("../../../data/currencies.tsv")).map(concept);
    let former = table_rows(include_str!("../../../data/former-currencies.tsv")).map(|row| {
        let mut property = vec![json!({ "code": "inactive", "valueBoolean": true })];
        if !row[1].is_empty() {
            property.push(json!({ "code": "numeric", "valueString": row[1] }));
        }
        let mut names = row[2].split('|');
        let display = names.next().unwrap_or_default();
        let others: Vec<_> = names.map(|name| json!({ "value": name })).collect();
        json!({ "code": row[0], "display": display, "designation": others, "property": property })
    });
    let concepts = current.chain(former).collect();
    resource(ISO_4217, "ISO 4217 Currency codes", true, &["numeric"], concepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(system: &StoredResource<CodeSystem>, code: &str, display: Option<&str>) {
        let system = system.get(&crate::model::Budget::default()).unwrap();
        assert_eq!(system.find(code).and_then(|offset| system.display(offset)), display, "{code}");
    }

    #[test]
    fn countries_have_three_codes() {
        let countries = countries();
        for code in ["CH", "CHE", "756"] {
            check(&countries, code, Some("Switzerland"));
        }
        for (code, display) in
            [("XK", "Kosovo"), ("XKX", "Kosovo"), ("QM", "User-assigned"), ("ZZZ", "User-assigned")]
        {
            check(&countries, code, Some(display));
        }
        for code in ["ch", "QL", "YZ", "UK", "000", "", "Switzerland"] {
            check(&countries, code, None);
        }
        for (code, display) in [
            ("AN", "Netherlands Antilles"),
            ("ANT", "Netherlands Antilles"),
            ("530", "Netherlands Antilles"),
            ("YU", "Yugoslavia, (Socialist) Federal Republic of"),
            // The latest country with this code.
            ("CS", "Serbia and Montenegro"),
            ("CSK", "Czechoslovakia, Czechoslovak Socialist Republic"),
            // The code belongs to another country today.
            ("AI", "Anguilla"),
            ("854", "Burkina Faso"),
        ] {
            check(&countries, code, Some(display));
        }
        let index = countries.get(&crate::model::Budget::default()).unwrap();
        let is_inactive = |code| index.is_inactive(index.find(code).unwrap());
        assert!(is_inactive("AN") && is_inactive("CSK") && !is_inactive("AI") && !is_inactive("854"));
        let (user_assigned, former) =
            (42 * (1 + 26), (0..index.len() as u32).filter(|at| index.is_inactive(*at)));
        assert_eq!(former.count(), 70);
        assert_eq!(index.len(), 3 * 249 + user_assigned + 70);
    }

    #[test]
    fn withdrawn_currencies_are_inactive() {
        let currencies = currencies();
        let index = currencies.get(&crate::model::Budget::default()).unwrap();
        for (code, display, is_inactive) in [
            ("EUR", "Euro", false),
            ("HRK", "Kuna", true),
            ("BGN", "Bulgarian Lev", true),
            ("DEM", "Deutsche Mark", true),
            ("ITL", "Italian Lira", true),
        ] {
            check(&currencies, code, Some(display));
            assert_eq!(index.is_inactive(index.find(code).unwrap()), is_inactive, "{code}");
        }
        let of_kuna: Vec<_> =
            index.displays(index.find("HRK").unwrap()).map(|display| display.text).collect();
        assert_eq!(of_kuna, ["Kuna", "Croatian Kuna"]);
        let former = (0..index.len() as u32).filter(|at| index.is_inactive(*at)).count();
        assert_eq!((index.len(), former), (178 + 129, 129));
    }

    #[test]
    fn subdivisions_belong_to_countries() {
        let [countries, subdivisions] = [countries(), subdivisions()];
        for (code, display) in [
            ("CH-ZH", "Zürich"),
            ("US-CA", "California"),
            ("GB-ENG", "England"),
            ("AD-02", "Canillo"),
            // These territories also have country codes, so CLDR does not list them as subdivisions.
            ("US-PR", "Puerto Rico"),
            ("FI-01", "Åland Islands"),
            ("SH-TA", "Tristan da Cunha"),
            // In the CLDR data, one of two equal names and each former name carry a mark, which the table
            // omits.
            ("FR-IDF", "Île-de-France"),
            ("MK-814", "Centar"),
            ("NO-54", "Troms og Finnmark"),
        ] {
            check(&subdivisions, code, Some(display));
        }
        for code in ["CH", "CH-", "ch-zh", "CHZH", "US-XX", "California"] {
            check(&subdivisions, code, None);
        }
        let (countries, subdivisions) = (
            countries.get(&crate::model::Budget::default()).unwrap(),
            subdivisions.get(&crate::model::Budget::default()).unwrap(),
        );
        assert_eq!(subdivisions.len(), 5_046);
        for index in 0..subdivisions.len() as u32 {
            let code = subdivisions.code(index);
            let (country, part) = code.split_once('-').unwrap();
            assert!(country.len() == 2 && countries.find(country).is_some(), "{code}");
            let is_part = (1..=3).contains(&part.len());
            assert!(is_part && part.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()), "{code}");
            let display = subdivisions.display(index).unwrap();
            assert!(!display.contains(['¹', '²', '³', '†', '*']), "{code}: {display}");
        }
    }
}
