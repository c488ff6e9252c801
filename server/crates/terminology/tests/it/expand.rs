//! `ValueSet/$expand`: the identifier and time of an expansion, and sets that are too large for one answer.
//! `conformance/specs/expand.toml` contains the other requests.

use fhir::Parameters;
use serde_json::Value as Json;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation, TxError};

use crate::support::{NOW, garden, put, run_expand, short};

/// Runs `$expand` by GET and returns JSON.
fn expand(terminology: &Terminology, level: OperationLevel<'_>, query: &str) -> Result<Json, TxError> {
    let query = Parameters::from_query(query);
    run_expand(terminology, level, OperationInput::from_query(&query))
}

/// Returns the codes of an expansion in order.
fn codes(set: &Json) -> Vec<&str> {
    let contains = set["expansion"]["contains"].as_array().unwrap();
    contains.iter().map(|item| item["code"].as_str().unwrap()).collect()
}

#[test]
fn the_identifier_depends_on_the_request() {
    let query = "activeOnly=true&count=2";
    let set = expand(&garden(), OperationLevel::Instance("in-use"), query).unwrap();
    assert_eq!(set["expansion"]["timestamp"], NOW);
    let again = expand(&garden(), OperationLevel::Instance("in-use"), query).unwrap();
    assert_eq!(again, set);
    let other = expand(&garden(), OperationLevel::Instance("in-use"), "count=2").unwrap();
    assert_ne!(other["expansion"]["identifier"], set["expansion"]["identifier"]);
}

#[test]
fn a_large_value_set_is_expanded_by_pages_only() {
    let terminology = Terminology::default();
    let concepts: Vec<_> =
        (0..10_001).map(|n| format!(r#"{{"code":"c{n}","display":"Code {n}"}}"#)).collect();
    let system = format!(
        r#"{{"resourceType":"CodeSystem","id":"many","url":"urn:many","valueSet":"urn:all","status":"active","content":"complete","concept":[{}]}}"#,
        concepts.join(",")
    );
    terminology.apply([put(&system)]);
    let error = expand(&terminology, OperationLevel::Type, "url=urn:all").unwrap_err();
    assert_eq!(
        short(Err(error)),
        "Unprocessable(too-costly): The value set 'urn:all' expansion has too many codes to display (>10000)"
    );
    let set = expand(&terminology, OperationLevel::Type, "url=urn:all&offset=9999&count=10").unwrap();
    assert_eq!(codes(&set), ["c9999", "c10000"]);
    let set = expand(&terminology, OperationLevel::Type, "url=urn:all&filter=10000").unwrap();
    assert_eq!(codes(&set), ["c10000"]);
}

#[test]
fn a_decimal_keeps_its_digits() {
    let terminology = Terminology::default();
    terminology.apply([put(
        r#"{"resourceType":"CodeSystem","id":"s","url":"urn:s","status":"active","content":"complete","valueSet":"urn:v",
            "property":[{"code":"size","type":"decimal"}],
            "concept":[{"code":"a","property":[{"code":"size","valueDecimal":1.50}]}]}"#,
    )]);
    let query = Parameters::from_query("url=urn:v&property=size");
    let input = OperationInput::from_query(&query);
    let response =
        terminology.run(TerminologyOperation::Expand, OperationLevel::Type, input, NOW).unwrap().to_json();
    assert!(String::from_utf8(response).unwrap().contains(r#""valueDecimal":1.50}"#));
    let query = Parameters::from_query("system=urn:s&code=a");
    let input = OperationInput::from_query(&query);
    let response =
        terminology.run(TerminologyOperation::Lookup, OperationLevel::Type, input, NOW).unwrap().to_json();
    assert!(String::from_utf8(response).unwrap().contains(r#""valueDecimal":1.50}"#));
}
