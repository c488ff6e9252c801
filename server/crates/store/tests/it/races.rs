//! Tests with concurrent writers: a compare-and-set succeeds once, and a snapshot divides all writes into
//! earlier and later ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::task::JoinSet;
use trefoil_store::{
    Expect, ExpectVersion, Ledger, LedgerWrite, PageLimit, ScanOptions, Seq, Store, StoreError,
    StoreSnapshot, Version, Versions,
};

use crate::{StoreEngine, at, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_code_is_spent_once() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        for round in 0..10 {
            let key = format!("code/{round}");
            let live =
                store.write(vec![LedgerWrite::put(&*key, "live", Expect::Absent)], at(0)).await.unwrap()[0];
            let mut tasks = JoinSet::new();
            for _ in 0..16 {
                let (store, spend) =
                    (store.clone(), LedgerWrite::put(&*key, "spent", Expect::Revision(live)));
                tasks.spawn(async move { store.write(vec![spend], at(0)).await });
            }
            let answers = tasks.join_all().await;
            assert_eq!(answers.iter().filter(|result| result.is_ok()).count(), 1, "{name}");
            assert!(
                answers.iter().all(|result| matches!(result, Ok(_) | Err(StoreError::Conflict { .. }))),
                "{name}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            tasks.spawn(count_up(store.clone(), 10));
        }
        tasks.join_all().await;
        let key = trefoil_store::ResourceKey::new("Basic", "counter");
        let last = store.read(&key, Seq::LATEST).await.unwrap().unwrap();
        assert_eq!(last.version, 80, "{name}");
        assert!(last.body.unwrap().ends_with(b" 80"), "{name}");
    }
}

/// Increments a counter `times` times while others increment it too.
async fn count_up(store: Store, times: usize) {
    let key = trefoil_store::ResourceKey::new("Basic", "counter");
    let mut count = 0;
    while count < times {
        let newest = store.read(&key, Seq::LATEST).await.unwrap();
        let (expect, next) = match newest {
            None => (ExpectVersion::Absent, 1),
            Some(version) => (ExpectVersion::Version(version.version), version.version + 1),
        };
        match store
            .commit(vec![put("Basic", "counter", &next.to_string(), &[]).expecting(expect)], at(0))
            .await
        {
            Ok(_) => count += 1,
            Err(error) => assert_eq!(error, StoreError::Conflict { key: key.to_string() }),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_snapshot_divides_all_writes_into_earlier_and_later_ones() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        // A shared clock that often stops and sometimes goes back.
        let clock = Arc::new(AtomicI64::new(0));
        let mut writers = JoinSet::new();
        for writer in 0..6 {
            let (store, clock) = (store.clone(), Arc::clone(&clock));
            writers.spawn(async move {
                for number in 0..25 {
                    let ms = clock.fetch_add([1, 0, -2, 0, 3][(writer + number) % 5], Ordering::Relaxed);
                    let (id, text) = (format!("w{writer}-{}", number % 7), number.to_string());
                    let writes =
                        vec![put("Patient", &id, &text, &["c"]), put("Observation", &id, &text, &["c"])];
                    store.commit(writes, at(ms)).await.unwrap();
                }
            });
        }
        let mut snapshots: Vec<(StoreSnapshot, Vec<Version>)> = Vec::new();
        while snapshots.len() < 30 {
            let last = store.last_seq().await.unwrap();
            let snapshot = store.snapshot(at(clock.load(Ordering::Relaxed))).await.unwrap();
            assert!(snapshot.seq >= last, "{name}: it contains all earlier commits");
            let page = store.scan_compartment("c", "Patient", all(snapshot.seq)).await.unwrap();
            snapshots.push((snapshot, page.versions));
        }
        writers.join_all().await;

        let mut versions = Vec::new();
        for change in store.changes(Seq::ZERO, usize::MAX).await.unwrap() {
            versions.push(store.read(&change.key, change.seq).await.unwrap().unwrap());
        }
        assert_eq!(versions.len(), 300, "{name}");
        for (snapshot, before) in snapshots {
            assert_eq!(snapshot.seq.0 % 2, 0, "{name}: a commit is visible completely or not at all");
            for version in &versions {
                assert_eq!(version.seq <= snapshot.seq, version.updated <= snapshot.time, "{name}");
            }
            let page = store.scan_compartment("c", "Patient", all(snapshot.seq)).await.unwrap();
            assert_eq!(page.versions, before, "{name}: a later read returns the same page");
            let page = store.scan_kind("Patient", all(snapshot.seq)).await.unwrap();
            assert_eq!(page.versions, before, "{name}");
        }
    }
}

fn all(at: Seq) -> ScanOptions<'static> {
    ScanOptions::at(at).limit(PageLimit { count: 10_000, bytes: usize::MAX })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_ledger_of_a_moment_does_not_change() {
    /// More than one page.
    const RECORDS: usize = 2_500;
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let writer = {
            let store = store.clone();
            let batch = |round: u32| {
                let put = |index| LedgerWrite::put(format!("k/{index}"), round.to_string(), Expect::Any);
                (0..RECORDS).map(put).collect::<Vec<_>>()
            };
            store.write(batch(0), at(0)).await.unwrap();
            tokio::spawn(async move {
                for round in 1.. {
                    store.write(batch(round), at(0)).await.unwrap();
                    // The engine in memory never waits.
                    tokio::task::yield_now().await;
                }
            })
        };
        for _ in 0..3 {
            let mut moment = store.moment().await.unwrap();
            let mut entries = Vec::new();
            loop {
                let page = moment.next_page().await.unwrap();
                if page.is_empty() {
                    break;
                }
                entries.extend(page);
                tokio::task::yield_now().await;
            }
            assert_eq!(entries.len(), RECORDS, "{name}");
            assert!(entries.iter().all(|entry| entry.value == entries[0].value), "{name}");
            assert!(entries.iter().all(|entry| entry.revision <= moment.at().revision), "{name}");
        }
        writer.abort();
    }
}
