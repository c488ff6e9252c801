//! Law: versions whose compartments were replaced are those of a store that had these compartments from the
//! beginning, at every sequence number and after a restart. Only the order of a scan of the type, which the
//! first version fixes, stays as it was.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trefoil_store::{
    IndexLookup, IndexRange, IndexTerm, LineScanRange, PageLimit, Reassignment, ResourceKey, ScanOptions,
    Seq, Store, StoreError, UpdatedRange, Version, VersionWrite, Versions as _,
};

use crate::{StoreEngine, at, pages_of_lines, put};

const KIND: &str = "Device";
const NAMES: [&str; 3] = ["Patient/a", "Patient/b", "@"];

/// A version of one of three resources: its compartments before and after, as bits, or a deletion.
type Step = (usize, Option<(u8, u8)>);

fn names(bits: u8) -> Vec<&'static str> {
    NAMES.iter().enumerate().filter(|(index, _)| bits & (1 << index) != 0).map(|(_, name)| *name).collect()
}

/// Writes the steps with their compartments before, or after.
async fn write(store: &Store, steps: &[Step], bits: impl Fn((u8, u8)) -> u8) {
    for (count, (id, step)) in steps.iter().enumerate() {
        let id = id.to_string();
        let write = match step {
            Some(step) => put(KIND, &id, &count.to_string(), &names(bits(*step))),
            None => VersionWrite::delete(ResourceKey::new(KIND, id)),
        };
        // Every other version is imported.
        let source_time = (count % 2 == 0).then(|| at(count as i64 - 100));
        store.commit(vec![write.from_source(source_time)], at(count as i64)).await.unwrap();
    }
}

/// All versions of a resource, the newest first.
async fn versions(store: &Store, id: usize) -> Vec<Version> {
    let key = ResourceKey::new(KIND, id.to_string());
    store.history(&key, Seq::LATEST, PageLimit::default()).await.unwrap()
}

/// Everything that can be read at a sequence number, apart from the order of the type.
async fn content(store: &Store, seq: Seq) -> (BTreeMap<String, Version>, Vec<Vec<Version>>, Vec<String>) {
    let scan = ScanOptions::at(seq).with_deleted();
    let all = store.scan_kind(KIND, scan).await.unwrap().versions;
    let all = all.into_iter().map(|version| (version.key.id.clone(), version)).collect();
    let (mut compartments, mut lines) = (Vec::new(), Vec::new());
    for name in NAMES {
        compartments.push(store.scan_compartment(name, KIND, scan).await.unwrap().versions);
        let of = LineScanRange::Compartments(vec![name.to_owned()]);
        let scan = ScanOptions::at(seq);
        let pages = pages_of_lines(store, KIND, of, scan, UpdatedRange::default(), |_| true).await;
        lines.extend(pages.iter().map(|page| String::from_utf8_lossy(&page.text).into_owned()));
    }
    (all, compartments, lines)
}

async fn check(engine: &mut StoreEngine, steps: &[Step]) {
    let expected = Store::memory();
    write(&expected, steps, |(_, after)| after).await;
    write(&engine.store, steps, |(before, _)| before).await;
    let term: IndexTerm = (*b"term").into();
    let mut reassignments = Vec::new();
    for id in 0..3 {
        let mut versions = versions(&expected, id).await;
        let Some(newest) = versions.first().map(|version| version.version) else { continue };
        versions.reverse();
        reassignments.push(Reassignment {
            key: versions[0].key.clone(),
            newest,
            versions: versions.into_iter().map(|version| (version.seq, version.compartments)).collect(),
            terms: vec![term.clone()],
        });
    }
    let mut outdated = reassignments.clone();
    outdated[0].newest += 1;
    let conflict = StoreError::Conflict { key: outdated[0].key.to_string() };
    assert_eq!(engine.store.reassign(outdated).await, Err(conflict), "{}", engine.name);
    let ids: Vec<_> = reassignments.iter().map(|one| one.key.id.clone()).collect();
    let before = engine.store.last_seq().await.unwrap();
    assert!(engine.store.reassign(reassignments).await.unwrap() > before);
    for is_reopened in [false, true] {
        if is_reopened {
            engine.reopen().await;
        }
        for seq in 1..=steps.len() as u64 {
            let (actual, wanted) =
                (content(&engine.store, Seq(seq)).await, content(&expected, Seq(seq)).await);
            assert_eq!(actual, wanted, "{} at {seq}", engine.name);
        }
        for id in 0..3 {
            assert_eq!(versions(&engine.store, id).await, versions(&expected, id).await, "{}", engine.name);
        }
        let lookup = IndexLookup::first(IndexRange::Term(term.clone()), 10);
        let entries = engine.store.index_entries(vec![lookup]).await.unwrap().remove(0);
        assert_eq!(entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>(), ids, "{}", engine.name);
    }
    // Later writes leave the compartments as they would have.
    for store in [&engine.store, &expected] {
        store.commit(vec![put(KIND, "0", "last", &["Patient/b"])], at(99)).await.unwrap();
    }
    let (actual, wanted) =
        (content(&engine.store, Seq::LATEST).await.1, content(&expected, Seq::LATEST).await.1);
    let ids = |pages: Vec<Vec<Version>>| -> Vec<Vec<String>> {
        pages.into_iter().map(|page| page.into_iter().map(|version| version.key.id).collect()).collect()
    };
    assert_eq!(ids(actual), ids(wanted), "{}", engine.name);
}

fn step() -> impl Strategy<Value = Step> {
    (0..3usize, prop_oneof![4 => (0..8u8, 0..8u8).prop_map(Some), 1 => Just(None)])
}

fn check_each(engines: Vec<StoreEngine>, first: (u8, u8), steps: Vec<Step>) {
    // The first write is no deletion, so that there is something to reassign.
    let steps: Vec<Step> = std::iter::once((0, Some(first))).chain(steps).collect();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for mut engine in engines {
            check(&mut engine, &steps).await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn a_reassigned_store_equals_one_that_had_these_compartments_before(
        steps in proptest::collection::vec(step(), 1..9), first in (0..8u8, 0..8u8),
    ) {
        check_each(vec![StoreEngine::memory(), StoreEngine::file()], first, steps);
    }
}

proptest! {
    // Each case creates a database.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    #[test]
    fn a_reassigned_database_equals_one_that_had_these_compartments_before(
        steps in proptest::collection::vec(step(), 5..15), first in (0..8u8, 0..8u8),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let engine = runtime.block_on(StoreEngine::postgres());
        check_each(engine.into_iter().collect(), first, steps);
    }
}
