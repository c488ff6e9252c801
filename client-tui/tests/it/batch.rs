//! Tests of the validation of many codes: the batch view, the order of results, retries, and the subcommand.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use ratatui::crossterm::event::KeyCode;
use serde_json::{Value, json};
use trefoil_tui::api::Bearer;
use trefoil_tui::batch::{self, BatchDefaults, BatchResult, BatchSummary};
use trefoil_tui::model::{BatchState, Model};
use trefoil_tui::msg::{BatchEvent, Message, RuntimeEffect};
use trefoil_tui::update::update;
use wiremock::matchers::{body_partial_json, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::headless::{output, program};
use crate::support::{api, model, press, type_text};

const SYSTEM: &str = "https://t.example/CodeSystem/aids";
const VALUE_SET: &str = "https://t.example/ValueSet/aids";

fn result(row: u64, code: &str, result: Option<bool>, text: &str) -> BatchResult {
    let row_result = BatchResult {
        row,
        url: VALUE_SET.to_owned(),
        system: SYSTEM.to_owned(),
        code: code.to_owned(),
        result,
        ..BatchResult::default()
    };
    let text = Some(text.to_owned());
    match result {
        Some(true) => BatchResult { server_display: text, ..row_result },
        Some(false) => BatchResult { message: text, ..row_result },
        None => BatchResult { error: text, ..row_result },
    }
}

/// Returns a model with a batch whose file has four rows, three of which have a result.
pub fn validated() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('b'));
    type_text(&mut model, "codes.csv");
    let defaults = BatchDefaults { url: VALUE_SET.into(), system: SYSTEM.into(), ..BatchDefaults::default() };
    let start =
        RuntimeEffect::StartBatch { id: 1, path: "codes.csv".into(), defaults, bearer: Bearer::Backend };
    assert_eq!(press(&mut model, KeyCode::Enter), [start]);
    update(&mut model, Message::Batch(1, BatchEvent::Started(4)));
    let missing = "the code 'wheelchair' is not in the value set";
    for row in [
        result(1, "cane", Some(true), "Cane"),
        result(2, "wheelchair", Some(false), missing),
        result(3, "x", None, "503 Service Unavailable from https://t.example: busy"),
    ] {
        update(&mut model, Message::Batch(1, BatchEvent::Row(row)));
    }
    model
}

/// Returns a model that shows only the rows that are not valid.
pub fn only_failures() -> Model {
    let mut model = validated();
    press(&mut model, KeyCode::Char('f'));
    press(&mut model, KeyCode::Down);
    model
}

#[test]
fn only_the_rows_that_are_not_valid_are_shown() {
    let mut model = only_failures();
    let codes: Vec<_> = model.batch.visible().map(|row| row.code.as_str()).collect();
    assert_eq!((codes, model.batch.selected), (vec!["wheelchair", "x"], 1));
    press(&mut model, KeyCode::Down);
    assert_eq!(model.batch.selected, 1);
    press(&mut model, KeyCode::Char('f'));
    assert_eq!((model.batch.visible().count(), model.batch.selected), (3, 0));
    let command = format!("trefoil-tui validate-batch codes.csv --url {VALUE_SET} --system {SYSTEM}");
    assert_eq!(press(&mut model, KeyCode::Char('y')), [RuntimeEffect::Copy(command)]);
}

#[test]
fn a_batch_is_stopped_and_its_late_results_are_dropped() {
    let mut model = validated();
    assert_eq!(press(&mut model, KeyCode::Char('x')), [RuntimeEffect::StopBatch]);
    update(&mut model, Message::Batch(1, BatchEvent::Row(result(4, "y", Some(true), "Y"))));
    assert_eq!((model.batch.summary.total, &model.batch.state), (3, &BatchState::Stopped));
    assert_eq!(press(&mut model, KeyCode::Char('x')), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: no batch is running."));
    let [RuntimeEffect::StartBatch { id: 2, .. }] = &press(&mut model, KeyCode::Enter)[..] else { panic!() };
    update(&mut model, Message::Batch(1, BatchEvent::Ended(Ok(()))));
    assert!(model.batch.is_running() && model.batch.results.is_empty());
    update(&mut model, Message::Batch(2, BatchEvent::Ended(Err("codes.csv: no such file".to_owned()))));
    assert_eq!(model.batch.state, BatchState::Failed("codes.csv: no such file".to_owned()));
    press(&mut model, KeyCode::Esc);
    assert!(!model.batch.open);
}

#[test]
fn a_batch_needs_a_file() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('b'));
    type_text(&mut model, "-");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("name of a file")));
}

/// Answers the validation of a code.
async fn answer(server: &MockServer, code: &str, response: ResponseTemplate) {
    Mock::given(path("/fhir/R4/ValueSet/$validate-code"))
        .and(body_partial_json(json!({ "parameter": [
            { "name": "url", "valueUri": "v" }, { "name": "system" }, { "name": "code", "valueCode": code },
        ]})))
        .respond_with(response)
        .mount(server)
        .await;
}

fn validation(result: bool) -> ResponseTemplate {
    let validation = json!({ "parameter": [
        { "name": "result", "valueBoolean": result }, { "name": "display", "valueString": "D" },
    ]});
    ResponseTemplate::new(200).set_body_json(validation)
}

async fn run(server: &MockServer, text: &str) -> Vec<BatchResult> {
    let defaults = BatchDefaults { url: "v".into(), system: "s".into(), ..BatchDefaults::default() };
    let rows = batch::read(text, &defaults).unwrap();
    batch::run(&api(&server.uri()), rows, &Bearer::Anonymous, 3).collect().await
}

#[tokio::test]
async fn results_are_in_the_order_of_the_file() {
    let server = MockServer::start().await;
    answer(&server, "slow", validation(true).set_delay(Duration::from_millis(200))).await;
    answer(&server, "fast", validation(false)).await;
    let results = run(&server, "code\nslow\nfast\n\"\"\nfast\n").await;
    let results_by_row: Vec<_> = results.iter().map(|row| (row.row, row.result)).collect();
    assert_eq!(results_by_row, [(1, Some(true)), (2, Some(false)), (3, None), (4, Some(false))]);
    assert_eq!(results[2].explanation(), "the code is missing");
    assert_eq!(server.received_requests().await.unwrap().len(), 3, "an invalid row is not sent");
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let server = MockServer::start().await;
    let busy = ResponseTemplate::new(429).insert_header("retry-after", "1");
    Mock::given(path("/fhir/R4/ValueSet/$validate-code"))
        .respond_with(busy)
        .up_to_n_times(2)
        .mount(&server)
        .await;
    answer(&server, "a", validation(true)).await;
    assert_eq!(run(&server, "code\na\n").await[0].result, Some(true));
    server.reset().await;
    answer(&server, "a", ResponseTemplate::new(503)).await;
    answer(&server, "b", ResponseTemplate::new(404)).await;
    let results = run(&server, "{\"code\":\"a\"}\n{\"code\":\"b\"}").await;
    assert!(results[0].error.as_ref().unwrap().contains("503"), "{results:?}");
    assert!(results[1].error.as_ref().unwrap().contains("404"), "{results:?}");
    assert_eq!(server.received_requests().await.unwrap().len(), 4 + 1);
}

/// Runs the subcommand with a file and more options.
async fn validate_batch(server: &MockServer, content: &str, more: &[&str]) -> std::process::Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    let path: PathBuf = file.path().to_owned();
    let mut command = program();
    command.arg("validate-batch").arg(path).args([
        "--url",
        "v",
        "--system",
        "s",
        "--base-url",
        &server.uri(),
    ]);
    command.env("TREFOIL_TOKEN", "tok").args(more);
    output(command).await
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn results_are_printed_as_a_table_as_json_or_as_csv() {
    let server = MockServer::start().await;
    answer(&server, "good", validation(true)).await;
    answer(&server, "b,d", validation(false)).await;
    let content = "code\ngood\n\"b,d\"\n";
    let output = validate_batch(&server, content, &[]).await;
    let table = "     1  valid    good  D\n     2  invalid  b,d   D\n";
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), table));
    assert_eq!(text(&output.stderr), "2 rows: 1 valid, 1 invalid, 0 without an answer\n");
    let output = validate_batch(&server, content, &["--json", "--exit-status"]).await;
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["result"], &lines[1]["code"]), (&true.into(), &"b,d".into()));
    let summary: Value = serde_json::from_slice(&output.stderr).unwrap();
    let expected = json!({ "event": "summary", "total": 2, "valid": 1, "invalid": 1, "failed": 0 });
    assert_eq!((output.status.code(), summary), (Some(4), expected));
    let output = validate_batch(&server, content, &["--csv"]).await;
    let records = "row,url,system,code,display,result,serverDisplay,message,error\n\
        1,v,s,good,,true,D,,\n2,v,s,\"b,d\",,false,D,,\n";
    assert_eq!(text(&output.stdout), records);
}

#[tokio::test]
async fn rows_without_an_answer_fail_and_a_bad_file_is_a_usage_error() {
    let server = MockServer::start().await;
    answer(&server, "a", ResponseTemplate::new(400)).await;
    let output = validate_batch(&server, "code\na\n", &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("1 of 1 rows have no answer"), "{}", text(&output.stderr));
    let output = validate_batch(&server, "system,display\n", &[]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the column 'code' is missing"), "{}", text(&output.stderr));
}

#[test]
fn the_summary_counts_verdicts() {
    let mut summary = BatchSummary::default();
    for row in [result(1, "a", Some(true), ""), result(2, "b", None, "")] {
        summary.add(row.verdict());
    }
    assert_eq!(summary, BatchSummary { total: 2, valid: 1, invalid: 0, failed: 1 });
}
