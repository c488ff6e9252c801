//! Expression constraints of SNOMED CT against a naive evaluator, which computes sets as the specification
//! defines them: the test of one concept and the expansion must both agree with it. TREFOIL_ECL_CASES is the
//! number of random cases.

mod descriptions;
mod expression;
mod members;
mod naive;
mod release;

use crate::support::run_expand;
use std::collections::BTreeSet;

use fhir::Parameters;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use trefoil_terminology::indexing::SNOMED_CT;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology};

use self::descriptions::description_filter;
use self::expression::{Expression, expression, write};
use self::members::member_query;
use self::naive::Naive;
use self::release::{CONCEPTS, Concept, code, release, terminology};

/// Returns the codes of an expansion.
fn expansion(terminology: &Terminology, url: &str) -> BTreeSet<String> {
    let mut parameters = Parameters::new();
    parameters.push_uri("url", url);
    parameters.push_boolean("excludeNested", true);
    let input = OperationInput::from_body(&parameters);
    let response = run_expand(terminology, OperationLevel::Type, input);
    let response = response.unwrap_or_else(|error| panic!("{url}: {error}"));
    let codes = response["expansion"]["contains"].as_array().into_iter().flatten();
    codes.map(|row| row["code"].as_str().unwrap().to_owned()).collect()
}

fn cases() -> u32 {
    std::env::var("TREFOIL_ECL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

/// Checks the test of each concept and the expansion against the naive evaluator.
fn check(release: &[Concept], expression: &Expression, long: bool) -> Result<(), TestCaseError> {
    let (terminology, text) = (terminology(release), write(expression, long));
    let expected: BTreeSet<String> = Naive(release).set(expression).into_iter().map(code).collect();
    let url = format!("{SNOMED_CT}?fhir_vs=ecl/{text}");
    // The expansion comes second, because the test of one concept may use its cached set.
    for at in 0..CONCEPTS {
        let is_in = terminology.has_member(&url, SNOMED_CT, &code(at)).unwrap();
        prop_assert_eq!(is_in, expected.contains(&code(at)), "{} in {}", code(at), text);
    }
    prop_assert_eq!(&expansion(&terminology, &url), &expected, "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn expressions_select_what_a_naive_evaluator_selects(
        release in release(),
        expression in expression(),
        long in any::<bool>(),
    ) {
        check(&release, &expression, long)?;
    }

    #[test]
    fn filters_on_descriptions_select_what_a_naive_evaluator_selects(
        release in release(),
        filters in prop::collection::vec(description_filter(CONCEPTS), 1..3),
        long in any::<bool>(),
    ) {
        check(&release, &Expression::Described(Box::new(Expression::Any), filters), long)?;
    }

    #[test]
    fn filters_on_members_select_what_a_naive_evaluator_selects(
        release in release(),
        query in member_query(),
        long in any::<bool>(),
    ) {
        check(&release, &Expression::Members(query), long)?;
    }
}
