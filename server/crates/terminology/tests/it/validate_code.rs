//! `ValueSet/$validate-code`: answers and errors.

use trefoil_terminology::{OperationInput, OperationLevel, TerminologyChange};

use crate::support::{PLANTS, body, garden, put, validate, validate_body};

/// Checks the answer about a code of the plants in a value set of the garden.
#[track_caller]
fn check(set: &str, code: &str, expected: &str) {
    let query = format!("url=http://garden.example/{set}&system={PLANTS}&code={code}");
    let answer = validate(&garden(), OperationLevel::Type, &query);
    assert!(answer == expected || answer.starts_with(&format!("{expected} [")), "{set} {code}: {answer}");
}

#[test]
fn membership_by_every_kind_of_include() {
    for (set, code, expected) in [
        ("trees", "tree", "true [Tree]"),
        ("trees", "pear", "true [Pear tree]"),
        ("trees", "crop", "false [Crop]"),
        ("trees", "nothing", "false"),
        ("listed", "apple", "true [Apple tree]"),
        ("listed", "tree", "false [Tree]"),
        ("listed", "weed", "false"),
        ("listed", "crop", "true [Harvest]"),
        ("everything", "plant", "true [Plant]"),
        ("everything", "stone", "false [Stone]"),
        ("in-use", "apple", "true [Apple tree]"),
        ("in-use", "elm", "false [Elm]"),
        ("both", "pear", "true [Pear tree]"),
        ("both", "apple", "false [Apple tree]"),
        ("old", "fern", "true [Fern]"),
        ("old", "apple", "false [Apple tree]"),
        ("any-version", "fern", "true [Fern]"),
        ("any-version", "apple", "true [Apple tree]"),
        ("expanded", "apple", "true [Apple tree]"),
        ("expanded", "pear", "false [Pear tree]"),
        ("all-plants", "apple", "true [Apple tree]"),
        ("all-plants|1.0.0", "apple", "true [Apple tree]"),
        ("trees|2", "apple", "true [Apple tree]"),
    ] {
        check(set, code, expected);
    }
}

#[test]
fn the_plain_answer_has_the_documented_form() {
    let query = format!("url=http://garden.example/trees&system={PLANTS}&code=apple");
    let query = fhir::Parameters::from_query(&query);
    let answer = garden().validate_code(OperationLevel::Type, OperationInput::from_query(&query)).unwrap();
    insta::assert_snapshot!(serde_json::to_string(&answer).unwrap(), @r#"{"resourceType":"Parameters","parameter":[{"name":"result","valueBoolean":true},{"name":"display","valueString":"Apple tree"},{"name":"code","valueCode":"apple"},{"name":"system","valueUri":"http://garden.example/plants"},{"name":"version","valueString":"1.0.0"}]}"#);
}

#[test]
fn a_negative_answer_states_the_reason() {
    let garden = garden();
    for (query, expected) in [
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&code=oak",
            "false [The provided code 'http://garden.example/plants#oak' was not found in the value set 'http://garden.example/trees|2'; Unknown code 'oak' in the CodeSystem 'http://garden.example/plants' version '1.0.0']",
        ),
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&code=apple&display=Plum",
            "false [Apple tree] [Wrong Display Name 'Plum' for http://garden.example/plants#apple. Valid display is one of 2 choices: 'Apple tree' (en) or 'Apfelbaum' (de) (for the language(s) '--')]",
        ),
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&code=apple&display=Apple tree&displayLanguage=de",
            "false [Apfelbaum] [Wrong Display Name 'Apple tree' for http://garden.example/plants#apple. Valid display is 'Apfelbaum' (de) (for the language(s) 'de')]",
        ),
        (
            "url=http://garden.example/everything&system=http://garden.example/plants&code=plant&abstract=false",
            "false [Plant] [Code 'http://garden.example/plants#plant' is abstract, and not allowed in this context; The provided code 'http://garden.example/plants#plant' was not found in the value set 'http://garden.example/everything']",
        ),
        (
            "url=http://garden.example/in-use&system=http://garden.example/plants&code=elm",
            "false [Elm] [The concept 'elm' has a status of retired and inactive and its use should be reviewed; The concept 'elm' is valid but is not active; The provided code 'http://garden.example/plants#elm' was not found in the value set 'http://garden.example/in-use']",
        ),
        (
            "url=http://garden.example/no-version&system=http://garden.example/plants&code=apple",
            "false [Apple tree] [A definition for CodeSystem 'http://garden.example/plants' version '7' could not be found, so the code cannot be validated. Valid versions: 0.9.0, 1.0.0 and 9.0.0]",
        ),
        (
            "url=http://garden.example/pots-set&system=http://garden.example/pots&code=clay",
            "false [A definition for CodeSystem 'http://garden.example/pots' could not be found, so the code cannot be validated]",
        ),
        (
            "url=http://garden.example/trees&system=http://garden.example/pots&code=clay",
            "false [A definition for CodeSystem http://garden.example/pots could not be found, so the code cannot be validated; The provided code 'http://garden.example/pots#clay' was not found in the value set 'http://garden.example/trees|2']",
        ),
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&systemVersion=0.9.0&code=tree",
            "false [Tree] [The code system 'http://garden.example/plants' version '1.0.0' in the ValueSet include is different to the one in the value ('0.9.0')]",
        ),
    ] {
        assert_eq!(validate(&garden, OperationLevel::Type, query), expected, "{query}");
    }
}

#[test]
fn a_positive_answer_may_have_issues() {
    let garden = garden();
    for (query, expected) in [
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&code=elm",
            "true [Elm] [The concept 'elm' has a status of retired and inactive and its use should be reviewed]",
        ),
        (
            "url=http://garden.example/listed&system=http://garden.example/pots&code=clay",
            "true [Clay pot] [A definition for CodeSystem 'http://garden.example/pots' could not be found, so only the list in the value set was checked]",
        ),
        (
            "url=http://garden.example/listed&system=http://garden.example/pots&code=clay&uuid=1",
            "false [A definition for CodeSystem 'http://garden.example/pots' could not be found, so the code cannot be validated]",
        ),
        ("url=http://garden.example/weed-set&system=http://garden.example/weeds&code=thistle", "true"),
        (
            "url=http://garden.example/everything&system=http://garden.example/tools&code=SPADE",
            "true [Spade]",
        ),
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&code=apple&display=Apfelbaum",
            "true [Apple tree]",
        ),
        (
            "url=http://garden.example/everything&system=http://garden.example/tools&code=rake&display=RAKE",
            "true [Rake]",
        ),
        ("url=http://garden.example/everything&inferSystem=true&code=rake", "true [Rake]"),
        (
            "url=http://garden.example/trees&system=http://garden.example/plants&code=apple&display=Plum&lenient-display-validation=true",
            "true [Apple tree] [Wrong Display Name 'Plum' for http://garden.example/plants#apple. Valid display is one of 2 choices: 'Apple tree' (en) or 'Apfelbaum' (de) (for the language(s) '--')]",
        ),
    ] {
        assert_eq!(validate(&garden, OperationLevel::Type, query), expected, "{query}");
    }
}

#[test]
fn requests_that_cannot_be_evaluated_are_errors() {
    let garden = garden();
    let coded = "system=http://garden.example/plants&code=apple";
    for (query, expected) in [
        (
            format!("url=http://garden.example/none&{coded}"),
            "UnknownValueSet(invalid): A definition for the value Set 'http://garden.example/none' could not be found",
        ),
        (
            format!("url=http://garden.example/none&{coded}&uuid=1"),
            "UnknownValueSet(not-found): A definition for the value Set 'http://garden.example/none'",
        ),
        (
            format!("url=http://garden.example/trees|1&{coded}"),
            "UnknownValueSet(invalid): A definition for the value Set 'http://garden.example/trees|1'",
        ),
        (
            format!("url=http://garden.example/trees&valueSetVersion=3&{coded}"),
            "UnknownValueSet(invalid): A definition for the value Set 'http://garden.example/trees|3'",
        ),
        (
            format!("url=http://garden.example/dangling&{coded}"),
            "UnknownValueSet(invalid): A definition for the value Set 'http://garden.example/nowhere|3'",
        ),
        (
            format!("url=http://garden.example/circle-1&{coded}"),
            "Unprocessable(processing): Cyclic reference detected when including http://garden.example/circle-1 via http://garden.example/circle-2",
        ),
        (
            format!("url=http://garden.example/no-value&{coded}"),
            "Unprocessable(invalid): The system http://garden.example/plants filter with property = concept, op = is-a has no value",
        ),
        (
            format!("url=http://garden.example/bad-op&{coded}"),
            "Unprocessable(invalid): The filter concept near 'x'",
        ),
        (
            format!("url=http://garden.example/bad-property&{coded}"),
            "Unprocessable(invalid): The filter colour = 'red'",
        ),
        (
            "url=http://garden.example/by-bed&system=http://garden.example/beds&code=bed".into(),
            "Unprocessable(not-supported): the hierarchy",
        ),
        (
            format!("url=http://garden.example/trees&{coded}&useSupplement=http://garden.example/extra"),
            "Unprocessable(not-found): Required supplement not found: http://garden.example/extra",
        ),
        (coded.to_owned(), "Missing(required): parameter 'url' is needed"),
        (format!("url=&{coded}"), "Malformed(invalid): parameter 'url': it is empty"),
        (
            "url=http://garden.example/trees&code=apple".into(),
            "Missing(required): parameter 'system' is needed",
        ),
        ("url=http://garden.example/trees&code=".into(), "Malformed(invalid): parameter 'code': it is empty"),
        (
            "url=http://garden.example/trees".into(),
            "NothingToValidate(required): Unable to find code to validate",
        ),
        (
            "url=http://garden.example/trees&system=http://garden.example/plants".into(),
            "NothingToValidate(required): Unable to find code to validate",
        ),
        (
            "url=http://garden.example/trees&coding=apple".into(),
            "Malformed(invalid): parameter 'coding': a Coding cannot be sent in a query string",
        ),
        (
            "url=http://garden.example/trees&codeableConcept=apple".into(),
            "Malformed(invalid): parameter 'codeableConcept': a CodeableConcept cannot",
        ),
        (
            format!("url=http://garden.example/trees&{coded}&abstract=yes"),
            "Malformed(invalid): parameter 'abstract': 'yes' is not true or false",
        ),
        (
            format!("url=http://garden.example/trees&{coded}&code=pear"),
            "Malformed(invalid): parameter 'code': it occurs more than once",
        ),
        (
            format!("url=http://garden.example/trees&{coded}&displayLanguage=-"),
            "DisplayLanguage(processing): Invalid displayLanguage: '-'",
        ),
    ] {
        let answer = validate(&garden, OperationLevel::Type, &query);
        assert!(answer.starts_with(expected), "{query}\n{answer}");
    }
}

#[test]
fn an_instance_needs_no_url_and_takes_precedence() {
    let garden = garden();
    for (id, query, expected) in [
        ("trees", "system=http://garden.example/plants&code=apple", "true [Apple tree]"),
        (
            "trees",
            "url=http://garden.example/none&system=http://garden.example/plants&code=apple",
            "true [Apple tree]",
        ),
        (
            "none",
            "system=http://garden.example/plants&code=apple",
            "UnknownInstance(not-found): ValueSet/none is not known",
        ),
        (
            "plants",
            "system=http://garden.example/plants&code=apple",
            "UnknownInstance(not-found): ValueSet/plants is not known",
        ),
    ] {
        assert_eq!(validate(&garden, OperationLevel::Instance(id), query), expected, "{id} {query}");
    }
}

#[test]
fn bodies_contain_codings_and_concepts() {
    let garden = garden();
    let url = r#"{"name":"url","valueUri":"http://garden.example/trees"}"#;
    for (item, expected) in [
        (
            r#"{"name":"coding","valueCoding":{"system":"http://garden.example/plants","code":"apple"}}"#,
            "true [Apple tree]",
        ),
        (
            r#"{"name":"coding","valueCoding":{"code":"apple"}}"#,
            "false [Coding has no system. A code with no system has no defined meaning, and it cannot be validated. A system should be provided; The provided code '#apple' was not found in the value set 'http://garden.example/trees|2']",
        ),
        (
            r#"{"name":"coding","valueCoding":{"system":"http://garden.example/plants"}}"#,
            "Malformed(invalid): parameter 'coding': a coding without a code cannot be validated",
        ),
        (
            r#"{"name":"codeableConcept","valueCodeableConcept":{"coding":[]}}"#,
            "Missing(required): parameter 'codeableConcept' needs at least one coding",
        ),
        (
            r#"{"name":"codeableConcept","valueCodeableConcept":{"text":"a tree"}}"#,
            "Missing(required): parameter 'codeableConcept' needs at least one coding",
        ),
        (
            r#"{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://garden.example/tools","code":"rake"},{"system":"http://garden.example/plants","code":"pear"}]}}"#,
            "true [Pear tree]",
        ),
        (
            r#"{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://garden.example/tools","code":"hoe"},{"system":"http://garden.example/plants","code":"pear"}]}}"#,
            "true [Pear tree]",
        ),
        // The ecosystem is stricter: no coding may have an error.
        (
            r#"{"name":"uuid","valueString":"u"},{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://garden.example/tools","code":"hoe"},{"system":"http://garden.example/plants","code":"pear"}]}}"#,
            "false [Pear tree] [Unknown code 'hoe' in the CodeSystem 'http://garden.example/tools' version '1']",
        ),
        (
            r#"{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://nobody.example/local","code":"x"},{"system":"http://garden.example/plants","code":"pear"}]}}"#,
            "true [Pear tree]",
        ),
        (
            r#"{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"http://garden.example/tools","code":"rake"}]}}"#,
            "false [No valid coding was found for the value set 'http://garden.example/trees|2']",
        ),
        (
            r#"{"name":"code","valueCode":"apple"},{"name":"coding","valueCoding":{"system":"http://garden.example/plants","code":"pear"}}"#,
            "true [Pear tree]",
        ),
        (
            r#"{"name":"code","valueCode":"apple"},{"name":"system","valueUri":"http://garden.example/plants"},{"name":"abstract","valueString":"true"}"#,
            "Malformed(invalid): parameter 'abstract': it must be given as valueBoolean",
        ),
        (r#"{"name":"code"}"#, "Malformed(invalid): parameter 'code': it has no value"),
        (r#"{"name":"code","valueBoolean":true}"#, "Malformed(invalid): parameter 'code': it must be a text"),
    ] {
        assert_eq!(
            validate_body(&garden, &format!("{url},{item}")).split(", such as").next().unwrap(),
            expected,
            "{item}"
        );
    }
}

#[test]
fn a_request_may_contain_resources() {
    let garden = garden();
    let coding = r#"{"name":"coding","valueCoding":{"system":"http://garden.example/pots","code":"clay"}}"#;
    let pots = r#"{"name":"tx-resource","resource":{"resourceType":"CodeSystem","url":"http://garden.example/pots","status":"active","content":"complete","concept":[{"code":"clay","display":"Clay"}]}}"#;
    let set = r#"{"name":"valueSet","resource":{"resourceType":"ValueSet","status":"active","compose":{"include":[{"system":"http://garden.example/pots"}]}}}"#;
    assert_eq!(validate_body(&garden, &[coding, pots, set].join(",")), "true [Clay]");
    assert!(validate_body(&garden, &[coding, set].join(",")).starts_with("false"));
    assert_eq!(garden.code_system_count(), super::support::garden().code_system_count());
    let wrong = r#"{"name":"valueSet","resource":{"resourceType":"CodeSystem"}}"#;
    assert!(
        validate_body(&garden, &[coding, wrong].join(","))
            .contains("it contains a CodeSystem, not a ValueSet")
    );
}

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
    let answer = validate(&garden, OperationLevel::Instance("torn"), "system=x:y&code=z");
    assert!(
        answer.starts_with("Unprocessable(processing): the stored ValueSet/torn cannot be used"),
        "{answer}"
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
        garden.validate_code(OperationLevel::Instance("trees"), OperationInput::from_body(&posted)).is_err()
    );
}

#[test]
fn many_paths_to_one_value_set_and_long_chains_end_soon() {
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
