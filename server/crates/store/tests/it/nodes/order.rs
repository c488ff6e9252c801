//! Laws of several nodes that share a store: every follower sees each commit once and in order, a snapshot
//! divides all commits into earlier and later ones, and nothing is lost or doubled when connections break.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use trefoil_store::{
    ChangeRecord, DatabaseUrl, Expect, ExpectVersion, Ledger as _, LedgerWrite, ResourceKey, Seq, StoreError,
    StoreSnapshot, Versions as _,
};

use super::{NODES, nodes};
use crate::{StoreEngine, at, put};

const WRITERS: usize = 6;
const COMMITS: usize = 40;

/// Knowledge of a writer about one of its commits.
struct WrittenCommit {
    /// Number of acknowledged commits before this one began, in the order of a shared counter.
    begun: u64,
    /// The counter when it was acknowledged, and the last sequence number. `None` if the result is unknown.
    acknowledged: Option<(u64, Seq)>,
    ids: Vec<String>,
}

/// A snapshot, and the counter before and after it.
struct TakenSnapshot {
    begun: u64,
    ended: u64,
    snapshot: StoreSnapshot,
}

/// Writers, followers and snapshots at the same time on all nodes, and an adversary that breaks connections.
async fn run(engine: &StoreEngine, adversary: bool) {
    let nodes = nodes(engine).await;
    let ticks = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    // The writers and the snapshots.
    let together = Arc::new(Barrier::new(WRITERS + 1));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, ticks, start) =
            (nodes[writer % NODES].clone(), Arc::clone(&ticks), Arc::clone(&together));
        writers.spawn(async move {
            let mut commits = Vec::new();
            start.wait().await;
            for number in 0..COMMITS {
                let ids: Vec<String> =
                    (0..=number % 3).map(|part| format!("{writer}-{number}-{part}")).collect();
                let write = |id: &String| put("Observation", id, id, &["c"]).expecting(ExpectVersion::Absent);
                let start = ticks.fetch_add(1, Ordering::SeqCst);
                let result = store.commit(ids.iter().map(write).collect(), at(number as i64)).await;
                let acknowledged = match result {
                    Ok(commit) => Some((ticks.fetch_add(1, Ordering::SeqCst), commit.seq)),
                    Err(StoreError::Unavailable { .. }) => None,
                    Err(other) => panic!("{other}"),
                };
                commits.push(WrittenCommit { begun: start, acknowledged, ids });
            }
            commits
        });
    }
    let mut followers = JoinSet::new();
    for store in &nodes {
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        followers.spawn(async move {
            let mut records: Vec<ChangeRecord> = Vec::new();
            loop {
                let was_over = is_over.load(Ordering::SeqCst);
                let after = records.last().map_or(Seq::ZERO, |change| change.seq);
                match store.changes(after, 7).await {
                    Ok(changes) if changes.is_empty() && was_over => return records,
                    Ok(changes) => records.extend(changes),
                    Err(StoreError::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let (store, counter, over) = (nodes[NODES - 1].clone(), Arc::clone(&ticks), Arc::clone(&is_over));
    let start = Arc::clone(&together);
    let snapshots = tokio::spawn(async move {
        let mut snapshots_so_far = Vec::new();
        start.wait().await;
        while snapshots_so_far.is_empty() || !over.load(Ordering::SeqCst) {
            let start = counter.fetch_add(1, Ordering::SeqCst);
            if let Ok(snapshot) = store.snapshot(at(snapshots_so_far.len() as i64)).await {
                let end = counter.fetch_add(1, Ordering::SeqCst);
                snapshots_so_far.push(TakenSnapshot { begun: start, ended: end, snapshot });
            }
            // An engine in memory never waits, and the writers need a thread.
            tokio::task::yield_now().await;
        }
        snapshots_so_far
    });
    let cutting =
        adversary.then(|| tokio::spawn(break_connections(engine.url.clone(), Arc::clone(&is_over))));

    let commits: Vec<WrittenCommit> = writers.join_all().await.into_iter().flatten().collect();
    is_over.store(true, Ordering::SeqCst);
    let broken = match cutting {
        Some(cutting) => cutting.await.unwrap(),
        None => 0,
    };
    let all = engine.store.changes(Seq::ZERO, usize::MAX).await.unwrap();
    for records in followers.join_all().await {
        assert_eq!(records, all, "{}: a follower", engine.name);
    }
    let seqs: Vec<u64> = all.iter().map(|change| change.seq.0).collect();
    assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>(), "{}: no number is missing", engine.name);

    // Each commit is there once, with consecutive numbers; one whose result is unknown is there completely or
    // not at all.
    let by_id: BTreeMap<&str, Seq> = all.iter().map(|change| (change.key.id.as_str(), change.seq)).collect();
    assert_eq!(by_id.len(), all.len(), "{}: nothing is doubled", engine.name);
    for commit in &commits {
        let numbers: Vec<u64> = commit.ids.iter().filter_map(|id| Some(by_id.get(id.as_str())?.0)).collect();
        if let Some((_, seq)) = commit.acknowledged {
            let first = seq.0 + 1 - commit.ids.len() as u64;
            assert_eq!(numbers, (first..=seq.0).collect::<Vec<_>>(), "{}: {:?}", engine.name, commit.ids);
        } else {
            assert!(numbers.is_empty() || numbers.len() == commit.ids.len(), "{}: {numbers:?}", engine.name);
        }
    }
    let observations = snapshots.await.unwrap();
    assert!(!observations.is_empty(), "{}", engine.name);
    for TakenSnapshot { begun, ended, snapshot } in observations {
        for commit in &commits {
            let Some((acknowledged, seq)) = commit.acknowledged else { continue };
            assert!(
                acknowledged > begun || seq <= snapshot.seq,
                "{}: an earlier write is missing",
                engine.name
            );
            assert!(commit.begun < ended || seq > snapshot.seq, "{}: a later write is in it", engine.name);
        }
    }
    let unknown = commits.iter().filter(|commit| commit.acknowledged.is_none()).count();
    println!(
        "{}: {} changes, {broken} connections broken, {unknown} results unknown",
        engine.name,
        all.len()
    );
}

/// Breaks random connections to the database until the test is over. Returns their number.
async fn break_connections(url: Option<DatabaseUrl>, is_over: Arc<AtomicBool>) -> usize {
    let url = url.expect("only connections to a database can be broken");
    let (client, connection) =
        tokio_postgres::connect(&format!("{url}?sslmode=disable"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1";
    let mut broken = 0;
    while !is_over.load(Ordering::SeqCst) {
        broken += client.query(sql, &[]).await.unwrap().len();
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    broken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn followers_and_snapshots_agree_on_the_order_of_all_nodes() {
    for engine in StoreEngine::each().await {
        run(&engine, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_or_doubled_when_connections_break() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    run(&engine, true).await;
}

#[tokio::test]
async fn a_node_reads_what_another_one_acknowledged() {
    for engine in StoreEngine::each().await {
        let nodes = nodes(&engine).await;
        for number in 1..=20_u64 {
            let (writer, reader) = (&nodes[number as usize % NODES], &nodes[(number as usize + 1) % NODES]);
            let id = number.to_string();
            writer.commit(vec![put("Patient", &id, "x", &[])], at(0)).await.unwrap();
            assert_eq!(reader.last_seq().await.unwrap(), Seq(number), "{}", engine.name);
            let version = reader.read(&ResourceKey::new("Patient", &id), Seq(number)).await.unwrap();
            assert!(version.is_some(), "{}", engine.name);
            let code = LedgerWrite::put(format!("code/{id}"), "live", Expect::Absent);
            let live = writer.write(vec![code], at(0)).await.unwrap()[0];
            let spent = LedgerWrite::put(format!("code/{id}"), "spent", Expect::Revision(live));
            reader.write(vec![spent.clone()], at(0)).await.unwrap();
            assert!(
                writer.write(vec![spent], at(0)).await.is_err(),
                "{}: it was spent elsewhere",
                engine.name
            );
        }
    }
}

#[tokio::test]
async fn a_code_is_spent_on_one_of_several_nodes() {
    for engine in StoreEngine::each().await {
        let nodes = nodes(&engine).await;
        for round in 0..20 {
            let key = format!("code/{round}");
            let live =
                nodes[0].write(vec![LedgerWrite::put(&*key, "live", Expect::Absent)], at(0)).await.unwrap()
                    [0];
            // Both a change and the creation of a key must succeed once.
            for write in [
                LedgerWrite::put(&*key, "spent", Expect::Revision(live)),
                LedgerWrite::put(format!("jti/{round}"), "used", Expect::Absent),
            ] {
                let mut tasks = JoinSet::new();
                for store in nodes.clone() {
                    let writes = vec![write.clone()];
                    tasks.spawn(async move { store.write(writes, at(0)).await });
                }
                let answers = tasks.join_all().await;
                let successes = answers.iter().filter(|result| result.is_ok()).count();
                assert_eq!(successes, 1, "{} {answers:?}", engine.name);
            }
        }
    }
}
