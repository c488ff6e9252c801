//! Tests that the steps of a request grow linearly with its size, and that a request which exceeds its budget
//! is rejected.

use crate::support::{run, run_expand};
use std::time::Instant;

use fhir::{IssueCode, Parameters};
use trefoil_fixtures::costly::{self, CostlyRequest};
use trefoil_terminology::ExhaustionCause;
use trefoil_terminology::{
    Budget, OperationInput, OperationLevel, Terminology, TerminologyOperation, TxError,
};

fn send(costly: &CostlyRequest, parameters: &Parameters, budget: &Budget<'_>) -> Result<(), TxError> {
    let terminology = Terminology::default();
    let input = OperationInput::from_body(parameters).budget(budget);
    match costly.operation {
        "ValueSet/$validate-code" => {
            run(&terminology, TerminologyOperation::ValidateCode, OperationLevel::Type, input).map(drop)
        }
        "ValueSet/$batch-validate-code" => {
            run(&terminology, TerminologyOperation::BatchValidateCode, OperationLevel::Type, input).map(drop)
        }
        "ValueSet/$expand" => run_expand(&terminology, OperationLevel::Type, input).map(drop),
        "CodeSystem/$lookup" => {
            run(&terminology, TerminologyOperation::Lookup, OperationLevel::Type, input).map(drop)
        }
        other => panic!("no request of this test calls {other}"),
    }
}

/// Runs a request of this size. Returns the number of steps and the result.
fn steps(costly: &CostlyRequest, size: usize) -> (u64, Result<(), TxError>) {
    let parameters = Parameters::from_json(costly.body(size).to_string().as_bytes()).unwrap();
    let budget = Budget::default();
    let response = send(costly, &parameters, &budget);
    (budget.steps(), response)
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

/// Work that spends nothing of the budget is not bounded by it.
#[test]
fn an_expression_spends_the_budget_for_every_walk_over_its_ancestors() {
    let costly = costly::ALL.iter().find(|costly| costly.name.starts_with("an expression")).unwrap();
    let (steps_without, _) = steps(costly, 100);
    let (steps, answer) = steps(costly, 2_100);
    assert!(answer.is_ok(), "{answer:?}");
    // The concepts above it, their children, the nearest concepts above it twice for the normal form and
    // once for its place, and the copy.
    let per_ancestor = (steps - steps_without) as f64 / 2_000.0;
    println!("{per_ancestor} steps for each ancestor");
    assert!(per_ancestor >= 35.0, "{per_ancestor}");
}

#[test]
fn a_request_of_full_size_is_answered_or_rejected_as_too_costly() {
    for costly in costly::ALL {
        let started = Instant::now();
        let (steps, answer) = steps(costly, costly.large);
        let (time, actual) = (started.elapsed(), answer.as_ref().map_err(ToString::to_string));
        println!("{}: {steps} steps, {time:?}, {actual:?}", costly.name);
        if let Err(error) = answer {
            let code = error.outcome().issue[0].code;
            let is_refused = matches!(code, IssueCode::TooCostly | IssueCode::Invalid);
            assert!(is_refused, "{}: {error}", costly.name);
        }
    }
}

#[test]
fn a_spent_budget_ends_every_operation() {
    for costly in costly::ALL.iter().filter(|costly| costly.name != "languages") {
        let parameters =
            Parameters::from_json(costly.body(costly.large / 10).to_string().as_bytes()).unwrap();
        let full = Budget::default();
        drop(send(costly, &parameters, &full));
        for part in [1, 3, 10, 30] {
            let budget = Budget::with_steps(full.steps() * part / 32);
            let error = send(costly, &parameters, &budget).unwrap_err();
            assert!(matches!(error.exhausted(), Some(ExhaustionCause::Steps(_))), "{}: {error}", costly.name);
            assert_eq!(error.outcome().issue[0].code, IssueCode::TooCostly, "{}", costly.name);
        }
    }
}

#[test]
fn a_check_ends_a_request_between_two_slices() {
    let costly = costly::ALL.iter().find(|costly| costly.name == "items of a batch").unwrap();
    let parameters = Parameters::from_json(costly.body(2_000).to_string().as_bytes()).unwrap();
    let check = || Some(ExhaustionCause::Deadline(900));
    let error = send(costly, &parameters, &Budget::full(&check)).unwrap_err();
    assert_eq!(error.exhausted(), Some(ExhaustionCause::Deadline(900)));
    let text = "takes more than 900 ms of CPU time; send fewer codes at a time";
    assert!(error.to_string().contains(text), "{error}");
}
