//! Property tests for any code system: subsumption compared with a naive walk, its symmetry and reflexivity,
//! membership compared with subsumption, and GET compared with POST.

use fhir::{Parameters, Value};
use proptest::prelude::*;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation};

use crate::support::{put, run, subsumes, validate};

/// Parents of each concept. A parent has a smaller number, so there is no cycle.
fn parents() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (2_usize..14).prop_flat_map(|len| {
        (0..len)
            .map(|at| {
                prop::collection::vec(0..at.max(1), 0..3).prop_map(move |p| if at == 0 { vec![] } else { p })
            })
            .collect::<Vec<_>>()
    })
}

/// Returns a code system with these parents, and a value set of the descendants of each concept.
fn terminology(parents: &[Vec<usize>]) -> Terminology {
    let property = |p: &usize| format!(r#"{{"code":"parent","valueCode":"c{p}"}}"#);
    // In reverse, so that children precede their parents.
    let concepts: Vec<_> = (0..parents.len())
        .rev()
        .map(|at| {
            let list: Vec<_> = parents[at].iter().map(property).collect();
            format!(r#"{{"code":"c{at}","display":"C{at}","property":[{}]}}"#, list.join(","))
        })
        .collect();
    let system = format!(
        r#"{{"resourceType":"CodeSystem","id":"s","url":"urn:s","status":"active","content":"complete","concept":[{}]}}"#,
        concepts.join(",")
    );
    let set = |at: usize| {
        format!(
            r#"{{"resourceType":"ValueSet","id":"v{at}","url":"urn:v{at}","status":"active","compose":{{"include":[{{"system":"urn:s","filter":[{{"property":"concept","op":"is-a","value":"c{at}"}}]}}]}}}}"#
        )
    };
    let terminology = Terminology::default();
    terminology.apply([put(&system)].into_iter().chain((0..parents.len()).map(|at| put(&set(at)))));
    terminology
}

fn walks_up(parents: &[Vec<usize>], from: usize, to: usize) -> bool {
    parents[from].iter().any(|&parent| parent == to || walks_up(parents, parent, to))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn subsumption_agrees_with_a_naive_walk_and_with_membership(parents in parents()) {
        let terminology = terminology(&parents);
        for a in 0..parents.len() {
            for b in 0..parents.len() {
                let relation = |a, b| subsumes(&terminology, OperationLevel::Type, &format!("system=urn:s&codeA=c{a}&codeB=c{b}"));
                let expected = match (a == b, walks_up(&parents, b, a), walks_up(&parents, a, b)) {
                    (true, ..) => ("equivalent", "equivalent"),
                    (_, true, _) => ("subsumes", "subsumed-by"),
                    (.., true) => ("subsumed-by", "subsumes"),
                    _ => ("not-subsumed", "not-subsumed"),
                };
                let outcome = (relation(a, b), relation(b, a));
                prop_assert_eq!((outcome.0.as_str(), outcome.1.as_str()), expected, "c{} c{}", a, b);
                let query = format!("url=urn:v{a}&system=urn:s&code=c{b}");
                let is_member = validate(&terminology, OperationLevel::Type, &query).starts_with("true");
                prop_assert_eq!(is_member, matches!(expected.0, "equivalent" | "subsumes"), "c{} in v{}", b, a);
            }
        }
    }

    #[test]
    fn a_query_and_a_body_get_the_same_answer(
        set in prop::sample::select(vec!["trees", "listed", "everything", "in-use", "none", "circle-1"]),
        code in prop::sample::select(vec!["apple", "elm", "stone", "SPADE", "nothing", "plant"]),
        system in prop::sample::select(vec!["http://garden.example/plants", "http://garden.example/tools", "urn:other"]),
        display in prop::option::of(prop::sample::select(vec!["Elm", "elm", "Apfelbaum"])),
        abstract_allowed in any::<Option<bool>>(),
    ) {
        let garden = crate::support::garden();
        let mut query = format!("url=http://garden.example/{set}&code={code}&system={system}");
        let mut body = Parameters::new();
        body.push_uri("url", format!("http://garden.example/{set}"));
        body.push_code("code", code);
        body.push("system", Value::Text("Canonical", system.to_owned()));
        if let Some(display) = display {
            query.push_str(&format!("&display={display}"));
            body.push_string("display", display);
        }
        if let Some(allowed) = abstract_allowed {
            query.push_str(&format!("&abstract={allowed}"));
            body.push_boolean("abstract", allowed);
        }
        let query = Parameters::from_query(&query);
        for level in [OperationLevel::Type, OperationLevel::Instance("trees")] {
            prop_assert_eq!(
                run(&garden, TerminologyOperation::ValidateCode, level, OperationInput::from_query(&query)),
                run(&garden, TerminologyOperation::ValidateCode, level, OperationInput::from_body(&body))
            );
        }
    }
}
