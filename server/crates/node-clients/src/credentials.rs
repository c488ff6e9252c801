//! Assertions, DPoP proofs and revocations of a back-end client.

use futures_util::future::join_all;

use crate::history::Action;
use crate::nodes::NODES;
use crate::terminology;
use crate::tokens::signature_of;
use crate::world::{PROBE_TIME, World};

/// Sends each client assertion to several nodes at once, and later to one of them, which may have been
/// restarted since.
pub async fn use_assertions(world: &World) {
    while !world.is_over() {
        let assertion = world.assertion();
        use_everywhere(world, &assertion, world.several_nodes()).await;
        world.wait(400).await;
        use_everywhere(world, &assertion, vec![Some(world.any_node())]).await;
    }
}

async fn use_everywhere(world: &World, assertion: &str, nodes: Vec<Option<usize>>) {
    let action = Action::UseOnce(format!("assertion {}", signature_of(assertion)));
    join_all(nodes.into_iter().map(|node| world.request_token(node, action.clone(), assertion, None))).await;
}

/// Sends each DPoP proof to several nodes at once, with an assertion for each.
pub async fn use_proofs(world: &World) {
    while !world.is_over() {
        let proof = world.proof();
        let action = Action::UseOnce(format!("proof {}", signature_of(&proof)));
        join_all(world.several_nodes().into_iter().map(async |node| {
            let assertion = world.assertion();
            world.request_token(node, action.clone(), &assertion, Some(&proof)).await
        }))
        .await;
        world.rest(600).await;
    }
}

/// Revokes tokens that all nodes have cached, and uses them afterwards.
pub async fn revoke_tokens(world: &World) {
    while !world.is_over() {
        let token = world.token().await;
        for turn in 0..2 * NODES {
            terminology::use_token(world, turn % NODES, &token, turn).await;
        }
        let node = world.any_node();
        if world.revoke(node, &token).await {
            let until = world.now() + PROBE_TIME;
            join_all((0..NODES).map(async |node| {
                let mut turn = 0;
                while world.now() < until {
                    terminology::use_token(world, node, &token, turn).await;
                    turn += 1;
                    tokio::time::sleep(world.pace.probe).await;
                }
            }))
            .await;
        }
    }
}
