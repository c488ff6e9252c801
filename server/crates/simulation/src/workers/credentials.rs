//! Assertions, DPoP proofs and revocations of a back-end client.

use std::time::Duration;

use futures_util::future::join_all;
use node_history::Action;

use crate::world::{ClientRequest, NODES, World, elapsed};

/// Time between two uses of a revoked token.
const PROBE_PAUSE: Duration = Duration::from_millis(350);
/// Time for which a revoked token is used, which is longer than a revocation may take.
const PROBE_TIME: Duration = Duration::from_millis(1_500);

/// Sends each client assertion to several nodes at once, and later to one of them.
pub async fn use_assertions(world: &World) {
    while !world.is_over() {
        let assertion = world.assertion();
        use_everywhere(world, &assertion, &world.several_nodes()).await;
        world.pause(600).await;
        use_everywhere(world, &assertion, &[world.any_node()]).await;
    }
}

async fn use_everywhere(world: &World, assertion: &str, nodes: &[usize]) {
    let name = format!("assertion {}", end_of(assertion));
    join_all(
        nodes.iter().map(|node| world.request_token(*node, Action::UseOnce(name.clone()), assertion, None)),
    )
    .await;
}

/// Returns the end of a token, which identifies it.
pub fn end_of(token: &str) -> String {
    token[token.len().saturating_sub(12)..].to_owned()
}

/// Sends each DPoP proof to several nodes at once, with an assertion for each.
pub async fn use_proofs(world: &World) {
    while !world.is_over() {
        let proof = world.proof();
        let name = format!("proof {}", end_of(&proof));
        join_all(world.several_nodes().into_iter().map(async |node| {
            let assertion = world.assertion();
            world.request_token(node, Action::UseOnce(name.clone()), &assertion, Some(&proof)).await
        }))
        .await;
        world.pause(600).await;
    }
}

/// Revokes tokens that all nodes know, and uses them afterwards.
pub async fn revoke_tokens(world: &World) {
    while !world.is_over() {
        let token = world.token().await;
        let name = end_of(&token);
        for turn in 0..2 * NODES {
            use_token(world, turn % NODES, &name, &token).await;
        }
        let node = world.any_node();
        if world.revoke(node, &name, &token).await {
            let until = elapsed() + PROBE_TIME;
            join_all((0..NODES).map(async |node| {
                while elapsed() < until {
                    use_token(world, node, &name, &token).await;
                    tokio::time::sleep(PROBE_PAUSE).await;
                }
            }))
            .await;
        }
    }
}

/// Uses an access token for a terminology operation.
async fn use_token(world: &World, node: usize, name: &str, token: &str) {
    let path = "/fhir/R4/CodeSystem/$validate-code?url=http://simulation.example&code=base";
    let request = ClientRequest::get(path).bearer(token);
    world.ask(node, Action::UseToken(name.to_owned()), &[200, 401, 404], request).await;
}
