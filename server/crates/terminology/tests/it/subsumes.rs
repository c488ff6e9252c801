//! `CodeSystem/$subsumes`: outcomes and errors.

use fhir::Parameters;
use trefoil_terminology::{OperationInput, OperationLevel};

use crate::support::{body, garden, short, subsumes};

#[test]
fn every_outcome_at_both_levels_by_both_methods() {
    let garden = garden();
    for (a, b, expected) in [
        ("tree", "apple", "subsumes"),
        ("plant", "pear", "subsumes"),
        ("crop", "pear", "subsumes"),
        ("pear", "tree", "subsumed-by"),
        ("pear", "pear", "equivalent"),
        ("apple", "crop", "not-subsumed"),
        ("stone", "plant", "not-subsumed"),
    ] {
        let query = format!("system=http://garden.example/plants&codeA={a}&codeB={b}");
        assert_eq!(subsumes(&garden, OperationLevel::Type, &query), expected, "{query}");
        let query = format!("codeA={a}&codeB={b}");
        assert_eq!(subsumes(&garden, OperationLevel::Instance("plants"), &query), expected, "{query}");
        for posted in [
            format!(
                r#"{{"name":"codeA","valueCode":"{a}"}},{{"name":"codeB","valueString":"{b}"}},{{"name":"system","valueUri":"http://garden.example/plants"}}"#
            ),
            format!(
                r#"{{"name":"codingA","valueCoding":{{"system":"http://garden.example/plants","code":"{a}"}}}},{{"name":"codingB","valueCoding":{{"system":"http://garden.example/plants","code":"{b}"}}}}"#
            ),
        ] {
            let posted = body(&posted);
            assert_eq!(
                short(garden.subsumes(OperationLevel::Type, OperationInput::from_body(&posted))),
                expected
            );
        }
    }
}

#[test]
fn an_undefined_relation_is_an_error() {
    let garden = garden();
    for (query, expected) in [
        (
            "system=http://garden.example/plants&codeA=x&codeB=tree",
            "UnknownCode(code-invalid): Unknown code 'x' in the CodeSystem 'http://garden.example/plants' version '1.0.0'",
        ),
        (
            "system=http://garden.example/plants&codeA=x&codeB=x",
            "UnknownCode(code-invalid): Unknown code 'x'",
        ),
        (
            "system=http://garden.example/plants&codeA=TREE&codeB=tree",
            "UnknownCode(code-invalid): Unknown code 'TREE'",
        ),
        (
            "system=http://garden.example/plants&version=0.9.0&codeA=fern&codeB=apple",
            "UnknownCode(code-invalid): Unknown code 'apple'",
        ),
        ("system=http://garden.example/plants&version=0.9.0&codeA=fern&codeB=tree", "not-subsumed"),
        (
            "system=http://garden.example/plants&version=7&codeA=tree&codeB=tree",
            "UnknownCodeSystem(not-found): A definition for CodeSystem 'http://garden.example/plants' version '7' could not be found",
        ),
        (
            "system=http://garden.example/none&codeA=a&codeB=b",
            "UnknownCodeSystem(not-found): A definition for CodeSystem 'http://garden.example/none' could not be found",
        ),
        ("codeA=a&codeB=b", "Missing(required): parameter 'system' is needed"),
        ("system=http://garden.example/plants&codeB=b", "Missing(required): parameter 'codeA' is missing"),
        ("system=http://garden.example/plants&codeA=b", "Missing(required): parameter 'codeB' is missing"),
        ("", "Missing(required): parameter 'codeA' is missing"),
        (
            "system=http://garden.example/plants&codeA=a&codeA=b&codeB=b",
            "Malformed(invalid): parameter 'codeA': it occurs more than once",
        ),
        ("system=&codeA=a&codeB=b", "Malformed(invalid): parameter 'system': it is empty"),
        (
            "codingA=a&codingB=b",
            "Malformed(invalid): parameter 'codingA': a Coding cannot be sent in a query string",
        ),
        ("system=http://garden.example/tools&codeA=SPADE&codeB=spade", "equivalent"),
        ("system=http://garden.example/tools&codeA=spade&codeB=rake", "not-subsumed"),
        ("system=http://garden.example/beds&codeA=bed&codeB=bed", "equivalent"),
        (
            "system=http://garden.example/beds&codeA=garden&codeB=bed",
            "Unprocessable(not-supported): the hierarchy of http://garden.example/beds has the meaning part-of",
        ),
        ("system=http://garden.example/round&codeA=a&codeB=a", "equivalent"),
        (
            "system=http://garden.example/round&codeA=a&codeB=b",
            "Unprocessable(processing): the hierarchy of http://garden.example/round has a cycle: a > b > a",
        ),
        (
            "system=http://garden.example/empty&codeA=a&codeB=a",
            "Unprocessable(not-supported): http://garden.example/empty has content not-present",
        ),
        ("system=http://garden.example/weeds&codeA=nettle&codeB=nettle", "equivalent"),
        (
            "system=http://garden.example/broken&codeA=a&codeB=b",
            "Unprocessable(processing): the stored http://garden.example/broken cannot be used: missing field `code`",
        ),
        ("system=http://garden.example/plants&codeA=tree&codeB=apple&colour=red", "subsumes"),
    ] {
        let answer = subsumes(&garden, OperationLevel::Type, query);
        assert!(answer.starts_with(expected), "{query}\n{answer}");
    }
}

#[test]
fn an_instance_answers_for_its_own_system_and_version() {
    let garden = garden();
    for (id, query, expected) in [
        ("nobody", "codeA=a&codeB=b", "UnknownInstance(not-found): CodeSystem/nobody is not known"),
        ("trees", "codeA=a&codeB=b", "UnknownInstance(not-found): CodeSystem/trees is not known"),
        ("plants-0", "codeA=fern&codeB=tree", "not-subsumed"),
        ("plants", "codeA=tree&codeB=apple&system=http://garden.example/plants&version=1.0.0", "subsumes"),
        (
            "plants",
            "codeA=tree&codeB=apple&system=http://garden.example/tools",
            "Malformed(invalid): parameter 'system'",
        ),
        ("plants", "codeA=tree&codeB=apple&version=0.9.0", "UnknownCodeSystem(not-found)"),
    ] {
        let answer = subsumes(&garden, OperationLevel::Instance(id), query);
        assert!(answer.starts_with(expected), "{id} {query}\n{answer}");
    }
}

#[test]
fn codings_must_agree() {
    let garden = garden();
    let coding = |name: &str, json: &str| format!(r#"{{"name":"{name}","valueCoding":{json}}}"#);
    let tree = r#"{"system":"http://garden.example/plants","code":"tree"}"#;
    for (a, b, expected) in [
        (
            tree,
            r#"{"system":"http://garden.example/tools","code":"rake"}"#,
            "Malformed(invalid): parameter 'codingB': its system",
        ),
        (
            tree,
            r#"{"system":"http://garden.example/plants"}"#,
            "Malformed(invalid): parameter 'codingB': it has no code",
        ),
        (tree, r#"{"code":"apple"}"#, "subsumes"),
        (r#"{"code":"tree"}"#, r#"{"code":"apple"}"#, "Missing(required): parameter 'system'"),
    ] {
        let posted = body(&[coding("codingA", a), coding("codingB", b)].join(","));
        let answer = short(garden.subsumes(OperationLevel::Type, OperationInput::from_body(&posted)));
        assert!(answer.starts_with(expected), "{a} {b}\n{answer}");
    }
    let half = body(&format!(r#"{},{{"name":"codeB","valueCode":"apple"}}"#, coding("codingA", tree)));
    let answer = short(garden.subsumes(OperationLevel::Type, OperationInput::from_body(&half)));
    assert!(answer.contains("send either codeA and codeB or codingA and codingB"), "{answer}");
    let none = Parameters::new();
    assert!(
        short(garden.subsumes(OperationLevel::Type, OperationInput::from_body(&none))).starts_with("Missing")
    );
}
