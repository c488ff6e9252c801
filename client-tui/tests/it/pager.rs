//! The pager of the user has the terminal for itself. The program runs in a pseudo-terminal.

use std::process::Command;
use std::time::Duration;

use rustix::termios::{LocalModes, tcgetattr};
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::pty::PseudoTerminal;
use crate::signals::{ENTER, LEAVE};

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_restored_for_the_pager() {
    let server = MockServer::start().await;
    let response =
        json!({ "resourceType": "Parameters", "parameter": [{ "name": "result", "valueBoolean": true }] });
    Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_json(response)).mount(&server).await;
    let base_url = server.uri();
    tokio::task::spawn_blocking(move || drive(&base_url)).await.unwrap();
}

fn drive(base_url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let pager = folder.path().join("pager.sh");
    std::fs::write(&pager, "cat $1; echo shown; read line").unwrap();
    let mut terminal = PseudoTerminal::new();
    let is_raw = |terminal: &PseudoTerminal| {
        !tcgetattr(&terminal.program).unwrap().local_modes.contains(LocalModes::ICANON)
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
    command
        .args(["--base-url", base_url, "--client-id", "native"])
        .env("PAGER", format!("sh {}", pager.display()));
    command.env("XDG_STATE_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
    let mut child = terminal.spawn(&mut command);
    terminal.read_until("quit");
    // The answer is not a discovery document, so that the sign-in fails after its first exchange.
    terminal.send("1v");
    terminal.read_until("Error: ");
    terminal.send("5jjjjjjjj");
    // On a busy machine the selected request still waits for its response, and has no body to open.
    let mut screen = String::new();
    let is_open = (0..60).any(|_| {
        terminal.send("v");
        let read = terminal.read_for(Duration::from_secs(1), "shown");
        screen.push_str(read.as_ref().unwrap_or_else(|output| output));
        read.is_ok()
    });
    assert!(is_open, "{screen:?}");
    let (before, body) = screen.rsplit_once(LEAVE).unwrap();
    assert!(body.contains("valueBoolean") && !before.contains("shown"), "{screen:?}");
    assert!(!is_raw(&terminal), "the pager has a terminal with lines");
    terminal.send("\r");
    let after = terminal.read_until("quit");
    assert!(after.contains(ENTER) && is_raw(&terminal), "{after:?}");
    terminal.send("q");
    assert!(child.wait().unwrap().success());
}
