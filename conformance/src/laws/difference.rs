//! Two servers side by side: the same random questions of terminology, until their answers differ.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::law_test::{Broken, Finding, LawTest, failure};
use super::terminology::{
    Hierarchy, Question, SET, SYSTEM, accepts_resources, found, hierarchies, parameter, post,
    stored_questions,
};
use crate::environment::preconditions::CaseContext;
use crate::wire::exchange::Answer;

#[derive(Debug, Clone, Copy)]
enum Operation {
    Subsumes,
    ValidateCode,
    Lookup,
    Expand,
}

/// Sends the same questions to two servers, and returns a failure with the smallest question whose answers
/// differ.
///
/// # Errors
/// [`Broken`] if the answers differ, or if a server cannot be asked.
pub fn differs(first: &LawTest<'_>, second: &LawTest<'_>) -> Result<(), Broken> {
    let mut scenes = (first.given(&["system-token"])?, second.given(&["system-token"])?);
    if accepts_resources(first) && accepts_resources(second) {
        let operations = prop_oneof![
            Just(Operation::Subsumes),
            Just(Operation::ValidateCode),
            Just(Operation::Lookup),
            Just(Operation::Expand),
        ];
        let values = (hierarchies(), operations, any::<Index>(), any::<Index>());
        return first.for_all(&values, 2, |(hierarchy, operation, a, b)| {
            let (path, parameters) = question(&hierarchy, operation, a, b);
            let mut difference = ask_both((first, second), &mut scenes, path, &parameters)?;
            if let Some(failure) = &mut difference {
                failure.differences.push(format!("the codes are {hierarchy}"));
            }
            Ok(difference)
        });
    }
    let questions: Vec<Question> = stored_questions(first, &mut scenes.0)?;
    first.for_all(&any::<Index>(), 2, |index| {
        let (path, named) = index.get(&questions);
        let parameters: Vec<_> =
            named.iter().map(|(name, kind, value)| parameter(name, kind, value)).collect();
        ask_both((first, second), &mut scenes, path, &parameters)
    })
}

fn question(hierarchy: &Hierarchy, operation: Operation, a: Index, b: Index) -> (&'static str, Vec<Value>) {
    let codes = hierarchy.codes();
    let (a, b) = (a.get(&codes), b.get(&codes));
    let (path, own) = match operation {
        Operation::Subsumes => (
            "CodeSystem/$subsumes",
            vec![("system", "Uri", SYSTEM), ("codeA", "Code", a), ("codeB", "Code", b)],
        ),
        Operation::ValidateCode => (
            "ValueSet/$validate-code",
            vec![("url", "Uri", SET), ("system", "Uri", SYSTEM), ("code", "Code", a)],
        ),
        Operation::Lookup => ("CodeSystem/$lookup", vec![("system", "Uri", SYSTEM), ("code", "Code", a)]),
        Operation::Expand => ("ValueSet/$expand", vec![("url", "Uri", SET)]),
    };
    let mut parameters = hierarchy.resources();
    parameters.extend(own.into_iter().map(|(name, kind, value)| parameter(name, kind, value)));
    (path, parameters)
}

fn ask_both(
    tests: (&LawTest<'_>, &LawTest<'_>),
    scenes: &mut (CaseContext, CaseContext),
    path: &str,
    parameters: &[Value],
) -> Result<Finding, Broken> {
    let request = post(&scenes.0, path, parameters.to_vec());
    let (answer, first) = tests.0.ask(&mut scenes.0, request)?;
    let request = post(&scenes.1, path, parameters.to_vec());
    let (other, second) = tests.1.ask(&mut scenes.1, request)?;
    let (here, there) = (essence(&answer), essence(&other));
    Ok((here != there).then(|| failure(vec![first, second], format!("{path}: {here} and {there}"))))
}

/// The part of an answer that servers must agree on: success, result, and the codes of an expansion. Messages
/// and the order of codes are their own.
fn essence(response: &Answer) -> Value {
    let body = response.json().unwrap_or_default();
    if !response.status.is_success() {
        return "error".into();
    }
    let mut codes = Vec::new();
    let mut waiting = vec![&body["expansion"]["contains"]];
    while let Some(contains) = waiting.pop() {
        for item in contains.as_array().into_iter().flatten() {
            codes.extend(item["code"].as_str().map(str::to_owned));
            waiting.push(&item["contains"]);
        }
    }
    codes.sort();
    let values = ["result", "outcome", "display"].map(|name| (name, found(&body, name).cloned()));
    let mut essence: serde_json::Map<_, _> =
        values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if body["resourceType"] == "ValueSet" {
        essence.insert("codes".to_owned(), json!(codes));
    }
    essence.into()
}
