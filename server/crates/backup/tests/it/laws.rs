//! A restored or copied store equals the store at its moment, whatever the two engines are.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use proptest::prelude::*;
use store::{IndexEntry, IndexLookup, IndexRange, Seq, Version, Versions as _};
use tempfile::TempDir;
use trefoil_backup::{BackupLocation, CopiedStore, RestoreSelection, copy_store};

use crate::{
    BASE, Content, Engine, EngineKind, at, back_up, content, key, log, put, restore, selection, write,
};

#[derive(Debug, Clone)]
enum Step {
    Write(usize, Option<u8>),
    Record(u8, u8),
    BackUp { full: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4usize, proptest::option::weighted(0.8, 0..4u8)).prop_map(|(index, text)| Step::Write(index, text)),
        3 => (0..4u8, 0..9u8).prop_map(|(key, value)| Step::Record(key, value)),
        1 => any::<bool>().prop_map(|full| Step::BackUp { full }),
    ]
}

fn engine() -> impl Strategy<Value = EngineKind> {
    prop_oneof![8 => Just(EngineKind::Memory), 2 => Just(EngineKind::File), 1 => Just(EngineKind::Postgres)]
}

async fn every_backup_is_its_moment(kinds: [EngineKind; 2], is_encrypted: bool, steps: Vec<Step>) {
    let Some(source) = Engine::open(kinds[0]).await else { return };
    let folder = TempDir::new().unwrap();
    let location = BackupLocation::folder(folder.path(), true).unwrap();
    let location = location.with_key(is_encrypted.then(|| key(1)));
    let mut backups = Vec::new();
    let mut clock = 0;
    for step in steps.into_iter().chain([Step::BackUp { full: false }]) {
        clock += 1;
        match step {
            Step::Write(index, text) => {
                let text = text.map(|text| "x".repeat(usize::from(text) + 1));
                write(&source.store, index, text.as_deref(), at(clock)).await;
            }
            Step::Record(key, value) => {
                put(&source.store, &format!("k{key}"), &value.to_string(), at(clock)).await
            }
            Step::BackUp { full } => {
                let manifest = back_up(&source.store, &location, full, at(clock)).await;
                assert_eq!(manifest.follows.is_none(), full || backups.is_empty());
                backups.push((manifest, content(&source.store).await));
            }
        }
    }
    let all = log(&source.store, Seq::LATEST).await;
    for (index, (manifest, expected)) in backups.iter().enumerate() {
        let Some(target) = Engine::open(kinds[1]).await else { return };
        let selected = selection(Some(manifest.id.clone()), None);
        restore(&location, selected, &target.store).await.unwrap();
        assert_eq!(content(&target.store).await, *expected);
        assert_eq!(target.store.last_seq().await.unwrap(), Seq(manifest.seq));
        check_index(&target, expected).await;

        // A moment between two backups: resources of the moment, and the ledger of the backup before.
        let Some((next, _)) =
            backups.get(index + 1).filter(|(next, _)| next.follows.as_ref() == Some(&manifest.id))
        else {
            continue;
        };
        let between = manifest.time + next.time.duration_since(manifest.time) / 2;
        let Some(target) = Engine::open(kinds[1]).await else { return };
        restore(&location, selection(None, Some(between)), &target.store).await.unwrap();
        let restored = content(&target.store).await;
        let until: Vec<_> = all.iter().filter(|version| version.updated <= between).cloned().collect();
        assert_eq!(restored, Content { log: until, ledger: expected.ledger.clone() });
    }
    let Some(target) = Engine::open(kinds[1]).await else { return };
    let before = content(&source.store).await;
    copy_store(
        CopiedStore { store: &source.store, name: "source", fhir_base: BASE, left_out: &[] },
        (&target.store, "target"),
        true,
        async || Ok(()),
        async || Ok(()),
        at(clock),
        &mut |_| {},
    )
    .await
    .unwrap();
    assert_eq!(content(&target.store).await, before);
    assert_eq!(content(&source.store).await, before);
    // The copy continues where the source ended.
    let revision = before.ledger.iter().map(|entry| entry.revision).max().unwrap_or_default();
    put(&target.store, "later", "x", at(0)).await;
    write(&target.store, 0, Some("later"), at(0)).await;
    let after = content(&target.store).await;
    let later = after.ledger.iter().find(|entry| entry.key == "later").unwrap();
    assert!(later.revision > revision);
    let last = after.log.last().unwrap();
    assert!(before.log.iter().all(|version| version.seq < last.seq && version.updated <= last.updated));
}

/// The search index has the terms of all versions, and no others.
async fn check_index(target: &Engine, expected: &Content) {
    let (first, end) = ([1].as_slice(), [255; 16].as_slice());
    let lookup = IndexLookup::first(IndexRange::Between(first.into(), end.into()), usize::MAX);
    let entries = target.store.index_entries(vec![lookup]).await.unwrap().remove(0);
    let entries: BTreeSet<_> = entries.into_iter().collect();
    let mut terms = BTreeSet::new();
    for version in expected.log.iter().filter(|version| !version.is_deleted()) {
        let prepared = resources::stored::replayed(version.clone()).unwrap();
        let id = &version.key.id;
        terms.extend(prepared.terms.into_iter().map(|term| IndexEntry { term, id: id.clone() }));
    }
    assert!(terms.is_empty() == expected.log.iter().all(Version::is_deleted), "each resource has a term");
    assert_eq!(entries, terms);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn a_restored_store_equals_the_store_at_its_moment(
        source in engine(), target in engine(), is_encrypted: bool, steps in proptest::collection::vec(step(), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(every_backup_is_its_moment([source, target], is_encrypted, steps));
    }
}

/// The number of cases of the law of erasures.
fn cases(usual: u32) -> u32 {
    std::env::var("TREFOIL_COPIES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Copies a store in which patients are erased meanwhile, also those whose ids are written again.
async fn a_copy_repeats_erasures(kinds: [EngineKind; 2], before: Vec<Step>, meanwhile: Vec<(Step, bool)>) {
    let (Some(source), Some(target)) = (Engine::open(kinds[0]).await, Engine::open(kinds[1]).await) else {
        return;
    };
    let clock = AtomicI64::new(0);
    let carry_out = async |step: Step| {
        let now = at(clock.fetch_add(1, Ordering::Relaxed));
        match step {
            Step::Write(index, text) => {
                let text = text.map(|text| "x".repeat(usize::from(text) + 1));
                write(&source.store, index, text.as_deref(), now).await;
            }
            Step::Record(key, value) => put(&source.store, &format!("k{key}"), &value.to_string(), now).await,
            Step::BackUp { full } => {
                let patient = format!("Patient/p{}", u8::from(full));
                // A patient who never existed is refused.
                drop(resources::erase::erase(&source.store, &patient, BASE, now, |_| {}).await);
            }
        }
    };
    for step in before {
        carry_out(step).await;
    }
    let (mut meanwhile, is_drained) = (meanwhile.into_iter(), AtomicBool::new(false));
    let mut progress = |_| {
        // Steps that happen together, between two pages of the copy.
        while !is_drained.load(Ordering::Relaxed)
            && let Some((step, continues)) = meanwhile.next()
        {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(carry_out(step)));
            if !continues {
                break;
            }
        }
    };
    let drain = async || {
        is_drained.store(true, Ordering::Relaxed);
        Ok(())
    };
    let from = CopiedStore { store: &source.store, name: "source", fhir_base: BASE, left_out: &[] };
    let finish = async || Ok(());
    copy_store(from, (&target.store, "target"), true, drain, finish, at(0), &mut progress).await.unwrap();
    // A database records the number of its own last erasure.
    let mut contents = [content(&source.store).await, content(&target.store).await];
    contents.iter_mut().for_each(|content| content.ledger.retain(|entry| entry.key != "store/last-erasure"));
    let [source, copied] = contents;
    assert_eq!(copied, source);
    check_index(&target, &copied).await;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(60)) })]

    #[test]
    fn a_copy_of_a_store_in_which_patients_are_erased_equals_it(
        source in engine(), target in engine(), before in proptest::collection::vec(step(), 1..20),
        meanwhile in proptest::collection::vec((step(), any::<bool>()), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(a_copy_repeats_erasures([source, target], before, meanwhile));
    }
}

/// While others write, a backup is still one moment: the ledger has no batch in part, and the log ends where
/// the manifest says.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_under_load_is_one_moment() {
    for kind in [EngineKind::Memory, EngineKind::File, EngineKind::Postgres] {
        let Some(source) = Engine::open(kind).await else { continue };
        let writer = {
            let store = source.store.clone();
            tokio::spawn(async move {
                for round in 0.. {
                    write(&store, round % 7, Some(&round.to_string()), at(round as i64)).await;
                    let value = round.to_string();
                    let both =
                        ["a", "b"].map(|key| store::LedgerWrite::put(key, value.clone(), store::Expect::Any));
                    store::Ledger::write(&store, both.to_vec(), at(round as i64)).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        };
        let folder = TempDir::new().unwrap();
        let location = BackupLocation::folder(folder.path(), true).unwrap();
        for round in 0..3 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let manifest = back_up(&source.store, &location, false, at(round)).await;
            let target = Engine::open(EngineKind::Memory).await.unwrap();
            restore(&location, RestoreSelection::default(), &target.store).await.unwrap();
            let Content { log: restored, ledger } = content(&target.store).await;
            assert_eq!(restored, log(&source.store, Seq(manifest.seq)).await, "{kind:?}");
            let values: Vec<_> = ledger.iter().map(|entry| &entry.value).collect();
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{kind:?}: {ledger:?}");
        }
        writer.abort();
    }
}
