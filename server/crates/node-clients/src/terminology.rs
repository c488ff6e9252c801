//! Codes that all nodes must know.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::history::{Action, UnknownCode};
use crate::nodes::{ClientRequest, NODES};
use crate::tokens::signature_of;
use crate::world::World;

/// Time within which all nodes know an acknowledged code.
const BOUND: Duration = Duration::from_secs(2);
const SYSTEM: &str = "http://codes.example";

/// Adds the code system, in which `a` subsumes `b`, so that all nodes know it.
pub async fn add_code_system(world: &World) {
    let token = world.token().await;
    while !write(world, &token, &[]).await {}
    tokio::time::sleep(BOUND).await;
}

/// The path of a question about the code system, and the test of its answer. `turn` chooses it.
fn question(turn: usize) -> (String, fn(&Value) -> bool) {
    if turn.is_multiple_of(2) {
        (format!("/fhir/R4/CodeSystem/$subsumes?system={SYSTEM}&codeA=a&codeB=b"), |answer| {
            has_value(answer, "outcome", "valueCode", &json!("subsumes"))
        })
    } else {
        (path_of("b"), |answer| has_value(answer, "result", "valueBoolean", &json!(true)))
    }
}

/// The path of the question whether a code is in the code system.
fn path_of(code: &str) -> String {
    format!("/fhir/R4/CodeSystem/$validate-code?url={SYSTEM}&code={code}")
}

/// Returns whether an answer has a parameter with this name and value.
fn has_value(answer: &Value, name: &str, kind: &str, value: &Value) -> bool {
    let parameters = answer["parameter"].as_array();
    parameters.is_some_and(|all| all.iter().any(|one| one["name"] == name && one[kind] == *value))
}

/// Uses an access token of the back-end client for a question about the code system. `turn` chooses it.
pub async fn use_token(world: &World, node: usize, token: &str, turn: usize) {
    let (path, is_right) = question(turn);
    let request = ClientRequest::get(&path).bearer(token);
    let action = Action::UseToken(signature_of(token).to_owned());
    let answer = world.ask(node, action, &[200, 401], request).await;
    if answer.is(200) && !is_right(&answer.body) {
        world.violation(format!("{path}: {}", answer.body));
    }
}

/// Adds codes, and asks all nodes for each of them after the bound.
pub async fn add_codes(world: &World) {
    let token = world.token().await;
    let mut codes = Vec::new();
    for number in 0.. {
        if world.is_over() {
            break;
        }
        let code = format!("code-{number}");
        codes.push(code.clone());
        if !write(world, &token, &codes).await {
            // The code may have been added or not.
            codes.pop();
            continue;
        }
        let write_time = world.now();
        tokio::time::sleep(BOUND).await;
        join_all((0..NODES).map(|node| ask(world, node, &token, &code, write_time))).await;
    }
}

/// Writes the code system with more codes. Returns whether it was acknowledged.
async fn write(world: &World, token: &str, codes: &[String]) -> bool {
    let mut concepts = vec![json!({ "code": "a", "concept": [{ "code": "b" }] })];
    concepts.extend(codes.iter().map(|code| json!({ "code": code })));
    let system = json!({
        "resourceType": "CodeSystem", "id": "codes", "url": SYSTEM, "status": "active",
        "content": "complete", "hierarchyMeaning": "is-a", "concept": concepts,
    });
    let request = ClientRequest::json("PUT", "/fhir/R4/CodeSystem/codes", &system).bearer(token);
    let answer = world.ask(world.any_node(), Action::Other("new code"), &[200, 201], request).await;
    answer.is(200) || answer.is(201)
}

/// Asks a node for a code, and records whether it is unknown.
async fn ask(world: &World, node: usize, token: &str, code: &str, write_time: Duration) {
    let question_time = world.now();
    let request = ClientRequest::get(&path_of(code)).bearer(token);
    let answer = world.ask(node, Action::Other("question for a code"), &[200], request).await;
    if !answer.is_failure() && !has_value(&answer.body, "result", "valueBoolean", &json!(true)) {
        let unknown = UnknownCode { node, code: code.to_owned(), written: write_time, asked: question_time };
        world.record(|history| history.unknown_codes.push(unknown));
    }
}

/// Waits until all nodes issue tokens and answer terminology operations. Returns the time that each needed.
///
/// # Errors
/// A description of the last answer if a node does not serve within the limit.
pub async fn await_service(world: &World, limit: Duration) -> Result<[Duration; NODES], String> {
    let start = world.now();
    let mut times = [Duration::ZERO; NODES];
    for (node, time) in times.iter_mut().enumerate() {
        loop {
            let assertion = world.assertion();
            let mut answer = world.request_token(node, Action::Other("new token"), &assertion, None).await;
            let mut is_serving = false;
            if let Some(token) = answer.member("access_token") {
                let request = ClientRequest::get(&path_of("b")).bearer(&token);
                answer = world.ask(node, Action::Other("return"), &[200], request).await;
                is_serving = has_value(&answer.body, "result", "valueBoolean", &json!(true));
            }
            *time = world.now() - start;
            if *time > limit {
                let (status, body) = (answer.status, answer.body);
                return Err(format!("node {node} does not serve after {limit:?}: {status:?} {body}"));
            }
            if is_serving {
                break;
            }
        }
    }
    Ok(times)
}
