//! The tables of countries, subdivisions and codes of languages, from the project iso-codes, which
//! `pycountry` contains. English names of subdivisions are those of Unicode's CLDR.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::source_packages::{npm_file, pypi_version, python_file, table};

/// Countries whose name in iso-codes is not the short name of ISO 3166-1.
const SHORT_NAMES: [(&str, &str); 3] = [
    ("GB", "United Kingdom of Great Britain and Northern Ireland"),
    ("US", "United States of America"),
    ("VA", "Holy See"),
];

/// Subdivisions that are also countries, with the code of the country: CLDR lists them only as countries.
const COUNTRIES: [(&str, &str); 19] = [
    ("CN-HK", "HK"),
    ("CN-MO", "MO"),
    ("FI-01", "AX"),
    ("FR-BL", "BL"),
    ("FR-MF", "MF"),
    ("FR-NC", "NC"),
    ("FR-PF", "PF"),
    ("FR-PM", "PM"),
    ("FR-TF", "TF"),
    ("FR-WF", "WF"),
    ("NL-AW", "AW"),
    ("NL-CW", "CW"),
    ("NL-SX", "SX"),
    ("US-AS", "AS"),
    ("US-GU", "GU"),
    ("US-MP", "MP"),
    ("US-PR", "PR"),
    ("US-UM", "UM"),
    ("US-VI", "VI"),
];

/// Subdivisions with a name of neither source, and the reasons.
const SUBDIVISION_NAMES: [(&str, &str); 3] = [
    // CLDR has no name, and the name in iso-codes is Chinese.
    ("CN-NM", "Inner Mongolia"),
    ("CN-TW", "Taiwan"),
    // The name in CLDR is Kven.
    ("NO-54", "Troms og Finnmark"),
];

/// Two-letter codes of ISO 639 for collections of languages, which ISO 639-3 does not contain.
const COLLECTIONS: [(&str, &str); 1] = [("bih", "bh")];

#[derive(Deserialize)]
struct Country {
    alpha_2: String,
    alpha_3: String,
    numeric: String,
    name: String,
}

#[derive(Deserialize)]
struct FormerCountry {
    alpha_2: String,
    alpha_3: String,
    #[serde(default)]
    numeric: String,
    name: String,
    withdrawal_date: String,
}

#[derive(Deserialize)]
struct Subdivision {
    code: String,
    name: String,
}

#[derive(Deserialize)]
struct Language {
    alpha_2: Option<String>,
    alpha_3: String,
    /// The alpha-3 code of ISO 639-2/B.
    bibliographic: Option<String>,
}

/// Reads the list of a standard.
fn read<T: for<'de> Deserialize<'de>>(standard: &str) -> Result<Vec<T>> {
    let text = std::fs::read_to_string(python_file(&format!("pycountry/databases/iso{standard}.json")))?;
    let mut lists: BTreeMap<String, Vec<T>> = serde_json::from_str(&text)?;
    lists.remove(standard).with_context(|| format!("the file has no list '{standard}'"))
}

/// The source of a table, with the date in the version of `pycountry`.
fn source(standard: &str) -> Result<String> {
    let version = pypi_version("pycountry")?;
    let numbers = version.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let [year, month, day] = numbers[..] else { anyhow::bail!("'{version}' is not a date") };
    Ok(format!("ISO {standard}, iso-codes in pycountry {version} of 20{year}-{month:02}-{day:02}"))
}

/// The code and name of each country.
fn country_names() -> Result<Vec<Country>> {
    let mut countries: Vec<Country> = read("3166-1")?;
    for country in &mut countries {
        if let Some(name) = find(&SHORT_NAMES, &country.alpha_2) {
            name.clone_into(&mut country.name);
        }
    }
    countries.sort_by(|a, b| a.alpha_2.cmp(&b.alpha_2));
    Ok(countries)
}

fn find<'a>(pairs: &'a [(&str, &str)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
}

/// The table of countries: alpha-2, alpha-3, number and name.
pub(super) fn countries() -> Result<String> {
    let row = |country: Country| [country.alpha_2, country.alpha_3, country.numeric, country.name].join("\t");
    let rows: Vec<_> = country_names()?.into_iter().map(row).collect();
    Ok(table(&source("3166-1")?, &rows))
}

/// The table of countries that ISO has withdrawn: date, alpha-2, alpha-3, number and name, the latest first,
/// because a code can have been that of several countries.
pub(super) fn former_countries() -> Result<String> {
    let row = |country: FormerCountry| {
        let FormerCountry { alpha_2, alpha_3, numeric, name, withdrawal_date } = country;
        [withdrawal_date, alpha_2, alpha_3, numeric, name].join("\t")
    };
    let mut rows: Vec<_> = read("3166-3")?.into_iter().map(row).collect();
    rows.sort_unstable_by(|a: &String, b| b.cmp(a));
    Ok(table(&source("3166-3")?, &rows))
}

/// The table of subdivisions: code and English name.
pub(super) fn subdivisions() -> Result<String> {
    let folder = "cldr-subdivisions-full";
    let package: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(npm_file(&format!("{folder}/package.json")))?)?;
    let version = package["version"].as_str().context("package.json has no version")?;
    let cldr: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(npm_file(&format!(
        "{folder}/subdivisions/en/en.json"
    )))?)?;
    let names = &cldr["subdivisions"]["localeDisplayNames"]["subdivisions"];
    let countries: BTreeMap<_, _> =
        country_names()?.into_iter().map(|country| (country.alpha_2, country.name)).collect();
    let row = |subdivision: Subdivision| {
        let code = subdivision.code;
        let of_country = find(&COUNTRIES, &code).and_then(|alpha_2| countries.get(alpha_2));
        let of_cldr = names[code.replace('-', "").to_ascii_lowercase()].as_str();
        let name = find(&SUBDIVISION_NAMES, &code)
            .or(of_country.map(String::as_str))
            .or(of_cldr)
            .unwrap_or(&subdivision.name);
        // CLDR marks former names, and the second of two equal names.
        format!("{code}\t{}", name.trim_end_matches(['†', '*', '¹', '²', '³', ' ']))
    };
    let mut rows: Vec<_> = read("3166-2")?.into_iter().map(row).collect();
    rows.sort_unstable();
    Ok(table(&format!("{}; names of Unicode CLDR {version}", source("3166-2")?), &rows))
}

/// The table of alpha-3 codes of ISO 639, terminological and bibliographic, for which an alpha-2 code exists.
pub(super) fn long_codes() -> Result<String> {
    let mut rows: Vec<_> = COLLECTIONS.iter().map(|(long, short)| format!("{long}\t{short}")).collect();
    for Language { alpha_2, alpha_3, bibliographic } in read("639-3")? {
        let Some(short) = alpha_2 else { continue };
        rows.extend(
            [Some(alpha_3), bibliographic].into_iter().flatten().map(|long| format!("{long}\t{short}")),
        );
    }
    rows.sort_unstable();
    Ok(table(&source("639-3")?, &rows))
}
