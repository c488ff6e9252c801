//! Built-in code systems: more codes than the cache holds. `conformance/specs/built-in.toml` contains the
//! other requests.

use crate::support::run;
use fhir::Parameters;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation};

const UCUM: &str = "http://unitsofmeasure.org";

#[test]
fn more_codes_than_the_cache_holds_are_looked_up() {
    let terminology = Terminology::default();
    assert_eq!(terminology.code_systems_by_url()[UCUM], [None]);
    for n in 0..20_000 {
        let mut query = Parameters::new();
        query.push_string("system", UCUM);
        query.push_string("code", format!("{{{n}}}"));
        let response = run(
            &terminology,
            TerminologyOperation::Lookup,
            OperationLevel::Type,
            OperationInput::from_query(&query),
        )
        .unwrap();
        assert_eq!(response.text("code"), Some(format!("{{{n}}}").as_str()));
    }
}
