//! A server that is open to read and has no sign-in, as public terminology servers are.

use std::process::Command;

use serde_json::json;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::pty::PseudoTerminal;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_sign_in_shows_what_it_has() {
    let server = MockServer::start().await;
    let garden = json!({
        "resourceType": "CodeSystem", "id": "garden", "url": "https://garden.example/plants", "status": "active",
        "name": "Garden", "title": "Plants of the garden", "content": "complete", "count": 7,
    });
    let statement = json!({
        "resourceType": "CapabilityStatement", "status": "active", "kind": "instance", "fhirVersion": "4.0.1",
        "format": ["json"], "rest": [{ "mode": "server", "resource": [{ "type": "CodeSystem" }] }],
    });
    let systems = json!({
        "resourceType": "Bundle", "type": "searchset", "total": 1, "entry": [{ "resource": garden }],
    });
    for (place, body) in [("/r4/metadata", statement), ("/r4/CodeSystem", systems)] {
        let response = ResponseTemplate::new(200).set_body_json(body);
        Mock::given(method("GET")).and(path(place)).respond_with(response).mount(&server).await;
    }
    let base = format!("{}/r4", server.uri());
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
    command.args(["--base-url", &base, "--fhir-base", &base]);
    command.env("XDG_STATE_HOME", state.path()).env("XDG_CONFIG_HOME", state.path());
    command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    let mut terminal = PseudoTerminal::new();
    let mut child = terminal.spawn(&mut command);
    terminal.read_until("Plants of the garden");
    child.kill().unwrap();
    child.wait().unwrap();
    let requests = server.received_requests().await.unwrap();
    assert!(requests.iter().all(|request| !request.headers.contains_key("authorization")));
}
