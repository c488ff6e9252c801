//! Runs against servers that are not Trefoil, or are treated as if they were not.
//!
//! The failures of other makers' servers are listed in `judged`, with the reason for each. A failure that is
//! not listed, or a listed one that does not occur any more, fails the test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde_json::json;
use test_server::ServerProcess;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use trefoil_conformance::environment::server::OwnServer;
use trefoil_conformance::environment::target::{TIMEOUT, TargetKind, TestTarget};
use trefoil_conformance::environment::{TestEnvironment, probe};
use trefoil_conformance::profile::Profile;
use trefoil_conformance::run::missing_members::missing_members;
use trefoil_conformance::run::profile_additions::ProfileAdditions;
use trefoil_conformance::run::selection::Selection;
use trefoil_conformance::run::verdict::{RunSummary, Verdict};
use trefoil_conformance::run::{self, RunEnd, RunEvent, RunListener, RunOptions};
use trefoil_conformance::spec::case::Case;
use trefoil_conformance::spec::requirement::Level;
use trefoil_conformance::spec::{self, Specification};

use crate::bulk_server;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Verdicts on cases, in the order of the run.
#[derive(Clone, Default)]
pub struct Verdicts(Arc<Mutex<Vec<(String, Verdict)>>>);

impl RunListener for Verdicts {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        if let RunEvent::Case(outcome) = event {
            self.0.lock().unwrap().push((outcome.id.clone(), outcome.verdict.clone()));
        }
    }
}

impl Verdicts {
    /// Returns the ids of the cases, in the order of the run.
    pub fn order(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(id, _)| id.clone()).collect()
    }

    /// Returns the names of the verdicts by case.
    pub fn names(&self) -> BTreeMap<String, &'static str> {
        self.0.lock().unwrap().iter().map(|(id, verdict)| (id.clone(), verdict.name())).collect()
    }

    /// Returns the texts of the cases that failed or could not be tested.
    pub fn faults(&self) -> Vec<String> {
        let verdicts = self.0.lock().unwrap();
        let text = |(id, verdict): &(String, Verdict)| match verdict {
            Verdict::Fail(failure) => Some(format!("{id}: {failure}")),
            Verdict::Inconclusive { reason } => Some(format!("{id}: {reason}")),
            _ => None,
        };
        verdicts.iter().filter_map(text).collect()
    }
}

/// Runs the suite against a server.
async fn run_on(environment: &TestEnvironment, options: &RunOptions) -> (RunSummary, Verdicts) {
    let (end, verdicts) = run_to_the_end(environment, options).await;
    assert!(!end.interrupted && end.lost.is_none(), "{end:?}");
    assert_eq!(end.leftovers, [""; 0]);
    (end.summary, verdicts)
}

async fn run_to_the_end(environment: &TestEnvironment, options: &RunOptions) -> (RunEnd, Verdicts) {
    let verdicts = Verdicts::default();
    let spec = Specification::load().unwrap();
    let mut listeners: Vec<Box<dyn RunListener>> = vec![Box::new(verdicts.clone())];
    let end = run::run(environment, &spec, options, &AtomicBool::new(false), &mut listeners).await;
    (end, verdicts)
}

/// Runs the suite against another maker's server, as `run URL --profile FILE --baseline FILE` does.
async fn judge(url: &str, profile: Profile, judged: &str) -> RunSummary {
    let mut target = TestTarget::connect(url, profile, TargetKind::Other, TIMEOUT).await.unwrap();
    let members = probe::probe(&target).await;
    target.profile.extend(members);
    let gaps = spec::gaps(&std::fs::read_to_string(format!("{FOLDER}/judged/{judged}")).unwrap()).unwrap();
    let cases: Vec<_> = gaps.iter().map(|gap| gap.case.clone()).collect();
    let options = RunOptions {
        selection: Selection { level: Level::Must, write: false, ..Selection::default() },
        baseline: gaps.into_iter().map(|gap| (gap.case, gap.reason)).collect(),
        ..RunOptions::default()
    };
    let (summary, verdicts) = run_on(&TestEnvironment::of(target), &options).await;
    println!("{url}: {summary}");
    assert!(summary.is_success(), "{}", verdicts.faults().join("\n"));
    let names = verdicts.names();
    let outdated: Vec<_> =
        cases.iter().filter(|case| names.get(*case).is_none_or(|name| *name == "pass")).collect();
    assert!(outdated.is_empty(), "{judged} has cases that pass or do not exist: {outdated:?}");
    summary
}

/// A server that runs until it is dropped.
struct Running {
    child: Child,
    url: String,
    /// Output of the program, which fails if it cannot print.
    _output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program that prints its URL.
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(Self { child, url: line.trim().to_owned(), _output: output })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of a package, which a script in `servers` starts by this command; `None` if something is not
/// installed.
fn packaged_server(package: &Path, command: &mut Command, script: &str) -> Option<Running> {
    let name = package.file_name().unwrap().to_string_lossy();
    if !package.exists() {
        println!("left out: {name}: not installed; .ci/run does that");
        return None;
    }
    let started = Running::start(command.arg(Path::new(FOLDER).join("tests/servers").join(script)));
    if started.is_err() {
        println!("left out: {name}: {} is not here", command.get_program().display());
    }
    started.ok()
}

/// A server of an npm package.
fn node_server(package: &str, script: &str) -> Option<Running> {
    let modules = Path::new(FOLDER).join("../server/tests/it/clients/node_modules");
    packaged_server(&modules.join(package), &mut Command::new("node"), script)
}

/// A server of a Python package.
fn python_server(package: &str, script: &str) -> Option<Running> {
    let packages = Path::new(FOLDER).join("../target/python");
    let mut python = Command::new("python3");
    packaged_server(&packages.join(package), python.env("PYTHONPATH", &packages), script)
}

/// Glewlwyd of Debian, which a Python script sets up.
fn glewlwyd() -> Option<Running> {
    let packages = Path::new(FOLDER).join("../target/python");
    let mut python = Command::new("python3");
    packaged_server(Path::new("/usr/bin/glewlwyd"), python.env("PYTHONPATH", &packages), "glewlwyd.py")
}

#[test]
fn oidc_provider_fails_only_as_judged() {
    let Some(server) = node_server("oidc-provider", "oidc_provider.mjs") else { return };
    let runtime = Runtime::new().unwrap();
    let summary = runtime.block_on(judge(&server.url, oidc_profile(), "oidc-provider.toml"));
    assert!(summary.passed > 140, "{summary}");
}

#[test]
fn oidc_provider_in_another_configuration_fails_only_as_judged() {
    let mut node = Command::new("node");
    let script = Path::new(FOLDER).join("tests/servers/oidc_provider.mjs");
    if node_server("oidc-provider", "oidc_provider.mjs").is_none() {
        return;
    }
    let server = Running::start(node.arg(script).arg("second")).unwrap();
    let profile = Profile::read(&format!("{FOLDER}/profiles/oidc-provider-second.toml")).unwrap();
    let runtime = Runtime::new().unwrap();
    let summary = runtime.block_on(judge(&server.url, profile, "oidc-provider-second.toml"));
    assert!(summary.passed > 190, "{summary}");
}

/// Tests a server with the profile and the judged failures of this name. At least `fewest` cases must pass.
fn judge_by_name(server: &Running, name: &str, fewest: usize) {
    let profile = Profile::read(&format!("{FOLDER}/profiles/{name}.toml")).unwrap();
    let summary = Runtime::new().unwrap().block_on(judge(&server.url, profile, &format!("{name}.toml")));
    assert!(summary.passed >= fewest, "{summary}");
}

#[test]
fn oauth2_mock_server_fails_only_as_judged() {
    let Some(server) = node_server("oauth2-mock-server", "oauth2_mock_server.mjs") else { return };
    judge_by_name(&server, "oauth2-mock-server", 61);
}

#[test]
fn authlib_fails_only_as_judged() {
    let Some(server) = python_server("flask", "authlib_server.py") else { return };
    judge_by_name(&server, "authlib", 121);
}

#[test]
fn django_oauth_toolkit_fails_only_as_judged() {
    let Some(server) = python_server("oauth2_provider", "django_oauth_toolkit.py") else { return };
    judge_by_name(&server, "django-oauth-toolkit", 131);
}

#[test]
fn django_oidc_provider_fails_only_as_judged() {
    let Some(server) = python_server("oidc_provider", "django_oidc_provider.py") else { return };
    judge_by_name(&server, "django-oidc-provider", 131);
}

#[test]
fn glewlwyd_fails_only_as_judged() {
    let Some(server) = glewlwyd() else { return };
    judge_by_name(&server, "glewlwyd", 101);
}

/// The board of the servers of other makers has no failure that is not judged.
#[test]
fn a_board_compares_servers() {
    // The board starts the same servers.
    let node = node_server("oauth2-mock-server", "oauth2_mock_server.mjs");
    if [node, python_server("flask", "authlib_server.py"), glewlwyd()].iter().any(Option::is_none) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [page, history] = ["board.html", "board.jsonl"].map(|name| folder.path().join(name));
    for _ in 0..2 {
        let output = Command::new(env!("CARGO_BIN_EXE_trefoil-conformance"))
            .arg("board")
            .arg(Path::new(FOLDER).join("board.toml"))
            .arg("--out")
            .arg(&page)
            .arg("--history")
            .arg(&history)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["node-oidc-provider", "Judged: ", "Fails since ", "curl -i"] {
        assert!(page.contains(part), "{part}");
    }
    let servers =
        std::fs::read_to_string(format!("{FOLDER}/board.toml")).unwrap().matches("[[server]]").count();
    assert_eq!(std::fs::read_to_string(history).unwrap().lines().count(), 2 * servers);
}

/// A case is skipped before its first request if the profile lacks what its row or its preconditions name,
/// and the run says what to add.
#[test]
fn members_that_a_profile_lacks_are_named() {
    let members = json!({ "public": { "client_id": "a" }, "backend": [{ "client_id": "b", "jwk": {} }] });
    let serde_json::Value::Object(members) = members else { panic!("an object") };
    let runtime = Runtime::new().unwrap();
    let mut environment = runtime.block_on(dumb_environment(usize::MAX));
    environment.target.profile = members;
    let (spec, selection) = (Specification::load().unwrap(), Selection::default());
    let missing = |id: &str| {
        let case = spec.cases.iter().find(|case| case.id == id).unwrap();
        missing_members(case, &environment.target).into_iter().collect::<Vec<_>>()
    };
    let user = ["public.redirect_uris.0", "user.password", "user.username"];
    assert_eq!(missing("rfc9207/2.3/announced/code"), user);
    assert_eq!(missing("rfc8628/3.1/client/sent-twice"), ["device.client_id"]);
    assert_eq!(missing("rfc8414/3.2/json/content-type"), [""; 0]);
    let additions = ProfileAdditions::of(&spec, &selection, &environment).to_string();
    assert!(additions.contains(" cases  device\n"), "{additions}");
    assert!(additions.contains("public.redirect_uris.0"), "{additions}");
}

fn oidc_profile() -> Profile {
    Profile::read(&format!("{FOLDER}/profiles/oidc-provider.toml")).unwrap()
}

/// A server that behaves like SMART's bulk-data-server. `TREFOIL_BULK_DATA_SERVER` names the FHIR base URL of
/// a real one, and `TREFOIL_BULK_DATA_PROFILE` its profile, which `trefoil-conformance init` writes.
#[test]
fn a_bulk_data_server_fails_only_as_judged() {
    let runtime = Runtime::new().unwrap();
    let summary = runtime.block_on(async {
        let (_server, base) = bulk_server::start().await;
        let profile = Profile::from_toml("groups = [\"g1\"]\n", Path::new(".")).unwrap();
        judge(&base, profile, "bulk-data-server.toml").await
    });
    assert!(summary.passed > 40, "{summary}");
    match (std::env::var("TREFOIL_BULK_DATA_SERVER"), std::env::var("TREFOIL_BULK_DATA_PROFILE")) {
        (Ok(url), Ok(profile)) => {
            let profile = Profile::read(&profile).unwrap();
            runtime.block_on(judge(&url, profile, "bulk-data-server.toml"));
        }
        _ => println!("left out: a real bulk-data-server: TREFOIL_BULK_DATA_SERVER is not set"),
    }
}

/// The Helios terminology server, whose program `TREFOIL_HTS` names; `cargo xtask soak` builds it.
#[test]
fn helios_fails_only_as_judged() {
    let Some(program) = std::env::var_os("TREFOIL_HTS") else {
        println!("left out: helios-hts: TREFOIL_HTS is not set; cargo xtask soak does that");
        return;
    };
    let server = packaged_server(Path::new(&program), &mut Command::new("python3"), "helios.py").unwrap();
    let profile = Profile::read("helios").unwrap();
    let summary = Runtime::new().unwrap().block_on(judge(&server.url, profile, "helios.toml"));
    assert!(summary.passed > 70, "{summary}");
}

/// The Helios FHIR server, whose program `TREFOIL_HFS` names; `cargo xtask soak` builds it.
#[test]
fn helios_fhir_fails_only_as_judged() {
    let Some(program) = std::env::var_os("TREFOIL_HFS") else {
        println!("left out: helios-hfs: TREFOIL_HFS is not set; cargo xtask soak does that");
        return;
    };
    let server =
        packaged_server(Path::new(&program), &mut Command::new("python3"), "helios-fhir.py").unwrap();
    let profile = Profile::read(&format!("{FOLDER}/profiles/helios-fhir.toml")).unwrap();
    let summary = Runtime::new().unwrap().block_on(judge(&server.url, profile, "helios-fhir.toml"));
    assert!(summary.passed > 45, "{summary}");
}

/// Returns the own server as a target that the suite has not started.
async fn own_server(kind: TargetKind) -> (OwnServer, TestEnvironment) {
    trefoil_conformance::environment::install_crypto();
    let server = OwnServer::start("").await.unwrap();
    let mut profile = server.profile().unwrap();
    profile.members.insert("tx_resources".to_owned(), true.into());
    let target = TestTarget::connect(server.base_url(), profile, kind, TIMEOUT).await.unwrap();
    (server, TestEnvironment::of(target))
}

/// Checks that no row needs a rule of Trefoil to pass, if it is said to be about a standard.
#[test]
fn trefoil_passes_as_another_makers_server() {
    test_server::build().unwrap();
    let (summary, verdicts) = Runtime::new().unwrap().block_on(async {
        let (_server, environment) = own_server(TargetKind::Other).await;
        let selection = Selection { level: Level::Should, write: true, ..Selection::default() };
        let gaps = Specification::load().unwrap().gaps;
        let baseline = gaps.into_iter().map(|gap| (gap.case, gap.reason)).collect();
        run_on(&environment, &RunOptions { selection, baseline, jobs: 8, ..RunOptions::default() }).await
    });
    println!("{summary}");
    assert!(summary.is_success(), "{}", verdicts.faults().join("\n"));
    assert!(summary.passed > 450, "{summary}");
}

/// A server without any data, and a back end that may write.
fn empty_server(folder: &Path) -> (ServerProcess, Profile) {
    let trefoil = test_server::build().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&trefoil).args(args).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["client", "keygen", "--out", "key"]);
    let add = ["client", "add", "suite", "--data", "data", "--auth-method", "private_key_jwt"];
    let rights =
        ["--grant-type", "client_credentials", "--scope", "system/*.cruds", "--jwks", "key/jwks.json"];
    run(&[&add[..], &rights].concat());
    let mut serve = Command::new(&trefoil);
    serve.args(["serve", "--data", "data", "--listen", "127.0.0.1:0"]).current_dir(folder);
    let server = ServerProcess::start(serve.env("TREFOIL_LOG", "error")).unwrap();
    let text = "ca = \"data/tls/ca.pem\"\n[[backend]]\nclient_id = \"suite\"\nalg = \"ES384\"\n\
                scopes = [\"system/*.cruds\"]\njwk_file = \"key/private.jwk\"\n";
    (server, Profile::from_toml(text, folder).unwrap())
}

/// The rows about terminology bring the code systems about which they ask, and delete them afterwards.
#[test]
fn terminology_is_brought_to_a_server_that_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (server, profile) = empty_server(folder.path());
    let (summary, verdicts) = Runtime::new().unwrap().block_on(async {
        let mut target =
            TestTarget::connect(server.address(), profile, TargetKind::Other, TIMEOUT).await.unwrap();
        let members = probe::probe(&target).await;
        assert_eq!(members["tx_resources"], true);
        target.profile.extend(members);
        let selection = Selection { level: Level::Must, write: true, ..Selection::default() };
        run_on(&TestEnvironment::of(target), &RunOptions { selection, jobs: 8, ..RunOptions::default() })
            .await
    });
    assert!(summary.is_success(), "{}", verdicts.faults().join("\n"));
    let names = verdicts.names();
    let passed = names.iter().filter(|(id, name)| id.contains("/subsumes/") && **name == "pass").count();
    assert!(summary.passed > 290 && passed >= 25, "{summary}, {passed} rows about $subsumes");
}

/// Checks that a run changes nothing that a second run notices, and deletes what it created.
#[test]
fn a_second_run_has_the_same_result() {
    test_server::build().unwrap();
    Runtime::new().unwrap().block_on(async {
        let (server, environment) = own_server(TargetKind::Trefoil).await;
        let only = ["kick-off", "design/resources", "bulkdata/", "recovery", "rfc8628/5.1", "spec/authorize"];
        let options = RunOptions {
            selection: Selection { only: only.map(str::to_owned).to_vec(), ..Selection::default() },
            ..RunOptions::default()
        };
        let before = server.count_exports().unwrap();
        let (first, verdicts) = run_on(&environment, &options).await;
        assert!(first.is_success() && first.passed > 120, "{first}: {}", verdicts.faults().join("\n"));
        assert_eq!(server.count_exports().unwrap(), before, "files of exports remain");
        let (_, again) = run_on(&TestEnvironment::of(environment.target), &options).await;
        assert_eq!(verdicts.names(), again.names(), "{}", again.faults().join("\n"));
    });
}

/// A server that answers everything with 200 and the same object, and stops listening after a number of
/// requests.
async fn dumb_server(answers: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let at = |path: &str| format!("{url}/{path}");
    let body = json!({
        "issuer": url, "authorization_endpoint": at("a"), "token_endpoint": at("t"), "jwks_uri": at("j"),
        "userinfo_endpoint": at("u"), "revocation_endpoint": at("r"), "introspection_endpoint": at("i"),
        "pushed_authorization_request_endpoint": at("p"), "device_authorization_endpoint": at("d"),
        "end_session_endpoint": at("l"), "resourceType": "CapabilityStatement",
    })
    .to_string();
    tokio::spawn(async move {
        for _ in 0..answers {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let body = body.clone();
            tokio::spawn(async move {
                // An error means that the suite has closed the connection.
                let _ = stream.read(&mut [0; 65_536]).await;
                let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
                let text = format!("HTTP/1.1 200 OK\r\n{head}connection: close\r\n\r\n{body}");
                let _ = stream.write_all(text.as_bytes()).await;
            });
        }
    });
    url
}

/// Returns a dumb server as a target.
pub async fn dumb_environment(answers: usize) -> TestEnvironment {
    let url = dumb_server(answers).await;
    let target = TestTarget::connect(&url, oidc_profile(), TargetKind::Other, TIMEOUT).await.unwrap();
    TestEnvironment::of(target)
}

#[test]
fn a_dumb_server_passes_almost_nothing() {
    Runtime::new().unwrap().block_on(async {
        let environment = dumb_environment(usize::MAX).await;
        let (summary, verdicts) = run_on(&environment, &RunOptions::default()).await;
        // Its metadata is right, and a revocation is answered like this.
        let is_right = |case: &&Case| {
            let mut steps = case.steps.iter().map(|step| step.request.to.as_str());
            steps.all(|to| to == "discovery" || to == "revoke" || to.starts_with("/.well-known/"))
        };
        let spec = Specification::load().unwrap();
        let verdicts = verdicts.names();
        let passed = spec.cases.iter().filter(|case| verdicts[&case.id] == "pass");
        let wrong: Vec<_> = passed.filter(|case| !is_right(case)).map(|case| &case.id).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(summary.failed + summary.inconclusive > 100, "{summary}");
    });
}

#[test]
fn a_server_that_dies_is_one_finding() {
    Runtime::new().unwrap().block_on(async {
        let environment = dumb_environment(40).await;
        let (end, verdicts) = run_to_the_end(&environment, &RunOptions::default()).await;
        assert!(end.lost.is_some(), "{end:?}");
        assert!(end.summary.failed < 40 && end.summary.inconclusive > 50, "{}", end.summary);
        let silent = verdicts.faults().iter().filter(|fault| fault.contains("no answer")).count();
        let lost_count =
            verdicts.faults().iter().filter(|fault| fault.contains("does not answer any more")).count();
        assert_eq!((silent, lost_count > 50), (lost_count, true), "each silence is the same finding");
    });
}
