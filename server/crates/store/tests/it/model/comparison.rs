//! Comparison of everything that an engine can be asked with the model.

use std::collections::BTreeSet;

use jiff::Timestamp;
use trefoil_store::{
    ChangesBefore, IndexEntry, IndexLookup, IndexRange, KeyOrder, Ledger as _, LinePage, LineScanRange,
    PageLimit, ResourceKey, ScanOptions, ScanPosition, Seq, Store, UpdatedRange, Version, Versions as _,
};

use super::plain::{Model, last_byte, term};
use super::{COMPARTMENTS, IDS, KINDS};
use crate::{StoreEngine, at, pages_of_lines};

/// Compares all results of the engine with the model, at every snapshot and at the latest sequence number.
pub(super) async fn check(model: &Model, engine: &StoreEngine) {
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
                let is_listed = |version: &&Version| deleted || !version.is_deleted();
                let expected: Vec<_> = all.iter().filter(is_listed).cloned().collect();
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
        let resources = store.compartment_resources(compartment).await.unwrap();
        assert_eq!(resources, keys.into_iter().collect::<Vec<_>>());
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
            let mut ids = Vec::new();
            loop {
                let page = store.changes_before(kind, range).await.unwrap();
                assert!(page.changes.len() <= count);
                ids.extend(page.changes);
                let Some(next) = page.next else { break };
                assert!(next < range.before);
                range.before = next;
            }
            let expected: Vec<_> = all.iter().rev().filter(|change| change.seq > after).cloned().collect();
            assert_eq!(ids, expected);
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
            assert!(same.iter().all(|other| other.term == entry.term) && same.contains(entry));
            let rest = look(&with_term, same.first().cloned(), usize::MAX).await;
            assert_eq!(rest, same.split_off(1));
        }
        expected.reverse();
    }
    for kind in KINDS {
        let ids: BTreeSet<String> = model
            .log
            .iter()
            .filter(|version| version.key.kind == kind)
            .map(|version| version.key.id.clone())
            .collect();
        let mut ids: Vec<String> = ids.into_iter().collect();
        for order in [KeyOrder::Ascending, KeyOrder::Descending] {
            assert_eq!(store.ids(kind, order, None, usize::MAX).await.unwrap(), ids);
            for (index, id) in ids.iter().enumerate() {
                let next = store.ids(kind, order, Some(id), 1).await.unwrap();
                assert_eq!(next.first(), ids.get(index + 1));
            }
            ids.reverse();
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

    let records = store.scan("k", None, 100, at(model.clock)).await.unwrap();
    let records: Vec<_> =
        records.into_iter().map(|(key, record)| (key, record.value, record.revision)).collect();
    let mut expected: Vec<_> = model
        .ledger
        .iter()
        .filter(|record| model.live(&record.0).is_some())
        .map(|record| (record.0.clone(), record.1.clone(), record.2))
        .collect();
    expected.sort();
    assert_eq!(records, expected);
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
    let mut entries = Vec::new();
    let mut after = None::<String>;
    loop {
        let limit = PageLimit { count: 2, bytes: 1 << 20 };
        let scan = ScanOptions { after: after.as_deref(), at, limit, deleted };
        let page = match compartment {
            Some(compartment) => engine.store.scan_compartment(compartment, kind, scan).await.unwrap(),
            None => engine.store.scan_kind(kind, scan).await.unwrap(),
        };
        entries.extend(page.versions);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if !deleted {
        let text = |version: &Version| [version.body.as_deref().unwrap_or_default(), b"\n"].concat();
        assert_eq!(
            lines(engine, compartment, kind, at).await,
            entries.iter().flat_map(text).collect::<Vec<_>>()
        );
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries
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

/// Compares the histories of several resources, in pages of several sizes, with the model.
pub(super) async fn check_histories(model: &Model, store: &Store, keys: &[ResourceKey]) {
    for count in [1, 3, 100] {
        let page = store.histories(keys, PageLimit { count, bytes: 1 << 20 }).await.unwrap();
        let read: Vec<_> = page.versions.iter().map(|version| (&version.key, version.version)).collect();
        let all =
            keys.iter().flat_map(|key| model.log.iter().rev().filter(move |version| version.key == *key));
        let all: Vec<_> = all.map(|version| (&version.key, version.version)).collect();
        assert_eq!(read, all[..count.min(all.len())]);
        assert!(!page.is_complete || read == all);
        assert!(page.is_complete || read.len() == count);
    }
}
