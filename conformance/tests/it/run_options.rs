//! The options of a run, on a server that answers everything with the same object, and on one that fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::json;
use tokio::runtime::Runtime;
use trefoil_conformance::environment::TestEnvironment;
use trefoil_conformance::environment::target::{TIMEOUT, TargetKind, TestTarget};
use trefoil_conformance::profile::Profile;
use trefoil_conformance::run::selection::Selection;
use trefoil_conformance::run::verdict::{CaseFailure, CaseOutcome, Verdict};
use trefoil_conformance::run::{self, RunEnd, RunListener, RunOptions};
use trefoil_conformance::spec::Specification;
use trefoil_conformance::spec::case::Case;
use trefoil_conformance::spec::requirement::Level;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::other_servers::{Verdicts, dumb_environment};

/// A case that the server passes, and one that it fails.
const PASSED: &str = "rfc8414/3.2/json/content-type";
const FAILED: &str = "rfc6749/5.2/json/unknown-grant-type";

/// A dumb server, and a runtime for the requests to it.
struct Dumb {
    runtime: Runtime,
    environment: TestEnvironment,
}

impl Dumb {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let environment = runtime.block_on(dumb_environment(usize::MAX));
        Self { runtime, environment }
    }

    /// Runs the two cases with these options.
    fn run(&self, options: RunOptions, stop: bool) -> (RunEnd, Verdicts) {
        let only = [PASSED, FAILED].map(str::to_owned).to_vec();
        let options = RunOptions { selection: Selection { only, ..Selection::default() }, ..options };
        let verdicts = Verdicts::default();
        let mut listeners: Vec<Box<dyn RunListener>> = vec![Box::new(verdicts.clone())];
        let spec = Specification::load().unwrap();
        let stop = AtomicBool::new(stop);
        let end = self.runtime.block_on(run::run(&self.environment, &spec, &options, &stop, &mut listeners));
        (end, verdicts)
    }
}

#[test]
fn without_options_both_cases_run() {
    let (end, verdicts) = Dumb::start().run(RunOptions::default(), false);
    assert_eq!((end.summary.passed, end.summary.failed), (1, 1));
    assert_eq!(verdicts.names()[FAILED], "fail");
}

#[test]
fn a_baseline_excuses_failures_and_reports_what_passes() {
    let dumb = Dumb::start();
    let run_with_baseline = |case: &str| {
        let baseline = BTreeMap::from([(case.to_owned(), "known".to_owned())]);
        dumb.run(RunOptions { baseline, ..RunOptions::default() }, false).1.names()
    };
    assert_eq!((run_with_baseline(FAILED)[FAILED], run_with_baseline(FAILED)[PASSED]), ("gap", "pass"));
    assert_eq!((run_with_baseline(PASSED)[FAILED], run_with_baseline(PASSED)[PASSED]), ("fail", "fail"));
}

#[test]
fn a_resumed_run_takes_over_the_outcomes() {
    let earlier = CaseOutcome {
        id: PASSED.to_owned(),
        covers: Vec::new(),
        level: Level::Must,
        verdict: Verdict::Fail(CaseFailure::before("from the earlier run")),
        took_ms: 5,
    };
    let (end, verdicts) =
        Dumb::start().run(RunOptions { earlier: vec![earlier], ..RunOptions::default() }, false);
    assert_eq!(end.summary.failed, 2);
    assert!(verdicts.faults().iter().any(|fault| fault.contains("from the earlier run")));
}

#[test]
fn no_case_starts_after_the_deadline_or_an_interrupt() {
    let dumb = Dumb::start();
    let (end, _) = dumb.run(RunOptions { deadline: Some(Instant::now()), ..RunOptions::default() }, false);
    assert_eq!((end.summary.inconclusive, end.interrupted), (2, false));
    let (end, verdicts) = dumb.run(RunOptions::default(), true);
    assert!(end.interrupted && verdicts.names().is_empty());
}

#[test]
fn a_seed_determines_the_order() {
    let dumb = Dumb::start();
    let order = |seed| dumb.run(RunOptions { seed: Some(seed), ..RunOptions::default() }, false).1.order();
    assert_eq!(order(1), order(1));
    let orders: Vec<_> = (0..8).map(order).collect();
    assert!(orders.contains(&vec![PASSED.to_owned(), FAILED.to_owned()]), "{orders:?}");
    assert!(orders.contains(&vec![FAILED.to_owned(), PASSED.to_owned()]), "{orders:?}");
}

/// A case that meets an error of the server beside other cases runs again alone. Passing then is no pass, and
/// failing is a failure.
#[test]
fn an_error_of_the_server_is_repeated_alone() {
    let trial = |errors: u64, jobs: usize| run_on_failing(ResponseTemplate::new(500), errors, jobs);
    let passes_alone = trial(1, 4);
    assert_eq!(passes_alone.names()[FAILED], "inconclusive");
    assert!(
        passes_alone.faults().iter().any(|fault| fault.contains("'jobs = 1'")),
        "{:?}",
        passes_alone.faults()
    );
    assert_eq!(trial(2, 4).names()[FAILED], "fail");
    assert_eq!(trial(1, 1).names()[FAILED], "fail");
}

/// A request that a server refuses because of its limits is sent again after the pause that the server asks
/// for, unless it is longer than the run waits.
#[test]
fn the_limits_of_a_server_are_waited_for() {
    let limit = |pause: &str| ResponseTemplate::new(429).insert_header("retry-after", pause);
    assert_eq!(run_on_failing(limit("0"), 2, 4).names()[FAILED], "pass");
    let too_long = run_on_failing(limit("1000"), 1, 4);
    assert_eq!(too_long.names()[FAILED], "inconclusive");
    assert!(too_long.faults().iter().any(|fault| fault.contains("429 with Retry-After: 1000")));
}

/// Runs the two cases on a server whose token endpoint begins with failures.
fn run_on_failing(failure: ResponseTemplate, times: u64, jobs: usize) -> Verdicts {
    let runtime = Runtime::new().unwrap();
    let (_server, environment) = runtime.block_on(failing_environment(failure, times));
    Dumb { runtime, environment }.run(RunOptions { jobs, ..RunOptions::default() }, false).1
}

/// A server whose token endpoint refuses the grant, after a number of failures.
async fn failing_environment(failure: ResponseTemplate, times: u64) -> (MockServer, TestEnvironment) {
    let server = MockServer::start().await;
    let url = server.uri();
    let metadata = json!({ "issuer": url, "token_endpoint": format!("{url}/token"), "jwks_uri": url });
    let refusal = ResponseTemplate::new(400).set_body_json(json!({ "error": "unsupported_grant_type" }));
    let at_token = || Mock::given(method("POST")).and(path("/token"));
    Mock::given(method("GET"))
        .respond_with(ResponseTemplate::new(200).set_body_json(metadata))
        .mount(&server)
        .await;
    at_token().respond_with(failure).up_to_n_times(times).mount(&server).await;
    at_token().respond_with(refusal).mount(&server).await;
    let client = "[confidential]\nclient_id = \"office\"\nclient_secret = \"a-secret-for-a-test\"\n";
    let profile = Profile::from_toml(client, Path::new(".")).unwrap();
    let target = TestTarget::connect(&url, profile, TargetKind::Other, TIMEOUT).await.unwrap();
    (server, TestEnvironment::of(target))
}

#[test]
fn cases_with_the_same_request_share_its_exchange() {
    let spec = Specification::load().unwrap();
    let is_like = |case: &&Case| {
        let [step] = &case.steps[..] else { return false };
        let request = &step.request;
        let is_plain = request.query.is_empty() && request.headers.is_empty() && request.times == 1;
        request.method == http::Method::GET && request.to == "discovery" && is_plain && case.given.is_empty()
    };
    let only: Vec<_> = spec.cases.iter().filter(is_like).map(|case| case.id.clone()).collect();
    let runtime = Runtime::new().unwrap();
    let (server, environment) = runtime.block_on(failing_environment(ResponseTemplate::new(500), 1));
    let requests = || {
        let all = runtime.block_on(server.received_requests()).unwrap();
        all.iter().filter(|request| request.url.path().ends_with("openid-configuration")).count()
    };
    let before = requests();
    let options =
        RunOptions { selection: Selection { only, ..Selection::default() }, ..RunOptions::default() };
    let verdicts = Verdicts::default();
    let mut listeners: [Box<dyn RunListener>; 1] = [Box::new(verdicts.clone())];
    let stop = AtomicBool::new(false);
    let run = run::run(&environment, &spec, &options, &stop, &mut listeners);
    let summary = runtime.block_on(run).summary;
    assert!(summary.passed + summary.failed > 2, "{summary}");
    assert_eq!(requests() - before, 1, "{summary}");
    let names = verdicts.names();
    assert!(names.values().any(|name| *name == "pass") && names.values().any(|name| *name == "fail"));
}
