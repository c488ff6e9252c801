//! A simulation of three nodes with their clients and faults, which a seed repeats exactly.
//!
//! The nodes are the whole server: routes, services, periodic tasks, exports and requests to other servers.
//! Everything outside of them is simulated: the network and the time (turmoil), the threads (see
//! `store::blocking`), randomness and keys ([`outside`]), a store that models how commits become visible in
//! PostgreSQL (see `store::shared_memory`), a bucket, an identity provider, and the clients of
//! `node_clients`. One thread runs all of it, so the same seed gives the same log.
//!
//! | module | contents |
//! |---|---|
//! | [`node`] | one node |
//! | [`simulated_nodes`] | the nodes as clients reach them, with the time and the log |
//! | [`followers`] | clients that follow the feed of changes |
//! | [`provider`] | the identity provider, and the host with the keys of a client |
//! | [`adversary`] | the faults |
//! | [`network`], [`store_link`], [`bucket`] | HTTP, and the links of a node to the store and to the bucket |
//! | [`outside`] | randomness and keys |

pub mod adversary;
pub mod bucket;
pub mod followers;
pub mod network;
pub mod node;
pub mod outside;
pub mod provider;
pub mod simulated_nodes;
pub mod store_link;

use std::cell::Cell;
use std::ops::Range;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all};
use jiff::SignedDuration;
use node_clients::exports::{ExportFigures, Exports};
use node_clients::{
    NODES, Pace, Workload, aftermath, credentials, families, passkeys, resources, terminology,
};
use rand::SeedableRng as _;
use store::shared_memory::SharedMemory;
use store::{Seq, Store, Versions as _, blocking};
use test_parties::ClientKey;

use crate::adversary::{Adversary, CLIENTS, NodeLinks};
use crate::followers::SeenChanges;
use crate::node::NodeParts;
use crate::provider::Provider;
use crate::simulated_nodes::{BASE, SimulatedNodes, USER, host_of};
use crate::store_link::NodeLink;

const EXPORTED: [&str; 2] = ["CodeSystem", "Group"];
/// Clients rest, so that a run has few requests and many faults.
const PACE: Pace =
    Pace { rests: true, probe: Duration::from_millis(350), poll: Duration::from_millis(1_500) };
/// Shortest and longest time in which faults begin, in milliseconds.
const FAULT_TIME: Range<u64> = 3_000..15_000;
/// Time without faults at the end: the recovery of 5 s, and 7 s in which no request may fail and new codes
/// must be known.
const CALM: Duration = Duration::from_secs(12);
/// Time that the clients have to end their work.
const END: Duration = Duration::from_secs(110);

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct RunReport {
    /// A line for each answer and each fault.
    pub log: String,
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// Number of requests.
    pub requests: usize,
    /// Number of faults.
    pub faults: usize,
    /// Figures of the completed exports.
    pub exports: ExportFigures,
    /// The latest acceptance of a token after its revocation.
    pub latest: Duration,
}

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Runs the simulation of a seed, on a thread of its own. Only one simulation may run in a process at a time,
/// because the random numbers of the operating system are replaced for all threads.
///
/// # Errors
/// An error if the simulation itself fails.
pub fn run_seed(seed: u64) -> Result<RunReport> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
        mad_turmoil::rand::set_rng(rand::rngs::StdRng::seed_from_u64(0));
    });
    // Before the seed is set: how many random numbers the name of the folder takes depends on the folders
    // that exist.
    let folder = tempfile::tempdir()?;
    *mad_turmoil::rand::get_rng() = rand::rngs::StdRng::seed_from_u64(seed);
    let thread = std::thread::Builder::new().name(format!("seed {seed}")).spawn(move || {
        blocking::keep_on_this_thread();
        let _clocks = mad_turmoil::time::SimClocksGuard::init();
        simulate(seed, folder.path())
    })?;
    thread.join().map_err(|_| anyhow!("the simulation panicked"))?
}

fn simulate(seed: u64, folder: &Path) -> Result<RunReport> {
    let mut random = Rng::with_seed(seed);
    let mut sim = turmoil::Builder::new()
        .rng_seed(random.u64(..))
        .tick_duration(Duration::from_millis(10))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(random.u64(5..60)))
        .simulation_duration(Duration::from_secs(600))
        .build();
    let nodes = Arc::new(SimulatedNodes::default());
    let key = ClientKey::new("backend-1", &mut random);
    let user = (USER.0.to_owned(), USER.1.to_owned());
    let clients = Arc::<SimulatedNodes>::clone(&nodes);
    let workload = Arc::new(Workload::new(clients, BASE.to_owned(), user, key, PACE, random.fork()));
    let shared = SharedMemory::default();
    let objects = Arc::default();
    let mut links = Vec::new();
    for number in 0..NODES {
        let slowest = Duration::from_millis(random.u64(1..50));
        let (store, bucket) = (NodeLink::new(random.fork(), slowest), NodeLink::new(random.fork(), slowest));
        let parts = Arc::new(NodeParts {
            number,
            folder: folder.join(host_of(number)),
            shared: shared.clone(),
            objects: Arc::clone(&objects),
            store_link: Arc::clone(&store),
            bucket_link: Arc::clone(&bucket),
            ahead: SignedDuration::from_millis(random.i64(-900..900)),
        });
        node::write_config(&parts.folder)?;
        let (nodes, starts) = (Arc::clone(&nodes), Cell::new(random.fork()));
        sim.host(host_of(number), move || {
            let mut random = starts.replace(Rng::with_seed(0));
            let start = random.u64(..);
            starts.set(random);
            let (parts, nodes) = (Arc::clone(&parts), Arc::clone(&nodes));
            async move { Box::pin(node::run_node(&parts, &nodes, start)).await.map_err(Into::into) }
                .boxed_local()
        });
        links.push(NodeLinks { store, bucket });
    }
    let provider = Arc::new(Provider::new(ClientKey::new("provider-1", &mut random), Arc::clone(&workload)));
    for (host, provider) in [("provider", Some(provider)), ("keys", None)] {
        let workload = Arc::clone(&workload);
        sim.host(host, move || {
            let (provider, workload) = (provider.clone(), Arc::clone(&workload));
            async move { provider::serve(provider, workload).await.map_err(Into::into) }.boxed_local()
        });
    }
    let records: Vec<SeenChanges> = (0..2).map(|_| SeenChanges::default()).collect();
    let people_ended = Arc::<AtomicBool>::default();
    let (people, ended) = (Arc::clone(&workload), Arc::clone(&people_ended));
    sim.client(CLIENTS[0], async move {
        let work: [LocalBoxFuture<'_, ()>; 8] = [
            families::use_families(&people, None).boxed_local(),
            families::use_families(&people, None).boxed_local(),
            families::use_families(&people, Some("hospital")).boxed_local(),
            passkeys::use_passkeys(&people).boxed_local(),
            credentials::use_assertions(&people).boxed_local(),
            credentials::use_proofs(&people).boxed_local(),
            credentials::revoke_tokens(&people).boxed_local(),
            credentials::revoke_tokens(&people).boxed_local(),
        ];
        people.await_begin().await;
        join_all(work).await;
        ended.store(true, Ordering::Relaxed);
        Ok(())
    });
    let (programs, opened, mut draws) = (Arc::clone(&workload), Arc::clone(&nodes), random.fork());
    let (changes, figures) = (records.clone(), Arc::<Mutex<ExportFigures>>::default());
    let export_figures = Arc::clone(&figures);
    // Each follower has the faults of a node.
    let followed = [0, 1].map(|node| Arc::clone(&links[node].store));
    sim.client(CLIENTS[1], async move {
        let mut handle =
            || Store::shared_memory(&shared, NodeLink::new(draws.fork(), Duration::from_millis(30)));
        let (store, exports) = (handle(), Exports::new(handle(), &EXPORTED));
        let handles = followed.map(|link| Store::shared_memory(&shared, link));
        let work: [LocalBoxFuture<'_, ()>; 10] = [
            resources::write_resource(&programs, "own-0").boxed_local(),
            resources::write_resource(&programs, "own-1").boxed_local(),
            resources::write_contested(&programs, 0).boxed_local(),
            resources::write_contested(&programs, 1).boxed_local(),
            resources::create_once(&programs).boxed_local(),
            terminology::add_codes(&programs).boxed_local(),
            exports.run(&programs).boxed_local(),
            exports.run(&programs).boxed_local(),
            followers::follow(&programs, &handles[0], &changes[0]).boxed_local(),
            followers::follow(&programs, &handles[1], &changes[1]).boxed_local(),
        ];
        while opened.opened.load(Ordering::Relaxed) < NODES {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        terminology::add_code_system(&programs).await;
        programs.begin();
        join_all(work).await;
        *export_figures.lock().unwrap_or_else(PoisonError::into_inner) = exports.check(&programs).await;
        check_followers(&programs, &store, &handles[0], &changes).await;
        // A spent credential that is redeemed again ends its family, so no client may use it any more.
        while !people_ended.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        aftermath::check_final_state(&programs).await;
        Ok(())
    });
    let fault_time = Duration::from_millis(random.u64(FAULT_TIME));
    let (mut adversary, mut calm_since) = (None, None);
    loop {
        let is_done = match sim.step() {
            Ok(is_done) => is_done,
            Err(error) => {
                nodes.log_at(sim.elapsed(), &format!("VIOLATION {error}"));
                workload.record(|history| history.violations.push(format!("the simulation failed: {error}")));
                true
            }
        };
        let now = sim.elapsed();
        if adversary.is_none() && workload.has_begun() {
            adversary = Some(Adversary::new(&mut random, now, now + fault_time));
        }
        if let Some(adversary) = &mut adversary
            && adversary.act(&mut sim, &nodes, &workload, &links)
        {
            let since = *calm_since.get_or_insert(now);
            if now - since > CALM {
                workload.end();
            }
            if now - since > CALM + END {
                workload.record(|history| history.violations.push("the clients have not ended".to_owned()));
                break;
            }
        }
        if is_done {
            break;
        }
    }
    let figures = *figures.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(report(&nodes, &workload, figures))
}

/// Reads all changes after the run, and compares them with those that the followers have seen.
async fn check_followers(
    workload: &Workload,
    store: &store::Store,
    follower: &store::Store,
    records: &[SeenChanges],
) {
    let mut all = Vec::new();
    while let Ok(changes) = store.changes(all.last().copied().unwrap_or(Seq::ZERO), 1_000).await {
        if changes.is_empty() {
            break;
        }
        all.extend(changes.iter().map(|change| change.seq));
    }
    for changes in records {
        let last = changes.lock().unwrap_or_else(PoisonError::into_inner).last().copied();
        followers::read(follower, last.unwrap_or(Seq::ZERO), changes).await;
        let changes = changes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if changes != all {
            let missing = all.iter().filter(|seq| !changes.contains(seq)).count();
            workload.violation(format!(
                "a follower has seen {} changes of {}: {missing} missing",
                changes.len(),
                all.len()
            ));
        }
    }
}

fn report(nodes: &SimulatedNodes, workload: &Workload, exports: ExportFigures) -> RunReport {
    let mut history = workload.record(std::mem::take);
    let latest = history.apply_rules();
    let kinds = [
        "assertion",
        "proof",
        "code ",
        "code of hospital ",
        "refresh",
        "ceremony at /account",
        "ceremony at /passkey",
    ];
    history.require_accepted(&kinds);
    if exports.exports == 0 {
        history.violations.push("no export was completed".to_owned());
    }
    match PANICS.take() {
        0 => {}
        count => history.violations.push(format!("{count} panics")),
    }
    RunReport {
        log: nodes.take_log(),
        requests: history.events.len(),
        faults: history.faults.len(),
        exports,
        violations: history.violations,
        latest,
    }
}
