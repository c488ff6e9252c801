//! Codes that all nodes must know: a code system gets a new code at one node, and the others are asked for it.

use std::sync::PoisonError;
use std::time::Duration;

use futures_util::future::join_all;
use node_history::Action;
use serde_json::json;

use crate::world::{ClientRequest, NODES, World, elapsed};

/// Time within which all nodes know an acknowledged code.
const BOUND: Duration = Duration::from_secs(2);

/// Adds codes, and asks all nodes for each of them after the bound.
pub async fn add_codes(world: &World) {
    let token = world.token().await;
    let mut codes = vec![json!({ "code": "base" })];
    for number in 0.. {
        if world.is_over() {
            break;
        }
        let code = format!("code-{number}");
        codes.push(json!({ "code": code }));
        let system = json!({
            "resourceType": "CodeSystem", "id": "simulation", "url": "http://simulation.example",
            "status": "active", "content": "complete", "concept": codes,
        });
        let request = ClientRequest::json("PUT", "/fhir/R4/CodeSystem/simulation", &system).bearer(&token);
        let written = world.ask(world.any_node(), Action::Other("new code"), &[200, 201], request).await;
        if !written.is(200) && !written.is(201) {
            // The code may have been added or not.
            codes.pop();
            continue;
        }
        tokio::time::sleep(BOUND).await;
        join_all((0..NODES).map(|node| ask(world, node, &token, &code, written.ended))).await;
    }
}

/// Asks a node for a code, and records whether it is unknown.
async fn ask(world: &World, node: usize, token: &str, code: &str, written: Duration) {
    let begun = elapsed();
    let path = format!("/fhir/R4/CodeSystem/$validate-code?url=http://simulation.example&code={code}");
    let request = ClientRequest::get(&path).bearer(token);
    let answer = world.ask(node, Action::Other("question for a code"), &[200, 404], request).await;
    let is_known = answer.body["parameter"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["name"] == "result" && one["valueBoolean"] == true));
    if answer.status.is_some_and(|status| status != 503) && !is_known {
        let unknown = (node, written, begun, code.to_owned());
        world.unknown_codes.lock().unwrap_or_else(PoisonError::into_inner).push(unknown);
    }
}
