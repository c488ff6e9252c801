//! Nodes whose database is stopped under load and started again. During the outage, requests are answered
//! with 503, and afterwards the service returns by itself.
//!
//! `TREFOIL_OUTAGE_SECONDS` sets the duration of each outage.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use node_clients::history::{Affected, FaultSpan, RECOVERY};
use node_clients::{Event, History, NODES, Workload, aftermath, credentials, families, resources};
use reqwest::StatusCode;
use test_database::{Durability, Shutdown, TestDatabase};
use tokio::task::JoinSet;

use super::number;
use super::real_nodes::{Clients, RealNodes, end_calmly};
use crate::cluster::start_nodes;

/// Time in which each request must be answered while the database is stopped. A write is repeated for 4 s.
const LONGEST: Duration = Duration::from_secs(6);
/// Time for which a node may use its caches after it has lost its database.
const CACHED: Duration = Duration::from_secs(1);
/// Time between two requests for the state of a node.
const PAUSE: Duration = Duration::from_millis(50);

/// An outage by the clock of the history: the times at which the stop of the database began and ended, at
/// which its start began and ended, and at which all nodes were ready.
struct Outage {
    shutdown: Shutdown,
    begun: Duration,
    stopped: Duration,
    started: Duration,
    ended: Duration,
    ready: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_service_returns_by_itself_after_the_database_was_stopped() {
    if TestDatabase::shared().is_none() {
        return;
    }
    let length = Duration::from_secs(number("TREFOIL_OUTAGE_SECONDS", 5));
    let mut random = fastrand::Rng::with_seed(1);
    let database = TestDatabase::start(Durability::Synced).unwrap();
    let url = database.create().unwrap();
    let clients = Clients::new(&mut random);
    let settings = clients.configuration();
    let servers = tokio::task::block_in_place(|| start_nodes(&vec![url; NODES], None, Some(&settings)));
    let (nodes, workload) = clients.open_workload(&servers, servers[0].base(), false).await;

    let mut work = JoinSet::new();
    work.spawn(credentials::use_assertions(workload));
    work.spawn(credentials::revoke_tokens(workload));
    work.spawn(families::use_families(workload, None));
    for id in ["own-0", "own-1"] {
        work.spawn(resources::write_resource(workload, id));
    }
    work.spawn(resources::write_contested(workload, 0));
    work.spawn(resources::create_once(workload));
    let mut outages = Vec::new();
    for shutdown in [Shutdown::Fast, Shutdown::Immediate] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        outages.push(stop(workload, &nodes, &database, shutdown, length).await);
        tokio::time::sleep(RECOVERY).await;
    }
    end_calmly(workload).await;
    work.join_all().await;

    aftermath::check_final_state(workload).await;
    let history = workload.record(std::mem::take);
    for outage in &outages {
        check_outage(&history, outage);
    }
    history.check();
}

/// Stops the database for some time.
async fn stop(
    workload: &Workload,
    nodes: &RealNodes,
    database: &TestDatabase,
    shutdown: Shutdown,
    length: Duration,
) -> Outage {
    let start = workload.now();
    tokio::task::block_in_place(|| database.stop(shutdown)).unwrap();
    let stopped = workload.now();
    for node in 0..NODES {
        let (status, text) = health(nodes, node, "ready").await;
        assert_eq!((status.as_u16(), text.as_str()), (503, "the database is unavailable\n"), "node {node}");
        assert_eq!(health(nodes, node, "live").await.0, StatusCode::OK);
    }
    tokio::time::sleep(length.saturating_sub(workload.now() - start)).await;
    let started = workload.now();
    tokio::task::block_in_place(|| database.restart()).unwrap();
    let end = workload.now();
    let restarted = Instant::now();
    for node in 0..NODES {
        while health(nodes, node, "ready").await.0 != StatusCode::OK {
            assert!(restarted.elapsed() < RECOVERY, "node {node} is not ready");
            tokio::time::sleep(PAUSE).await;
        }
    }
    let ready = workload.now();
    let name = format!("the database was stopped ({shutdown:?})");
    workload.record(|history| {
        history.faults.push(FaultSpan { name, affected: Affected::AllNodes, begun: start, ended: end })
    });
    Outage { shutdown, begun: start, stopped, started, ended: end, ready }
}

/// Returns the status and the text of a health endpoint.
async fn health(nodes: &RealNodes, node: usize, name: &str) -> (StatusCode, String) {
    let url = format!("{}/health/{name}", nodes.urls[node]);
    let response = nodes.client.get(url).send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

/// Checks the answers within an outage and the return after it, and prints figures.
fn check_outage(history: &History, outage: &Outage) {
    let Outage { shutdown, begun, stopped, started, ended, ready } = outage;
    let within: Vec<&Event> =
        history.events.iter().filter(|event| event.ended > *begun && event.begun < *ended).collect();
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for event in &within {
        let status = event.status.map_or("none".to_owned(), |status| status.to_string());
        *answers.entry(status).or_default() += 1;
        assert!(event.status.is_some(), "a connection failed: {event:?}");
        // On a busy machine, a request may have waited for its turn before the database was stopped.
        let waited = event.ended - event.begun.max(*begun);
        assert!(waited < LONGEST, "answered {waited:?} after the stop at {begun:?}: {event:?}");
        let is_inside = event.begun > *stopped + CACHED && event.ended < *started;
        assert!(!is_inside || event.status == Some(503), "answered without the database: {event:?}");
    }
    let longest = within.iter().max_by_key(|event| event.ended - event.begun).unwrap();
    println!(
        "{shutdown:?} shutdown at {begun:?} for {} ms: {} requests, answers {answers:?}, longest {} ms ({}), ready after {} ms",
        (*ended - *begun).as_millis(),
        within.len(),
        (longest.ended - longest.begun).as_millis(),
        longest.action.name(),
        (*ready - *ended).as_millis()
    );
    let mut first: BTreeMap<&str, Duration> = BTreeMap::new();
    for event in history.events.iter().filter(|event| event.is_accepted() && event.ended > *started) {
        let time = event.ended.saturating_sub(*ended);
        let first_time = first.entry(event.action.name()).or_insert(time);
        *first_time = time.min(*first_time);
    }
    for name in ["assertion", "code", "token in use", "revocation", "write", "read", "conditional create"] {
        let time = first.get(name).unwrap_or_else(|| panic!("no {name} succeeded"));
        println!("  {name:<20} succeeds after {} ms", time.as_millis());
        assert!(*time < RECOVERY, "{name} succeeds only after {time:?}");
    }
}
