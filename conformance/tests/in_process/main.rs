//! The rows about terminology without HTTP: each case that only sends terminology requests is a trial with
//! its id as name. The request is passed to `trefoil-terminology`, and the result is compared by the code
//! that also checks responses of the server.
//!
//! `cargo test -p trefoil-conformance --test in_process -- design/subsumes` runs one section.

mod groups;
mod service;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use groups::RowGroup;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use service::TerminologyService;
use trefoil_conformance::run::step_check;
use trefoil_conformance::run::verdict::{self, CaseFailure, ShownExchange, Verdict};
use trefoil_conformance::spec::Specification;
use trefoil_conformance::spec::case::{Case, Step};
use trefoil_conformance::spec::endpoints;
use trefoil_conformance::wire::build::build_request;
use trefoil_conformance::wire::exchange::{self, Answer};
use trefoil_conformance::wire::random::random_text;
use trefoil_conformance::wire::variables::Variables;

static DEMO: LazyLock<TerminologyService> = LazyLock::new(TerminologyService::demo);
static RELEASES: LazyLock<TerminologyService> = LazyLock::new(TerminologyService::releases);

/// Returns the variables of a case. Requests contain the tokens, but the terminology crate does not read
/// them.
fn variables() -> Variables {
    let mut variables = Variables::default();
    let base_url = "https://in-process.example";
    variables.set("base_url", base_url);
    variables.set("endpoints", endpoints::of_trefoil(base_url));
    variables.set("state", random_text());
    for token in ["system_token", "token"] {
        variables.set(token, "no-token");
    }
    variables
}

/// Runs the steps of a case.
fn try_case(service: &TerminologyService, case: &Case) -> Result<(), Verdict> {
    let mut variables = variables();
    let mut exchanges = Vec::new();
    for step in &case.steps {
        let before = |error: String| Verdict::Fail(CaseFailure::before(error));
        let request = build_request(&step.request, &variables).map_err(|error| before(error.to_string()))?;
        let result = service.answer(&request).map_err(before)?;
        let (is_error, body) = match result {
            Ok(body) => (false, body),
            Err(outcome) => (true, outcome),
        };
        let mut differences = Vec::new();
        if let Some(status) = &step.expect.status
            && status.matches(StatusCode::OK.as_u16()) == is_error
        {
            let outcome = if is_error { "an error" } else { "a result" };
            differences.push(format!("status: {outcome} instead of {status}"));
        }
        // The HTTP layer chooses the status of an error, so rows compare this status only over HTTP.
        let mut without_status: Step = step.clone();
        without_status.expect.status = None;
        if let Some(house) = &mut without_status.house {
            house.status = None;
        }
        let fhir_json = HeaderValue::from_static("application/fhir+json");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, fhir_json)]);
        let response = Answer { status: StatusCode::OK, headers, body: Bytes::from(body) };
        let comparison =
            step_check::check_step(&without_status, &response, &mut variables, &Value::Null, true);
        differences.extend(comparison.map_err(|error| before(error.to_string()))?);
        exchanges.push(ShownExchange { request: exchange::curl(&request), answer: response.text() });
        if !differences.is_empty() {
            return Err(Verdict::Fail(CaseFailure { exchanges, differences }));
        }
    }
    Ok(())
}

fn trial(spec: &Specification, service: &TerminologyService, case: &Case) -> Result<(), Failed> {
    match verdict::weigh(try_case(service, case), spec.gap_reason(&case.id)) {
        Verdict::Pass | Verdict::Gap { .. } => Ok(()),
        Verdict::Skip { reason } | Verdict::Inconclusive { reason } => Err(Failed::from(reason)),
        Verdict::Fail(failure) => Err(Failed::from(format!("{}, {failure}", case.place))),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let spec = Arc::new(Specification::load().expect("the tables can be read"));
    let (mut trials, mut ungrouped) = (Vec::new(), Vec::new());
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &spec.cases {
        let service = match groups::group_of(case) {
            Ok(RowGroup::Demo) => &DEMO,
            Ok(RowGroup::Releases) => &RELEASES,
            Ok(RowGroup::WireOnly(reason)) => {
                *left_out.entry(reason).or_default() += 1;
                continue;
            }
            Err(fault) => {
                ungrouped.push(format!("{}: {}: {fault}", case.place, case.id));
                continue;
            }
        };
        let (spec, case) = (spec.clone(), case.clone());
        trials.push(Trial::test(case.id.clone(), move || trial(&spec, service, &case)));
    }
    if !arguments.list {
        println!("{} of {} rows run in process", trials.len(), spec.cases.len());
        for (reason, count) in &left_out {
            println!("{count} rows run over the wire only: {reason}");
        }
    }
    trials.push(Trial::test("groups/each-row-is-in-one", move || match ungrouped.is_empty() {
        true => Ok(()),
        false => Err(Failed::from(ungrouped.join("\n"))),
    }));
    libtest_mimic::run(&arguments, trials).exit();
}
