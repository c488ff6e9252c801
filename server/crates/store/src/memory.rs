//! The engine for tests and trials: ordered maps behind one lock. The data are lost when the process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;

use crate::membership;
use crate::page::{self, FillingLines, PageBuilder, unknown_start};
use crate::plan::{PresentState, RoundPuts, StoreCounters, StoredRecord, WriteRound};
use crate::transfer::missing_version;
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, Erasure, IndexEntry, IndexLookup, IndexRange, KeyOrder,
    Ledger, LedgerEntry, LedgerRecord, LedgerWrite, LinePage, LineScanRange, PageLimit, Reassignment,
    ReplayPart, ResourceKey, ScanOptions, ScanPosition, Seq, StoreError, StoreMoment, StoreSnapshot,
    UpdatedRange, Version, VersionHeader, VersionPage, VersionWrite, Versions,
};

/// A store in memory. Clones share the same data.
#[derive(Clone)]
pub struct MemoryEngine {
    state: Arc<RwLock<StoreState>>,
}

#[derive(Default)]
struct StoreState {
    counters: StoreCounters,
    /// The last sequence number that is assigned, also to a commit that is not visible yet.
    reserved: u64,
    /// The versions of each resource, oldest first.
    versions: BTreeMap<ResourceKey, Vec<Version>>,
    /// For each compartment, kind and id: the sequence numbers from which the resource was in (`true`) or not
    /// in the compartment.
    members: BTreeMap<(String, String, String), Vec<(Seq, bool)>>,
    changes: BTreeMap<Seq, ChangeRecord>,
    /// The search index, with the sequence number of the last write that had the term.
    index: BTreeMap<IndexEntry, Seq>,
    /// Sequence number of the first write of each kind.
    kinds: BTreeMap<String, Seq>,
    records: BTreeMap<String, StoredRecord>,
    expiries: BTreeSet<(i64, String)>,
}

impl MemoryEngine {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self { state: Arc::default() }
    }

    // A panic while the lock is held cannot leave a round half applied, because `apply` only inserts into
    // maps.
    fn read_state(&self) -> RwLockReadGuard<'_, StoreState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, StoreState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns sequence numbers to a commit, and returns the number before the first of them. If the commit
    /// is interrupted, they stay unused.
    pub(crate) fn reserve(&self, count: usize) -> u64 {
        let mut state = self.write_state();
        let before = state.reserved.max(state.counters.seq);
        state.reserved = before + count as u64;
        before
    }

    /// Commits with the sequence numbers after `reserved`. The last numbers that are not used can be assigned
    /// again.
    pub(crate) fn commit_at(
        &self,
        reserved: u64,
        writes: Vec<VersionWrite>,
        now: Timestamp,
    ) -> Result<Commit, StoreError> {
        let last = reserved + writes.len() as u64;
        let commit = self.round_at(Some(reserved), |round| round.commit(writes, now));
        let mut state = self.write_state();
        if state.reserved == last {
            state.reserved = state.counters.seq;
        }
        commit
    }

    /// The present moment and the ledger.
    pub(crate) fn moment(&self) -> Result<(StoreMoment, Vec<LedgerEntry>), StoreError> {
        let state = self.read_state();
        let entries = state.records.iter().map(|(key, record)| LedgerEntry::of(key.clone(), record.clone()));
        Ok((StoreMoment::of(state.counters), entries.collect::<Result<_, _>>()?))
    }

    /// A part of the log (see [`crate::Store::read_log`]).
    pub(crate) fn read_log(
        &self,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        if after >= until {
            return Ok(Vec::new());
        }
        let state = self.read_state();
        let mut page = PageBuilder::new(limit);
        for change in state.changes.range((Bound::Excluded(after), Bound::Included(until))) {
            let (seq, key) = (*change.0, &change.1.key);
            let version = state.at(key, seq).ok_or_else(|| missing_version(seq, key))?;
            if page.push(version.clone()) {
                break;
            }
        }
        Ok(page.last().versions)
    }

    /// Adds a part of another store (see [`crate::Store::replay`]).
    pub(crate) fn replay(&self, part: ReplayPart) -> Result<(), StoreError> {
        self.round(|round| round.replay(part))
    }

    /// Erases resources (see [`crate::Store::erase`]).
    pub(crate) fn erase(&self, erasures: &[Erasure]) -> Result<Seq, StoreError> {
        let mut state = self.write_state();
        state.remove(erasures)?;
        state.counters.seq = state.counters.seq.max(state.reserved) + 1;
        Ok(Seq(state.counters.seq))
    }

    /// Removes resources (see [`crate::Store::remove_replayed`]).
    pub(crate) fn remove_replayed(&self, removed: &[Erasure]) -> Result<(), StoreError> {
        self.write_state().remove(removed)
    }

    /// Replaces compartments (see [`crate::Store::reassign`]).
    pub(crate) fn reassign(&self, reassignments: Vec<Reassignment>) -> Result<Seq, StoreError> {
        let mut state = self.write_state();
        for Reassignment { key, newest, .. } in &reassignments {
            if state.at(key, Seq::LATEST).is_none_or(|version| version.version != *newest) {
                return Err(StoreError::Conflict { key: key.to_string() });
            }
        }
        for reassignment in reassignments {
            let key = &reassignment.key;
            let versions = state.versions.get(key).into_iter().flatten();
            let before: BTreeSet<String> =
                versions.flat_map(|version| version.compartments.iter().cloned()).collect();
            for compartment in before {
                state.members.remove(&(compartment, key.kind.clone(), key.id.clone()));
            }
            for (compartment, moves) in reassignment.moves() {
                state.members.insert((compartment.to_owned(), key.kind.clone(), key.id.clone()), moves);
            }
            let mut newest = Seq::ZERO;
            for (seq, compartments) in reassignment.versions {
                newest = seq;
                let versions = state.versions.get_mut(key).into_iter().flatten();
                for version in versions.filter(|version| version.seq == seq) {
                    version.compartments.clone_from(&compartments);
                }
            }
            for term in reassignment.terms {
                state.index.insert(IndexEntry { term, id: key.id.clone() }, newest);
            }
        }
        state.counters.seq = state.counters.seq.max(state.reserved) + 1;
        Ok(Seq(state.counters.seq))
    }

    /// The resources of a compartment (see [`crate::Store::compartment_resources`]).
    pub(crate) fn compartment_resources(&self, compartment: &str) -> Vec<ResourceKey> {
        let state = self.read_state();
        let from = (compartment.to_owned(), String::new(), String::new());
        let members = state.members.range(from..).take_while(|(member, _)| member.0 == compartment);
        members.map(|((_, kind, id), _)| ResourceKey::new(kind, id)).collect()
    }

    /// Decides one request and applies it.
    fn round<T>(
        &self,
        decide: impl FnOnce(&mut WriteRound<'_, StoreState>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.round_at(None, decide)
    }

    fn round_at<T>(
        &self,
        reserved: Option<u64>,
        decide: impl FnOnce(&mut WriteRound<'_, StoreState>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.write_state();
        let before = state.counters;
        let mut round =
            WriteRound::new(&*state, StoreCounters { seq: reserved.unwrap_or(before.seq), ..before });
        let result = decide(&mut round)?;
        let RoundPuts { versions, confirmed, records, counters } = round.into_puts();
        // A reserved number may be below numbers that other nodes have used since.
        state.counters = StoreCounters { seq: counters.seq.max(before.seq), ..counters };
        for put in versions {
            let key = &put.new.key;
            for (compartments, is_in) in [(put.joined, true), (put.left, false)] {
                for compartment in compartments {
                    let member = (compartment, key.kind.clone(), key.id.clone());
                    state.members.entry(member).or_default().push((put.new.seq, is_in));
                }
            }
            for term in put.terms {
                state.index.insert(IndexEntry { term, id: key.id.clone() }, put.new.seq);
            }
            let change = ChangeRecord {
                seq: put.new.seq,
                key: key.clone(),
                version: put.new.version,
                deleted: put.new.is_deleted(),
            };
            state.kinds.entry(key.kind.clone()).or_insert(change.seq);
            let seq = change.seq;
            assert!(state.changes.insert(seq, change).is_none(), "number {seq} is assigned once");
            let versions = state.versions.entry(key.clone()).or_default();
            // The same batch may have confirmed the version that is replaced.
            if let (Some(replaced), Some(last)) = (put.replaced, versions.last_mut()) {
                last.source_time = replaced.source_time;
            }
            versions.push(put.new);
        }
        for Version { key, seq, source_time, .. } in confirmed {
            let versions = state.versions.entry(key).or_default();
            if let Some(version) = versions.iter_mut().rev().find(|version| version.seq == seq) {
                version.source_time = source_time;
            }
        }
        for put in records {
            if let Some(expiry) = put.replaced.and_then(|record| record.expires_us) {
                state.expiries.remove(&(expiry, put.key.clone()));
            }
            if let Some(expiry) = put.new.as_ref().and_then(|record| record.expires_us) {
                state.expiries.insert((expiry, put.key.clone()));
            }
            match put.new {
                Some(record) => state.records.insert(put.key, record),
                None => state.records.remove(&put.key),
            };
        }
        Ok(result)
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreState {
    /// Removes resources, all or none of them.
    fn remove(&mut self, erasures: &[Erasure]) -> Result<(), StoreError> {
        for Erasure { key, newest, .. } in erasures {
            if self.at(key, Seq::LATEST).is_none_or(|version| version.version != *newest) {
                return Err(StoreError::Conflict { key: key.to_string() });
            }
        }
        for Erasure { key, terms, .. } in erasures {
            for version in self.versions.remove(key).unwrap_or_default() {
                self.changes.remove(&version.seq);
                for compartment in version.compartments {
                    self.members.remove(&(compartment, key.kind.clone(), key.id.clone()));
                }
            }
            for term in terms {
                self.index.remove(&IndexEntry { term: term.clone(), id: key.id.clone() });
            }
        }
        Ok(())
    }

    fn at(&self, key: &ResourceKey, at_seq: Seq) -> Option<&Version> {
        self.versions.get(key)?.iter().rev().find(|version| version.seq <= at_seq)
    }

    /// The entries of the search index in a range of terms, after the entry `after`.
    fn index_range(
        &self,
        range: &IndexRange,
        after: Option<IndexEntry>,
    ) -> impl Iterator<Item = (&IndexEntry, &Seq)> {
        let (IndexRange::Term(first) | IndexRange::Between(first, _)) = range;
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(IndexEntry { term: first.clone(), id: String::new() }),
        };
        self.index.range((from, Bound::Unbounded)).take_while(|(entry, _)| range.contains(&entry.term))
    }

    /// The entries of the search index in a range of terms, before the entry `before`, from the greatest to
    /// the smallest.
    fn index_before(
        &self,
        range: &IndexRange,
        before: Option<IndexEntry>,
    ) -> impl Iterator<Item = &IndexEntry> {
        let (first, end) = match range {
            // The smallest term after this one.
            IndexRange::Term(term) => (term, [&term[..], &[0]].concat().into()),
            IndexRange::Between(first, end) => (first, end.clone()),
        };
        let end = IndexEntry { term: end, id: String::new() };
        let end = before.map_or_else(|| end.clone(), |before| before.min(end.clone()));
        let first = IndexEntry { term: first.clone(), id: String::new() };
        let range = (first < end).then(|| self.index.range(first..end));
        range.into_iter().flatten().rev().map(|(entry, _)| entry)
    }

    /// Visits the versions of a type between two positions, until the visitor stops. Returns the id of the
    /// last visited version if the visitor stopped.
    fn walk_kind(
        &self,
        kind: &str,
        (from, until): (Option<&ScanPosition>, Option<&ScanPosition>),
        scan: ScanOptions<'_>,
        mut is_enough: impl FnMut(&Version) -> bool,
    ) -> Result<Option<String>, StoreError> {
        let start = ResourceKey::new(kind, scan.after.unwrap_or_default());
        if scan.after.is_some() && !self.versions.contains_key(&start) {
            return Err(unknown_start(&start));
        }
        let behind = self.versions.range((Bound::Excluded(start), Bound::Unbounded));
        let is_before = |key: &ResourceKey, mark: Option<&ScanPosition>, none: bool| {
            mark.map_or(none, |mark| key.id.as_bytes() < mark.key())
        };
        let keys = behind
            .map(|(key, _)| key)
            .take_while(|key| key.kind == kind)
            .skip_while(|key| is_before(key, from, false))
            .take_while(|key| is_before(key, until, true));
        let mut present = keys.filter_map(|key| self.at(key, scan.at));
        let last = present.find(|version| (scan.deleted || !version.is_deleted()) && is_enough(version));
        Ok(last.map(|version| version.key.id.clone()))
    }

    /// Like `walk_kind`, for a type within a compartment.
    fn walk_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
        mut is_enough: impl FnMut(&Version) -> bool,
    ) -> Option<String> {
        let first = (compartment.to_owned(), kind.to_owned(), scan.after.unwrap_or_default().to_owned());
        let members = self.members.range((Bound::Excluded(first), Bound::Unbounded));
        let members = members.take_while(|(member, _)| member.0 == compartment && member.1 == kind);
        let mut versions = members.filter_map(|(member, moves)| {
            let (_, is_in) = moves.iter().rev().find(|(seq, _)| *seq <= scan.at)?;
            let key = ResourceKey::new(kind, member.2.as_str());
            is_in.then(|| self.at(&key, scan.at)).flatten()
        });
        let last = versions.find(|version| (scan.deleted || !version.is_deleted()) && is_enough(version));
        last.map(|version| version.key.id.clone())
    }
}

impl PresentState for StoreState {
    fn newest(&self, key: &ResourceKey) -> Result<Option<Version>, StoreError> {
        Ok(self.at(key, Seq::LATEST).cloned())
    }

    fn is_indexed_since(&self, range: &IndexRange, since: Seq) -> Result<bool, StoreError> {
        Ok(self.index_range(range, None).any(|(_, seq)| *seq > since))
    }

    fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        Ok(self.records.get(key).cloned())
    }

    fn expired(&self, now_us: i64, limit: usize) -> Result<Vec<String>, StoreError> {
        let expired = self.expiries.iter().take_while(|(expiry, _)| *expiry <= now_us);
        Ok(expired.take(limit).map(|(_, key)| key.clone()).collect())
    }
}

impl Ledger for MemoryEngine {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<LedgerRecord>, StoreError> {
        let state = self.read_state();
        let live = state.records.get(key).filter(|record| record.is_live(now));
        Ok(live.cloned().map(StoredRecord::into_record))
    }

    async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        self.round(|round| round.write(writes, now))
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, LedgerRecord)>, StoreError> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let state = self.read_state();
        let rows = state.records.range::<str, _>((start, Bound::Unbounded));
        Ok(rows
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter(|(_, record)| record.is_live(now))
            .take(limit)
            .map(|(key, record)| (key.clone(), record.clone().into_record()))
            .collect())
    }

    async fn sweep(&self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.round(|round| round.sweep(now, limit))
    }
}

impl Versions for MemoryEngine {
    async fn commit(&self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        self.round(|round| round.commit(writes, now))
    }

    async fn snapshot(&self, now: Timestamp) -> Result<StoreSnapshot, StoreError> {
        self.round(|round| Ok(round.snapshot(now)))
    }

    async fn read(&self, key: &ResourceKey, seq: Seq) -> Result<Option<Version>, StoreError> {
        Ok(self.read_state().at(key, seq).cloned())
    }

    async fn read_many(
        &self,
        kind: &str,
        ids: Vec<String>,
        seq: Seq,
        bytes: usize,
    ) -> Result<Vec<Option<Version>>, StoreError> {
        let state = self.read_state();
        let read = |id| Ok(state.at(&ResourceKey::new(kind, id), seq).cloned());
        page::read_until(ids, bytes, read)
    }

    async fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let state = self.read_state();
        let start = ResourceKey::new(kind, after.unwrap_or_default());
        // The first key of the next type: no type contains a zero byte.
        let end = ResourceKey::new(format!("{kind}\0"), "");
        let range = match (order, after) {
            (KeyOrder::Descending, Some(_)) => {
                (Bound::Included(ResourceKey::new(kind, "")), Bound::Excluded(start))
            }
            _ => (Bound::Excluded(start), Bound::Excluded(end)),
        };
        let keys = state.versions.range(range).map(|(key, _)| key.id.clone());
        Ok(match order {
            KeyOrder::Ascending => keys.take(limit).collect(),
            KeyOrder::Descending => keys.rev().take(limit).collect(),
        })
    }

    async fn index_entries(&self, lookups: Vec<IndexLookup>) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        let state = self.read_state();
        let entries = |IndexLookup { range, order, after, limit }: IndexLookup| match order {
            KeyOrder::Ascending => {
                state.index_range(&range, after).take(limit).map(|(entry, _)| entry.clone()).collect()
            }
            KeyOrder::Descending => state.index_before(&range, after).take(limit).cloned().collect(),
        };
        Ok(lookups.into_iter().map(entries).collect())
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        let state = self.read_state();
        let mut page = PageBuilder::new(limit);
        for version in state.versions.get(key).into_iter().flatten().rev() {
            if version.seq < before && page.push(version.clone()) {
                break;
            }
        }
        Ok(page.last().versions)
    }

    async fn scan_kind(&self, kind: &str, scan: ScanOptions<'_>) -> Result<VersionPage, StoreError> {
        let mut page = PageBuilder::new(scan.limit);
        let state = self.read_state();
        let next = state.walk_kind(kind, (None, None), scan, |version| page.push(version.clone()))?;
        Ok(if next.is_some() { page.full() } else { page.last() })
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> Result<VersionPage, StoreError> {
        let mut page = PageBuilder::new(scan.limit);
        let push = |version: &Version| page.push(version.clone());
        let next = self.read_state().walk_compartment(compartment, kind, scan, push);
        Ok(if next.is_some() { page.full() } else { page.last() })
    }

    async fn scan_lines(
        &self,
        kind: &str,
        of: LineScanRange,
        scan: ScanOptions<'_>,
        updated: UpdatedRange,
        keep: impl Fn(&VersionHeader<'_>) -> bool + Send + 'static,
        page: impl FnMut(LinePage) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let state = self.read_state();
        let mut lines = FillingLines::new(scan.limit, updated, keep, page);
        let push = |lines: &mut FillingLines<_, _>, version: &Version, within: Option<&str>| {
            let key = within.is_none().then_some(version.key.id.as_bytes());
            let compartments = membership::encode(None, &version.compartments);
            let version_header = VersionHeader::new(&version.key.id, version.updated, &compartments, within);
            version.body.as_ref().is_some_and(|body| lines.push(key, &version_header, body))
        };
        // Lines are of resources that exist.
        let scan = ScanOptions { deleted: false, ..scan };
        let compartments = match of {
            LineScanRange::Compartments(compartments) => compartments,
            LineScanRange::Kind { from, until } => {
                let span = (from.as_ref(), until.as_ref());
                let push = |version: &Version| push(&mut lines, version, None);
                if state.walk_kind(kind, span, scan, push)?.is_none() {
                    lines.end();
                }
                return Ok(());
            }
        };
        let mut after = scan.after;
        for compartment in &compartments {
            let push = |version: &Version| push(&mut lines, version, Some(compartment));
            if state.walk_compartment(compartment, kind, ScanOptions { after, ..scan }, push).is_some() {
                return Ok(());
            }
            lines.leave_compartment();
            after = None;
        }
        lines.end();
        Ok(())
    }

    async fn kinds(&self, seq: Seq) -> Result<Vec<String>, StoreError> {
        let state = self.read_state();
        Ok(state.kinds.iter().filter(|(_, first)| **first <= seq).map(|(kind, _)| kind.clone()).collect())
    }

    async fn count(&self, kind: &str, seq: Seq) -> Result<u64, StoreError> {
        let state = self.read_state();
        let mut count = 0;
        state.walk_kind(kind, (None, None), ScanOptions::at(seq), |_| {
            count += 1;
            false
        })?;
        Ok(count)
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        let state = self.read_state();
        let behind = state.changes.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(behind.take(limit).map(|(_, change)| change.clone()).collect())
    }

    async fn changes_of(
        &self,
        kinds: &'static [&'static str],
        after: Seq,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>, StoreError> {
        let state = self.read_state();
        let behind = state.changes.range((Bound::Excluded(after), Bound::Unbounded));
        let changes = behind.filter(|(_, change)| kinds.contains(&change.key.kind.as_str()));
        Ok(changes.take(limit).map(|(_, change)| change.clone()).collect())
    }

    async fn changes_before(
        &self,
        kind: Option<&str>,
        range: ChangesBefore,
    ) -> Result<ChangePage, StoreError> {
        let state = self.read_state();
        let bounds = (Bound::Excluded(range.after), Bound::Excluded(range.before));
        if range.after >= range.before {
            return Ok(ChangePage::default());
        }
        let changes = state.changes.range(bounds).rev();
        ChangePage::of_kind(kind, range, changes.map(|(_, change)| Ok(change.clone())))
    }

    async fn seq_at(&self, time: Timestamp) -> Result<Seq, StoreError> {
        let state = self.read_state();
        let before = state.versions.values().flatten().filter(|version| version.updated <= time);
        Ok(before.map(|version| version.seq).max().unwrap_or_default())
    }

    async fn last_seq(&self) -> Result<Seq, StoreError> {
        Ok(self.heard_seq())
    }

    fn heard_seq(&self) -> Seq {
        Seq(self.read_state().counters.seq)
    }
}
