//! Tests of the subcommands as a script runs them: stdout, exit codes, and a browser outside of the program.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use trefoil_tui::profile::Profile;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::server::{Server, browse};

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
    command.stdin(Stdio::null());
    // Each test has tokens and profiles of its own: a server of an earlier test may have had the same port.
    let test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    let state = format!("{}/client-state/{}-{test}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    command.env("XDG_STATE_HOME", &state).env("XDG_CONFIG_HOME", &state);
    command
}

/// Runs a command against the demo server of a folder. The list of exports is in that folder, too.
fn run(server: &Server, args: &[&str]) -> Output {
    let mut command = program();
    command.env("XDG_STATE_HOME", server.data.path().join("state"));
    command.args(args).arg("--demo").arg(server.data.path()).output().unwrap()
}

/// Returns the name of a file with a token.
fn token_file(folder: &tempfile::TempDir, token: &str) -> String {
    let path = folder.path().join("token");
    std::fs::write(&path, token).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
pub fn result(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn check_code(output: &Output, code: i32, says: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(says), "{errors}");
    assert!(output.stdout.is_empty(), "an error must not be printed to stdout");
}

#[test]
fn exit_codes_are_stable() {
    check_code(&program().args(["token"]).output().unwrap(), 2, "--demo DIR");
    check_code(
        &program().args(["token", "--demo", "/nowhere"]).output().unwrap(),
        2,
        "/nowhere/endpoint.json",
    );
    check_code(&program().args(["validate-code"]).output().unwrap(), 2, "--system");
    check_code(
        &program().args(["token", "--base-url", "https://t.example"]).output().unwrap(),
        2,
        "--backend-key",
    );
    check_code(&program().args(["token", "--base-url", "ftp://t.example"]).output().unwrap(), 2, "https://");
    // Finds a free port, which is closed again so that nothing listens on it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (base, userinfo) = (format!("http://{free}"), ["userinfo", "--base-url"]);
    check_code(
        &program().env("TREFOIL_TOKEN", "t").args(userinfo).arg(base).output().unwrap(),
        3,
        "cannot be reached",
    );
}

#[test]
fn a_token_is_no_argument() {
    let child = program()
        .args(["userinfo", "--base-url", "http://127.0.0.1:1", "--token-file", "eyJ.secret"])
        .output();
    let output = child.unwrap();
    check_code(&output, 2, "a token itself is not accepted as an argument");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "it is not repeated");
}

#[test]
fn a_dumb_terminal_has_commands_only() {
    let output = program().env("TERM", "dumb").args(["--base-url", "https://t.example"]).output().unwrap();
    check_code(&output, 1, "TERM is 'dumb', which shows no screens");
}

#[test]
fn a_command_ends_after_its_time() {
    // Accepts connections, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", silent.local_addr().unwrap());
    let args = ["userinfo", "--max-time", "1", "--base-url"];
    check_code(
        &program().env("TREFOIL_TOKEN", "t").args(args).arg(base).output().unwrap(),
        1,
        "within 1 s (--max-time)",
    );
}

#[test]
fn keys_are_printed_and_changed_by_the_settings() {
    let config = tempfile::tempdir().unwrap();
    let keys = |args: &[&str]| {
        let mut command = program();
        command.env("XDG_CONFIG_HOME", config.path()).arg("keys").args(args).output().unwrap()
    };
    let printed = keys(&[]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("\n[keys]\n") && printed.contains("\ncopy-curl = \"c\" "), "{printed}");
    std::fs::create_dir(config.path().join("trefoil-tui")).unwrap();
    let settings = config.path().join("trefoil-tui/settings.toml");
    std::fs::write(&settings, printed.replace("copy-curl = \"c\"", "copy-curl = [\"Y\", \"F5\"]")).unwrap();
    let rows = result(&keys(&["--json"]));
    let row = rows.as_array().unwrap().iter().find(|row| row["action"] == "copy-curl").unwrap();
    assert_eq!(row["keys"], json!(["Y", "F5"]));
    std::fs::write(&settings, "[keys]\nquit = \"z\"\n").unwrap();
    let mut screens = program();
    screens.env("XDG_CONFIG_HOME", config.path()).args(["--base-url", "https://t.example"]);
    for output in [keys(&[]), screens.output().unwrap()] {
        check_code(&output, 2, "line 2: 'z' has two actions");
    }
}

#[test]
fn a_backend_client_validates_codes_and_exports() {
    let server = Server::start();
    for client in ["demo-backend-es384", "demo-backend-rs384"] {
        let output = run(&server, &["token", "--backend-client", client]);
        let token = String::from_utf8(output.stdout).unwrap();
        assert_eq!(token.trim().split('.').count(), 3, "{token}");
        let token = token_file(&server.data, &token);
        let args =
            ["--id", "care-aids", "--code-a", "cane", "--code-b", "aid", "--json", "--token-file", &token];
        assert_eq!(result(&run(&server, &[&["subsumes"], &args[..]].concat()))["outcome"], "subsumed-by");
    }
    check_code(
        &run(&server, &["token", "--backend-client", "nobody"]),
        2,
        "demo-backend-es384, demo-backend-rs384",
    );
    check_code(&run(&server, &["token", "--scope", "user/Patient.rs"]), 1, "invalid_scope");
    let system = "https://trefoil.example/fhir/CodeSystem/care-aids";
    let args =
        ["validate-code", "--id", "walking-aids", "--system", system, "--code", "wheelchair", "--json"];
    assert_eq!(result(&run(&server, &args))["result"], false);
    let cane = ["--system", system, "--code", "folding-cane", "--json"];
    let tree = result(&run(&server, &[&["tree"], &cane[..]].concat()));
    assert_eq!(tree["parents"][1], json!({ "code": "travel-aid", "display": "Aid for travelling" }));
    let chain = |a: &str, b: &str| {
        let path =
            result(&run(&server, &["path", "--system", system, "--code-a", a, "--code-b", b, "--json"]));
        let codes = path["chain"].as_array().unwrap().iter().map(|concept| concept["code"].clone());
        codes.collect::<Vec<_>>()
    };
    assert_eq!(chain("folding-cane", "stick"), ["stick", "cane", "folding-cane"]);
    assert_eq!(chain("cane", "wheelchair"), [""; 0]);
    let out = server.data.path().join("out");
    let export =
        ["export", "--group", "grp-walking", "--type", "Patient,Condition", "--delete", "--json", "--out"];
    let summary = result(&run(&server, &[&export[..], &[out.to_str().unwrap()]].concat()));
    let kinds: Vec<_> =
        summary["files"].as_array().unwrap().iter().map(|file| file["type"].as_str().unwrap()).collect();
    assert_eq!((kinds, &summary["deleted"]), (vec!["Condition", "Patient"], &true.into()));
    let patients = std::fs::read_to_string(out.join("Patient.ndjson")).unwrap();
    assert_eq!(patients.lines().count(), 5, "the members of the group");
    let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("manifest.json")).unwrap()).unwrap();
    assert!(manifest["request"].is_string(), "the manifest has all members that the server sent: {manifest}");
    // A later export begins where this one ended.
    let [later, more] = ["later", "more"].map(|name| server.data.path().join(name));
    let from = out.to_str().unwrap();
    let increment = ["export", "--since", from, "--json", "--out", later.to_str().unwrap()];
    assert_eq!(result(&run(&server, &increment))["files"], json!([]));
    std::fs::remove_file(out.join("Condition.ndjson")).unwrap();
    let incomplete = ["export", "--since", from, "--out", more.to_str().unwrap()];
    check_code(&run(&server, &incomplete), 2, "is not complete");
    let again = ["export", "--group", "grp-walking", "--out", out.to_str().unwrap()];
    check_code(&run(&server, &again), 2, "is not empty");
    check_code(&run(&server, &["export", "--resume", out.to_str().unwrap()]), 1, "deleted on the server");
    let other = server.data.path().join("other");
    let nobody = ["export", "--group", "nobody", "--out", other.to_str().unwrap()];
    check_code(&run(&server, &nobody), 1, "404");
    assert!(!other.exists(), "nothing was exported, so no folder remains");
    let list = result(&run(&server, &["exports", "--json"]));
    let phases: Vec<_> =
        list.as_array().unwrap().iter().map(|export| export["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["complete", "deleted"]);
}

/// Starts a sign-in without a browser. Returns the process, the address that it prints, and the rest of its
/// output.
fn sign_in(server: &Server) -> (Child, String, impl Iterator<Item = String>) {
    let mut child = program()
        .args(["sign-in", "--no-browser", "--json", "--demo"])
        .arg(server.data.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let step: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(step["event"], "open-browser");
    (child, step["url"].as_str().unwrap().to_owned(), lines)
}

#[tokio::test]
async fn a_user_signs_in_and_userinfo_accepts_the_token() {
    trefoil_tui::install_crypto();
    let server = Server::start();
    let (child, url, words) = sign_in(&server);
    let (username, password) = server.person();
    let page = browse(server.ca(), url, username.clone(), password).await;
    assert!(page.contains("You are signed in"), "{page}");
    let report = result(&child.wait_with_output().unwrap());
    drop(words);
    let token = report["access_token"].as_str().unwrap();
    assert!(report["id_token"].is_string(), "{report}");
    let mut asking = program()
        .args(["userinfo", "--json", "--token-file", "-", "--demo"])
        .arg(server.data.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(asking.stdin.take().unwrap(), "{token}").unwrap();
    let claims = result(&asking.wait_with_output().unwrap());
    assert_eq!(claims["preferred_username"].as_str(), Some(username.as_str()));
    check_code(
        &run(
            &server,
            &[
                "export",
                "--out",
                server.data.path().join("refused").to_str().unwrap(),
                "--token-file",
                &token_file(&server.data, token),
            ],
        ),
        1,
        "403",
    );
}

#[test]
fn a_command_without_a_terminal_does_not_wait_for_nobody() {
    let server = Server::start();
    let ask = |more: &[&str]| {
        let mut command = program();
        command.args(["userinfo", "--demo"]).arg(server.data.path()).args(more);
        // No program of the system opens a browser.
        command.env("PATH", server.data.path()).env_remove("BROWSER").stdin(Stdio::null()).output().unwrap()
    };
    check_code(&ask(&[]), 1, "without a terminal no address can be pasted; use --device");
    check_code(&ask(&["--no-browser", "--timeout", "1"]), 1, "no user signed in within 1 s; sign in again");
}

#[test]
fn a_value_set_has_a_url_or_an_id() {
    let both = ["validate-code", "--url", "u", "--id", "i", "--system", "s", "--code", "c"];
    check_code(&program().args(both).output().unwrap(), 2, "cannot be used with");
}

/// Returns a mock of a terminology server that returns this response to `$validate-code`.
async fn terminology_server(response: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(response).mount(&server).await;
    server
}

fn validate(server: &MockServer, more: &[&str]) -> Command {
    let mut command = program();
    command.env("TREFOIL_TOKEN", "t").args(["validate-code", "--base-url", &server.uri()]);
    command.args(["--url", "u", "--system", "s", "--code", "c"]).args(more);
    command
}

/// Waits for a program on a thread that may block, so that the mock server can respond.
pub async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn control_characters_of_the_server_are_not_printed() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m";
    let validation = json!({ "parameter": [
        { "name": "result", "valueBoolean": false }, { "name": "message", "valueString": evil },
    ]});
    let server = terminology_server(ResponseTemplate::new(200).set_body_json(validation)).await;
    for more in [&[][..], &["--json"]] {
        let output = output(validate(&server, more)).await;
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("owned"), "{text:?}");
    }
    let error = ResponseTemplate::new(400).set_body_json(json!({ "issue": [{ "diagnostics": evil }] }));
    let server = terminology_server(error).await;
    let output = output(validate(&server, &[])).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n') && text.contains("owned"), "{text:?}");
}

#[tokio::test]
async fn issues_and_versions_are_part_of_the_json() {
    let validation = json!({ "parameter": [
        { "name": "result", "valueBoolean": false },
        { "name": "code", "valueCode": "c" },
        { "name": "system", "valueUri": "s" },
        { "name": "version", "valueString": "1" },
        { "name": "issues", "resource": { "resourceType": "OperationOutcome", "issue": [{
            "severity": "error", "code": "code-invalid", "expression": ["code"],
            "details": { "coding": [{ "code": "not-in-vs" }], "text": "not there" },
        }]}},
    ]});
    let server = terminology_server(ResponseTemplate::new(200).set_body_json(validation)).await;
    let report = result(&output(validate(&server, &["--json"])).await);
    let issue = json!([{
        "severity": "error", "code": "code-invalid", "detail": "not-in-vs", "text": "not there",
        "expression": ["code"],
    }]);
    assert_eq!(report["issues"], issue);
    assert_eq!(
        (&report["code"], &report["system"], &report["version"]),
        (&"c".into(), &"s".into(), &"1".into())
    );
    let text = String::from_utf8(output(validate(&server, &[])).await.stdout).unwrap();
    assert!(text.contains("error at code: not there (not-in-vs)"), "{text}");
    let negative = output(validate(&server, &["--exit-status"])).await;
    assert_eq!((negative.status.code(), negative.stderr.is_empty()), (Some(4), true));
}

#[tokio::test]
async fn exchanges_are_written_as_an_http_archive() {
    let server = terminology_server(ResponseTemplate::new(404)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.har");
    output(validate(&server, &["--har", path.to_str().unwrap()])).await;
    let archive: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let entries = archive["log"]["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["response"]["status"]), (1, &404.into()), "{archive}");
}

#[tokio::test]
async fn errors_are_json_with_json_output() {
    let server = terminology_server(ResponseTemplate::new(404)).await;
    let output = output(validate(&server, &["--json"])).await;
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&error["event"], &error["exitCode"]), (&"error".into(), &1.into()));
    assert!(error["message"].as_str().unwrap().contains("404 Not Found"), "{error}");
}

/// A reader such as `head` may end before the result is printed.
#[tokio::test]
async fn a_closed_stdout_is_not_an_error() {
    let validation = json!({ "parameter": [{ "name": "result", "valueBoolean": true }] });
    let server = terminology_server(ResponseTemplate::new(200).set_body_json(validation)).await;
    let mut command = validate(&server, &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.as_ref()), (Some(0), ""));
}

/// Runs a command whose profiles and tokens are in this folder.
fn run_in(folder: &std::path::Path, args: &[&str]) -> Output {
    let mut command = program();
    command.env("XDG_CONFIG_HOME", folder).env("XDG_STATE_HOME", folder);
    command.args(args).output().unwrap()
}

/// Signs a person in with the default profile in a folder.
async fn check_sign_in(server: &Server, folder: &std::path::Path) {
    let mut command = program();
    command.env("XDG_CONFIG_HOME", folder).env("XDG_STATE_HOME", folder);
    // `--quiet` also prints the address, because the user must open it.
    let command = command.args(["sign-in", "--no-browser", "--json", "--quiet"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let step: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    let (username, password) = server.person();
    let page = browse(server.ca(), step["url"].as_str().unwrap().to_owned(), username, password).await;
    assert!(page.contains("You are signed in"), "{page}");
    let tokens = result(&child.wait_with_output().unwrap());
    assert!(tokens["id_token"].is_string(), "{tokens}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_setup_stores_can_sign_in() {
    trefoil_tui::install_crypto();
    let server = Server::start();
    let (data, folder) = (server.data.path().to_str().unwrap(), tempfile::tempdir().unwrap());
    let setup = ["setup", "--data", data, "--name", "mine", "--json"];
    let report = result(&run_in(folder.path(), &setup));
    check_sign_in(&server, folder.path()).await;
    // A client of an earlier version, whose redirect URI has only one port.
    let scope = report["profile"]["scope"].as_str().unwrap();
    let add = ["client", "add", "old", "--redirect-uri", "http://localhost/callback", "--scope", scope];
    let grants = ["--grant-type", "authorization_code", "--grant-type", "refresh_token"];
    let added =
        Command::new(test_server::build().unwrap()).args(add).args(grants).args(["--data", data]).output();
    assert!(added.unwrap().status.success());
    let profiles = folder.path().join("trefoil-tui/profiles.toml");
    let text = std::fs::read_to_string(&profiles).unwrap();
    let id = report["profile"]["client_id"].as_str().unwrap();
    std::fs::write(&profiles, text.replace(id, "old")).unwrap();
    assert_eq!(result(&run_in(folder.path(), &setup))["profile"]["client_id"], "old");
    check_sign_in(&server, folder.path()).await;
}

#[test]
fn a_profile_is_set_up_from_a_data_folder() {
    let server = Server::start();
    let (data, folder) = (server.data.path().to_str().unwrap(), tempfile::tempdir().unwrap());
    let report = result(&run_in(folder.path(), &["setup", "--data", data, "--name", "mine", "--json"]));
    assert_eq!(report["name"], "mine");
    assert!(report["profile"]["client_id"].as_str().unwrap().starts_with("trefoil-tui-"), "{report}");
    let again = result(&run_in(folder.path(), &["setup", "--data", data, "--name", "mine", "--json"]));
    assert_eq!(again["profile"], report["profile"], "a second setup registers no other clients");
    // The only profile is the default one; its backend client was registered with a new key.
    let output = run_in(folder.path(), &["token"]);
    let token = String::from_utf8(output.stdout).unwrap();
    let inspection =
        result(&run_in(folder.path(), &["token", "inspect", &token_file(&folder, &token), "--json"]));
    assert_eq!(inspection["signature"]["status"], "valid", "{inspection}");
    assert_eq!(inspection["content"]["claims"]["scope"], "system/*.read");
    assert_eq!(inspection["introspection"], Value::Null, "the server is not asked without --introspect");
    let file = token_file(&folder, &token);
    let args = ["token", "inspect", &file, "--introspect", "--json"];
    let introspection = &result(&run_in(folder.path(), &args))["introspection"];
    assert_eq!(
        (&introspection["status"], &introspection["members"]["active"]),
        (&json!("active"), &Value::Null)
    );
    assert_eq!(introspection["members"]["scope"], "system/*.read", "{introspection}");
    let unknown = result(&run_in(
        folder.path(),
        &["token", "inspect", &token_file(&folder, "abc"), "--introspect", "--json"],
    ));
    assert_eq!(unknown["introspection"]["status"], "inactive", "{unknown}");
    let mut alone = program();
    let alone = alone.env("XDG_CONFIG_HOME", "/nowhere").args([
        "token",
        "inspect",
        &token_file(&folder, &token),
        "--json",
    ]);
    let decoded = result(&alone.output().unwrap());
    assert_eq!(decoded["content"], inspection["content"], "no server is needed");
    assert_eq!(decoded["signature"]["status"], "unknown");
    let forged = token.trim().rsplit_once('.').unwrap().0.to_owned() + ".AAAA";
    let inspection =
        result(&run_in(folder.path(), &["token", "inspect", &token_file(&folder, &forged), "--json"]));
    assert_eq!(inspection["signature"]["status"], "invalid", "{inspection}");
    let findings = result(&run_in(folder.path(), &["doctor", "--json"]));
    let bad: Vec<_> =
        findings.as_array().unwrap().iter().filter(|finding| finding["status"] != "ok").collect();
    assert!(bad.is_empty(), "{bad:?}");
    check_code(&run_in(folder.path(), &["token", "--profile", "yours"]), 2, "profile 'yours' does not exist");
    let script = run_in(folder.path(), &["completions", "bash"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("validate-code"));
    let pages = folder.path().join("man");
    run_in(folder.path(), &["man", "--out", pages.to_str().unwrap()]);
    let page = std::fs::read_to_string(pages.join("trefoil-tui.1")).unwrap();
    assert!(page.contains(".SH ENVIRONMENT") && page.contains(".SH FILES"), "{page}");
    assert!(std::fs::read_to_string(pages.join("trefoil-tui-export.1")).unwrap().contains("resume"));
}

#[tokio::test]
async fn setup_registers_a_client_where_the_server_offers_it() {
    let server = MockServer::start().await;
    let at = |path: &str| format!("{}{path}", server.uri());
    let configuration = json!({
        "issuer": server.uri(), "authorization_endpoint": at("/a"), "token_endpoint": at("/t"),
        "userinfo_endpoint": at("/u"), "registration_endpoint": at("/register"),
    });
    let respond = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    Mock::given(path("/.well-known/openid-configuration"))
        .respond_with(respond(configuration))
        .mount(&server)
        .await;
    let smart = json!({ "issuer": server.uri(), "token_endpoint": at("/t") });
    Mock::given(path("/fhir/.well-known/smart-configuration"))
        .respond_with(respond(smart))
        .mount(&server)
        .await;
    Mock::given(method("POST"))
        .and(path("/register"))
        .respond_with(ResponseTemplate::new(201).set_body_json(json!({ "client_id": "c42" })))
        .expect(1)
        .mount(&server)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.env("XDG_CONFIG_HOME", folder.path()).args(["setup", &at("/fhir"), "--json"]);
    let report = result(&output(command).await);
    let profile = &report["profile"];
    assert_eq!((&profile["base_url"], &profile["client_id"]), (&server.uri().into(), &"c42".into()));
    assert_eq!(profile["fhir_base"], at("/fhir"));
    // A server without sign-in becomes a profile without a token.
    let plain = MockServer::start().await;
    let metadata = json!({ "resourceType": "CapabilityStatement", "fhirVersion": "4.0.1" });
    Mock::given(path("/r4/metadata")).respond_with(respond(metadata)).mount(&plain).await;
    let mut command = program();
    let url = format!("{}/r4", plain.uri());
    command.env("XDG_CONFIG_HOME", folder.path()).args(["setup", &url, "--name", "plain", "--json"]);
    let report = result(&output(command).await);
    assert!(report["profile"]["client_id"].is_null(), "{report}");
    assert!(report["actions"].to_string().contains("without a token"), "{report}");
}

/// Each subcommand with arguments, and whether it changes something on the server.
const SUBCOMMANDS: [(&str, &[&str], bool); 21] = [
    ("cancel", &["."], true),
    (
        "compare",
        &["--other", "http://127.0.0.1:1", "subsumes", "--system", "s", "--code-a", "a", "--code-b", "b"],
        false,
    ),
    ("completions", &["bash"], false),
    ("doctor", &[], false),
    ("expand", &["--url", "u"], false),
    ("export", &["--out", "e1"], true),
    ("exports", &[], false),
    ("keys", &[], false),
    ("lookup", &["--system", "s", "--code", "c"], false),
    ("man", &["man"], false),
    ("path", &["--system", "s", "--from", "a", "--to", "b"], false),
    ("setup", &["http://127.0.0.1:1"], true),
    ("sign-in", &["--no-browser", "--timeout", "1"], false),
    ("sign-out", &[], true),
    ("subsumes", &["--system", "s", "--code-a", "a", "--code-b", "b"], false),
    ("token", &[], false),
    ("tree", &["--system", "s", "--code", "c"], false),
    ("userinfo", &["--token-file", "-"], false),
    ("validate-batch", &["--file", "codes.csv"], false),
    ("validate-code", &["--url", "u", "--system", "s", "--code", "c"], false),
    ("help", &[], false),
];

#[tokio::test]
async fn a_read_only_client_refuses_before_it_sends() {
    use clap::CommandFactory as _;
    let mut command = trefoil_tui::args::Args::command();
    command.build();
    let names: BTreeSet<_> = command.get_subcommands().map(clap::Command::get_name).collect();
    assert_eq!(names, SUBCOMMANDS.iter().map(|(name, ..)| *name).collect(), "the table has each subcommand");
    let server = MockServer::start().await;
    for (name, args, changes) in SUBCOMMANDS {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program();
        command.current_dir(folder.path()).arg(name).args(args);
        if !matches!(name, "setup" | "help") {
            command.args(["--read-only", "--client-id", "app", "--base-url", &server.uri()]);
        } else if name == "setup" {
            command.arg("--read-only");
        }
        server.reset().await;
        let output = output(command).await;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if changes {
            check_code(&output, 2, "read-only (--read-only)");
            assert_eq!(server.received_requests().await.unwrap().len(), 0, "{name}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{name} creates no folder");
        } else {
            assert!(!errors.contains("read-only"), "{name}: {errors}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_wrong_paste_does_not_end_the_sign_in() {
    trefoil_tui::install_crypto();
    let server = Server::start();
    let mut terminal = crate::pty::PseudoTerminal::new();
    let mut command = program();
    command.args(["sign-in", "--no-browser", "--demo"]).arg(server.data.path());
    command.env("XDG_STATE_HOME", server.data.path().join("state"));
    let mut child = terminal.spawn(&mut command);
    let screen = terminal.read_until("paste its last address");
    let url = screen.split_whitespace().find(|word| word.starts_with("https://")).unwrap().to_owned();
    for junk in ["junk", "https://x.example/?state=1&code=2", "two words"] {
        terminal.send(&format!("{junk}\n"));
        let screen = terminal.read_until("Error: ");
        assert!(screen.contains("Error: "), "{screen}");
    }
    let (username, password) = server.person();
    let page = browse(server.ca(), url, username, password).await;
    assert!(page.contains("You are signed in"), "{page}");
    let screen = terminal.read_until("signed in as");
    assert!(screen.contains("signed in as"), "{screen}");
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn two_profiles_of_one_server_have_their_own_tokens() {
    trefoil_tui::install_crypto();
    let profile = |name: Option<&str>| {
        let profile = Profile { name: name.map(str::to_owned), ..Profile::at("https://t.example").unwrap() };
        profile.with_token_file().token_file.unwrap()
    };
    let files: BTreeSet<_> = [None, Some("ann"), Some("bob")].map(profile).into();
    assert_eq!(files.len(), 3, "{files:?}");
}

#[tokio::test]
async fn the_environment_names_the_profile_and_the_token() {
    let report = json!({ "parameter": [{ "name": "result", "valueBoolean": true }] });
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(header("authorization", "Bearer from-the-environment"))
        .respond_with(ResponseTemplate::new(200).set_body_json(report))
        .expect(1)
        .mount(&server)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("trefoil-tui/profiles.toml");
    std::fs::create_dir_all(profiles.parent().unwrap()).unwrap();
    let uri = server.uri();
    let text = format!(
        "default = \"other\"\n[profiles.other]\nbase_url = \"http://127.0.0.1:9\"\n[profiles.mock]\nbase_url = \"{uri}\"\n"
    );
    std::fs::write(profiles, text).unwrap();
    let mut command = program();
    command.env("XDG_CONFIG_HOME", folder.path()).env("TREFOIL_PROFILE", "mock");
    command.env("TREFOIL_TOKEN", "from-the-environment");
    command.args(["validate-code", "--url", "u", "--system", "s", "--code", "c"]);
    let output = output(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut help = program();
    let help = help.env("TREFOIL_TOKEN", "secret-value").args(["lookup", "--help"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("secret-value"), "help shows the token");
}

#[test]
fn a_quiet_command_prints_no_progress() {
    let server = Server::start();
    let export = |more: &[&str]| {
        let folder = server.data.path().join(format!("quiet-{}", more.len()));
        let folder = folder.display().to_string();
        run(&server, &[&["export", "--group", "grp-walking", "--out", &folder], more].concat())
    };
    let loud = export(&[]);
    assert!(loud.status.success() && !loud.stderr.is_empty());
    let quiet = export(&["--quiet"]);
    assert!(quiet.status.success(), "{}", String::from_utf8_lossy(&quiet.stderr));
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
    assert!(!quiet.stdout.is_empty(), "the result is printed");
    let wrong = token_file(&server.data, "wrong");
    let output = run(&server, &["userinfo", "--token-file", &wrong, "--quiet"]);
    assert!(!output.stderr.is_empty(), "errors are printed");
}
