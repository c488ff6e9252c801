//! Tests of the comparison of two servers, on the Codes screen and as a subcommand.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use trefoil_tui::api::{Bearer, LookupAnswer};
use trefoil_tui::model::{Model, Operation};
use trefoil_tui::msg::{CodeAnswer, Message, RuntimeEffect};
use trefoil_tui::other_server::OtherServer;
use trefoil_tui::update::update;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::headless::{output, program};
use crate::support::{model, press, type_text};

const OTHER: &str = "https://tx.example/r4";

/// Returns a model with the open field of the other server.
pub fn naming() -> Model {
    let mut model = model();
    for key in ['2', 'o', 'o', 'd'] {
        press(&mut model, KeyCode::Char(key));
    }
    type_text(&mut model, OTHER);
    model
}

fn answer(version: &str, definition: Option<&str>) -> CodeAnswer {
    CodeAnswer::Lookup(LookupAnswer {
        name: Some("Care aids".to_owned()),
        version: Some(version.to_owned()),
        display: Some("Cane".to_owned()),
        definition: definition.map(str::to_owned),
        ..LookupAnswer::default()
    })
}

/// Returns a model with the answers of two servers.
pub fn compared() -> Model {
    let mut model = naming();
    let effects = press(&mut model, KeyCode::Enter);
    let [
        RuntimeEffect::Code(1, question, Bearer::Backend),
        RuntimeEffect::OtherCode(1, other_question, OtherServer::Url(url)),
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((question, url.as_str()), (other_question, OTHER));
    let operation = Operation::Lookup;
    update(&mut model, Message::Code { id: 1, operation, result: Ok(answer("1.0.0", Some("A stick"))) });
    update(&mut model, Message::OtherCode { id: 1, operation, result: Ok(answer("2.0.0", None)) });
    model
}

#[test]
fn each_question_is_sent_to_both_servers_until_the_field_is_empty() {
    let mut model = compared();
    let command = "trefoil-tui compare --other-url https://tx.example/r4 lookup \
        --system https://t.example/CodeSystem/aids --code cane";
    assert_eq!(press(&mut model, KeyCode::Char('y')), [RuntimeEffect::Copy(command.to_owned())]);
    assert_eq!(press(&mut model, KeyCode::Enter).len(), 2);
    let late = Message::OtherCode { id: 1, operation: Operation::Lookup, result: Err("late".to_owned()) };
    update(&mut model, late);
    assert!(model.codes.lookup.other.as_ref().unwrap().answer.is_waiting());
    press(&mut model, KeyCode::Char('d'));
    update(&mut model, Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    assert_eq!(press(&mut model, KeyCode::Enter).len(), 1);
    assert!(model.codes.lookup.other.is_none());
    press(&mut model, KeyCode::Char('d'));
    type_text(&mut model, "prod");
    press(&mut model, KeyCode::Esc);
    let effects = press(&mut model, KeyCode::Enter);
    let [_, RuntimeEffect::OtherCode(_, _, server)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*server, OtherServer::Profile("prod".to_owned()));
}

/// Starts a server that answers `$lookup` at this path.
async fn server(at: &str, response: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("GET")).and(path(at)).respond_with(response).mount(&server).await;
    server
}

fn found(display: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "parameter": [
        { "name": "name", "valueString": "N" }, { "name": "display", "valueString": display },
    ]}))
}

async fn compare(here: &MockServer, other: &str, more: &[&str]) -> std::process::Output {
    let mut command = program();
    command.args(["compare", "--base-url", &here.uri(), "--other-url", other]);
    command.args(["lookup", "--system", "s", "--code", "c"]).args(more).env("TREFOIL_TOKEN", "secret");
    output(command).await
}

#[tokio::test]
async fn answers_are_compared_member_by_member() {
    let here = server("/fhir/R4/CodeSystem/$lookup", found("A")).await;
    let other = server("/r4/CodeSystem/$lookup", found("B")).await;
    let url = format!("{}/r4", other.uri());
    let output = compare(&here, &url, &["--exit-status"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(output.status.code(), Some(4));
    assert!(
        lines.contains(&vec!["name", "N", "N"]) && lines.contains(&vec!["!", "display", "A", "B"]),
        "{text}"
    );
    assert!(text.ends_with("1 difference\n"), "{text}");
    let request = &other.received_requests().await.unwrap()[0];
    assert!(
        !request.headers.contains_key("authorization"),
        "the token is only for the server of the profile"
    );
    let output = compare(&here, &url, &["--json"]).await;
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["differences"], json!([{ "path": "display", "here": "A", "other": "B" }]));
    assert_eq!((&result["other"]["server"], output.status.code()), (&url.into(), Some(0)));
}

#[tokio::test]
async fn an_error_status_is_an_answer_and_an_unreachable_server_is_not() {
    let here = server("/fhir/R4/CodeSystem/$lookup", found("A")).await;
    let other = server("/elsewhere", found("A")).await;
    let output = compare(&here, &other.uri(), &["--json"]).await;
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["other"]["answer"]["status"], 404);
    // Finds a free port, which is closed again so that nothing listens on it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = compare(&here, &format!("http://{free}"), &[]).await;
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test]
async fn equal_answers_are_a_success_and_a_server_is_required() {
    let here = server("/fhir/R4/CodeSystem/$lookup", found("A")).await;
    let url = format!("{}/fhir/R4", here.uri());
    let output = compare(&here, &url, &["--exit-status"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("The answers are the same."));
    let mut command = program();
    command.args(["compare", "lookup", "--system", "s", "--code", "c"]);
    assert_eq!(self::output(command).await.status.code(), Some(2));
}
