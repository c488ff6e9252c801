//! Terms of SNOMED CT by dialect: the International Edition with its two language reference sets, and a
//! national edition with one of its own, written by these tests.

use std::path::PathBuf;

use fhir::Parameters;
use terminology::{
    OperationInput, OperationLevel, SnomedDialects, Terminology, TerminologyChange, TerminologyOperation,
};
use trefoil_terminology_import::group_releases;

use crate::packages::{CORE, LAND, MODEL, Packages, Rows, depends};
use crate::support::{run, run_expand, short, validate_code};

const SCT: &str = "http://snomed.info/sct";
const INTERNATIONAL: &str = "http://snomed.info/sct/900000000000207008/version/20250101";
const NATIONAL: &str = "http://snomed.info/sct/41000005/version/20250201";
/// Language reference set of the national edition.
const OWN: &str = "44000002";
/// The gullet: with terms in both dialects of English and in German.
const GULLET: &str = "11000006";
/// A concept that the national edition does not translate.
const PLAIN: &str = "12000003";

const US: &str = "900000000000509007";
const GB: &str = "900000000000508004";
const NAME: &str = "900000000000003001";
const SYNONYM: &str = "900000000000013009";
const PREFERRED: &str = "900000000000548007";
const ACCEPTABLE: &str = "900000000000549004";

/// A row of a language reference set.
fn accepted(number: u8, date_and_module: [&str; 2], set: &str, term: &str, acceptability: &str) -> String {
    let [module, date] = date_and_module;
    format!("00000000-0000-4000-8000-0000000002{number:02} {date} 1 {module} {set} {term} {acceptability}")
}

/// Writes the International Edition and a national one, in which German fully specified names stand first.
fn write_editions(packages: &Packages) -> Vec<PathBuf> {
    let core = |id: &str, concept: &str, kind: &str, term: &str| {
        format!("{id} 20250101 1 {} {concept} en {kind} {term} x", CORE[0])
    };
    let descriptions = [
        core("21000001", GULLET, NAME, "Esophageal_structure"),
        core("22000008", GULLET, SYNONYM, "Oesophagus"),
        core("23000003", GULLET, SYNONYM, "Esophagus"),
        core("24000009", GULLET, SYNONYM, "Gullet"),
        core("25000005", PLAIN, NAME, "Plain_structure"),
        core("26000006", PLAIN, SYNONYM, "Plain"),
    ];
    let languages = [
        accepted(1, CORE, US, "21000001", PREFERRED),
        accepted(2, CORE, GB, "21000001", PREFERRED),
        accepted(3, CORE, GB, "22000008", PREFERRED),
        accepted(4, CORE, US, "22000008", ACCEPTABLE),
        accepted(5, CORE, US, "23000003", PREFERRED),
        accepted(6, CORE, US, "24000009", ACCEPTABLE),
        accepted(7, CORE, GB, "24000009", ACCEPTABLE),
        accepted(8, CORE, US, "26000006", PREFERRED),
        accepted(9, CORE, GB, "26000006", PREFERRED),
    ];
    let base = packages.write(
        "INT_20250101",
        &Rows {
            depends: &[&depends(1, CORE, MODEL)],
            concepts: &[
                "138875005 20250101 1 900000000000207008 900000000000074008",
                "116680003 20250101 1 900000000000012004 900000000000074008",
                "11000006 20250101 1 900000000000207008 900000000000074008",
                "12000003 20250101 1 900000000000207008 900000000000074008",
            ],
            descriptions: &descriptions.each_ref().map(String::as_str),
            languages: &languages.each_ref().map(String::as_str),
            ..Rows::default()
        },
    );
    let land =
        |id: &str, kind: &str, term: &str| format!("{id} 20250201 1 {} {GULLET} de {kind} {term} x", LAND[0]);
    let descriptions = [
        land("27000000", NAME, "Struktur_der_Speiseröhre"),
        land("28000004", SYNONYM, "Ösophagus"),
        land("29000007", SYNONYM, "Speiseröhre"),
    ];
    let languages = [
        accepted(11, LAND, OWN, "27000000", PREFERRED),
        accepted(12, LAND, OWN, "28000004", ACCEPTABLE),
        accepted(13, LAND, OWN, "29000007", PREFERRED),
    ];
    let national = packages.write(
        "XX_20250201",
        &Rows {
            depends: &[&depends(2, LAND, CORE), &depends(3, LAND, MODEL)],
            concepts: &["41000005 20250201 1 41000005 900000000000074008"],
            descriptions: &descriptions.each_ref().map(String::as_str),
            languages: &languages.each_ref().map(String::as_str),
            ..Rows::default()
        },
    );
    vec![base, national]
}

/// A terminology with both editions that prefers these dialects.
fn both_editions(dialects: &[&str]) -> Terminology {
    let packages = Packages::new();
    let mut preferred = SnomedDialects::default();
    assert!(dialects.iter().all(|dialect| preferred.add(dialect)));
    let terminology = Terminology::with_dialects(preferred);
    for release in group_releases(write_editions(&packages)) {
        let index = release.import(&mut |_| {}).unwrap_or_else(|error| panic!("{error}")).index;
        terminology
            .apply([TerminologyChange::Index { id: index.version().unwrap().replace('/', "-"), index }]);
    }
    terminology
}

#[test]
fn the_preferred_term_of_the_dialect_is_the_display() {
    for (dialects, version, code, language, expected) in [
        (&[][..], INTERNATIONAL, GULLET, "", "Esophagus"),
        (&[], INTERNATIONAL, GULLET, "en", "Esophagus"),
        (&[], INTERNATIONAL, GULLET, "en-US", "Esophagus"),
        (&[], INTERNATIONAL, GULLET, "en-GB", "Oesophagus"),
        (&[], INTERNATIONAL, GULLET, "en-x-sctlang-90000000-00005080-04", "Oesophagus"),
        (&[], INTERNATIONAL, GULLET, "x-sctlang-90000000-00005080-04", "Oesophagus"),
        (&[], INTERNATIONAL, GULLET, "de", "Esophagus"),
        (&[], INTERNATIONAL, GULLET, "de, en-GB;q=0.5", "Oesophagus"),
        (&[], INTERNATIONAL, GULLET, "en-ZA", "Esophagus"),
        // The national edition has its own term, and English ones where it has none.
        (&[], NATIONAL, GULLET, "", "Speiseröhre"),
        (&[], NATIONAL, GULLET, "de", "Speiseröhre"),
        (&[], NATIONAL, GULLET, "de-CH", "Speiseröhre"),
        (&[], NATIONAL, GULLET, "de-x-sctlang-44000002", "Speiseröhre"),
        (&[], NATIONAL, GULLET, "en", "Esophagus"),
        (&[], NATIONAL, GULLET, "en-GB", "Oesophagus"),
        (&[], NATIONAL, PLAIN, "", "Plain"),
        (&[], NATIONAL, PLAIN, "de", "Plain"),
        // Dialects that the operator prefers.
        (&["en-gb"], INTERNATIONAL, GULLET, "", "Oesophagus"),
        (&["en-gb"], INTERNATIONAL, GULLET, "en", "Oesophagus"),
        (&["en-gb"], INTERNATIONAL, GULLET, "en-US", "Esophagus"),
        (&["en-gb"], NATIONAL, GULLET, "", "Oesophagus"),
        (&["en-gb"], NATIONAL, GULLET, "de", "Speiseröhre"),
        (&[OWN, "en-gb"], NATIONAL, GULLET, "", "Speiseröhre"),
        (&[OWN, "en-gb"], NATIONAL, GULLET, "en", "Oesophagus"),
        (&[OWN, "en-gb"], INTERNATIONAL, GULLET, "", "Oesophagus"),
    ] {
        let terminology = both_editions(dialects);
        let more = if language.is_empty() { String::new() } else { format!("&displayLanguage={language}") };
        let set = format!("{version}?fhir_vs");
        let response = validate_code(&terminology, &set, SCT, code, &more);
        assert!(
            response.starts_with(&format!("true [{expected}]")),
            "{dialects:?} {version} {language}: {response}"
        );
        let query = Parameters::from_query(&format!("system={SCT}&version={version}&code={code}{more}"));
        let input = OperationInput::from_query(&query);
        let parameters =
            run(&terminology, TerminologyOperation::Lookup, OperationLevel::Type, input).unwrap();
        assert_eq!(parameters.text("display"), Some(expected), "{dialects:?} {version} {language}");
        let query = Parameters::from_query(&format!("url={set}{more}"));
        let page =
            run_expand(&terminology, OperationLevel::Type, OperationInput::from_query(&query)).unwrap();
        let contains = page["expansion"]["contains"].as_array().unwrap();
        let concept = contains.iter().find(|item| item["code"] == code).unwrap();
        assert_eq!(concept["display"], expected, "{dialects:?} {version} {language}");
    }
}

#[test]
fn every_term_is_a_right_display_and_a_wrong_one_is_corrected_in_the_dialect() {
    let terminology = both_editions(&[]);
    let check = |code: &str, language: &str| {
        let more = format!("&display={code}&displayLanguage={language}");
        validate_code(&terminology, &format!("{INTERNATIONAL}?fhir_vs"), SCT, GULLET, &more)
    };
    for right in ["Esophagus", "Oesophagus", "Gullet", "Esophageal_structure"] {
        assert_eq!(check(right, "en-GB"), "true [Oesophagus]", "{right}");
    }
    let wrong = check("Elbow", "en-GB");
    assert!(wrong.contains("Oesophagus") && !wrong.contains("'Esophagus"), "{wrong}");
}

#[test]
fn designations_state_their_dialects() {
    let terminology = both_editions(&[]);
    let query = format!("url={INTERNATIONAL}?fhir_vs&includeDesignations=true&displayLanguage=en-GB");
    let designations = |more: &str| {
        let query = Parameters::from_query(&format!("{query}{more}"));
        let page =
            run_expand(&terminology, OperationLevel::Type, OperationInput::from_query(&query)).unwrap();
        let contains = page["expansion"]["contains"].as_array().unwrap().clone();
        let row = contains.into_iter().find(|item| item["code"] == GULLET).unwrap();
        row["designation"].as_array().cloned().unwrap_or_default()
    };
    let all = designations("");
    let us = all.iter().find(|designation| designation["value"] == "Esophagus").unwrap();
    let stated = &us["extension"][0];
    assert_eq!(stated["url"], "http://snomed.info/fhir/StructureDefinition/designation-use-context");
    assert_eq!(stated["extension"][0]["valueCoding"]["code"], US);
    assert_eq!(stated["extension"][1]["valueCoding"]["code"], PREFERRED);
    let british: Vec<_> = designations("&designation=en-GB").iter().map(|d| d["value"].clone()).collect();
    assert_eq!(british, ["Esophageal_structure", "Gullet"]);
    let query = Parameters::from_query(&format!("system={SCT}&version={INTERNATIONAL}&code={GULLET}"));
    let input = OperationInput::from_query(&query);
    let parameters = run(&terminology, TerminologyOperation::Lookup, OperationLevel::Type, input).unwrap();
    let with_dialect = parameters.all("designation").filter(|designation| !designation.extension.is_empty());
    assert_eq!(with_dialect.count(), 4, "{}", short(Ok(parameters.clone())));
}
