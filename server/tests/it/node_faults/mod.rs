//! Three nodes on one PostgreSQL database behind a balancer. Clients use all of them while nodes are killed,
//! paused and cut off from the database. The history of all requests must satisfy the rules of
//! [`node_clients::history`].
//!
//! The faults are derived from a seed. `TREFOIL_NODE_FAULTS` sets the number of rounds and
//! `TREFOIL_NODE_FAULT_SEED` the seed.

mod adversary;
mod outage;
mod real_nodes;
mod rolling_upgrade;

use std::net::TcpListener;
use std::time::Duration;

use node_clients::exports::Exports;
use node_clients::{NODES, Workload, aftermath, credentials, families, passkeys, resources, terminology};
use store::{DatabaseLimits, DatabaseUrl, Store};
use test_database::TestDatabase;
use test_object_store::TestObjectStore;
use tokio::task::JoinSet;

use crate::bucket::bucket_settings;
use crate::cluster::{DatabaseLink, start_balancer, start_nodes};
use crate::support::Server;
use adversary::FaultyNode;
use real_nodes::{Clients, await_return, end_calmly};

/// Settings of the exports: many small files, and leases that are shorter than the pauses of nodes.
const EXPORTS: &str = "[bulk]\nfile_size = 20000\nlease_s = 2\n";
/// Time that the bucket needs for each upload, so that faults occur during exports.
const UPLOAD: Duration = Duration::from_millis(100);
const EXPORTED: [&str; 2] = ["Group", "Observation"];

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Opens the exports of the database with this URL, which are compared with its content.
async fn open_exports(url: String) -> &'static Exports {
    let store = Store::postgres(&DatabaseUrl::new(url, None), DatabaseLimits::default()).await.unwrap();
    Box::leak(Box::new(Exports::new(store, &EXPORTED)))
}

/// Starts clients of every kind, except those that export.
fn start_clients(workload: &'static Workload) -> JoinSet<()> {
    let mut work = JoinSet::new();
    work.spawn(passkeys::use_passkeys(workload));
    work.spawn(credentials::use_assertions(workload));
    work.spawn(credentials::use_proofs(workload));
    work.spawn(credentials::revoke_tokens(workload));
    for worker in 0..2 {
        work.spawn(families::use_families(workload, None));
        work.spawn(resources::write_contested(workload, worker));
    }
    for id in ["own-0", "own-1"] {
        work.spawn(resources::write_resource(workload, id));
    }
    work.spawn(resources::create_once(workload));
    work.spawn(terminology::add_codes(workload));
    work
}

/// Checks the exports, what is stored, and the history of all requests.
async fn check_end(workload: &'static Workload, exports: &'static Exports) {
    let figures = exports.check(workload).await;
    println!("{figures:?}");
    assert!(figures.exports > 0, "no export was completed");
    aftermath::check_final_state(workload).await;
    let mut history = workload.record(std::mem::take);
    history.require_accepted(&["assertion", "proof", "code", "refresh", "ceremony"]);
    history.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_accepted_twice_or_lost_while_nodes_fail() {
    let Some(database) = TestDatabase::shared() else { return };
    let (rounds, seed) = (number("TREFOIL_NODE_FAULTS", 8), number("TREFOIL_NODE_FAULT_SEED", 1));
    println!("{rounds} rounds of faults by seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);

    let url = database.create().unwrap();
    let (mut links, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..NODES {
        let link = DatabaseLink::start(database.port()).await;
        urls.push(url.replace(&format!(":{}/", database.port()), &format!(":{}/", link.port)));
        links.push(link);
    }
    let balancer = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://localhost:{}", balancer.local_addr().unwrap().port());
    let (bucket, secrets) = (TestObjectStore::start().unwrap(), tempfile::tempdir().unwrap());
    bucket.delay_uploads(UPLOAD);
    let clients = Clients::new(&mut random);
    let settings =
        format!("{EXPORTS}{}{}", bucket_settings(&bucket, secrets.path()), clients.configuration());
    let servers = tokio::task::block_in_place(|| start_nodes(&urls, Some(&base), Some(&settings)));
    start_balancer(balancer, servers.iter().map(Server::address).collect()).await;
    let (_, workload) = clients.open_workload(&servers, base, true).await;
    let mut nodes: Vec<_> = std::iter::zip(servers, links)
        .enumerate()
        .map(|(number, (server, link))| FaultyNode { number, server, link })
        .collect();

    let mut work = start_clients(workload);
    let exports = open_exports(url).await;
    for _ in 0..2 {
        work.spawn(exports.run(workload));
    }
    adversary::attack(workload, exports, &mut nodes, &mut random, rounds).await;
    await_return(workload).await;
    end_calmly(workload).await;
    work.join_all().await;

    check_end(workload, exports).await;
}
