//! Property test: any sequence of requests and restarts has the same results on an engine as on a model, a
//! plain list of all writes.
//!
//! | module | contents |
//! |---|---|
//! | `steps` | the steps, and their generators |
//! | `plain` | the model |
//! | `comparison` | everything that an engine can be asked, compared with the model |
//! | here | the execution of the steps, and the laws |

mod comparison;
mod plain;
mod steps;

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use trefoil_store::{
    Erasure, Expect, Ledger, LedgerWrite, PageLimit, ReplayPart, ReplayedVersion, ResourceKey, Seq, Store,
    VersionWrite, Versions, WriteEffect,
};

use self::comparison::{check, check_histories};
use self::plain::{Model, last_byte, membership, term};
use self::steps::{LedgerStep, MoveTarget, Step, step};
use crate::{StoreEngine, at, draft};

const KINDS: [&str; 2] = ["Observation", "Patient"];
const IDS: [&str; 3] = ["a", "a-1", "b"];
const COMPARTMENTS: [&str; 2] = ["Patient/a", "Patient/a-1"];

async fn run(mut engine: StoreEngine, steps: Vec<Step>) {
    let mut model = Model::default();
    for step in steps {
        let store = engine.store.clone();
        match step {
            Step::Tick(ms) => model.clock += ms,
            Step::Reopen => {
                drop(store);
                engine.reopen().await;
            }
            Step::Move(target) => {
                let target = match target {
                    MoveTarget::Memory => Some(StoreEngine::memory()),
                    MoveTarget::File => Some(StoreEngine::file()),
                    MoveTarget::Postgres => StoreEngine::postgres().await,
                };
                if let Some(target) = target {
                    assert!(target.store.is_empty().await.unwrap());
                    copy(&store, &target.store).await;
                    engine = target;
                    // A type without a version is not in the log.
                    model.first.clear();
                    for version in &model.log {
                        model.first.entry(version.key.kind.clone()).or_insert(version.seq);
                    }
                }
            }
            Step::Snapshot => {
                let snapshot = store.snapshot(at(model.clock)).await.unwrap();
                assert_eq!(snapshot.seq, Seq(model.last));
                assert!(snapshot.time >= at(model.clock));
                assert!(model.log.iter().all(|version| version.updated <= snapshot.time));
                model.snapshots.push(snapshot);
            }
            Step::Commit(writes) => {
                let from = model.log.len();
                let expected = model.commit(&writes);
                let writes = writes.into_iter().map(|write| VersionWrite {
                    key: ResourceKey::new(KINDS[write.kind], IDS[write.id]),
                    expect: write.expect,
                    body: write.text.map(|text| draft(&text.to_string())),
                    compartments: membership(write.member_of),
                    unless_same: write.unless_same,
                    terms: write.text.iter().map(|text| term(KINDS[write.kind], &text.to_string())).collect(),
                    unless_indexed: None,
                    is_check: write.is_check,
                    source_time: write.source.map(at),
                    unless_outdated: write.unless_outdated,
                });
                let result = store.commit(writes.collect(), at(model.clock)).await;
                assert_eq!(result.is_ok(), expected.is_some(), "{result:?}");
                if let (Ok(commit), Some(effects)) = (result, expected) {
                    let write_effects: Vec<_> = commit.written.iter().map(|item| item.effect).collect();
                    assert_eq!(write_effects, effects);
                    let is_new = |effect| !matches!(effect, WriteEffect::Nothing | WriteEffect::Outdated);
                    let new = commit.written.iter().find(|item| is_new(item.effect));
                    if let Some(new) = new {
                        assert!(model.snapshots.iter().all(|snapshot| snapshot.time < new.updated));
                        assert!(model.log[..from].iter().all(|version| version.updated <= new.updated));
                        model.settle(from, new.updated);
                    }
                }
            }
            Step::Ledger(steps) => ledger(&mut model, &engine, steps).await,
            Step::Erase(resources) => erase(&mut model, &store, resources).await,
            Step::Compact => drop(store.compact().await.unwrap()),
            Step::Sweep => {
                let expired =
                    model.ledger.iter().filter(|record| record.3.is_some_and(|at| at <= model.clock));
                let count = expired.count();
                assert_eq!(store.sweep(at(model.clock), 100).await.unwrap(), count);
                let clock = model.clock;
                model.ledger.retain(|record| record.3.is_none_or(|at| at > clock));
            }
        }
    }
    check(&model, &engine).await;
    engine.reopen().await;
    check(&model, &engine).await;
}

async fn erase(model: &mut Model, store: &Store, resources: Vec<(usize, usize)>) {
    let keys: BTreeSet<_> =
        resources.into_iter().map(|(kind, id)| ResourceKey::new(KINDS[kind], IDS[id])).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let erasures = keys.iter().map(|key| {
        let versions = || model.log.iter().filter(|version| version.key == *key);
        let texts = versions().filter_map(|version| version.body.as_ref().map(last_byte));
        let terms = texts.map(|text| term(&key.kind, std::str::from_utf8(&text).unwrap())).collect();
        let newest = versions().next_back().map_or(1, |version| version.version);
        Erasure { key: key.clone(), newest, terms }
    });
    let erasures: Vec<_> = erasures.collect();
    check_histories(model, store, &keys).await;
    let mut unseen = erasures.clone();
    unseen[0].newest += 1;
    assert!(store.erase(unseen).await.is_err());
    let result = store.erase(erasures).await;
    assert_eq!(result.is_ok(), model.erase(&keys), "{result:?}");
    if let Ok(seq) = result {
        assert_eq!(seq, Seq(model.last));
    }
}

async fn ledger(model: &mut Model, engine: &StoreEngine, steps: Vec<LedgerStep>) {
    let before = model.ledger.clone();
    let mut holds = true;
    let mut writes = Vec::new();
    for LedgerStep { key, value, expires_in, expect } in steps {
        let key = format!("k{key}");
        // The revision before the batch is used, so that a condition can refer to a revision that the batch
        // itself changes.
        let revision = before.iter().find(|record| record.0 == key).map_or(0, |record| record.2);
        let expect = match expect {
            None => Expect::Any,
            Some(None) => Expect::Absent,
            Some(Some(right)) => Expect::Revision(revision + u64::from(!right) * 1_000),
        };
        let live = model.live(&key).map(|record| record.2);
        holds &= match expect {
            Expect::Any => true,
            Expect::Absent => live.is_none(),
            Expect::Revision(wanted) => live == Some(wanted),
        };
        model.ledger.retain(|record| record.0 != key);
        let expires = expires_in.map(|ms| model.clock + ms);
        match value {
            Some(value) => {
                let value = Bytes::from(vec![value]);
                model.ledger.push((key.clone(), value.clone(), u64::MAX, expires));
                writes.push(LedgerWrite::Put { key, value, expires: expires.map(at), expect });
            }
            None => writes.push(LedgerWrite::Delete { key, expect }),
        }
    }
    let result = engine.store.write(writes.clone(), at(model.clock)).await;
    assert_eq!(result.is_ok(), holds, "{result:?}");
    let Ok(revisions) = result else {
        model.ledger = before;
        return;
    };
    for (write, revision) in writes.iter().zip(revisions) {
        assert_eq!(revision == 0, matches!(write, LedgerWrite::Delete { .. }));
        assert!(revision == 0 || before.iter().all(|record| record.2 < revision));
        if let Some(record) = model.ledger.iter_mut().find(|record| record.0 == write.key()) {
            record.2 = revision;
        }
    }
}

/// Copies the content of a store to an empty one, two versions at a time.
async fn copy(from: &Store, to: &Store) {
    let mut moment = from.moment().await.unwrap();
    let reached = moment.at();
    loop {
        let records = moment.next_page().await.unwrap();
        if records.is_empty() {
            break;
        }
        to.replay(ReplayPart { records, ..ReplayPart::default() }).await.unwrap();
    }
    let mut last = Seq::ZERO;
    loop {
        let page = from.read_log(last, reached.seq, PageLimit { count: 2, bytes: 1 << 20 }).await.unwrap();
        let Some(end) = page.last() else { break };
        last = end.seq;
        let replayed = page.into_iter().map(|version| {
            let text = version.body.as_ref().map(last_byte);
            let kind = &version.key.kind;
            let terms = text.iter().map(|text| term(kind, std::str::from_utf8(text).unwrap())).collect();
            let home = version.compartments.first().cloned();
            ReplayedVersion { version, home, terms }
        });
        to.replay(ReplayPart { versions: replayed.collect(), ..ReplayPart::default() }).await.unwrap();
    }
    to.replay(ReplayPart { reached: Some(reached), ..ReplayPart::default() }).await.unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn the_memory_engine_behaves_as_the_model(steps in proptest::collection::vec(step(), 1..30)) {
        runtime().block_on(run(StoreEngine::memory(), steps));
    }

    #[test]
    fn the_shared_memory_behaves_as_the_model(steps in proptest::collection::vec(step(), 1..30)) {
        runtime().block_on(async { run(StoreEngine::shared_memory(), steps).await });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn the_file_engine_behaves_as_the_model(steps in proptest::collection::vec(step(), 1..30)) {
        runtime().block_on(run(StoreEngine::file(), steps));
    }

    #[test]
    fn the_postgres_engine_behaves_as_the_model(steps in proptest::collection::vec(step(), 1..30)) {
        runtime().block_on(async {
            if let Some(engine) = StoreEngine::postgres().await {
                run(engine, steps).await;
            }
        });
    }
}
