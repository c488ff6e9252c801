//! HL7's terminology suite against our server: a small suite in the same layout, and HL7's own suite if it is
//! available, in the folders `data/tx` and `data/tx-operations` of the folder in TREFOIL_SHARED or of
//! `shared` next to the workspace. If a folder is not available, its test prints that it is left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::runtime::Runtime;
use trefoil_conformance::environment::server::OwnServer;
use trefoil_conformance::spec::Specification;
use trefoil_conformance::tx::contradictions::CONTRADICTIONS;
use trefoil_conformance::tx::report::SuiteReport;
use trefoil_conformance::tx::{self, SuiteOptions, Verdict};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

/// Settings of a server that allows terminology requests without a token.
const ANONYMOUS: &str = "[terminology]\nanonymous = true\n";

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tx")
}

/// A server, the connection to it, and a runtime.
struct Trial {
    runtime: Runtime,
    _server: OwnServer,
    options: SuiteOptions,
}

/// Returns a file or folder of the shared data. If it does not exist, prints which test is left out.
fn shared(name: &str, test: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = std::env::var_os("TREFOIL_SHARED").map_or_else(beside, PathBuf::from).join("data").join(name);
    if !path.exists() {
        println!("left out: {test}: {} does not exist", path.display());
        return None;
    }
    Some(path)
}

impl Trial {
    fn start(tests: PathBuf) -> Self {
        test_server::build().unwrap();
        let runtime = Runtime::new().unwrap();
        let (server, target) = runtime.block_on(async {
            let server = OwnServer::start(ANONYMOUS).await.unwrap();
            let target = server.target().await.unwrap();
            (server, target.fhir_base().unwrap().to_owned())
        });
        let options = SuiteOptions { tests, target, ca_pem: server.ca().unwrap(), ..SuiteOptions::default() };
        Self { runtime, _server: server, options }
    }

    fn run(&self) -> SuiteReport {
        self.runtime.block_on(tx::run(&self.options)).unwrap()
    }
}

#[test]
fn our_own_suite_passes_and_unsupported_tests_are_skipped() {
    let mut trial = Trial::start(own());
    let report = trial.run();
    let sum = report.sum(None);
    assert_eq!((sum.passed, sum.failed, sum.skipped), (9, 0, 1), "{report}");
    let skipped = report.outcomes.iter().find(|one| matches!(one.verdict, Verdict::Skip(_))).unwrap();
    assert_eq!(skipped.test, "too-new");
    // The second run uses the cached resources of the first one and must have the same results.
    assert_eq!(trial.run().sum(None), sum);
    trial.options.operations = vec!["cs-validate-code".to_owned()];
    assert_eq!(trial.run().sum(None).passed, 1);
    trial.options.suites = vec!["nothing".to_owned()];
    assert!(trial.runtime.block_on(tx::run(&trial.options)).unwrap_err().to_string().contains("'nothing'"));
}

#[test]
fn our_published_tests_of_subsumes_pass() {
    let folder = tempfile::tempdir().unwrap();
    tx::publish::write(&Specification::load().unwrap(), folder.path()).unwrap();
    let report = Trial::start(folder.path().to_owned()).run();
    let sum = report.sum(Some("subsumes"));
    assert!(sum.passed > 60 && sum.failed + sum.skipped == 0, "{report}");
}

#[test]
fn hl7s_suite_passes() {
    let Some(tests) = shared("tx", "HL7's tests of $validate-code") else { return };
    let trial = Trial::start(tests);
    let report = trial.run();
    let failed: Vec<_> =
        report.outcomes.iter().filter(|one| !matches!(one.verdict, Verdict::Pass(_))).collect();
    println!("{report}");
    assert!(failed.is_empty() && !report.outcomes.is_empty(), "{report}");
}

#[test]
fn hl7s_tests_of_expand_lookup_and_metadata_pass() {
    let Some(tests) = shared("tx-operations", "HL7's tests of $expand, $lookup and metadata") else { return };
    let trial = Trial::start(tests);
    let report = trial.run();
    println!("{report}");
    let sum = report.sum(None);
    assert_eq!((sum.failed, sum.not_offered, sum.skipped), (0, 0, 0), "{report}");
    assert_eq!(sum.contradictory, CONTRADICTIONS.len(), "{report}");
    let documents = include_str!("../../../server/docs/terminology.md");
    for contradiction in &CONTRADICTIONS {
        assert!(documents.contains(&format!("`{}/{}`", contradiction.suite, contradiction.test)));
    }
}

/// Returns a server that answers every request with `result` true.
async fn yes_man() -> MockServer {
    let mock = MockServer::start().await;
    let statement = serde_json::json!({ "resourceType": "CapabilityStatement", "fhirVersion": "4.0.1",
        "rest": [{ "mode": "server", "resource": [{ "type": "ValueSet", "operation": [{ "name": "validate-code" }] }] }] });
    let response = serde_json::json!({ "resourceType": "Parameters",
        "parameter": [{ "name": "result", "valueBoolean": true }] });
    let get = Mock::given(method("GET")).and(path("/metadata"));
    get.respond_with(ResponseTemplate::new(200).set_body_json(statement)).mount(&mock).await;
    let post = Mock::given(method("POST")).and(path("/ValueSet/$validate-code"));
    post.respond_with(ResponseTemplate::new(200).set_body_json(response)).mount(&mock).await;
    mock
}

#[test]
fn a_wrong_server_is_reported_and_sets_the_exit_code() {
    let runtime = Runtime::new().unwrap();
    let mock = runtime.block_on(yes_man());
    let options = SuiteOptions { tests: own(), target: mock.uri(), ..SuiteOptions::default() };
    let report = runtime.block_on(tx::run(&options)).unwrap();
    let sum = report.sum(None);
    assert_eq!((sum.passed, sum.failed, sum.not_offered, sum.skipped), (1, 6, 2, 1), "{report}");
    let verdict = |name: &str| &report.outcomes.iter().find(|one| one.test == name).unwrap().verdict;
    let begins =
        |name: &str, text: &str| matches!(verdict(name), Verdict::Fail(reason) if reason.starts_with(text));
    assert!(begins("not-a-member", "parameter: no item like {\"name\":\"message\""), "{report}");
    assert!(begins("unknown-set", "expected a OperationOutcome, got HTTP 200 Parameters"), "{report}");
    assert_eq!(*verdict("in-the-system"), Verdict::NotOffered);

    let run = |tests: &Path, target: &str| {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("report.json");
        let output = Command::new(env!("CARGO_BIN_EXE_trefoil-conformance"))
            .args(["tx", "--tests"])
            .arg(tests)
            .args(["--target", target, "--out"])
            .arg(&out)
            .output()
            .unwrap();
        let report = std::fs::read(&out).ok().and_then(|json| serde_json::from_slice(&json).ok());
        (output.status.code().unwrap(), report.unwrap_or(serde_json::Value::Null))
    };
    let (code, report) = run(&own(), &mock.uri());
    assert_eq!((code, &report["totals"]["all"]["failed"]), (1, &6.into()));
    assert_eq!(run(Path::new("nowhere"), &mock.uri()).0, 2);
    assert_eq!(run(&own(), "http://127.0.0.1:9").0, 3);
}
