//! The adversary of a run: kills, pauses and cuts off nodes, one or two at a time.

use std::time::Duration;

use futures_util::future::join_all;
use node_clients::exports::Exports;
use node_clients::history::{Affected, FaultSpan};
use node_clients::{NODES, Workload, terminology};

use crate::cluster::{DatabaseLink, LinkState};
use crate::support::Server;

/// A node and its link to the database.
pub struct FaultyNode {
    pub number: usize,
    pub server: Server,
    pub link: DatabaseLink,
}

/// Causes a number of rounds of faults. In each third round two nodes have a fault.
pub async fn attack(
    workload: &Workload,
    exports: &Exports,
    nodes: &mut [FaultyNode],
    random: &mut fastrand::Rng,
    rounds: u64,
) {
    for round in 0..rounds {
        random.shuffle(nodes);
        let count = if round % 3 == 2 { 2 } else { 1 };
        // Each kind of fault occurs in turn, so that few rounds contain all of them.
        let faults = nodes.iter_mut().take(count).enumerate().map(|(other, node)| {
            let mut random = random.fork();
            async move {
                let start = workload.now();
                let name = match (round as usize + 2 * other) % 5 {
                    0 => pause(workload, exports, node, &mut random).await,
                    1 => kill(node, &mut random).await,
                    2 => stall(node, &mut random).await,
                    3 => refuse(node, &mut random).await,
                    _ => {
                        node.link.reset();
                        "its connections are reset".to_owned()
                    }
                };
                let fault = FaultSpan {
                    name: format!("node {}: {name}", node.number),
                    // A write waits for each of two nodes that fall silent one after the other, and then
                    // gives up.
                    affected: if count == 1 { Affected::Node(node.number) } else { Affected::AllNodes },
                    begun: start,
                    ended: workload.now(),
                };
                workload.record(|history| history.faults.push(fault));
            }
        });
        join_all(faults).await;
        wait(random.u64(200..1_000)).await;
    }
}

async fn wait(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn kill(node: &mut FaultyNode, random: &mut fastrand::Rng) -> String {
    node.server.kill();
    wait(random.u64(0..1_000)).await;
    tokio::task::block_in_place(|| node.server.start());
    "killed and restarted".to_owned()
}

async fn refuse(node: &FaultyNode, random: &mut fastrand::Rng) -> String {
    node.link.set(LinkState::Refused);
    wait(random.u64(300..2_500)).await;
    node.link.set(LinkState::Open);
    "the database refuses its connections".to_owned()
}

/// Lets no data pass. Afterwards the connections are reset, or the data arrive late.
async fn stall(node: &FaultyNode, random: &mut fastrand::Rng) -> String {
    node.link.set(LinkState::Stalled);
    wait(random.u64(300..3_000)).await;
    let is_reset = random.bool();
    if is_reset {
        node.link.reset();
    }
    node.link.set(LinkState::Open);
    format!("no data pass to the database, which {}", if is_reset { "then resets" } else { "then continues" })
}

/// Pauses a node for longer than it may serve from its caches, and so long that another node completes an
/// export that it has just begun. A token that it has cached is revoked meanwhile; the node gets requests
/// with this token at the moment at which it continues.
async fn pause(
    workload: &Workload,
    exports: &Exports,
    node: &FaultyNode,
    random: &mut fastrand::Rng,
) -> String {
    let token = workload.token().await;
    for turn in 0..4 {
        terminology::use_token(workload, node.number, &token, turn).await;
    }
    let export = exports.kick_off(workload, node.number).await;
    // Some of its files are written.
    wait(random.u64(0..400)).await;
    node.server.signal("STOP");
    exports.follow_later(export);
    let is_revoked = workload.revoke((node.number + 1) % NODES, &token).await;
    wait(random.u64(6_000..8_000)).await;
    let uses = join_all((0..6).map(|turn| terminology::use_token(workload, node.number, &token, turn)));
    let resume = async {
        // The requests are sent before the node continues.
        wait(50).await;
        node.server.signal("CONT");
    };
    tokio::join!(uses, resume);
    format!("paused{}", if is_revoked { ", with a revocation meanwhile" } else { "" })
}
