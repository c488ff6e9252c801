//! Tests of the individual guarantees of the ports, on each engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use trefoil_store::{
    CpuBudget, Expect, ExpectVersion, IndexCondition, IndexRange, IndexTerm, Ledger, LedgerWrite,
    LineScanRange, PageLimit, ResourceKey, ScanOptions, Seq, Store, StoreError, UpdatedRange, VersionHeader,
    VersionWrite, Versions, WriteEffect, cpu_budget,
};

use crate::{StoreEngine, at, draft, pages_of_lines, put, ready};

async fn keys(store: &Store, prefix: &str, after: Option<&str>, limit: usize, ms: i64) -> Vec<String> {
    let records = store.scan(prefix, after, limit, at(ms)).await.unwrap();
    records.into_iter().map(|(key, _)| key).collect()
}

async fn ids(store: &Store, compartment: Option<&str>, kind: &str, scan: ScanOptions<'_>) -> Vec<String> {
    let page = match compartment {
        Some(compartment) => store.scan_compartment(compartment, kind, scan).await.unwrap(),
        None => store.scan_kind(kind, scan).await.unwrap(),
    };
    page.versions.into_iter().map(|version| version.key.id).collect()
}

#[tokio::test]
async fn a_record_reads_back_until_it_is_replaced_or_deleted() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        assert_eq!(store.get("a", at(0)).await.unwrap(), None, "{name}");
        let first = store.write(vec![LedgerWrite::put("a", "1", Expect::Absent)], at(0)).await.unwrap()[0];
        let record = store.get("a", at(0)).await.unwrap().unwrap();
        assert_eq!((record.value, record.revision), (Bytes::from("1"), first), "{name}");

        let second = store.write(vec![LedgerWrite::put("a", "2", Expect::Any)], at(0)).await.unwrap()[0];
        assert_ne!(first, second, "{name}");
        let stale = store.write(vec![LedgerWrite::put("a", "3", Expect::Revision(first))], at(0)).await;
        assert_eq!(stale, Err(StoreError::Conflict { key: "a".into() }), "{name}");

        store.write(vec![LedgerWrite::delete("a", Expect::Revision(second))], at(0)).await.unwrap();
        assert_eq!(store.get("a", at(0)).await.unwrap(), None, "{name}");
        let third = store.write(vec![LedgerWrite::put("a", "2", Expect::Absent)], at(0)).await.unwrap()[0];
        assert!(third > second, "{name}: a revision is never reused");
    }
}

#[tokio::test]
async fn a_batch_is_written_completely_or_not_at_all() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let batch = vec![
            LedgerWrite::put("a", "1", Expect::Absent),
            // This write sees the write before it in the batch.
            LedgerWrite::put("a", "2", Expect::Any),
            LedgerWrite::put("b", "1", Expect::Revision(99)),
        ];
        let result = store.write(batch, at(0)).await;
        assert_eq!(result, Err(StoreError::Conflict { key: "b".into() }), "{name}");
        assert!(keys(&store, "", None, 9, 0).await.is_empty(), "{name}");

        let batch = vec![LedgerWrite::put("a", "1", Expect::Absent), LedgerWrite::delete("a", Expect::Any)];
        let revisions = store.write(batch, at(0)).await.unwrap();
        assert!(matches!(revisions[..], [put, 0] if put > 0), "{name} {revisions:?}");
        assert!(keys(&store, "", None, 9, 0).await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn an_expired_record_counts_as_absent_and_is_swept() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let code = |key: &str, ms| LedgerWrite::put(key, "x", Expect::Absent).expiring(at(ms));
        store.write(vec![code("c/1", 10), code("c/2", 20), code("c/3", 30)], at(0)).await.unwrap();
        assert!(store.get("c/1", at(9)).await.unwrap().is_some(), "{name}");
        assert_eq!(store.get("c/1", at(10)).await.unwrap(), None, "{name}: the record expires at this time");
        assert_eq!(keys(&store, "c/", None, 9, 10).await, ["c/2", "c/3"], "{name}");

        // The record is written again with a later expiry, so the sweep must not remove it.
        store.write(vec![code("c/1", 100)], at(10)).await.unwrap();
        assert_eq!(store.sweep(at(25), 9).await.unwrap(), 1, "{name}");
        assert_eq!(keys(&store, "c/", None, 9, 0).await, ["c/1", "c/3"], "{name}");
        assert_eq!(store.sweep(at(200), 1).await.unwrap(), 1, "{name}: a sweep is bounded by its limit");
        assert_eq!(store.sweep(at(200), 9).await.unwrap(), 1, "{name}");
        assert_eq!(store.sweep(at(200), 9).await.unwrap(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_scan_of_the_ledger_pages_through_a_prefix() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let all = ["t", "t/", "t/1", "t/10", "t/2", "u"];
        let writes = all.map(|key| LedgerWrite::put(key, "", Expect::Any)).to_vec();
        store.write(writes, at(0)).await.unwrap();
        assert_eq!(keys(&store, "t/", None, 9, 0).await, ["t/", "t/1", "t/10", "t/2"], "{name}");
        assert_eq!(keys(&store, "t/", Some("t/1"), 1, 0).await, ["t/10"], "{name}");
        assert_eq!(keys(&store, "t/", Some("a"), 1, 0).await, ["t/"], "{name}");
        assert_eq!(keys(&store, "t/", Some("u"), 9, 0).await, [""; 0], "{name}");
        assert_eq!(keys(&store, "", None, 9, 0).await, all, "{name}");
    }
}

#[tokio::test]
async fn versions_increase_and_continue_after_a_delete() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let key = ResourceKey::new("Patient", "p");
        for (ms, text, effect, version) in [
            (0, Some("one"), WriteEffect::Created, 1),
            (5, Some("two"), WriteEffect::Replaced, 2),
            (9, None, WriteEffect::Deleted, 3),
            (9, None, WriteEffect::Nothing, 3),
            (9, Some("four"), WriteEffect::Created, 4),
        ] {
            let write = match text {
                Some(text) => put("Patient", "p", text, &[]),
                None => VersionWrite::delete(key.clone()),
            };
            let commit = store.commit(vec![write], at(ms)).await.unwrap();
            let result = commit.written[0];
            assert_eq!((result.effect, result.version, result.updated), (effect, version, at(ms)), "{name}");
            let row_version = store.read(&key, commit.seq).await.unwrap().unwrap();
            assert_eq!(
                (row_version.version, row_version.seq, row_version.updated),
                (version, result.seq, at(ms)),
                "{name}"
            );
            let expected = text.map(|text| Bytes::from(ready(version, at(ms), text)));
            assert_eq!(row_version.body, expected, "{name}");
        }
        let history = store.history(&key, Seq::LATEST, PageLimit::default()).await.unwrap();
        let versions: Vec<_> =
            history.iter().map(|version| (version.version, version.is_deleted())).collect();
        assert_eq!(versions, [(4, false), (3, true), (2, false), (1, false)], "{name}");
        let rest = store.history(&key, history[1].seq, PageLimit { count: 1, bytes: 1 }).await.unwrap();
        assert_eq!(rest, history[2..3], "{name}");
        assert_eq!(store.history(&key, Seq(1), PageLimit::default()).await.unwrap(), [], "{name}");
        assert_eq!(store.history(&key, Seq::ZERO, PageLimit::default()).await.unwrap(), [], "{name}");
    }
}

#[tokio::test]
async fn conditions_on_versions_are_checked() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let write = |expect| vec![put("Patient", "p", "x", &[]).expecting(expect)];
        let delete = |expect| vec![VersionWrite::delete(ResourceKey::new("Patient", "p")).expecting(expect)];
        let conflict = Err(StoreError::Conflict { key: "Patient/p".into() });

        assert_eq!(store.commit(write(ExpectVersion::Version(1)), at(0)).await, conflict, "{name}");
        store.commit(write(ExpectVersion::Absent), at(0)).await.unwrap();
        assert_eq!(store.commit(write(ExpectVersion::Absent), at(0)).await, conflict, "{name}");
        assert_eq!(store.commit(delete(ExpectVersion::Version(2)), at(0)).await, conflict, "{name}");
        store.commit(delete(ExpectVersion::Version(1)), at(0)).await.unwrap();
        assert_eq!(store.commit(write(ExpectVersion::Version(2)), at(0)).await, conflict, "{name}: deleted");
        store.commit(write(ExpectVersion::Absent), at(0)).await.unwrap();
        assert_eq!(store.last_seq().await.unwrap(), Seq(3), "{name}: rejected commits wrote nothing");
    }
}

#[tokio::test]
async fn a_commit_is_atomic_and_sees_its_own_writes() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let twice = vec![
            put("Patient", "p", "one", &["a"]).expecting(ExpectVersion::Absent),
            put("Patient", "p", "two", &["b"]).expecting(ExpectVersion::Version(1)),
            put("Patient", "q", "one", &[]).expecting(ExpectVersion::Version(7)),
        ];
        assert!(store.commit(twice.clone(), at(0)).await.is_err(), "{name}");
        assert_eq!(
            (store.last_seq().await.unwrap(), store.changes(Seq::ZERO, 9).await.unwrap()),
            (Seq::ZERO, vec![]),
            "{name}"
        );

        let commit = store.commit(twice[..2].to_vec(), at(0)).await.unwrap();
        assert_eq!((commit.seq, commit.written[0].seq), (Seq(2), Seq(1)), "{name}");
        let changes = store.changes(Seq::ZERO, 9).await.unwrap();
        assert_eq!(changes.iter().map(|change| change.version).collect::<Vec<_>>(), [1, 2], "{name}");
        assert_eq!(store.changes(Seq(1), 1).await.unwrap(), changes[1..], "{name}");
        assert_eq!(ids(&store, Some("a"), "Patient", ScanOptions::at(Seq::LATEST)).await, [""; 0], "{name}");
        assert_eq!(ids(&store, Some("b"), "Patient", ScanOptions::at(Seq::LATEST)).await, ["p"], "{name}");
    }
}

#[tokio::test]
async fn the_same_content_is_not_written_again() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let again = |text, compartments: &[&str]| {
            vec![VersionWrite { unless_same: true, ..put("Patient", "p", text, compartments) }]
        };
        for (text, compartments, effect) in [
            ("x", &["a"][..], WriteEffect::Created),
            ("x", &["a"], WriteEffect::Nothing),
            ("y", &["a"], WriteEffect::Replaced),
            ("y", &["a", "b"], WriteEffect::Replaced),
            ("y", &["b", "a", "a"], WriteEffect::Nothing),
        ] {
            let commit = store.commit(again(text, compartments), at(3)).await.unwrap();
            assert_eq!(commit.written[0].effect, effect, "{name} {text} {compartments:?}");
        }
        store.commit(vec![VersionWrite::delete(ResourceKey::new("Patient", "p"))], at(3)).await.unwrap();
        let commit = store.commit(again("y", &["a", "b"]), at(3)).await.unwrap();
        assert_eq!(
            commit.written[0].effect,
            WriteEffect::Created,
            "{name}: the same content is written after a tombstone"
        );
    }
}

#[tokio::test]
async fn a_resource_leaves_a_compartment_from_its_next_version_on() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let moves = [&["Patient/a"][..], &["Patient/a", "Patient/b"], &["Patient/b"], &[], &["Patient/a"]];
        for compartments in moves {
            store.commit(vec![put("Observation", "o", "x", compartments)], at(0)).await.unwrap();
        }
        store.commit(vec![VersionWrite::delete(ResourceKey::new("Observation", "o"))], at(0)).await.unwrap();
        for (number, compartments) in moves.iter().enumerate() {
            for compartment in ["Patient/a", "Patient/b"] {
                let current =
                    ids(&store, Some(compartment), "Observation", ScanOptions::at(Seq(number as u64 + 1)))
                        .await;
                assert_eq!(!current.is_empty(), compartments.contains(&compartment), "{name} {number}");
            }
        }
        let scan = ScanOptions::at(Seq::LATEST);
        assert_eq!(ids(&store, Some("Patient/a"), "Observation", scan).await, [""; 0], "{name}");
        let scan = scan.with_deleted();
        assert_eq!(ids(&store, Some("Patient/a"), "Observation", scan).await, ["o"], "{name}");
        assert_eq!(ids(&store, Some("Patient/b"), "Observation", scan).await, [""; 0], "{name}");
        assert_eq!(ids(&store, Some("Patient/a"), "Patient", scan).await, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn a_scan_pages_by_count_and_by_bytes() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        // Ids of which some are prefixes of others, and resources of types that sort before and after this
        // type.
        let expected_ids = ["1", "1-", "1.a", "10", "A", "a"];
        let mut writes: Vec<_> =
            expected_ids.iter().map(|id| put("Patient", id, &"x".repeat(100), &["c"])).collect();
        writes.extend([put("Patien", "z", "", &["c"]), put("Patient2", "z", "", &["c", "c2"])]);
        store.commit(writes, at(0)).await.unwrap();
        for compartment in [None, Some("c")] {
            for (limit, size) in [
                (PageLimit { count: 2, bytes: 1 << 20 }, 2),
                (PageLimit { count: 100, bytes: 1 }, 1),
                (PageLimit { count: 100, bytes: 200 }, 2),
                (PageLimit::default(), 6),
            ] {
                let mut ids_so_far = Vec::new();
                let mut after = None::<String>;
                loop {
                    let scan = ScanOptions::at(Seq::LATEST).limit(limit).after(after.as_deref());
                    let page = match compartment {
                        Some(compartment) => store.scan_compartment(compartment, "Patient", scan).await,
                        None => store.scan_kind("Patient", scan).await,
                    };
                    let page = page.unwrap();
                    assert!(page.versions.len() <= size, "{name} {limit:?}");
                    ids_so_far.extend(page.versions.into_iter().map(|version| version.key.id));
                    let Some(next) = page.next else { break };
                    after = Some(next);
                }
                assert_eq!(ids_so_far, expected_ids, "{name} {compartment:?} {limit:?}");
            }
        }
        let result = store.scan_kind("Patient", ScanOptions::at(Seq::LATEST).after(Some("never"))).await;
        assert!(matches!(result, Err(StoreError::Key { .. })), "{name}");
        assert_eq!(store.kinds(Seq::LATEST).await.unwrap(), ["Patien", "Patient", "Patient2"], "{name}");
        assert_eq!(store.kinds(Seq(1)).await.unwrap(), ["Patient"], "{name}");
        assert_eq!(store.kinds(Seq::ZERO).await.unwrap(), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn times_never_decrease_after_a_restart_with_an_earlier_clock() {
    for mut engine in StoreEngine::each().await {
        engine.store.commit(vec![put("Patient", "p", "x", &[])], at(1_000)).await.unwrap();
        let snapshot = engine.store.snapshot(at(500)).await.unwrap();
        assert_eq!((snapshot.seq, snapshot.time), (Seq(1), at(1_000)), "{}", engine.name);
        engine.reopen().await;
        let commit = engine.store.commit(vec![put("Patient", "p", "y", &[])], at(0)).await.unwrap();
        assert_eq!(commit.written[0].updated, at(1_001), "{}", engine.name);
        assert_eq!(commit.seq, Seq(2), "{}", engine.name);
        let before = engine.store.scan_kind("Patient", ScanOptions::at(snapshot.seq)).await.unwrap();
        assert_eq!(before.versions[0].version, 1, "{}", engine.name);
    }
}

#[tokio::test]
async fn a_node_hears_of_its_own_commits() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        assert_eq!(store.heard_seq(), Seq::ZERO, "{name}");
        let writes = vec![put("Patient", "p", "x", &[]), put("Patient", "q", "x", &[])];
        store.commit(writes, at(0)).await.unwrap();
        assert_eq!((store.heard_seq(), store.last_seq().await.unwrap()), (Seq(2), Seq(2)), "{name}");
        store.write(vec![LedgerWrite::put("k", "v", Expect::Any)], at(0)).await.unwrap();
        store.commit(vec![VersionWrite::delete(ResourceKey::new("Patient", "z"))], at(0)).await.unwrap();
        assert_eq!(store.last_seq().await.unwrap(), Seq(2), "{name}: neither request changed a resource");
    }
}

#[tokio::test]
async fn keys_that_no_engine_can_store_are_rejected() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        for key in ["", "a\0b", &"k".repeat(2_000)] {
            let answer = store.write(vec![LedgerWrite::put(key, "", Expect::Any)], at(0)).await;
            assert!(matches!(answer, Err(StoreError::Key { .. })), "{name} {answer:?}");
            assert_eq!(store.get(key, at(0)).await.unwrap(), None, "{name}");
            let result = store.commit(vec![put("Patient", key, "", &[])], at(0)).await;
            assert!(matches!(result, Err(StoreError::Key { .. })), "{name} {result:?}");
            assert_eq!(
                store.read(&ResourceKey::new("Patient", key), Seq::LATEST).await.unwrap(),
                None,
                "{name}"
            );
        }
        let mut outside = draft("x");
        outside.updated_at = 99;
        let write = VersionWrite::put(ResourceKey::new("Patient", "p"), outside, Vec::new());
        assert!(matches!(store.commit(vec![write], at(0)).await, Err(StoreError::Draft { .. })), "{name}");
    }
}

#[tokio::test]
async fn a_folder_can_be_opened_by_one_store_at_a_time() {
    let dir = tempfile::TempDir::new().unwrap();
    let first = Store::open(dir.path()).unwrap();
    let clone = first.clone();
    drop(first);
    let Err(StoreError::Locked { holder, .. }) = Store::open(dir.path()) else {
        panic!("the folder was opened twice")
    };
    assert_eq!(holder, format!("process {}", std::process::id()));
    drop(clone);
    assert!(Store::open(dir.path()).is_ok());
}

#[tokio::test]
async fn lines_are_returned_compartment_by_compartment_including_resources_with_another_home() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        // The home of a resource in several compartments is the first one. `left` was in this compartment
        // earlier.
        let other = put("Encounter", "left", "", &["c2", "c3"]);
        store.commit(vec![other], at(0)).await.unwrap();
        let writes = [
            put("Encounter", "a", "", &["c1"]),
            put("Encounter", "b", "", &["c1", "c3"]),
            put("Encounter", "c", "", &["c3"]),
            put("Encounter", "d", "", &["c4", "c3", "c1"]),
            put("Encounter", "left", "", &["c2"]),
            put("Patient", "p", "", &["c2", "c3"]),
            VersionWrite::delete(ResourceKey::new("Encounter", "c")),
        ];
        store.commit(writes.to_vec(), at(1)).await.unwrap();
        for compartments in [&["c1", "c2", "c3", "c4", "c5"][..], &["c3", "c1"], &["c5"], &[]] {
            let mut expected = Vec::new();
            for compartment in compartments {
                let page =
                    store.scan_compartment(compartment, "Encounter", ScanOptions::at(Seq::LATEST)).await;
                let lines = page.unwrap().versions.into_iter().filter(|version| version.key.id != "a");
                expected.extend(lines.map(|version| (version.key.id, (*compartment).to_owned())));
            }
            for count in [1, 2, 100] {
                let (mut found, mut begin, mut next) = (Vec::new(), 0, None::<String>);
                loop {
                    let output = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
                    let collector = output.clone();
                    let keep = move |version: &VersionHeader<'_>| {
                        let within = version.within.unwrap().to_owned();
                        assert!(version.compartments().any(|own| own == within));
                        let is_wanted = version.id != "a";
                        if is_wanted {
                            collector.lock().unwrap().push((version.id.to_owned(), within));
                        }
                        is_wanted
                    };
                    let of = LineScanRange::Compartments(
                        compartments[begin..].iter().map(|&c| c.to_owned()).collect(),
                    );
                    let limit = PageLimit { count, bytes: 1 << 20 };
                    let scan = ScanOptions::at(Seq::LATEST).limit(limit).after(next.as_deref());
                    let pages =
                        pages_of_lines(&store, "Encounter", of, scan, UpdatedRange::default(), keep).await;
                    let lines = std::mem::take(&mut *output.lock().unwrap());
                    assert_eq!(
                        pages.iter().map(|page| page.ends.len()).sum::<usize>(),
                        lines.len(),
                        "{name}"
                    );
                    found.extend(lines);
                    begin += pages.iter().map(|page| page.compartments).sum::<usize>();
                    let last = pages.last().unwrap();
                    next.clone_from(&last.next);
                    if last.done {
                        assert_eq!(begin, compartments.len());
                        break;
                    }
                }
                assert_eq!(found, expected, "{name} {compartments:?} {count}");
            }
        }
    }
}

#[tokio::test]
async fn lines_of_many_compartments_of_any_size_are_returned_in_order() {
    // Most are small, some are empty, and some have more resources than a page.
    let size = |compartment: usize| match compartment % 100 {
        50 => 150,
        _ => compartment % 4,
    };
    let name_of = |compartment: usize| format!("c{compartment:04}");
    let id_of = |compartment: usize, number: usize| format!("e{compartment:04}-{number:03}");
    let compartments: Vec<_> = (0..700).map(name_of).collect();
    let all =
        (0..700).flat_map(|compartment| (0..size(compartment)).map(move |number| (compartment, number)));
    let expected: Vec<_> = all.clone().map(|(compartment, number)| id_of(compartment, number)).collect();
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let write = |(compartment, number)| {
            let id = id_of(compartment, number);
            put("Encounter", &id, &id, &[&name_of(compartment)])
        };
        store.commit(all.clone().map(write).collect(), at(0)).await.unwrap();
        let of = LineScanRange::Compartments(compartments.clone());
        for count in [40, 300, 5_000] {
            let current = ids_of_lines(&store, &of, Seq::LATEST, count, UpdatedRange::default()).await;
            assert!(current == expected, "{name}: {} of {} ids by {count}", current.len(), expected.len());
        }
    }
}

#[tokio::test]
async fn a_write_can_require_that_nothing_was_indexed_since_a_search() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let term = |text: &str| -> IndexTerm { text.as_bytes().into() };
        let create = |id: &str, terms: &[&str]| {
            put("Patient", id, "x", &[]).indexed(terms.iter().map(|text| term(text)).collect())
        };
        let unless = |range: IndexRange, since: Seq| Some(IndexCondition { ranges: vec![range], since });
        let before = store.last_seq().await.unwrap();
        store.commit(vec![create("a", &["mrn-1", "mrn-2"])], at(0)).await.unwrap();
        let after = store.last_seq().await.unwrap();
        for (range, since, holds) in [
            (IndexRange::Term(term("mrn-1")), before, false),
            (IndexRange::Term(term("mrn-1")), after, true),
            (IndexRange::Term(term("mrn-3")), before, true),
            (IndexRange::Between(term("mrn-2"), term("mrn-9")), before, false),
            (IndexRange::Between(term("mrn-3"), term("mrn-9")), before, true),
        ] {
            let write = create("b", &[]).unless_indexed(unless(range.clone(), since));
            let result = store.commit(vec![write], at(0)).await;
            let expected = StoreError::IndexChanged { key: "Patient/b".into() };
            assert_eq!(result.err(), (!holds).then_some(expected), "{name}: {range:?}");
        }
        // A new version renews its terms, and the writes of one commit do not exclude each other.
        let since = store.last_seq().await.unwrap();
        store.commit(vec![create("a", &["mrn-1"])], at(0)).await.unwrap();
        let again = create("c", &["mrn-1"]).unless_indexed(unless(IndexRange::Term(term("mrn-1")), since));
        assert!(store.commit(vec![again.clone()], at(0)).await.is_err(), "{name}");
        let since = store.last_seq().await.unwrap();
        let pair = ["d", "e"]
            .map(|id| create(id, &["mrn-4"]).unless_indexed(unless(IndexRange::Term(term("mrn-4")), since)));
        store.commit(pair.to_vec(), at(0)).await.unwrap();
        for bad in [term(""), vec![b'x'; 256].into()] {
            let write = put("Patient", "f", "x", &[]).indexed(vec![bad]);
            assert!(matches!(store.commit(vec![write], at(0)).await, Err(StoreError::Key { .. })), "{name}");
        }
    }
}

/// Returns the ids of the lines of a scan.
async fn ids_of_lines(
    store: &Store,
    of: &LineScanRange,
    at: Seq,
    count: usize,
    updated: UpdatedRange,
) -> Vec<String> {
    let (mut found, mut of, mut next) = (Vec::new(), of.clone(), None::<String>);
    loop {
        let scan = ScanOptions::at(at).limit(PageLimit { count, bytes: 1 << 20 }).after(next.as_deref());
        let pages = pages_of_lines(store, "Encounter", of.clone(), scan, updated, |_| true).await;
        for page in &pages {
            let text = String::from_utf8(page.text.to_vec()).unwrap();
            found.extend(text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()));
            if let LineScanRange::Compartments(compartments) = &mut of {
                compartments.drain(..page.compartments);
            }
        }
        let last = pages.last().unwrap();
        next.clone_from(&last.next);
        if last.done {
            return found;
        }
    }
}

#[tokio::test]
async fn lines_are_selected_by_the_time_of_their_version() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let write = |id: &str| put("Encounter", id, id, &["c1"]);
        let mut times = Vec::new();
        for (time, ids) in [(10, &["a", "b", "c"][..]), (20, &["b", "d"]), (30, &["c", "e"])] {
            let commit = store.commit(ids.iter().map(|id| write(id)).collect(), at(time)).await.unwrap();
            times.push(commit.written[0].updated);
        }
        store.commit(vec![VersionWrite::delete(ResourceKey::new("Encounter", "e"))], at(40)).await.unwrap();
        let bounds = [None, Some(times[0]), Some(times[1]), Some(times[2])];
        let all = LineScanRange::Kind { from: None, until: None };
        for of in [all, LineScanRange::Compartments(vec!["c1".to_owned(), "c2".to_owned()])] {
            for seq in [Seq(3), Seq(5), store.last_seq().await.unwrap()] {
                let page = store.scan_kind("Encounter", ScanOptions::at(seq)).await.unwrap();
                for (after, before) in bounds.iter().flat_map(|after| bounds.map(|before| (*after, before))) {
                    let updated = UpdatedRange { after, before };
                    let expected: Vec<_> = page
                        .versions
                        .iter()
                        .filter(|version| {
                            after.is_none_or(|after| version.updated > after)
                                && before.is_none_or(|before| version.updated < before)
                        })
                        .map(|version| version.key.id.clone())
                        .collect();
                    for count in [1, 2, 100] {
                        let current = ids_of_lines(&store, &of, seq, count, updated).await;
                        assert_eq!(current, expected, "{name} {of:?} {seq:?} {updated:?} {count}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn later_versions_move_no_resource_in_the_order_of_scans() {
    for StoreEngine { name, store, .. } in StoreEngine::each().await {
        let ids = ["m", "b", "z", "a", "k"];
        let homes = [&["c2"][..], &["c1", "c2"], &[], &["c3"], &["c2", "c1"]];
        let writes = |ids: &[&str], homes: &[&[&str]]| -> Vec<VersionWrite> {
            ids.iter().zip(homes).map(|(id, home)| put("Encounter", id, id, home)).collect()
        };
        let first = store.commit(writes(&ids, &homes), at(0)).await.unwrap().seq;
        let order = async |seq: Seq, count: usize| -> Vec<String> {
            let (mut found, mut next) = (Vec::new(), None::<String>);
            loop {
                let scan =
                    ScanOptions::at(seq).limit(PageLimit { count, bytes: 1 << 20 }).after(next.as_deref());
                let page = store.scan_kind("Encounter", scan).await.unwrap();
                found.extend(page.versions.into_iter().map(|version| version.key.id));
                next = page.next;
                if next.is_none() {
                    return found;
                }
            }
        };
        let before = order(first, 100).await;
        // Other compartments, a deletion, a new creation after it, and another resource.
        let mut homes = homes;
        homes.reverse();
        store.commit(writes(&ids, &homes), at(1)).await.unwrap();
        store.commit(vec![VersionWrite::delete(ResourceKey::new("Encounter", "m"))], at(2)).await.unwrap();
        store.commit(writes(&["m", "c"], &[&["c9"], &["c2"]]), at(3)).await.unwrap();
        let latest = store.last_seq().await.unwrap();
        let all = LineScanRange::Kind { from: None, until: None };
        for count in [1, 2, 100] {
            assert_eq!(order(first, count).await, before, "{name}");
            let after = order(latest, count).await;
            let same: Vec<_> = after.iter().filter(|id| *id != "c").cloned().collect();
            assert_eq!(same, before, "{name}: later versions");
            let lines = ids_of_lines(&store, &all, latest, count, UpdatedRange::default()).await;
            assert_eq!(lines, after, "{name}: lines");
        }
        for compartment in ["c1", "c2", "c9"] {
            let page =
                store.scan_compartment(compartment, "Encounter", ScanOptions::at(latest)).await.unwrap();
            let ids: Vec<_> = page.versions.into_iter().map(|version| version.key.id).collect();
            assert!(ids.is_sorted() && !ids.is_empty(), "{name} {compartment}: {ids:?}");
        }
    }
}

#[tokio::test]
async fn the_time_of_reader_threads_is_counted_in_the_budget_of_their_request() {
    /// Only reader threads spend time: a millisecond between two questions.
    fn time_of_readers() -> Duration {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let is_reader = std::thread::current().name() == Some("store-reader");
        Duration::from_millis(if is_reader { COUNT.fetch_add(1, Ordering::Relaxed) } else { 0 })
    }
    let engine = StoreEngine::file();
    let store = &engine.store;
    store.commit(vec![put("Patient", "p", "one", &[])], at(0)).await.unwrap();
    let limit = Duration::from_millis(10);
    let reads = async {
        let mut count = 0;
        while cpu_budget::check().is_ok() && count < 1_000 {
            store.scan_kind("Patient", ScanOptions::at(Seq::LATEST)).await.unwrap();
            count += 1;
        }
        count
    };
    assert_eq!(CpuBudget::new(limit, time_of_readers).run(reads).await, 11);
}
