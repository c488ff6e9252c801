//! Property test that `$expand` and `$validate-code` agree: a code is in the expansion exactly when it is
//! valid. The two use different algorithms, so each checks the other. The membership test without validation
//! is checked too.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fhir::Parameters;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value as Json, json};
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation};

use crate::support::{put, run, run_expand};

const CODES: usize = 8;

/// Returns the code of a concept: `c0`, or `C0` in upper case.
fn code(at: usize, upper: bool) -> String {
    format!("{}{at}", if upper { 'C' } else { 'c' })
}

/// Generates a concept with parents of smaller numbers, a property and a state.
fn concept(at: usize) -> impl Strategy<Value = Json> {
    (prop::collection::vec(0..at.max(1), 0..3), 0..3_u8, any::<[bool; 2]>(), 0..6_u8).prop_map(
        move |(parents, size, [inactive, retired], state)| {
            let parent = |p: &usize| json!({ "code": "parent", "valueCode": code(*p, false) });
            let mut properties: Vec<_> = parents.iter().filter(|p| **p < at).map(parent).collect();
            properties.push(json!({ "code": "size", "valueInteger": size }));
            match state {
                0 => properties.push(json!({ "code": "inactive", "valueBoolean": inactive })),
                1 if retired => properties.push(json!({ "code": "status", "valueCode": "retired" })),
                2 => properties.push(json!({ "code": "notSelectable", "valueBoolean": true })),
                _ => {}
            }
            json!({ "code": code(at, false), "display": format!("Code {at}"), "property": properties })
        },
    )
}

fn system(url: &'static str, version: &'static str, exact: bool) -> impl Strategy<Value = Json> {
    let concepts: Vec<_> = (0..CODES).map(concept).collect();
    (concepts, 0..CODES, any::<bool>()).prop_map(move |(mut list, less, fragment)| {
        // Each version lacks one code, usually a different one.
        list.remove(less);
        json!({
            "resourceType": "CodeSystem", "id": format!("{}-{version}", &url[4..]), "url": url, "version": version,
            "status": "active", "content": if fragment { "fragment" } else { "complete" }, "caseSensitive": exact,
            "property": [{ "code": "size", "type": "integer" }], "concept": list,
        })
    })
}

fn filter() -> impl Strategy<Value = Json> {
    let of = |property: &'static str, op: &'static str| {
        (0..CODES, 0..CODES, any::<bool>(), 0..3_u8).prop_map(move |(a, b, yes, size)| {
            let value = match (property, op) {
                (_, "exists") => yes.to_string(),
                (_, "regex") => format!("(?i)c[{}-9]", a.min(b)),
                ("size", "in" | "not-in") => format!("{size},2"),
                ("size", _) => size.to_string(),
                (_, "in" | "not-in") => format!("{},{}", code(a, false), code(b, yes)),
                ("display", _) => format!("Code {a}"),
                _ => code(a, false),
            };
            json!({ "property": property, "op": op, "value": value })
        })
    };
    prop_oneof![
        of("concept", "is-a"),
        of("concept", "is-a"),
        of("concept", "descendent-of"),
        of("concept", "is-not-a"),
        of("concept", "generalizes"),
        of("concept", "child-of"),
        of("concept", "descendent-leaf"),
        of("concept", "in"),
        of("concept", "not-in"),
        of("code", "="),
        of("code", "regex"),
        of("display", "="),
        of("size", "="),
        of("size", "in"),
        of("size", "not-in"),
        of("size", "exists"),
        of("parent", "="),
        of("child", "exists"),
        of("inactive", "="),
    ]
}

/// Generates an include, which may import value sets with numbers below `below`.
fn include(below: usize) -> impl Strategy<Value = Json> {
    let lists = prop::collection::vec((0..CODES, any::<bool>()), 1..4).prop_map(|list| {
        let one = |(at, upper): &(usize, bool)| json!({ "code": code(*at, *upper), "display": "Listed" });
        json!({ "concept": list.iter().map(one).collect::<Vec<_>>() })
    });
    let what = prop_oneof![
        Just(json!({})),
        lists,
        prop::collection::vec(filter(), 1..3).prop_map(|list| json!({ "filter": list })),
    ];
    let which = prop::sample::select(vec!["urn:s", "urn:s", "urn:t", "urn:nobody"]);
    let version =
        prop::sample::select(vec![None, None, None, Some("1.0"), Some("2.0"), Some("*"), Some("1.x")]);
    let imports = prop::collection::vec(0..below.max(1), 0..3);
    (what, which, version, imports, 0..4_u8).prop_map(move |(mut what, system, version, imports, kind)| {
        let imports: Vec<_> =
            imports.iter().filter(|at| **at < below).map(|at| format!("urn:v{at}")).collect();
        if kind == 0 && !imports.is_empty() {
            return json!({ "valueSet": imports });
        }
        what["system"] = system.into();
        // The codes of an unknown code system cannot be filtered or listed completely, so the include lists
        // codes.
        if what.get("concept").is_none() && system == "urn:nobody" {
            what["system"] = "urn:s".into();
        }
        if let Some(version) = version.filter(|_| system == "urn:s") {
            what["version"] = version.into();
        }
        if kind == 1 && !imports.is_empty() {
            what["valueSet"] = imports.into();
        }
        what
    })
}

fn value_set(at: usize) -> impl Strategy<Value = Json> {
    let includes = prop::collection::vec(include(at), 1..4);
    let excludes = prop::collection::vec(include(at), 0..3);
    (includes, excludes, any::<Option<bool>>(), any::<Option<bool>>()).prop_map(move |(include, exclude, inactive, merged)| {
        let mut compose = json!({ "include": include, "exclude": exclude });
        if let Some(merged) = merged {
            compose["extension"] = json!([{
                "url": "http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter",
                "extension": [{ "url": "name", "valueCode": "versionsMatch" }, { "url": "value", "valueBoolean": merged }],
            }]);
        }
        if let Some(inactive) = inactive {
            compose["inactive"] = inactive.into();
        }
        json!({
            "resourceType": "ValueSet", "id": format!("v{at}"), "url": format!("urn:v{at}"), "status": "active",
            "compose": compose,
        })
    })
}

fn resources() -> impl Strategy<Value = Vec<Json>> {
    any::<bool>().prop_flat_map(|exact| {
        // All versions of the code system treat case the same way.
        let versions = (system("urn:s", "1.0", exact), system("urn:s", "2.0", exact));
        let sets: Vec<_> = (0..5).map(value_set).collect();
        let all = (versions, system("urn:t", "1.0", !exact), sets);
        all.prop_map(|((a, b), c, sets)| [a, b, c].into_iter().chain(sets).collect())
    })
}

/// Returns system and code of each member, in order; `None` if the value set cannot be expanded.
fn expand(terminology: &Terminology, query: &str) -> Option<Vec<(String, String)>> {
    let query = Parameters::from_query(query);
    let response = run_expand(terminology, OperationLevel::Type, OperationInput::from_query(&query)).ok()?;
    let text = |item: &Json, name: &str| item[name].as_str().expect("the member is a string").to_owned();
    let items = response["expansion"]["contains"].as_array().cloned().unwrap_or_default();
    Some(items.iter().map(|item| (text(item, "system"), text(item, "code"))).collect())
}

/// Returns the answer of `$validate-code` as JSON, prefixed with its result, or the error as text.
fn validate(terminology: &Terminology, query: &str) -> String {
    let query = Parameters::from_query(query);
    match run(
        terminology,
        TerminologyOperation::ValidateCode,
        OperationLevel::Type,
        OperationInput::from_query(&query),
    ) {
        Ok(answer) => {
            let response = serde_json::to_value(&answer).expect("these types serialise to JSON");
            format!("{}: {response}", response["parameter"][0]["valueBoolean"])
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_filter_that_does_not_fit_is_reported_at_any_position() {
    let system = r#"{"resourceType":"CodeSystem","id":"s","url":"urn:s","status":"active","content":"complete",
        "concept":[{"code":"c0"}]}"#;
    let all = r#"{"system":"urn:s"}"#;
    let faulty = r#"{"system":"urn:s","filter":[{"property":"wings","op":"=","value":"2"}]}"#;
    for include in [format!("{all},{faulty}"), format!("{faulty},{all}")] {
        let set = format!(
            r#"{{"resourceType":"ValueSet","id":"v","url":"urn:v","status":"active","compose":{{"include":[{include}]}}}}"#
        );
        let terminology = Terminology::default();
        terminology.apply([put(system), put(&set)]);
        let judged = validate(&terminology, "url=urn:v&system=urn:s&code=c0");
        assert!(judged.contains("no property 'wings'"), "{judged}");
        let member = terminology.has_member("urn:v", "urn:s", "c0").map_err(|error| error.to_string());
        assert_eq!(member, Err(judged), "{include}");
    }
}

/// Numbers of comparisons. Without them the law would hold for a server that expands nothing.
#[derive(Default)]
struct Counts {
    value_sets: u32,
    expansions: u32,
    valid: u32,
    invalid: u32,
}

#[test]
fn a_code_is_in_the_expansion_exactly_when_it_is_valid() {
    let counts = RefCell::new(Counts::default());
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        test_name: Some("agreement::a_code_is_in_the_expansion_exactly_when_it_is_valid"),
        ..ProptestConfig::with_cases(32)
    });
    let law = |resources: Vec<Json>| check_agreement(&resources, &mut counts.borrow_mut());
    runner.run(&resources(), law).unwrap_or_else(|error| panic!("{error}"));
    let Counts { value_sets, expansions, valid, invalid } = counts.into_inner();
    let counts = format!("{expansions} of {value_sets} expanded, {valid} codes valid, {invalid} invalid");
    assert!(expansions * 2 > value_sets && valid * 10 > invalid && invalid * 10 > valid, "{counts}");
}

fn check_agreement(resources: &[Json], counts: &mut Counts) -> Result<(), TestCaseError> {
    let terminology = Terminology::default();
    let texts: Vec<_> = resources.iter().map(Json::to_string).collect();
    terminology.apply(texts.iter().map(|json| put(json)));
    let is_exact = |url: &str| {
        let of_url = |json: &&Json| json["url"] == url;
        resources.iter().filter(of_url).all(|json| json["caseSensitive"] == true)
    };
    // A fragment accepts any unknown code, and unknown codes cannot be listed.
    let is_unsure = |url: &str, code: &str| {
        let same = |json: &Json, c: &Json| match json["caseSensitive"] == true {
            true => c["code"] == code,
            false => c["code"].as_str().is_some_and(|c| c.eq_ignore_ascii_case(code)),
        };
        let lacks = |json: &Json| {
            !json["concept"]
                .as_array()
                .expect("the code system has a list of concepts")
                .iter()
                .any(|c| same(json, c))
        };
        resources.iter().any(|json| json["url"] == url && json["content"] == "fragment" && lacks(json))
    };
    for at in 0..5 {
        for active in ["", "&activeOnly=true"] {
            let query = format!("url=urn:v{at}&excludeNested=true");
            counts.value_sets += 1;
            let Some(members) = expand(&terminology, &format!("{query}{active}")) else { continue };
            counts.expansions += 1;
            for system in ["urn:s", "urn:t", "urn:nobody"] {
                for n in 0..CODES {
                    let request = |upper| {
                        let code = code(n, upper);
                        let query = format!("url=urn:v{at}&system={system}&code={code}{active}");
                        (validate(&terminology, &query), code)
                    };
                    let contains = |code: &str| members.iter().any(|(s, c)| s == system && c == code);
                    let listed_folded =
                        |code: &str| members.iter().any(|(s, c)| s == system && c.eq_ignore_ascii_case(code));
                    for (answer, code) in [request(false), request(true)] {
                        if is_unsure(system, &code) || (!active.is_empty() && system == "urn:nobody") {
                            continue;
                        }
                        let expected = match system {
                            "urn:nobody" => contains(&code),
                            _ if is_exact(system) => contains(&code),
                            _ => listed_folded(&code),
                        };
                        match expected {
                            true => counts.valid += 1,
                            false => counts.invalid += 1,
                        }
                        prop_assert_eq!(
                            answer.starts_with("true"),
                            expected,
                            "{}#{} in v{}: {} of {:?}",
                            system,
                            code,
                            at,
                            answer,
                            members
                        );
                        if active.is_empty() {
                            let is_member = terminology.has_member(&format!("urn:v{at}"), system, &code);
                            prop_assert_eq!(is_member, Ok(expected), "{}#{} in v{}", system, code, at);
                        }
                    }
                }
            }
            if active.is_empty() {
                let page = |offset| {
                    expand(&terminology, &format!("{query}&offset={offset}&count=3"))
                        .expect("every page of the value set can be expanded")
                };
                let pages: Vec<_> = (0..members.len()).step_by(3).flat_map(page).collect();
                prop_assert_eq!(&pages, &members);
                let all: BTreeSet<_> = expand(&terminology, &format!("url=urn:v{at}"))
                    .map_or(BTreeSet::new(), |top| top.into_iter().collect());
                prop_assert!(all.iter().all(|top| members.contains(top)));
            }
        }
    }
    Ok(())
}
