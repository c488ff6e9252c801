//! `ValueSet/$validate-code` while the stored resources change, and with long chains of value sets.
//! `conformance/specs/validate-code.toml` contains the other requests.

use trefoil_terminology::{OperationInput, OperationLevel, TerminologyChange, TerminologyOperation};

use crate::support::{PLANTS, body, garden, put, run, validate};

#[test]
fn changes_apply_immediately_and_invalid_resources_are_reported() {
    let garden = garden();
    let query = "url=http://garden.example/new&system=http://garden.example/plants&code=apple";
    assert!(validate(&garden, OperationLevel::Type, query).starts_with("UnknownValueSet"));
    let set = |version: &str, code: &str| {
        put(&format!(
            r#"{{"resourceType":"ValueSet","id":"new-{version}","url":"http://garden.example/new","version":"{version}","status":"active","compose":{{"include":[{{"system":"http://garden.example/plants","concept":[{{"code":"{code}"}}]}}]}}}}"#
        ))
    };
    garden.apply([set("1.9", "apple"), set("1.10", "pear")]);
    assert!(validate(&garden, OperationLevel::Type, query).starts_with("false"), "1.10 is newer than 1.9");
    garden.apply([TerminologyChange::Delete { kind: "ValueSet", id: "new-1.10".into() }]);
    assert!(validate(&garden, OperationLevel::Type, query).starts_with("true"));
    garden.apply([
        TerminologyChange::Put { kind: "ValueSet", id: "torn".into(), bytes: b"{".to_vec().into() },
        TerminologyChange::Put { kind: "Patient", id: "p".into(), bytes: b"{}".to_vec().into() },
    ]);
    let problems = garden.problems();
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].kind, problems[0].id.as_str()), ("ValueSet", "torn"));
    let response = validate(&garden, OperationLevel::Instance("torn"), "system=x:y&code=z");
    assert!(
        response.starts_with("Unprocessable(processing): the stored ValueSet/torn cannot be used"),
        "{response}"
    );
}

#[test]
fn clones_share_their_content() {
    let garden = garden();
    let other = garden.clone();
    other.apply([TerminologyChange::Delete { kind: "ValueSet", id: "trees".into() }]);
    assert_eq!(garden.value_set_count(), other.value_set_count());
    let posted = body(
        r#"{"name":"code","valueCode":"apple"},{"name":"system","valueUri":"http://garden.example/plants"}"#,
    );
    assert!(
        run(
            &garden,
            TerminologyOperation::ValidateCode,
            OperationLevel::Instance("trees"),
            OperationInput::from_body(&posted)
        )
        .is_err()
    );
}

#[test]
fn many_paths_to_one_value_set_and_long_chains_end_quickly() {
    let garden = garden();
    let set = |at: usize, imports: &str| {
        put(&format!(
            r#"{{"resourceType":"ValueSet","id":"d{at}","url":"urn:d{at}","status":"active","compose":{{"include":[{imports}]}}}}"#
        ))
    };
    // Each value set imports the next one twice, which makes 2^40 paths.
    let twice = |at: usize| format!(r#"{{"valueSet":["urn:d{0}"]}},{{"valueSet":["urn:d{0}"]}}"#, at + 1);
    garden.apply((0..40).map(|at| set(at, &twice(at))));
    garden.apply([set(40, r#"{"system":"http://garden.example/plants","concept":[{"code":"pear"}]}"#)]);
    let request = |code: &str| {
        validate(&garden, OperationLevel::Type, &format!("url=urn:d0&system={PLANTS}&code={code}"))
    };
    assert!(request("apple").starts_with("false"));
    assert_eq!(request("pear"), "true [Pear tree]");
    garden.apply((40..5000).map(|at| set(at, &format!(r#"{{"valueSet":["urn:d{}"]}}"#, at + 1))));
    assert_eq!(
        request("pear"),
        "Unprocessable(processing): the imports of urn:d0 are nested deeper than 64 levels"
    );
}
