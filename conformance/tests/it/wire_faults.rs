//! Faults on the wire: a proxy in front of the server changes its answers, or the requests to it, and the
//! suite, which knows the server by its address only, must fail in one of the rows of the fault.
//!
//! The faults are in `mutants/wire/*.toml`. A sample runs in the pipeline, all of them with
//! `TREFOIL_WIRE_FAULTS=all` (`cargo xtask soak --only wire-faults`). The variations in
//! `mutants/permitted/*.toml` are permitted by a standard: with all of them at once, no row may fail.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use test_server::ServerProcess;
use tokio_util::task::AbortOnDropHandle;

/// Variable with the faults to plant: `all`, or the beginnings of their names, separated by commas.
const VARIABLE: &str = "TREFOIL_WIRE_FAULTS";
/// Number of requests of a law. A fault in one of fifty answers is then found with a probability of 99.9 %.
const LAW_REQUESTS: &str = "342";
/// One of this number of faults is in the sample.
const SAMPLE: usize = 12;

#[derive(Debug, Deserialize)]
struct FaultTable {
    fault: Vec<WireFault>,
}

/// A fault: where it is, and what it changes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFault {
    name: String,
    /// The fault as a tester sees it.
    #[expect(dead_code, reason = "a text for readers")]
    gist: String,
    /// Ids, or beginnings of ids, of rows that find it.
    rows: Vec<String>,
    /// Text in the ids of the laws that find it, if no row does.
    law: Option<String>,
    /// Lowest level at which the suite must find it; `must` if it is missing.
    level: Option<String>,
    path: String,
    /// Method of the request; all if it is missing.
    method: Option<String>,
    /// Status of the answer; all if it is missing.
    status: Option<u16>,
    /// Regular expression for the query of the request.
    query: Option<String>,
    #[serde(default)]
    set_headers: BTreeMap<String, String>,
    #[serde(default)]
    remove_headers: Vec<String>,
    /// Name of a header, regular expression, and replacement.
    replace_in_header: Option<[String; 3]>,
    set_status: Option<u16>,
    /// Members by JSON pointer; those that do not exist are added to their object.
    #[serde(default)]
    set_json: BTreeMap<String, Value>,
    #[serde(default)]
    remove_json: Vec<String>,
    replace_in_body: Option<[String; 2]>,
    /// Regular expression and replacement in the query of a request, or in its form.
    replace_in_request: Option<[String; 2]>,
    /// Regular expression and replacement in the path of a request.
    replace_in_path: Option<[String; 2]>,
    #[serde(default)]
    remove_request_headers: Vec<String>,
    /// One of this number of answers is changed; all if it is missing.
    one_in: Option<usize>,
    /// Whether a request that the server refuses is answered as an equal one was before.
    #[serde(default)]
    replays: bool,
    /// Whether a token in the query is accepted.
    #[serde(default)]
    takes_token_in_query: bool,
    /// Whether the challenge method `plain` is accepted.
    #[serde(default)]
    takes_plain: bool,
}

/// The parts of a request that a fault selects.
struct RequestFacts {
    method: String,
    path: String,
    query: String,
}

impl WireFault {
    fn is_at(&self, request: &RequestFacts) -> bool {
        let matches = |pattern: &str, text: &str| Regex::new(pattern).unwrap().is_match(text);
        self.method.as_ref().is_none_or(|method| *method == request.method)
            && matches(&self.path, &request.path)
            && self.query.as_ref().is_none_or(|query| matches(query, &request.query))
    }

    fn change_request(&self, query: &mut String, headers: &mut http::HeaderMap, body: &mut Vec<u8>) {
        let parameters = || form_urlencoded::parse(query.as_bytes());
        let parameter =
            |parameter: &str| parameters().find_map(|(name, value)| (name == parameter).then_some(value));
        if self.takes_token_in_query
            && let Some(token) = parameter("access_token")
        {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        if self.takes_plain && parameter("code_challenge_method").is_some_and(|method| method == "plain") {
            let pairs = parameters().map(|(name, value)| match &*name {
                "code_challenge" => (name, test_parties::base64url(Sha256::digest(value.as_bytes())).into()),
                "code_challenge_method" => (name, "S256".into()),
                _ => (name, value),
            });
            *query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        }
        if let Some([pattern, replacement]) = &self.replace_in_request {
            let pattern = Regex::new(pattern).unwrap();
            *query = pattern.replace_all(query, replacement).into_owned();
            if let Ok(text) = String::from_utf8(body.clone()) {
                *body = pattern.replace_all(&text, replacement).into_owned().into_bytes();
            }
        }
        for name in &self.remove_request_headers {
            headers.remove(name);
        }
    }

    fn change_answer(&self, response: &mut Response<Vec<u8>>) {
        if let Some(status) = self.set_status {
            *response.status_mut() = status.try_into().unwrap();
        }
        let headers = response.headers_mut();
        for name in &self.remove_headers {
            headers.remove(name);
        }
        if let Some([name, pattern, replacement]) = &self.replace_in_header {
            let (name, pattern) = (name.parse::<HeaderName>().unwrap(), Regex::new(pattern).unwrap());
            let values: Vec<_> = headers.get_all(&name).into_iter().cloned().collect();
            headers.remove(&name);
            for value in values {
                let value_text = pattern.replace_all(value.to_str().unwrap(), replacement).into_owned();
                headers.append(&name, value_text.parse().unwrap());
            }
        }
        for (name, value) in &self.set_headers {
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap());
        }
        if let Some([pattern, replacement]) = &self.replace_in_body
            && let Ok(text) = String::from_utf8(response.body().clone())
        {
            *response.body_mut() =
                Regex::new(pattern).unwrap().replace_all(&text, replacement).into_owned().into();
        }
        if self.set_json.is_empty() && self.remove_json.is_empty() {
            return;
        }
        let Ok(mut json) = serde_json::from_slice::<Value>(response.body()) else { return };
        for (pointer, value) in &self.set_json {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            match json.pointer_mut(parent) {
                Some(Value::Object(members)) => drop(members.insert(name.to_owned(), value.clone())),
                Some(Value::Array(values)) if name.parse::<usize>().is_ok_and(|at| at < values.len()) => {
                    values[name.parse::<usize>().unwrap()] = value.clone();
                }
                _ => {}
            }
        }
        for pointer in &self.remove_json {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            if let Some(Value::Object(members)) = json.pointer_mut(parent) {
                members.remove(name);
            }
        }
        *response.body_mut() = serde_json::to_vec(&json).unwrap();
    }
}

/// The proxy. Its faults can be changed while it runs.
#[derive(Clone)]
struct FaultyProxy {
    faults: Arc<Mutex<Vec<WireFault>>>,
    count: Arc<AtomicUsize>,
    /// Successful answers by request, for faults that replay them.
    seen: Arc<Mutex<HashMap<String, Response<Vec<u8>>>>>,
    client: reqwest::Client,
    upstream: Arc<str>,
}

impl FaultyProxy {
    async fn serve(self, listener: tokio::net::TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let proxy = self.clone();
            let service = service_fn(move |request| {
                let proxy = proxy.clone();
                async move { Ok::<_, Infallible>(proxy.answer(request).await) }
            });
            // A client that disconnects is not an error of the proxy.
            tokio::spawn(async move {
                drop(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let facts = RequestFacts {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        };
        let mut faults = self.faults.lock().unwrap().clone();
        faults.retain(|fault| fault.is_at(&facts));
        let (mut head, body) = request.into_parts();
        let mut body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        let mut query = facts.query.clone();
        for fault in &faults {
            fault.change_request(&mut query, &mut head.headers, &mut body);
            // The body of an answer can only be changed if it is not packed.
            head.headers.remove("accept-encoding");
        }
        for name in ["connection", "content-length", "transfer-encoding"] {
            head.headers.remove(name);
        }
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let mut path = facts.path.clone();
        for [pattern, replacement] in faults.iter().filter_map(|fault| fault.replace_in_path.as_ref()) {
            path = Regex::new(pattern).unwrap().replace(&path, replacement).into_owned();
        }
        let credentials = head.headers.get("authorization").map(|value| value.to_str().unwrap());
        let body_text = String::from_utf8_lossy(&body);
        let key = format!("{} {path}{query} {} {body_text}", head.method, credentials.unwrap_or_default());
        let url = format!("{}{path}{query}", self.upstream);
        let response =
            self.client.request(head.method.clone(), url).headers(head.headers).body(body).send().await;
        let Ok(response) = response else {
            return Response::builder().status(502).body(Full::default()).unwrap();
        };
        let mut builder = Response::builder().status(response.status());
        *builder.headers_mut().unwrap() = response.headers().clone();
        let bytes = response.bytes().await.unwrap_or_default();
        let mut response_to_client = builder.body(bytes.to_vec()).unwrap();
        for name in ["connection", "content-length", "transfer-encoding"] {
            response_to_client.headers_mut().remove(name);
        }
        if faults.iter().any(|fault| fault.replays) {
            let mut responses = self.seen.lock().unwrap();
            match responses.get(&key) {
                Some(earlier) if response_to_client.status().is_client_error() => {
                    response_to_client = earlier.clone()
                }
                _ if response_to_client.status().is_success() => {
                    drop(responses.insert(key, response_to_client.clone()))
                }
                _ => {}
            }
        }
        let status = response_to_client.status();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        for fault in faults.iter().filter(|fault| fault.status.is_none_or(|expected| status == expected)) {
            if fault.one_in.is_none_or(|number| count.is_multiple_of(number)) {
                fault.change_answer(&mut response_to_client);
            }
        }
        response_to_client.map(|body| Full::new(body.into()))
    }
}

/// All faults of a folder, in the order of their names.
fn faults(folder: &str) -> Vec<WireFault> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path| -> Vec<WireFault> {
        let text = std::fs::read_to_string(&path).unwrap();
        toml::from_str::<FaultTable>(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")).fault
    };
    paths.into_iter().flat_map(read).collect()
}

#[test]
fn names_are_unique_and_rows_exist() {
    let faults = [faults("wire"), faults("permitted")].concat();
    let names: BTreeSet<_> = faults.iter().map(|fault| &fault.name).collect();
    assert_eq!(names.len(), faults.len());
    let catalogue = trefoil_conformance::spec::Specification::load().unwrap();
    for fault in &faults {
        for row in &fault.rows {
            let exists = catalogue.cases.iter().any(|case| case.id.starts_with(row.as_str()));
            assert!(exists, "{}: no case begins with {row}", fault.name);
        }
    }
}

/// A server, the proxy in front of it, and the suite, which knows its address.
struct FaultySetup {
    base: String,
    proxy: FaultyProxy,
    data: tempfile::TempDir,
    _server: ServerProcess,
    _running: AbortOnDropHandle<()>,
}

impl FaultySetup {
    async fn start() -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(test_server::build().unwrap());
        let listen = format!("127.0.0.1:{}", test_database::free_port().unwrap());
        command.args(["serve", "--demo", "--insecure-http", "--store", "memory", "--listen", &listen]);
        command.args(["--base-url", &base, "--data"]).arg(data.path());
        let log = std::fs::File::create(data.path().join("server.log")).unwrap();
        let server = ServerProcess::start(command.stderr(log)).unwrap();
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let upstream = format!("http://{listen}").into();
        let proxy = FaultyProxy {
            faults: Arc::default(),
            count: Arc::default(),
            seen: Arc::default(),
            client,
            upstream,
        };
        let running = AbortOnDropHandle::new(tokio::spawn(proxy.clone().serve(listener)));
        Self { base, proxy, data, _server: server, _running: running }
    }

    /// The rows of a level that fail; no rows means all.
    fn failed_rows(&self, rows: &[String], level: &str) -> Vec<String> {
        failed_rows(&self.base, &self.data.path().join("demo.json"), rows, level)
    }
}

impl FaultySetup {
    /// The laws whose id contains a text that fail.
    fn failed_laws(&self, text: &str) -> Vec<String> {
        let mut suite = Command::new(env!("CARGO_BIN_EXE_trefoil-conformance"));
        suite.args([
            "laws",
            &self.base,
            "--only",
            text,
            "--budget",
            LAW_REQUESTS,
            "--seed",
            "1",
            "--profile",
        ]);
        let output = suite.arg(self.data.path().join("demo.json")).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => Vec::new(),
            Some(1) => vec![format!(
                "law {text}",
                text = text.lines().find(|line| line.contains("FAILED")).unwrap_or("failed")
            )],
            code => panic!("the laws ended with {code:?}: {text}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variations_that_standards_permit_are_no_failures() {
    let environment = FaultySetup::start().await;
    let permitted = faults("permitted");
    assert!(permitted.len() >= 50);
    *environment.proxy.faults.lock().unwrap() = permitted.clone();
    let failed = environment.failed_rows(&[], "must");
    println!("{} permitted variations, {} failures", permitted.len(), failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_on_the_wire_are_found() {
    let pattern = std::env::var(VARIABLE).unwrap_or_default();
    let faults_to_run =
        faults("wire").into_iter().enumerate().filter(|(number, fault)| match pattern.as_str() {
            "" => number % SAMPLE == 0,
            "all" => true,
            names => names.split(',').any(|name| fault.name.starts_with(name)),
        });
    let faults_to_run: Vec<_> = faults_to_run.map(|(_, fault)| fault).collect();
    let environment = FaultySetup::start().await;
    // Without a fault, the rows pass.
    let rows: BTreeSet<String> = faults_to_run.iter().flat_map(|fault| fault.rows.clone()).collect();
    let rows: Vec<String> = rows.into_iter().collect();
    let failed = environment.failed_rows(&rows, "must");
    assert!(failed.is_empty(), "without a fault: {failed:?}");
    let mut unseen = Vec::new();
    for fault in &faults_to_run {
        *environment.proxy.faults.lock().unwrap() = vec![fault.clone()];
        let failed = match &fault.law {
            Some(law) => environment.failed_laws(law),
            None => environment.failed_rows(&fault.rows, fault.level.as_deref().unwrap_or("must")),
        };
        println!("{:<48} {}", fault.name, failed.first().map_or("UNSEEN", String::as_str));
        if failed.is_empty() {
            unseen.push(&fault.name);
        }
    }
    println!(
        "{} of {} faults on the wire were found",
        faults_to_run.len() - unseen.len(),
        faults_to_run.len()
    );
    assert!(unseen.is_empty(), "unseen: {unseen:?}");
}

/// Runs the suite against an address. Returns the cases that failed, or `preconditions` if the run failed
/// because cases could not be set up.
fn failed_rows(base: &str, profile: &Path, rows: &[String], level: &str) -> Vec<String> {
    let report = profile.with_file_name("report.jsonl");
    let mut suite = Command::new(env!("CARGO_BIN_EXE_trefoil-conformance"));
    suite.arg("run").arg(base).args(rows).args(["--write", "--level", level, "--profile"]).arg(profile);
    suite.arg("--report").arg(format!("json={}", report.display()));
    let output = suite.stdin(Stdio::null()).output().unwrap();
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let cases = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let failed: Vec<String> = cases
        .filter(|line| line["event"] == "case" && line["verdict"] == "fail")
        .map(|line| line["id"].as_str().unwrap().to_owned())
        .collect();
    match (output.status.code(), failed.is_empty()) {
        (Some(0 | 3), true) => Vec::new(),
        (Some(1), false) => failed,
        // Without a sign-in, for example, no row can be tested; the run fails and says why.
        (Some(1), true) => vec!["preconditions".to_owned()],
        (code, _) => panic!(
            "the suite ended with {code:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
