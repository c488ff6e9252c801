//! The law of cost: the steps of a question grow with its size and not faster, and a question that takes more than its
//! budget is refused.

use std::time::Instant;

use fhir::{IssueCode, Parameters};
use trefoil_fixtures::costly::{self, Costly};
use trefoil_terminology::budget::Cause;
use trefoil_terminology::{Budget, Input, Level, Terminology, TxError};

fn ask(costly: &Costly, parameters: &Parameters, budget: &Budget<'_>) -> Result<(), TxError> {
    let terminology = Terminology::default();
    let input = Input::from_body(parameters).budget(budget);
    match costly.operation {
        "ValueSet/$validate-code" => terminology.validate_code(Level::Type, input).map(drop),
        "ValueSet/$batch-validate-code" => terminology.batch_validate_code(input).map(drop),
        "ValueSet/$expand" => terminology.expand(Level::Type, input, "2026-01-01").map(drop),
        "CodeSystem/$lookup" => terminology.lookup(input).map(drop),
        other => panic!("{other} is not asked here"),
    }
}

/// Steps of a request of this size, and what became of it.
fn steps(costly: &Costly, size: usize) -> (u64, Result<(), TxError>) {
    let parameters = Parameters::from_json(costly.body(size).to_string().as_bytes()).unwrap();
    let budget = Budget::default();
    let answer = ask(costly, &parameters, &budget);
    (budget.steps(), answer)
}

#[test]
fn steps_grow_with_the_size_of_a_request_and_not_faster() {
    for costly in costly::ALL.iter().filter(|costly| costly.is_linear) {
        let size = costly.large / 20;
        let [small, large] = [size, 4 * size].map(|size| steps(costly, size));
        println!("{}: {} steps at {size}, {} at {}", costly.name, small.0, large.0, 4 * size);
        if large.1.is_ok() {
            assert!(large.0 <= 6 * small.0, "{}: {} steps, then {}", costly.name, small.0, large.0);
        }
    }
}

#[test]
fn a_request_of_full_size_is_answered_or_refused_as_too_costly() {
    for costly in costly::ALL {
        let started = Instant::now();
        let (steps, answer) = steps(costly, costly.large);
        let (time, said) = (started.elapsed(), answer.as_ref().map_err(ToString::to_string));
        println!("{}: {steps} steps, {time:?}, {said:?}", costly.name);
        if let Err(error) = answer {
            let code = error.outcome().issue[0].code;
            let is_refused = matches!(code, IssueCode::TooCostly | IssueCode::Invalid);
            assert!(is_refused, "{}: {error}", costly.name);
        }
    }
}

#[test]
fn a_spent_budget_ends_every_kind_of_question() {
    for costly in costly::ALL.iter().filter(|costly| costly.name != "languages") {
        let parameters =
            Parameters::from_json(costly.body(costly.large / 10).to_string().as_bytes()).unwrap();
        let full = Budget::default();
        drop(ask(costly, &parameters, &full));
        for part in [1, 3, 10, 30] {
            let budget = Budget::of(full.steps() * part / 32);
            let error = ask(costly, &parameters, &budget).unwrap_err();
            assert!(matches!(error.exhausted(), Some(Cause::Steps(_))), "{}: {error}", costly.name);
            assert_eq!(error.outcome().issue[0].code, IssueCode::TooCostly, "{}", costly.name);
        }
    }
}

#[test]
fn a_check_ends_a_question_between_two_slices() {
    let costly = costly::ALL.iter().find(|costly| costly.name == "items of a batch").unwrap();
    let parameters = Parameters::from_json(costly.body(2_000).to_string().as_bytes()).unwrap();
    let check = || Some(Cause::Deadline(900));
    let error = ask(costly, &parameters, &Budget::full(&check)).unwrap_err();
    assert_eq!(error.exhausted(), Some(Cause::Deadline(900)));
    let text = "takes more than 900 ms of CPU time; ask about fewer codes at a time";
    assert!(error.to_string().contains(text), "{error}");
}
