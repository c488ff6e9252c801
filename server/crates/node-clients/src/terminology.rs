//! Codes that all nodes must know.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::history::{Action, UnknownCode};
use crate::nodes::{ClientRequest, NODES};
use crate::tokens::signature_of;
use crate::workload::Workload;

/// Time within which all nodes know an acknowledged code.
const BOUND: Duration = Duration::from_secs(2);
const SYSTEM: &str = "http://codes.example";

/// Adds the code system, in which `a` subsumes `b`, so that all nodes know it.
pub async fn add_code_system(workload: &Workload) {
    let token = workload.token().await;
    while !write(workload, &token, &[]).await {}
    tokio::time::sleep(BOUND).await;
}

/// The path of a question about the code system, and the test of its answer. `turn` chooses it.
fn question(turn: usize) -> (String, fn(&Value) -> bool) {
    if turn.is_multiple_of(2) {
        (format!("/fhir/R4/CodeSystem/$subsumes?system={SYSTEM}&codeA=a&codeB=b"), |response| {
            has_value(response, "outcome", "valueCode", &json!("subsumes"))
        })
    } else {
        (path_of("b"), |response| has_value(response, "result", "valueBoolean", &json!(true)))
    }
}

/// The path of the question whether a code is in the code system.
fn path_of(code: &str) -> String {
    format!("/fhir/R4/CodeSystem/$validate-code?url={SYSTEM}&code={code}")
}

/// Returns whether an answer has a parameter with this name and value.
fn has_value(response: &Value, name: &str, kind: &str, value: &Value) -> bool {
    let parameters = response["parameter"].as_array();
    parameters.is_some_and(|all| all.iter().any(|one| one["name"] == name && one[kind] == *value))
}

/// Uses an access token of the back-end client for a question about the code system. `turn` chooses it.
pub async fn use_token(workload: &Workload, node: usize, token: &str, turn: usize) {
    let (path, is_right) = question(turn);
    let request = ClientRequest::get(&path).bearer(token);
    let action = Action::UseToken(signature_of(token).to_owned());
    let response = workload.ask(node, action, &[200, 401], request).await;
    if response.is(200) && !is_right(&response.body) {
        workload.violation(format!("{path}: {}", response.body));
    }
}

/// Adds codes, and asks all nodes for each of them after the bound.
pub async fn add_codes(workload: &Workload) {
    let token = workload.token().await;
    let mut codes = Vec::new();
    for number in 0.. {
        if workload.is_over() {
            break;
        }
        let code = format!("code-{number}");
        codes.push(code.clone());
        if !write(workload, &token, &codes).await {
            // The code may have been added or not.
            codes.pop();
            continue;
        }
        let write_time = workload.now();
        tokio::time::sleep(BOUND).await;
        join_all((0..NODES).map(|node| ask(workload, node, &token, &code, write_time))).await;
    }
}

/// Writes the code system with more codes. Returns whether it was acknowledged.
async fn write(workload: &Workload, token: &str, codes: &[String]) -> bool {
    let mut concepts = vec![json!({ "code": "a", "concept": [{ "code": "b" }] })];
    concepts.extend(codes.iter().map(|code| json!({ "code": code })));
    let system = json!({
        "resourceType": "CodeSystem", "id": "codes", "url": SYSTEM, "status": "active",
        "content": "complete", "hierarchyMeaning": "is-a", "concept": concepts,
    });
    let request = ClientRequest::json("PUT", "/fhir/R4/CodeSystem/codes", &system).bearer(token);
    let response = workload.ask(workload.any_node(), Action::Other("new code"), &[200, 201], request).await;
    response.is(200) || response.is(201)
}

/// Asks a node for a code, and records whether it is unknown.
async fn ask(workload: &Workload, node: usize, token: &str, code: &str, write_time: Duration) {
    let question_time = workload.now();
    let request = ClientRequest::get(&path_of(code)).bearer(token);
    let response = workload.ask(node, Action::Other("question for a code"), &[200], request).await;
    if !response.is_failure() && !has_value(&response.body, "result", "valueBoolean", &json!(true)) {
        let unknown = UnknownCode { node, code: code.to_owned(), written: write_time, asked: question_time };
        workload.record(|history| history.unknown_codes.push(unknown));
    }
}

/// Waits until all nodes issue tokens and answer terminology operations. Returns the time that each needed.
///
/// # Errors
/// A description of the last answer if a node does not serve within the limit.
pub async fn await_service(workload: &Workload, limit: Duration) -> Result<[Duration; NODES], String> {
    let start = workload.now();
    let mut times = [Duration::ZERO; NODES];
    for (node, time) in times.iter_mut().enumerate() {
        loop {
            let assertion = workload.assertion();
            let mut response =
                workload.request_token(node, Action::Other("new token"), &assertion, None).await;
            let mut is_serving = false;
            if let Some(token) = response.member("access_token") {
                let request = ClientRequest::get(&path_of("b")).bearer(&token);
                response = workload.ask(node, Action::Other("return"), &[200], request).await;
                is_serving = has_value(&response.body, "result", "valueBoolean", &json!(true));
            }
            *time = workload.now() - start;
            if *time > limit {
                let (status, body) = (response.status, response.body);
                return Err(format!("node {node} does not serve after {limit:?}: {status:?} {body}"));
            }
            if is_serving {
                break;
            }
        }
    }
    Ok(times)
}
