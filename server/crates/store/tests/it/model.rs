//! Property test: any sequence of requests and restarts has the same results on an engine as on a model, a
//! plain list of all writes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use proptest::prelude::*;
use trefoil_store::{
    ChangesBefore, Erasure, Expect, ExpectVersion, IndexEntry, IndexLookup, IndexRange, IndexTerm, KeyOrder,
    Ledger, LedgerWrite, LinePage, LineScanRange, PageLimit, ReplayPart, ReplayedVersion, ResourceKey,
    ScanOptions, ScanPosition, Seq, Store, StoreSnapshot, UpdatedRange, Version, VersionWrite, Versions,
    WriteEffect,
};

use crate::{StoreEngine, at, draft, pages_of_lines, ready};

const KINDS: [&str; 2] = ["Observation", "Patient"];
const IDS: [&str; 3] = ["a", "a-1", "b"];
const COMPARTMENTS: [&str; 2] = ["Patient/a", "Patient/a-1"];

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Write>),
    Snapshot,
    Ledger(Vec<LedgerStep>),
    Sweep,
    /// Moves the clock, possibly back.
    Tick(i64),
    Reopen,
    /// Copies the content to another engine, which takes over.
    Move(MoveTarget),
    /// Erases resources, some of which may not exist.
    Erase(Vec<(usize, usize)>),
    Compact,
}

#[derive(Debug, Clone, Copy)]
enum MoveTarget {
    Memory,
    File,
    Postgres,
}

#[derive(Debug, Clone)]
struct Write {
    kind: usize,
    id: usize,
    text: Option<u8>,
    member_of: u8,
    expect: ExpectVersion,
    unless_same: bool,
    is_check: bool,
    source: Option<i64>,
    unless_outdated: bool,
}

#[derive(Debug, Clone)]
struct LedgerStep {
    key: usize,
    value: Option<u8>,
    expires_in: Option<i64>,
    /// Condition: absent, any, the current revision (`true`), or another revision.
    expect: Option<Option<bool>>,
}

fn write() -> impl Strategy<Value = Write> {
    let expect = prop_oneof![
        6 => Just(ExpectVersion::Any),
        1 => Just(ExpectVersion::Absent),
        2 => (1u64..4).prop_map(ExpectVersion::Version),
    ];
    let text = proptest::option::weighted(0.75, 0..2u8);
    let flags = (any::<bool>(), proptest::bool::weighted(0.1), any::<bool>());
    let source = proptest::option::of(-1..3i64);
    (0..KINDS.len(), 0..IDS.len(), text, 0..4u8, expect, source, flags).prop_map(
        |(kind, id, text, member_of, expect, source, (unless_same, is_check, unless_outdated))| Write {
            kind,
            id,
            text,
            member_of,
            expect,
            unless_same,
            is_check,
            source,
            unless_outdated,
        },
    )
}

fn ledger_step() -> impl Strategy<Value = LedgerStep> {
    let expect =
        prop_oneof![3 => Just(None), 1 => Just(Some(None)), 2 => any::<bool>().prop_map(|is| Some(Some(is)))];
    (0..3usize, proptest::option::weighted(0.8, 0..9u8), proptest::option::of(-2..6i64), expect)
        .prop_map(|(key, value, expires_in, expect)| LedgerStep { key, value, expires_in, expect })
}

fn move_target() -> impl Strategy<Value = MoveTarget> {
    prop_oneof![
        6 => Just(MoveTarget::Memory),
        1 => Just(MoveTarget::File),
        1 => Just(MoveTarget::Postgres),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(write(), 1..4).prop_map(Step::Commit),
        2 => Just(Step::Snapshot),
        4 => proptest::collection::vec(ledger_step(), 1..4).prop_map(Step::Ledger),
        1 => Just(Step::Sweep),
        2 => (-3..6i64).prop_map(Step::Tick),
        1 => Just(Step::Reopen),
        1 => move_target().prop_map(Step::Move),
        1 => proptest::collection::vec((0..KINDS.len(), 0..IDS.len()), 1..3).prop_map(Step::Erase),
        1 => Just(Step::Compact),
    ]
}

/// The model: all versions that were written and not erased, in order, and the current ledger.
#[derive(Default)]
struct Model {
    log: Vec<Version>,
    /// The last sequence number.
    last: u64,
    /// Sequence number of the first version of each type, which an erasure does not change.
    first: BTreeMap<String, Seq>,
    snapshots: Vec<StoreSnapshot>,
    ledger: Vec<(String, Bytes, u64, Option<i64>)>,
    clock: i64,
}

impl Model {
    fn at(&self, key: &ResourceKey, seq: Seq) -> Option<&Version> {
        self.log.iter().rev().find(|version| version.key == *key && version.seq <= seq)
    }

    /// Applies a commit if its conditions hold. Returns the effects. `lastUpdated` is not known yet.
    fn commit(&mut self, writes: &[Write]) -> Option<Vec<WriteEffect>> {
        let (before, last, first) = (self.log.clone(), self.last, self.first.clone());
        let mut effects = Vec::new();
        for write in writes {
            let key = ResourceKey::new(KINDS[write.kind], IDS[write.id]);
            let newest = self.at(&key, Seq::LATEST).cloned();
            let live = newest.as_ref().filter(|version| !version.is_deleted());
            let holds = match write.expect {
                ExpectVersion::Any => true,
                ExpectVersion::Absent => live.is_none(),
                ExpectVersion::Version(number) => live.is_some_and(|version| version.version == number),
            };
            if !holds {
                self.log = before;
                (self.last, self.first) = (last, first);
                return None;
            }
            // Until the time is known, the model stores only the text as the body.
            let text = write.text.map(|text| Bytes::from(vec![b'0' + text]));
            let compartments = match (&text, &newest) {
                (None, Some(newest)) => newest.compartments.clone(),
                _ => membership(write.member_of),
            };
            let same = live.is_some_and(|version| {
                version.compartments == compartments && version.body.as_ref().map(last_byte) == text
            });
            let source_time = write.source.map(at);
            let known = newest.as_ref().and_then(|version| version.source_time);
            let is_outdated = source_time.zip(known).is_some_and(|(own, known)| own < known);
            effects.push(match (&text, live) {
                _ if write.unless_outdated && is_outdated => WriteEffect::Outdated,
                _ if write.is_check => WriteEffect::Nothing,
                (None, None) => WriteEffect::Nothing,
                (Some(_), Some(_)) if write.unless_same && same => WriteEffect::Nothing,
                (None, Some(_)) => WriteEffect::Deleted,
                (Some(_), None) => WriteEffect::Created,
                (Some(_), Some(_)) => WriteEffect::Replaced,
            });
            if effects.last() == Some(&WriteEffect::Nothing) && !write.is_check && source_time > known {
                let newest = self.log.iter_mut().rev().find(|version| version.key == key);
                newest.into_iter().for_each(|version| version.source_time = source_time);
            }
            if !matches!(effects.last(), Some(WriteEffect::Nothing | WriteEffect::Outdated)) {
                self.last += 1;
                self.first.entry(key.kind.clone()).or_insert(Seq(self.last));
                self.log.push(Version {
                    version: newest.map_or(1, |version| version.version + 1),
                    key,
                    seq: Seq(self.last),
                    updated: Timestamp::UNIX_EPOCH,
                    compartments,
                    source_time,
                    body: text,
                });
            }
        }
        Some(effects)
    }

    /// Sets the time that the store has chosen for the last commit. Later reads must return this time.
    fn settle(&mut self, from: usize, updated: Timestamp) {
        for version in &mut self.log[from..] {
            version.updated = updated;
            version.body = version.body.take().map(|text| {
                let text = std::str::from_utf8(&text).unwrap();
                Bytes::from(ready(version.version, updated, text))
            });
        }
    }

    /// Erases resources if all of them exist, and returns whether they do.
    fn erase(&mut self, keys: &[ResourceKey]) -> bool {
        let exist = keys.iter().all(|key| self.at(key, Seq::LATEST).is_some());
        if exist {
            self.last += 1;
            self.log.retain(|version| !keys.contains(&version.key));
        }
        exist
    }

    fn live(&self, key: &str) -> Option<&(String, Bytes, u64, Option<i64>)> {
        self.ledger
            .iter()
            .find(|record| record.0 == key && record.3.is_none_or(|expires| self.clock < expires))
    }
}

fn last_byte(body: &Bytes) -> Bytes {
    body.slice(body.len() - 1..)
}

/// Returns the term under which the model expects a text. It determines the type, as the contract demands.
fn term(kind: &str, text: &str) -> IndexTerm {
    [b"t", &kind.as_bytes()[..1], text.as_bytes()].concat().into()
}

fn membership(bits: u8) -> Vec<String> {
    (0..2).filter(|bit| bits & (1 << bit) != 0).map(|bit| COMPARTMENTS[bit].to_owned()).collect()
}

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
                let answer = store.commit(writes.collect(), at(model.clock)).await;
                assert_eq!(answer.is_ok(), expected.is_some(), "{answer:?}");
                if let (Ok(commit), Some(effects)) = (answer, expected) {
                    let told: Vec<_> = commit.written.iter().map(|written| written.effect).collect();
                    assert_eq!(told, effects);
                    let is_new = |effect| !matches!(effect, WriteEffect::Nothing | WriteEffect::Outdated);
                    let new = commit.written.iter().find(|written| is_new(written.effect));
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
    for count in [1, 3, 100] {
        let page = store.histories(&keys, PageLimit { count, bytes: 1 << 20 }).await.unwrap();
        let read: Vec<_> = page.versions.iter().map(|version| (&version.key, version.version)).collect();
        let all =
            keys.iter().flat_map(|key| model.log.iter().rev().filter(move |version| version.key == *key));
        let all: Vec<_> = all.map(|version| (&version.key, version.version)).collect();
        assert_eq!(read, all[..count.min(all.len())]);
        assert!(!page.is_complete || read == all);
        assert!(page.is_complete || read.len() == count);
    }
    let mut unseen = erasures.clone();
    unseen[0].newest += 1;
    assert!(store.erase(unseen).await.is_err());
    let answer = store.erase(erasures).await;
    assert_eq!(answer.is_ok(), model.erase(&keys), "{answer:?}");
    if let Ok(seq) = answer {
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
        let known = before.iter().find(|record| record.0 == key).map_or(0, |record| record.2);
        let expect = match expect {
            None => Expect::Any,
            Some(None) => Expect::Absent,
            Some(Some(right)) => Expect::Revision(known + u64::from(!right) * 1_000),
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
    let answer = engine.store.write(writes.clone(), at(model.clock)).await;
    assert_eq!(answer.is_ok(), holds, "{answer:?}");
    let Ok(revisions) = answer else {
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

/// Compares all results of the engine with the model, at every snapshot and at the latest sequence number.
async fn check(model: &Model, engine: &StoreEngine) {
    let store = &engine.store;
    let last = Seq(model.last);
    assert_eq!(store.last_seq().await.unwrap(), last);
    for seq in model.snapshots.iter().map(|snapshot| snapshot.seq).chain([last, Seq::LATEST]) {
        let kinds =
            KINDS.into_iter().filter(|&kind| model.first.get(kind).is_some_and(|first| *first <= seq));
        assert_eq!(store.kinds(seq).await.unwrap(), kinds.collect::<Vec<_>>());
        for kind in KINDS {
            let mut all = Vec::new();
            for id in IDS {
                let key = ResourceKey::new(kind, id);
                let expected = model.at(&key, seq);
                assert_eq!(store.read(&key, seq).await.unwrap().as_ref(), expected);
                all.extend(expected.cloned());
            }
            for deleted in [false, true] {
                let wanted = |version: &&Version| deleted || !version.is_deleted();
                let expected: Vec<_> = all.iter().filter(wanted).cloned().collect();
                assert_eq!(scan_all(engine, None, kind, seq, deleted).await, expected);
                if !deleted {
                    assert_eq!(store.count(kind, seq).await.unwrap(), expected.len() as u64);
                }
                for compartment in COMPARTMENTS {
                    let inside =
                        |version: &Version| version.compartments.iter().any(|one| one == compartment);
                    let expected: Vec<_> = expected.iter().filter(|one| inside(one)).cloned().collect();
                    assert_eq!(scan_all(engine, Some(compartment), kind, seq, deleted).await, expected);
                }
            }
        }
    }
    for compartment in COMPARTMENTS {
        let inside = |version: &&Version| version.compartments.iter().any(|one| one == compartment);
        let keys: BTreeSet<_> = model.log.iter().filter(inside).map(|version| version.key.clone()).collect();
        let found = store.compartment_resources(compartment).await.unwrap();
        assert_eq!(found, keys.into_iter().collect::<Vec<_>>());
    }
    for kind in KINDS {
        for id in IDS {
            let key = ResourceKey::new(kind, id);
            let expected: Vec<_> =
                model.log.iter().rev().filter(|version| version.key == key).cloned().collect();
            assert_eq!(store.history(&key, Seq::LATEST, PageLimit::default()).await.unwrap(), expected);
        }
    }
    let changes = store.changes(Seq::ZERO, usize::MAX).await.unwrap();
    let of_first: Vec<_> = changes.iter().filter(|change| change.key.kind == KINDS[0]).cloned().collect();
    assert_eq!(store.changes_of(&KINDS[..1], Seq::ZERO, usize::MAX).await.unwrap(), of_first);
    let ranges = [(1, usize::MAX), (2, 3), (usize::MAX, usize::MAX)];
    for (kind, all) in [(Some(KINDS[0]), &of_first), (None, &changes)] {
        for (count, examined) in ranges {
            let after = Seq(model.last / 3);
            let mut range = ChangesBefore { before: Seq::LATEST, after, count, examined };
            let mut found = Vec::new();
            loop {
                let page = store.changes_before(kind, range).await.unwrap();
                assert!(page.changes.len() <= count);
                found.extend(page.changes);
                let Some(next) = page.next else { break };
                assert!(next < range.before);
                range.before = next;
            }
            let expected: Vec<_> = all.iter().rev().filter(|change| change.seq > after).cloned().collect();
            assert_eq!(found, expected);
        }
    }
    let changes: Vec<_> =
        changes.into_iter().map(|change| (change.seq, change.key, change.version, change.deleted)).collect();
    let expected: Vec<_> = model
        .log
        .iter()
        .map(|version| (version.seq, version.key.clone(), version.version, version.is_deleted()))
        .collect();
    assert_eq!(changes, expected);

    // The index contains each text that a resource ever had. Pages of one entry return the same as one page.
    let terms = model.log.iter().filter_map(|version| {
        let text = version.body.as_ref().map(last_byte)?;
        let term = term(&version.key.kind, std::str::from_utf8(&text).unwrap());
        Some(IndexEntry { term, id: version.key.id.clone() })
    });
    let expected: BTreeSet<IndexEntry> = terms.collect();
    let all = IndexRange::Between(b"t".as_slice().into(), b"u".as_slice().into());
    let mut expected: Vec<IndexEntry> = expected.into_iter().collect();
    for order in [KeyOrder::Ascending, KeyOrder::Descending] {
        let look = async |range: &IndexRange, after: Option<IndexEntry>, limit: usize| {
            let lookup = IndexLookup::first(range.clone(), limit).ordered(order).after(after);
            store.index_entries(vec![lookup]).await.unwrap().remove(0)
        };
        assert_eq!(look(&all, None, usize::MAX).await, expected);
        let mut after = None;
        for entry in &expected {
            let page = look(&all, after.take(), 1).await;
            assert_eq!(page.first(), Some(entry));
            after = page.into_iter().next();
            let with_term = IndexRange::Term(entry.term.clone());
            let mut same = look(&with_term, None, usize::MAX).await;
            assert!(same.iter().all(|found| found.term == entry.term) && same.contains(entry));
            let rest = look(&with_term, same.first().cloned(), usize::MAX).await;
            assert_eq!(rest, same.split_off(1));
        }
        expected.reverse();
    }
    for kind in KINDS {
        let stored: BTreeSet<String> = model
            .log
            .iter()
            .filter(|version| version.key.kind == kind)
            .map(|version| version.key.id.clone())
            .collect();
        let mut stored: Vec<String> = stored.into_iter().collect();
        for order in [KeyOrder::Ascending, KeyOrder::Descending] {
            assert_eq!(store.ids(kind, order, None, usize::MAX).await.unwrap(), stored);
            for (index, id) in stored.iter().enumerate() {
                let next = store.ids(kind, order, Some(id), 1).await.unwrap();
                assert_eq!(next.first(), stored.get(index + 1));
            }
            stored.reverse();
        }
    }
    for kind in KINDS {
        let ids = || IDS.map(str::to_owned).to_vec();
        for seq in [Seq::ZERO, Seq(last.0 / 2), Seq::LATEST] {
            let expected = IDS.map(|id| model.at(&ResourceKey::new(kind, id), seq).cloned());
            assert_eq!(store.read_many(kind, ids(), seq, usize::MAX).await.unwrap(), expected);
            let first = store.read_many(kind, ids(), seq, 1).await.unwrap();
            let bodies =
                expected.iter().take_while(|version| version.as_ref().is_none_or(Version::is_deleted));
            assert_eq!(first, expected[..(bodies.count() + 1).min(IDS.len())]);
        }
    }
    for time in model.log.iter().map(|version| version.updated).chain([Timestamp::MIN, Timestamp::MAX]) {
        let before = model.log.iter().rev().find(|version| version.updated <= time);
        assert_eq!(store.seq_at(time).await.unwrap(), before.map_or(Seq::ZERO, |version| version.seq));
    }

    let found = store.scan("k", None, 100, at(model.clock)).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|(key, record)| (key, record.value, record.revision)).collect();
    let mut expected: Vec<_> = model
        .ledger
        .iter()
        .filter(|record| model.live(&record.0).is_some())
        .map(|record| (record.0.clone(), record.1.clone(), record.2))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}

/// Returns the result of a whole scan with two versions per page, sorted, because engines have different
/// orders.
async fn scan_all(
    engine: &StoreEngine,
    compartment: Option<&str>,
    kind: &str,
    at: Seq,
    deleted: bool,
) -> Vec<Version> {
    let mut found = Vec::new();
    let mut after = None::<String>;
    loop {
        let limit = PageLimit { count: 2, bytes: 1 << 20 };
        let scan = ScanOptions { after: after.as_deref(), at, limit, deleted };
        let page = match compartment {
            Some(compartment) => engine.store.scan_compartment(compartment, kind, scan).await.unwrap(),
            None => engine.store.scan_kind(kind, scan).await.unwrap(),
        };
        found.extend(page.versions);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if !deleted {
        let text = |version: &Version| [version.body.as_deref().unwrap_or_default(), b"\n"].concat();
        assert_eq!(
            lines(engine, compartment, kind, at).await,
            found.iter().flat_map(text).collect::<Vec<_>>()
        );
    }
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

/// Returns the same scan as text. A type is also read in two halves, of which the second starts at an
/// extrapolated position.
async fn lines(engine: &StoreEngine, compartment: Option<&str>, kind: &str, at: Seq) -> Vec<u8> {
    let Some(compartment) = compartment else {
        let (whole, marks) = span(engine, kind, at, (None, None)).await;
        if let [first, .., last] = &marks[..] {
            let extrapolate = last.extrapolate(first);
            assert!(first < last && *last < extrapolate);
            for mark in [last.clone(), extrapolate] {
                let (mut halves, _) = span(engine, kind, at, (None, Some(mark.clone()))).await;
                halves.extend(span(engine, kind, at, (Some(mark), None)).await.0);
                assert_eq!(halves, whole);
            }
        }
        return whole;
    };
    let of = || LineScanRange::Compartments(vec![compartment.to_owned()]);
    pages(engine, kind, at, of).await.into_iter().flat_map(|page| page.text).collect()
}

/// Returns the lines of a type between two positions, and the positions after its pages.
async fn span(
    engine: &StoreEngine,
    kind: &str,
    at: Seq,
    (from, until): (Option<ScanPosition>, Option<ScanPosition>),
) -> (Vec<u8>, Vec<ScanPosition>) {
    // Only the first scan starts at the position; the others continue after an id.
    let mut from = Some(from);
    let of = || LineScanRange::Kind { from: from.take().flatten(), until: until.clone() };
    let pages = pages(engine, kind, at, of).await;
    let marks = pages.iter().filter_map(|page| page.mark.clone()).collect();
    (pages.into_iter().flat_map(|page| page.text).collect(), marks)
}

/// Returns all pages of a scan, which is restarted after every third page.
async fn pages(
    engine: &StoreEngine,
    kind: &str,
    at: Seq,
    mut of: impl FnMut() -> LineScanRange,
) -> Vec<LinePage> {
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let scan = ScanOptions::at(at).limit(PageLimit { count: 3, bytes: 1 << 20 }).after(after.as_deref());
        for page in pages_of_lines(&engine.store, kind, of(), scan, UpdatedRange::default(), |_| true).await {
            assert_eq!(page.ends.last().copied().unwrap_or_default(), page.text.len());
            after.clone_from(&page.next);
            let is_last = page.done;
            found.push(page);
            if is_last {
                return found;
            }
        }
    }
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
