//! Tests of the subcommands as a script runs them: stdout, exit codes, and a browser outside of the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::server::{Server, browse};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
    command.stdin(Stdio::null());
    command
}

/// Runs a command against the demo server of a folder.
fn run(server: &Server, args: &[&str]) -> Output {
    program().args(args).arg("--demo").arg(server.data.path()).output().unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
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
    let (base, userinfo) = (format!("http://{free}"), ["userinfo", "--token", "t", "--base-url"]);
    check_code(&program().args(userinfo).arg(base).output().unwrap(), 3, "cannot be reached");
}

#[test]
fn a_backend_client_validates_codes_and_exports() {
    let server = Server::start();
    for client in ["demo-backend-es384", "demo-backend-rs384"] {
        let output = run(&server, &["token", "--backend-client", client]);
        let token = String::from_utf8(output.stdout).unwrap();
        assert_eq!(token.trim().split('.').count(), 3, "{token}");
        let asked =
            ["--id", "care-aids", "--code-a", "cane", "--code-b", "aid", "--json", "--token", token.trim()];
        assert_eq!(json(&run(&server, &[&["subsumes"], &asked[..]].concat()))["outcome"], "subsumed-by");
    }
    check_code(
        &run(&server, &["token", "--backend-client", "nobody"]),
        2,
        "demo-backend-es384, demo-backend-rs384",
    );
    check_code(&run(&server, &["token", "--scope", "user/Patient.rs"]), 1, "invalid_scope");
    let system = "https://trefoil.example/fhir/CodeSystem/care-aids";
    let asked =
        ["validate-code", "--id", "walking-aids", "--system", system, "--code", "wheelchair", "--json"];
    assert_eq!(json(&run(&server, &asked))["result"], false);
    let out = server.data.path().join("out");
    let export =
        ["export", "--group", "grp-walking", "--type", "Patient,Condition", "--delete", "--json", "--out"];
    let summary = json(&run(&server, &[&export[..], &[out.to_str().unwrap()]].concat()));
    let kinds: Vec<_> = summary["download"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["type"].as_str().unwrap())
        .collect();
    assert_eq!((kinds, &summary["deleted"]), (vec!["Condition", "Patient"], &true.into()));
    let patients = std::fs::read_to_string(out.join("Patient.ndjson")).unwrap();
    assert_eq!(patients.lines().count(), 5, "the members of the group");
    let nobody = ["export", "--group", "nobody", "--out", out.to_str().unwrap()];
    check_code(&run(&server, &nobody), 1, "404");
}

/// Starts a sign-in without a browser. Returns the process, the address that it prints, and the rest of its output.
fn sign_in(server: &Server) -> (Child, String, impl Iterator<Item = String>) {
    let mut child = program()
        .args(["sign-in", "--no-browser", "--json", "--demo"])
        .arg(server.data.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.find(|line| line.starts_with("https://")).unwrap();
    (child, url, lines)
}

#[tokio::test]
async fn a_user_signs_in_and_userinfo_accepts_the_token() {
    trefoil_tui::install_crypto();
    let server = Server::start();
    let (child, url, words) = sign_in(&server);
    let (username, password) = server.person();
    let page = browse(server.ca(), url, username.clone(), password).await;
    assert!(page.contains("You are signed in"), "{page}");
    let answer = json(&child.wait_with_output().unwrap());
    drop(words);
    let token = answer["access_token"].as_str().unwrap();
    assert!(answer["id_token"].is_string(), "{answer}");
    let mut asking = program()
        .args(["userinfo", "--json", "--token", "-", "--demo"])
        .arg(server.data.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(asking.stdin.take().unwrap(), "{token}").unwrap();
    let claims = json(&asking.wait_with_output().unwrap());
    assert_eq!(claims["preferred_username"].as_str(), Some(username.as_str()));
    check_code(&run(&server, &["export", "--out", "/nowhere", "--token", token]), 1, "403");
}
