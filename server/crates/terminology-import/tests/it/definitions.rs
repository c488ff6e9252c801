//! Definitions and dates of imported code systems, in the answers about them.

use fhir::Parameters;
use terminology::{OperationInput, Terminology, TxError};

use crate::support::{import_all, validate_code};

const SCT: &str = "http://snomed.info/sct";

/// Returns a text parameter of the answer of `$lookup` by GET.
fn lookup(terminology: &Terminology, query: &str, name: &str) -> Result<Option<String>, TxError> {
    let answer = terminology.lookup(OperationInput::from_query(&Parameters::from_query(query)))?;
    Ok(answer.text(name).map(str::to_owned))
}

#[test]
fn lookup_returns_the_definitions_of_a_release() {
    let terminology =
        import_all(&["SnomedCT_GardenInternationalRF2_20250101T120000Z", "Loinc_0.1", "claml-garden"]);
    for (query, expected) in [
        (
            "system=http://snomed.info/sct&code=700101006",
            Some("Something that grows where a gardener put it."),
        ),
        ("system=http://snomed.info/sct&code=700112006", None),
        ("system=http://loinc.org&code=90001-1", Some("How deep the water of a pond is.")),
        ("system=http://loinc.org&code=90002-9", None),
        ("system=http://hl7.org/fhir/sid/icd-10&code=G01", Some("A pond that loses its water.")),
    ] {
        assert_eq!(lookup(&terminology, query, "definition").unwrap().as_deref(), expected, "{query}");
    }
}

#[test]
fn the_version_of_snomed_ct_is_its_date() {
    let terminology = import_all(&[
        "SnomedCT_GardenInternationalRF2_20250101T120000Z",
        "SnomedCT_GardenEditionRF2_20250301T120000Z",
    ]);
    let query = "system=http://snomed.info/sct&code=700112006&date=2025-02-01";
    assert_eq!(lookup(&terminology, query, "display").unwrap().as_deref(), Some("Water lily"));
    let error = lookup(&terminology, &query.replace("2025", "2024"), "display").unwrap_err();
    assert!(matches!(error, TxError::NotOnDay { .. }), "{error:?}");
}

#[test]
fn a_text_definition_of_snomed_ct_is_not_a_display() {
    let garden = import_all(&["SnomedCT_GardenInternationalRF2_20250101T120000Z"]);
    let all = format!("{SCT}?fhir_vs");
    let right = validate_code(&garden, &all, SCT, "700101006", "&display=Garden+plant");
    assert!(right.starts_with("true [Garden plant]"), "{right}");
    let definition = "Something that grows where a gardener put it.";
    let answer = validate_code(&garden, &all, SCT, "700101006", &format!("&display={definition}"));
    assert!(answer.starts_with("false [Garden plant] [Wrong Display Name"), "{answer}");
}
