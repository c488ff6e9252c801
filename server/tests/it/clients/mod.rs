//! Tests with real clients in other languages. With only their standard libraries, Python signs in and
//! validates codes, and Node exports. With libraries that apps use (`tests/it/clients/package.json`,
//! `requirements.txt`; `.ci/run` installs them), openid-client and Authlib run all flows that they support,
//! smart-fetch exports, a client generated from OpenAPI administers, fhirpy and fhir-kit-client write
//! resources and keep copies, as do fhirclient, the requests of the Android FHIR SDK and DuckDB, and
//! fhirclient runs as a SMART app in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::driver::{Driver, have_browser};
use crate::notes::Writer;
use crate::support::{Server, TREFOIL, have, installed, python_packages};

/// Returns the folder of the scripts and of the Node packages that `.ci/run` installs.
pub fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients")
}

/// Runs a script of a client, which prints `all good` at its end.
#[track_caller]
fn run_script(program: &str, script: &str, server: &Server, args: &[&str]) {
    let output = Command::new(program)
        .arg(clients().join(script))
        .args(args)
        .env("NODE_EXTRA_CA_CERTS", server.ca())
        .env("SSL_CERT_FILE", server.ca())
        .env("PYTHONPATH", python_packages())
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("all good"), "{text}");
}

#[track_caller]
fn check(program: &str, script: &str, server: &Server) {
    run_script(program, script, server, &[server.data().to_str().unwrap()]);
}

#[test]
fn openid_client_completes_all_flows_that_it_supports() {
    let package = clients().join("node_modules/openid-client");
    if have("node", "openid-client") && installed("openid-client", &package) {
        check("node", "openid_client.mjs", &Server::demo());
    }
}

/// The helpers for the tests of other people's apps start, use, reset and stop servers.
#[test]
fn helpers_run_servers_for_the_tests_of_apps() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages");
    let helpers = [("node", "ephemeral.mjs", "npm/index.js"), ("python3", "ephemeral.py", "python/src")];
    for (program, script, helper) in helpers {
        if !have(program, script) {
            continue;
        }
        let mut command = Command::new(program);
        command.arg(clients().join(script)).arg(packages.join(helper)).args([TREFOIL, "1"]);
        let output = command.output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("all good"), "{text}");
    }
}

/// Servers that start at the same time do not share ports, folders or resources.
#[test]
fn a_hundred_servers_run_side_by_side() {
    if !have("node", "a hundred servers") {
        return;
    }
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/npm/index.js");
    let mut command = Command::new("node");
    command.arg(clients().join("parallel_servers.mjs")).arg(helper).args([TREFOIL, "100"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("100 servers, all good"), "{output:?}");
}

#[test]
fn authlib_completes_the_code_flow_and_client_credentials() {
    if have("python3", "Authlib") && installed("Authlib", &python_packages().join("authlib")) {
        check("python3", "authlib_flow.py", &Server::demo());
    }
}

#[test]
fn smart_fetch_exports_a_group_and_everything() {
    if have("python3", "smart-fetch") && installed("smart-fetch", &python_packages().join("smart_fetch")) {
        check("python3", "smart_fetch.py", &Server::demo());
    }
}

/// Runs smart-fetch's export of the first or second day.
fn smart_fetch_day(server: &Server, out: &Path, day: &str) -> serde_json::Value {
    let output = Command::new("python3")
        .arg(clients().join("smart_fetch_increment.py"))
        .args([server.data(), out])
        .arg(day)
        .env("PYTHONPATH", python_packages())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn smart_fetch_gets_exactly_the_changes_on_its_second_day() {
    if !have("python3", "smart-fetch") || !installed("smart-fetch", &python_packages().join("smart_fetch")) {
        return;
    }
    let server = Server::demo();
    let out = tempfile::tempdir().unwrap();
    let first = smart_fetch_day(&server, out.path(), "first");
    let ids: Vec<_> = first["found"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let patient = ids.iter().find(|one| one.starts_with("Patient/")).unwrap();
    let observation = ids.iter().find(|one| one.starts_with("Observation/")).unwrap();

    // An edit, a late addition with an old clinical date, and a deletion.
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    let mut patient_body: serde_json::Value = writer.get(patient, "*/*").await.json().await.unwrap();
    patient_body["active"] = serde_json::json!(patient_body["active"] != true);
    let late = serde_json::json!({
        "resourceType": "Observation", "id": "late", "status": "final", "code": { "text": "late" },
        "subject": { "reference": patient }, "effectiveDateTime": "2001-02-03",
    });
    assert_eq!(writer.put(&patient_body).await.status(), 200);
    assert_eq!(writer.put(&late).await.status(), 201);
    let deleted = writer.request(reqwest::Method::DELETE, observation).send().await.unwrap();
    assert_eq!(deleted.status(), 204);

    let second = smart_fetch_day(&server, out.path(), "second");
    let mut expected = vec!["Observation/late", patient];
    expected.sort_unstable();
    assert_eq!(second["found"], serde_json::json!(expected), "{second}");
    assert_eq!(second["deleted"], serde_json::json!([observation]), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn smart_fetch_puts_notes_into_its_documents() {
    if !have("python3", "smart-fetch") || !installed("smart-fetch", &python_packages().join("smart_fetch")) {
        return;
    }
    let server = Server::demo();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    let group = format!("Group/{}", server.demo_json()["groups"][0].as_str().unwrap());
    let group: serde_json::Value = writer.get(&group, "*/*").await.json().await.unwrap();
    let patient = &group["member"][0]["entity"]["reference"];
    let mut expected = serde_json::Map::new();
    for (id, media_type) in
        [("plain", "text/plain"), ("page", "text/html"), ("charset", "text/plain; charset=utf-8")]
    {
        let text = format!("<p>Grüße: {id}</p>");
        let put = writer.request(reqwest::Method::PUT, &format!("Binary/{id}"));
        let put =
            put.header("content-type", media_type).header("x-security-context", patient.as_str().unwrap());
        assert_eq!(put.body(text.clone()).send().await.unwrap().status(), 201);
        let attachment = serde_json::json!({ "contentType": media_type, "url": format!("Binary/{id}") });
        let document = serde_json::json!({
            "resourceType": "DocumentReference", "id": id, "status": "current",
            "subject": { "reference": patient }, "content": [{ "attachment": attachment }],
        });
        assert_eq!(writer.put(&document).await.status(), 201);
        expected.insert(id.to_owned(), text.into());
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .arg(clients().join("smart_fetch_hydrate.py"))
        .args([server.data(), out.path()])
        .env("PYTHONPATH", python_packages())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let notes: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(notes, serde_json::Value::Object(expected));
}

/// Runs a client that writes and reads resources with a token of its own.
async fn check_resources(program: &str, script: &str) {
    let server = Server::demo();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    run_script(program, script, &server, &[&server.fhir(), writer.token()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fhirpy_writes_finds_and_synchronizes_resources() {
    if have("python3", "fhirpy") && installed("fhirpy", &python_packages().join("fhirpy")) {
        check_resources("python3", "fhirpy_notes.py").await;
        check_resources("python3", "synchronize.py").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_generated_from_the_description_administers() {
    let generator = python_packages().join("openapi_python_client");
    if !have("python3", "openapi-python-client") || !installed("openapi-python-client", &generator) {
        return;
    }
    let server = Server::demo();
    let writer = Writer::register(&server, "ops", "trefoil/admin", &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    run_script("python3", "admin_client.py", &server, &[&server.base(), writer.token(), folder]);
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_clients_write_find_and_synchronize_resources() {
    let package = clients().join("node_modules/fhir-kit-client");
    if have("node", "fhir-kit-client") && installed("fhir-kit-client", &package) {
        check_resources("node", "fhir_kit.mjs").await;
        check_resources("node", "synchronize.mjs").await;
    }
}

#[test]
fn duckdb_applies_an_increment_with_the_lines_of_the_documentation() {
    if !have("python3", "DuckDB") || !installed("DuckDB", &python_packages().join("duckdb")) {
        return;
    }
    let server = Server::in_fresh_folder();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = |args: &[&str]| {
        let command_output = server.trefoil(args);
        assert!(command_output.status.success(), "{}", String::from_utf8_lossy(&command_output.stderr));
    };
    let basic = |id: &str, language: &str| {
        serde_json::json!({ "resourceType": "Basic", "id": id, "language": language }).to_string()
    };
    let patient = r#"{"resourceType":"Patient","id":"p","language":"en"}"#;
    let lines = |texts: &[String]| std::fs::write(at("day.ndjson"), texts.join("\n")).unwrap();
    lines(&[basic("a", "en"), basic("b", "en"), patient.to_owned()]);
    run(&["import", &at("day.ndjson")]);
    run(&["export", "--out", &at("full")]);
    let manifest = std::fs::read(folder.path().join("full/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let delete = r#"{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"DELETE","url":"Basic/b"}}]}"#;
    lines(&[basic("a", "de"), basic("c", "en"), delete.to_owned()]);
    run(&["import", &at("day.ndjson")]);
    run(&["export", "--out", &at("day-2"), "--since", manifest["transactionTime"].as_str().unwrap()]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bulk-export.md");
    let output = Command::new("python3")
        .arg(clients().join("duckdb_increment.py"))
        .args([page.as_path(), folder.path()])
        .env("PYTHONPATH", python_packages())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let copy: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(copy, serde_json::json!([["Basic/a", "de"], ["Basic/c", "en"], ["Patient/p", "en"]]));
}

#[test]
fn python_signs_in_and_validates_codes() {
    if have("python3", "the Python client") {
        check("python3", "sign_in.py", &Server::demo());
    }
}

#[test]
fn node_exports_a_group() {
    if have("node", "the Node client") {
        check("node", "export.mjs", &Server::demo());
    }
}

/// Serves the SMART app, and `/fhir-client.js` from a file. Returns the origin of the app.
async fn serve_app(library: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_app_request(stream, library.clone()));
        }
    });
    origin
}

async fn answer_app_request(mut stream: TcpStream, library: PathBuf) {
    let mut head = [0; 8192];
    // A connection that the browser opened in advance may end without a request.
    let length = stream.read(&mut head).await.unwrap_or_default();
    let (file, kind) = match head[..length].starts_with(b"GET /fhir-client.js ") {
        true => (library, "text/javascript"),
        false => (clients().join("smart_app.html"), "text/html"),
    };
    let body = std::fs::read(file).unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    drop(stream.write_all(&[head.as_bytes(), &body].concat()).await);
}

/// Registers the SMART app at a server, and returns the origin of the app; `None` if something is not
/// installed.
async fn smart_app(server: &Server) -> Option<String> {
    let library = clients().join("node_modules/fhirclient/build/fhir-client.js");
    if !have_browser() || !installed("fhirclient", &library) {
        return None;
    }
    let origin = serve_app(library).await;
    let scope = "openid fhirUser launch/patient patient/*.rs user/ValueSet.rs offline_access";
    let redirect_uri = format!("{origin}/app");
    let add = ["client", "add", "smart-app", "--redirect-uri", &redirect_uri, "--scope", scope];
    assert!(server.trefoil(&add).status.success());
    Some(origin)
}

/// Signs in the user of the demo, and allows what the app asks for.
async fn sign_in_and_allow(driver: &Driver, server: &Server) {
    driver.fill("#username", "willow").await;
    driver.fill("#password", server.demo_json()["user"]["password"].as_str().unwrap()).await;
    driver.press("button").await;
    driver.press("button[value=allow]").await;
}

/// Waits for the result that the app shows.
async fn check_result(driver: &Driver) {
    let mut result = String::new();
    for _ in 0..200 {
        result = driver.text("#result").await;
        if !result.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(result, "all good");
}

#[tokio::test(flavor = "multi_thread")]
async fn fhirclient_launches_reads_refreshes_and_revokes_in_a_browser() {
    let server = Server::demo();
    let Some(origin) = smart_app(&server).await else { return };
    let driver = Driver::start().await;
    driver.go(&format!("{origin}/launch?iss={}", server.fhir())).await;
    sign_in_and_allow(&driver, &server).await;
    check_result(&driver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fhirclient_launches_in_a_popup() {
    check_popup(&Server::demo()).await;
}

/// Signs in to the SMART app in a popup of a real browser.
pub async fn check_popup(server: &Server) {
    let Some(origin) = smart_app(server).await else { return };
    let driver = Driver::start().await;
    driver.go(&format!("{origin}/popup?iss={}", server.fhir())).await;
    driver.press("#start").await;
    let app = driver.enter_popup().await;
    sign_in_and_allow(&driver, server).await;
    // The popup passes the code to the window that opened it, and closes.
    driver.enter_window(&app).await;
    check_result(&driver).await;
}
