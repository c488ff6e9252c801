//! Assertions, DPoP proofs and revocations of a back-end client.

use futures_util::future::join_all;

use crate::history::Action;
use crate::nodes::NODES;
use crate::terminology;
use crate::tokens::signature_of;
use crate::workload::{PROBE_TIME, Workload};

/// Sends each client assertion to several nodes at once, and later to one of them, which may have been
/// restarted since.
pub async fn use_assertions(workload: &Workload) {
    while !workload.is_over() {
        let assertion = workload.assertion();
        use_everywhere(workload, &assertion, workload.several_nodes()).await;
        workload.wait(400).await;
        use_everywhere(workload, &assertion, vec![Some(workload.any_node())]).await;
    }
}

async fn use_everywhere(workload: &Workload, assertion: &str, nodes: Vec<Option<usize>>) {
    let action = Action::UseOnce(format!("assertion {}", signature_of(assertion)));
    join_all(nodes.into_iter().map(|node| workload.request_token(node, action.clone(), assertion, None)))
        .await;
}

/// Sends each DPoP proof to several nodes at once, with an assertion for each.
pub async fn use_proofs(workload: &Workload) {
    while !workload.is_over() {
        let proof = workload.proof();
        let action = Action::UseOnce(format!("proof {}", signature_of(&proof)));
        join_all(workload.several_nodes().into_iter().map(async |node| {
            let assertion = workload.assertion();
            workload.request_token(node, action.clone(), &assertion, Some(&proof)).await
        }))
        .await;
        workload.rest(600).await;
    }
}

/// Revokes tokens that all nodes have cached, and uses them afterwards.
pub async fn revoke_tokens(workload: &Workload) {
    while !workload.is_over() {
        let token = workload.token().await;
        for turn in 0..2 * NODES {
            terminology::use_token(workload, turn % NODES, &token, turn).await;
        }
        let node = workload.any_node();
        if workload.revoke(node, &token).await {
            let until = workload.now() + PROBE_TIME;
            join_all((0..NODES).map(async |node| {
                let mut turn = 0;
                while workload.now() < until {
                    terminology::use_token(workload, node, &token, turn).await;
                    turn += 1;
                    tokio::time::sleep(workload.pace.probe).await;
                }
            }))
            .await;
        }
    }
}
