//! The faults of a run: when they begin and end, and what they do. All of them follow from the seed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use node_clients::history::{Affected, FaultSpan};
use node_clients::{NODES, Workload};
use turmoil::Sim;

use crate::simulated_nodes::{SimulatedNodes, host_of};
use crate::store_link::{LinkState, NodeLink};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process ends and is started again.
    Crash,
    /// Requests of the node to the store fail immediately.
    StoreRefused,
    /// Nothing passes between node and store.
    StoreStalled,
    BucketRefused,
    /// Nothing passes between node and bucket.
    BucketStalled,
    CutOff,
    /// Messages of clients are delayed and nothing passes to the store, as with a paused process.
    Paused,
    ProviderDown,
}

const FAULTS: [Fault; 8] = [
    Fault::Crash,
    Fault::StoreRefused,
    Fault::StoreStalled,
    Fault::BucketRefused,
    Fault::BucketStalled,
    Fault::CutOff,
    Fault::Paused,
    Fault::ProviderDown,
];

/// The faults of a run, each with a node, a begin and an end.
pub struct Adversary {
    plan: Vec<PlannedFault>,
}

struct PlannedFault {
    fault: Fault,
    node: usize,
    begin: Duration,
    end: Duration,
    state: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Planned,
    Active,
    Over,
}

impl Adversary {
    /// Plans faults between two times. A node has one fault at a time.
    pub fn new(random: &mut Rng, from: Duration, until: Duration) -> Self {
        let mut plan = Vec::new();
        for node in 0..NODES {
            let mut index = from + Duration::from_millis(random.u64(0..3_000));
            while index < until {
                let length = Duration::from_millis(random.u64(100..4_000));
                let fault = FAULTS[random.usize(..FAULTS.len())];
                // The provider has faults only in the plan of node 0, so that they do not overlap.
                if fault != Fault::ProviderDown || node == 0 {
                    plan.push(PlannedFault {
                        fault,
                        node,
                        begin: index,
                        end: index + length,
                        state: Stage::Planned,
                    });
                }
                index += length + Duration::from_millis(random.u64(500..6_000));
            }
        }
        plan.sort_by_key(|fault| fault.begin);
        Self { plan }
    }

    /// Begins and ends the faults that are due. Returns `true` when all of them are over.
    pub(crate) fn act(
        &mut self,
        sim: &mut Sim<'_>,
        nodes: &SimulatedNodes,
        workload: &Workload,
        links: &[NodeLinks],
    ) -> bool {
        let now = sim.elapsed();
        for event in &mut self.plan {
            if event.state == Stage::Planned && event.begin <= now {
                event.state = Stage::Active;
                event.begin = now;
                nodes.log_at(now, &format!("fault begins at node-{}: {:?}", event.node, event.fault));
                begin(event, sim, &links[event.node]);
            } else if event.state == Stage::Active && event.end <= now {
                event.state = Stage::Over;
                nodes.log_at(now, &format!("fault ends at node-{}: {:?}", event.node, event.fault));
                end(event, sim, &links[event.node]);
                let affected = match event.fault {
                    Fault::ProviderDown => Affected::Provider,
                    _ => Affected::Node(event.node),
                };
                let fault = FaultSpan {
                    name: format!("node-{}: {:?}", event.node, event.fault),
                    affected,
                    begun: event.begin,
                    ended: now,
                };
                workload.record(|history| history.faults.push(fault));
            }
        }
        self.plan.iter().all(|fault| fault.state == Stage::Over)
    }
}

fn begin(fault: &PlannedFault, sim: &mut Sim<'_>, links: &NodeLinks) {
    let host = host_of(fault.node);
    match fault.fault {
        Fault::Crash => sim.crash(host.as_str()),
        Fault::StoreRefused => links.store.set(LinkState::Refused),
        Fault::StoreStalled => links.store.set(LinkState::Stalled),
        Fault::BucketRefused => links.bucket.set(LinkState::Refused),
        Fault::BucketStalled => links.bucket.set(LinkState::Stalled),
        Fault::CutOff => CLIENTS.iter().for_each(|client| sim.partition(*client, host.as_str())),
        Fault::Paused => {
            links.store.set(LinkState::Stalled);
            CLIENTS.iter().for_each(|client| sim.hold(*client, host.as_str()));
        }
        Fault::ProviderDown => sim.crash("provider"),
    }
}

fn end(fault: &PlannedFault, sim: &mut Sim<'_>, links: &NodeLinks) {
    let host = host_of(fault.node);
    match fault.fault {
        Fault::Crash => sim.bounce(host.as_str()),
        Fault::StoreRefused | Fault::StoreStalled => links.store.set(LinkState::Open),
        Fault::BucketRefused | Fault::BucketStalled => links.bucket.set(LinkState::Open),
        Fault::CutOff => CLIENTS.iter().for_each(|client| sim.repair(*client, host.as_str())),
        Fault::Paused => {
            links.store.set(LinkState::Open);
            CLIENTS.iter().for_each(|client| sim.release(*client, host.as_str()));
        }
        Fault::ProviderDown => sim.bounce("provider"),
    }
}

/// Names of the hosts of the clients.
pub(super) const CLIENTS: [&str; 2] = ["people", "programs"];

pub(super) struct NodeLinks {
    pub(super) store: Arc<NodeLink>,
    pub(super) bucket: Arc<NodeLink>,
}
