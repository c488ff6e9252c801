//! One, two and three nodes on one database, run by `cargo xtask bench scale`: the rate of all nodes
//! together, and the CPU time of the database for each unit of work, which bounds what more nodes can add.
//! The nodes are handles of this process with their own connections and writers; node, database and load
//! share the processors of one machine, so the rates show where nodes wait for each other, and the CPU times
//! what a database of its own would allow. The benchmark does not pass or fail.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue fails")]

use std::time::Instant;

use jiff::Timestamp;
use test_database::{Durability, TestDatabase};
use tokio::task::JoinSet;
use trefoil_store::{
    DatabaseLimits, DatabaseUrl, Expect, Ledger, LedgerWrite, ResourceDraft, ResourceKey, Store,
    VersionWrite, Versions,
};

/// Number of tasks of each node.
const TASKS: usize = 16;
/// Number of units of each work, for all nodes together.
const UNITS: usize = 6_000;
/// Number of resources of a commit of the import.
const COMMIT: usize = 500;

#[tokio::main]
async fn main() {
    let database = TestDatabase::start(Durability::Synced).unwrap();
    println!("{:<5} {:<36} {:>12} {:>22}", "nodes", "work", "per second", "database CPU ms/1,000");
    for nodes in 1..=3 {
        let url = DatabaseUrl::new(database.create().unwrap(), None);
        let mut stores = Vec::new();
        for _ in 0..nodes {
            stores.push(Store::postgres(&url, DatabaseLimits::default()).await.unwrap());
        }
        let put = |id: String| {
            let bytes = format!("{{\"id\":\"{id}\",\"text\":\"{}\"}}", "text ".repeat(200)).into_bytes();
            let draft = ResourceDraft { bytes, version_at: 1, updated_at: 1 };
            let write =
                VersionWrite::put(ResourceKey::new("Observation", id), draft, vec!["Patient/1".to_owned()]);
            write.indexed(vec![b"code".as_slice().into()])
        };
        let measure = async |work: &str, units: usize, run: &dyn Fn(Store, usize) -> Work| {
            let (begun, before) = (Instant::now(), database.cpu_seconds());
            let mut tasks = JoinSet::new();
            for at in 0..nodes * TASKS {
                tasks.spawn(run(stores[at % nodes].clone(), at));
            }
            tasks.join_all().await;
            let rate = units as f64 / begun.elapsed().as_secs_f64();
            let used = before
                .zip(database.cpu_seconds())
                .map(|(before, after)| (after - before) * 1e6 / units as f64);
            let used = used.map_or(String::new(), |used| format!("{used:.0}"));
            println!("{nodes:<5} {work:<36} {rate:>12.0} {used:>22}");
        };
        let each = UNITS / (nodes * TASKS);
        measure("import, commits of 500", UNITS * 5, &|store, task| {
            Box::pin(async move {
                for number in (task..UNITS * 5 / COMMIT).step_by(nodes * TASKS) {
                    let writes = (0..COMMIT).map(|at| put(format!("i{number}-{at}"))).collect();
                    store.commit(writes, Timestamp::now()).await.unwrap();
                }
            })
        })
        .await;
        measure("commits of one resource", UNITS, &|store, task| {
            Box::pin(async move {
                for number in 0..each {
                    store.commit(vec![put(format!("s{task}-{number}"))], Timestamp::now()).await.unwrap();
                }
            })
        })
        .await;
        measure("ledger writes", UNITS, &|store, task| {
            Box::pin(async move {
                for number in 0..each {
                    let write = LedgerWrite::put(format!("code/{task}-{number}"), "live", Expect::Absent);
                    store.write(vec![write], Timestamp::now()).await.unwrap();
                }
            })
        })
        .await;
        measure("ledger reads", UNITS, &|store, task| {
            Box::pin(async move {
                for number in 0..each {
                    let key = format!("code/{task}-{number}");
                    assert!(store.get(&key, Timestamp::now()).await.unwrap().is_some());
                }
            })
        })
        .await;
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
