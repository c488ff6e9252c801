//! The engine on a database beside the engine on files, run by `cargo xtask bench postgres`. The database is
//! private and waits for the disk. `COPY` and a sequential read of the same bodies in the same database are
//! the floor: ratios are meaningful, because the speed of a machine varies. The benchmark does not pass or
//! fail.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use futures_util::SinkExt as _;
use jiff::Timestamp;
use test_database::{Durability, TestDatabase};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use trefoil_store::{
    DatabaseLimits, DatabaseUrl, Expect, Ledger, LedgerWrite, LineScanRange, PageLimit, ResourceDraft,
    ResourceKey, ScanOptions, Seq, Store, UpdatedRange, VersionWrite, Versions,
};

/// Number of resources of the import, and of each commit of it.
const RESOURCES: usize = 100_000;
const COMMIT: usize = 1_000;
/// Bytes of a body.
const BODY: usize = 1_000;
/// Number of single writes and reads, and of the tasks that do them.
const SINGLE: usize = 4_000;
const TASKS: usize = 32;

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    let database = TestDatabase::start(Durability::Synced).unwrap();
    let url = database.create().unwrap();
    let floor = floor(&database.create().unwrap()).await;
    println!("{:<10} {:<44} {:>12} {:>10}", "engine", "work", "per second", "of floor");
    println!("{:<10} {:<44} {:>12.0} {:>10}", "floor", "COPY of bodies, rounds of 1,000", floor.0, "1.00");
    println!("{:<10} {:<44} {:>12.0} {:>10}", "floor", "keyset pages of 2,000 bodies", floor.1, "1.00");
    measure("file", &Store::open(dir.path()).unwrap(), floor).await;
    let limits = DatabaseLimits::default();
    let store = Store::postgres(&DatabaseUrl::new(&*url, None), limits).await.unwrap();
    measure("postgres", &store, floor).await;
}

fn body(number: usize) -> Vec<u8> {
    let mut body =
        format!("{{\"resourceType\":\"Observation\",\"id\":\"{number:08}\",\"text\":\"").into_bytes();
    // A text that does not compress to nothing.
    body.extend((0..BODY).map(|at| b'a' + ((number * 31 + at * at * 7) % 26) as u8));
    body.extend_from_slice(b"\"}");
    body
}

/// Measures the database itself. Returns rows per second of a copy, and of a read by pages.
async fn floor(url: &str) -> (f64, f64) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE floor (id bytea PRIMARY KEY, body bytea NOT NULL)").await.unwrap();
    let start = Instant::now();
    for round in 0..RESOURCES / COMMIT {
        let mut rows = Vec::new();
        for number in round * COMMIT..(round + 1) * COMMIT {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let id = hex(format!("{number:08}").as_bytes());
            rows.extend_from_slice(format!("\\\\x{id}\t\\\\x{}\n", hex(&body(number))).as_bytes());
        }
        let sink = client.copy_in::<_, Bytes>("COPY floor FROM STDIN").await.unwrap();
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from(rows)).await.unwrap();
        sink.finish().await.unwrap();
    }
    let copied = RESOURCES as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut after: Vec<u8> = Vec::new();
    let mut count = 0;
    loop {
        let sql = "SELECT id, body FROM floor WHERE id > $1 ORDER BY id LIMIT 2000";
        let rows = client.query(sql, &[&after]).await.unwrap();
        let Some(last) = rows.last() else { break };
        after = last.get(0);
        count += rows.len();
    }
    (copied, count as f64 / start.elapsed().as_secs_f64())
}

async fn measure(engine: &'static str, store: &Store, floor: (f64, f64)) {
    let report = |work: &str, count: usize, start: Instant, floor: Option<f64>| {
        let rate = count as f64 / start.elapsed().as_secs_f64();
        let ratio = floor.map_or(String::new(), |floor| format!("{:.2}", rate / floor));
        println!("{engine:<10} {work:<44} {rate:>12.0} {ratio:>10}");
    };
    let put = |number: usize| {
        let draft = ResourceDraft { bytes: body(number), version_at: 1, updated_at: 1 };
        let mut write = VersionWrite::put(
            ResourceKey::new("Observation", format!("{number:08}")),
            draft,
            vec![format!("Patient/{}", number / 100)],
        );
        write.unless_same = true;
        write.indexed(vec![format!("code{}", number % 50).into_bytes().into()])
    };
    let now = Timestamp::now();
    let start = Instant::now();
    let mut importing = JoinSet::new();
    for round in 0..RESOURCES / COMMIT {
        let (store, writes) = (store.clone(), (round * COMMIT..(round + 1) * COMMIT).map(put).collect());
        importing.spawn(async move { store.commit(writes, now).await.unwrap() });
        if importing.len() > 4 {
            importing.join_next().await.unwrap().unwrap();
        }
    }
    importing.join_all().await;
    report("import, commits of 1,000 resources", RESOURCES, start, Some(floor.0));
    // Statistics of the database are collected within a second.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;

    let start = Instant::now();
    let lines = Arc::new(AtomicU64::new(0));
    let line_count = Arc::clone(&lines);
    let page = move |page: trefoil_store::LinePage| {
        line_count.fetch_add(page.ends.len() as u64, Ordering::Relaxed);
        true
    };
    let scan = ScanOptions::at(Seq::LATEST).limit(PageLimit { count: 1_000, bytes: 1 << 20 });
    let all = LineScanRange::Kind { from: None, until: None };
    store.scan_lines("Observation", all, scan, UpdatedRange::default(), |_| true, page).await.unwrap();
    assert_eq!(lines.load(Ordering::Relaxed), RESOURCES as u64);
    report("export of a type", RESOURCES, start, Some(floor.1));

    let start = Instant::now();
    let lines = Arc::new(AtomicU64::new(0));
    let line_count = Arc::clone(&lines);
    let page = move |page: trefoil_store::LinePage| {
        line_count.fetch_add(page.ends.len() as u64, Ordering::Relaxed);
        true
    };
    let patients =
        LineScanRange::Compartments((0..RESOURCES / 100).map(|id| format!("Patient/{id}")).collect());
    store.scan_lines("Observation", patients, scan, UpdatedRange::default(), |_| true, page).await.unwrap();
    assert_eq!(lines.load(Ordering::Relaxed), RESOURCES as u64);
    report("export of 1,000 compartments", RESOURCES, start, Some(floor.1));

    let start = Instant::now();
    each(store, move |store, number| async move {
        let write = put(RESOURCES + number);
        store.commit(vec![write], Timestamp::now()).await.unwrap();
    })
    .await;
    report("commits of one resource, 32 at a time", SINGLE, start, None);

    let start = Instant::now();
    each(store, |store, number| async move {
        let write = LedgerWrite::put(format!("code/{number:08}"), "live", Expect::Absent);
        store.write(vec![write], Timestamp::now()).await.unwrap();
    })
    .await;
    report("ledger writes, 32 at a time", SINGLE, start, None);

    let start = Instant::now();
    each(store, |store, number| async move {
        assert!(store.get(&format!("code/{number:08}"), Timestamp::now()).await.unwrap().is_some());
    })
    .await;
    report("ledger reads, 32 at a time", SINGLE, start, None);
}

/// Does something for each number up to [`SINGLE`], with [`TASKS`] tasks.
async fn each<F: Future<Output = ()> + Send + 'static>(
    store: &Store,
    work: impl Fn(Store, usize) -> F + Clone + Send + 'static,
) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, work) = (store.clone(), work.clone());
        tasks.spawn(async move {
            for number in (task..SINGLE).step_by(TASKS) {
                work(store.clone(), number).await;
            }
        });
    }
    tasks.join_all().await;
}
