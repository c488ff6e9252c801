//! A view of the committed state, read by key and by page. A view exists for one read only, because snapshots
//! of the engine prevent the removal of old data.

use std::collections::BTreeSet;
use std::ops::Bound;

use fjall::{Database, Readable, Slice, Snapshot};
use jiff::Timestamp;

use super::failure::read_failure;
use super::keys::{self, StoreTable, StoredVersion};
use super::tables::StoreTables;
use crate::page::{FillingLines, PageBuilder, unknown_start};
use crate::plan::{StoreCounters, check_key, check_ledger_key};
use crate::transfer::missing_version;
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, IndexEntry, IndexLookup, KeyOrder, LedgerEntry, LedgerRecord,
    LinePage, LineScanRange, PageLimit, ResourceKey, ScanOptions, ScanPosition, Seq, StoreError,
    UpdatedRange, Version, VersionHeader, VersionPage,
};

type TableEntry = Result<(Slice, Slice), StoreError>;

pub(super) struct CommittedView<'a> {
    snapshot: Snapshot,
    tables: &'a StoreTables,
}

impl<'a> CommittedView<'a> {
    pub fn new(db: &Database, tables: &'a StoreTables) -> Self {
        Self { snapshot: db.snapshot(), tables }
    }

    /// A view at an earlier snapshot of the same engine.
    pub fn at(snapshot: Snapshot, tables: &'a StoreTables) -> Self {
        Self { snapshot, tables }
    }

    /// Ends the view and returns its snapshot.
    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    fn value(&self, table: StoreTable, key: impl AsRef<[u8]>) -> Result<Option<Slice>, StoreError> {
        let table = self.tables.of(table);
        self.snapshot.get(table, key).map_err(read_failure(table))
    }

    fn range(
        &self,
        table: StoreTable,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
    ) -> impl DoubleEndedIterator<Item = TableEntry> {
        let table = self.tables.of(table);
        self.snapshot
            .range(table, (from, to))
            .map(move |entry| entry.into_inner().map_err(read_failure(table)))
    }

    /// The entries from the key `from` that begin with this prefix, which ends with a zero byte.
    fn prefixed(
        &self,
        table: StoreTable,
        prefix: Vec<u8>,
        from: Vec<u8>,
    ) -> impl Iterator<Item = TableEntry> {
        self.range(table, Bound::Included(from), Bound::Excluded(keys::end_of(prefix)))
    }

    pub fn counters(&self) -> Result<StoreCounters, StoreError> {
        let value = self.value(StoreTable::Meta, keys::COUNTERS)?;
        value.map_or(Ok(StoreCounters::default()), |value| keys::decode_counters(&value))
    }

    pub fn get(&self, key: &str, now: Timestamp) -> Result<Option<LedgerRecord>, StoreError> {
        if check_ledger_key(key).is_err() {
            return Ok(None);
        }
        let Some(value) = self.value(StoreTable::Records, key)? else { return Ok(None) };
        let record = keys::decode_record(&value.into())?;
        Ok(record.is_live(now).then(|| record.into_record()))
    }

    pub fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, LedgerRecord)>, StoreError> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.into()),
            _ => Bound::Included(prefix.into()),
        };
        let mut records = Vec::new();
        for entry in self.range(StoreTable::Records, from, Bound::Unbounded) {
            let (key, value) = entry?;
            if records.len() >= limit || !key.starts_with(prefix.as_bytes()) {
                break;
            }
            if *key == *keys::CHECKPOINT {
                continue;
            }
            let record = keys::decode_record(&value.into())?;
            if record.is_live(now) {
                records.push((keys::text(&key)?.to_owned(), record.into_record()));
            }
        }
        Ok(records)
    }

    /// Up to `limit` records after a key, expired or not.
    pub fn entries(&self, after: Option<&str>, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.into()));
        let entries = self.range(StoreTable::Records, from, Bound::Unbounded);
        let records =
            entries.filter(|entry| entry.as_ref().map_or(true, |(key, _)| **key != *keys::CHECKPOINT));
        let entry = |entry: TableEntry| {
            let (key, value) = entry?;
            LedgerEntry::of(keys::text(&key)?.to_owned(), keys::decode_record(&value.into())?)
        };
        records.take(limit).map(entry).collect()
    }

    /// A part of the log (see [`crate::Store::read_log`]).
    pub fn read_log(&self, after: Seq, until: Seq, limit: PageLimit) -> Result<Vec<Version>, StoreError> {
        let mut page = PageBuilder::new(limit);
        for change in self.changes_after(after) {
            let ChangeRecord { seq, key, .. } = change?;
            if seq > until {
                break;
            }
            let missing = || missing_version(seq, &key);
            let newest = self.newest(&key)?.ok_or_else(missing)?;
            let value = self.settle(&key.kind, &key.id, newest, seq)?.ok_or_else(missing)?;
            let version = keys::decode_version(&key.kind, &key.id, value.into())?;
            if version.seq != seq {
                return Err(missing());
            }
            if page.push(version) {
                break;
            }
        }
        Ok(page.last().versions)
    }

    /// The newest version of a resource, encoded.
    fn newest(&self, key: &ResourceKey) -> Result<Option<Slice>, StoreError> {
        let Some(home) = self.value(StoreTable::Homes, keys::home(key))? else { return Ok(None) };
        self.value(StoreTable::Current, keys::current(key, keys::text(&home)?))
    }

    pub fn read(&self, key: &ResourceKey, seq: Seq) -> Result<Option<Version>, StoreError> {
        if check_key(&key.kind).is_err() || check_key(&key.id).is_err() {
            return Ok(None);
        }
        let Some(newest) = self.newest(key)? else { return Ok(None) };
        let value = self.settle(&key.kind, &key.id, newest, seq)?;
        value.map(|value| keys::decode_version(&key.kind, &key.id, value.into())).transpose()
    }

    /// The encoded version at sequence number `at`. `newest` is the newest version, encoded.
    fn settle(&self, kind: &str, id: &str, newest: Slice, seq: Seq) -> Result<Option<Slice>, StoreError> {
        if keys::seq_of(&newest)? <= seq {
            return Ok(Some(newest));
        }
        let prefix = keys::prefix([kind, id]);
        let from = keys::newest_first(prefix.clone(), seq);
        let older = self.prefixed(StoreTable::History, prefix, from).next().transpose()?;
        Ok(older.map(|(_, value)| value))
    }

    pub fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        let Some(last) = before.0.checked_sub(1).map(Seq) else { return Ok(Vec::new()) };
        let mut page = PageBuilder::new(limit);
        let newest = self.newest(key)?;
        if let Some(value) = newest
            && keys::seq_of(&value)? <= last
            && page.push(keys::decode_version(&key.kind, &key.id, value.into())?)
        {
            return Ok(page.last().versions);
        }
        let prefix = keys::prefix([&key.kind, &key.id]);
        let from = keys::newest_first(prefix.clone(), last);
        for entry in self.prefixed(StoreTable::History, prefix, from) {
            if page.push(keys::decode_version(&key.kind, &key.id, entry?.1.into())?) {
                break;
            }
        }
        Ok(page.last().versions)
    }

    pub fn scan_kind(&self, kind: &str, scan: ScanOptions<'_>) -> Result<VersionPage, StoreError> {
        let mut page = PageBuilder::new(scan.limit);
        let push =
            |_: &[u8], id: &str, value: Slice| Ok(page.push(keys::decode_version(kind, id, value.into())?));
        let next = self.walk_kind(kind, (None, None), scan, push)?;
        Ok(if next.is_some() { page.full() } else { page.last() })
    }

    pub fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> Result<VersionPage, StoreError> {
        let mut page = PageBuilder::new(scan.limit);
        let push = |id: &str, value: Slice| Ok(page.push(keys::decode_version(kind, id, value.into())?));
        let next = self.walk_compartment(compartment, kind, scan, true, push)?;
        Ok(if next.is_some() { page.full() } else { page.last() })
    }

    pub fn scan_lines(
        &self,
        kind: &str,
        of: &LineScanRange,
        scan: ScanOptions<'_>,
        updated: UpdatedRange,
        keep: impl Fn(&VersionHeader<'_>) -> bool,
        page: impl FnMut(LinePage) -> bool,
    ) -> Result<(), StoreError> {
        let mut lines = FillingLines::new(scan.limit, updated, keep, page);
        let push = |lines: &mut FillingLines<_, _>, key: Option<&[u8]>, version: (&str, Slice), within| {
            let StoredVersion { updated, compartments, body, .. } = StoredVersion::of(&version.1)?;
            Ok(lines.push(key, &VersionHeader::new(version.0, updated, compartments, within), body))
        };
        let compartments = match of {
            LineScanRange::Compartments(compartments) => compartments,
            LineScanRange::Kind { from, until } => {
                let push = |key: &[u8], id: &str, value| push(&mut lines, Some(key), (id, value), None);
                if self.walk_kind(kind, (from.as_ref(), until.as_ref()), scan, push)?.is_none() {
                    lines.end();
                }
                return Ok(());
            }
        };
        let mut after = scan.after;
        let mut guests = NextGuest::default();
        for compartment in compartments {
            let push = |id: &str, value| push(&mut lines, None, (id, value), Some(compartment));
            let has_guests = guests.are_in(self, compartment, kind)?;
            let scan = ScanOptions { after, ..scan };
            if self.walk_compartment(compartment, kind, scan, has_guests, push)?.is_some() {
                return Ok(());
            }
            lines.leave_compartment();
            after = None;
        }
        lines.end();
        Ok(())
    }

    /// Visits the encoded versions of a type between two positions, with their keys, until the visitor stops.
    /// Returns the id of the last visited version if the visitor stopped.
    fn walk_kind(
        &self,
        kind: &str,
        (from, until): (Option<&ScanPosition>, Option<&ScanPosition>),
        scan: ScanOptions<'_>,
        mut is_enough: impl FnMut(&[u8], &str, Slice) -> Result<bool, StoreError>,
    ) -> Result<Option<String>, StoreError> {
        let prefix = keys::prefix([kind]);
        let from = match (from, scan.after) {
            (Some(from), _) => from.key().to_vec(),
            // The key with another zero byte is the smallest key after it.
            (None, Some(after)) => {
                let key = ResourceKey::new(kind, after);
                let home = self.value(StoreTable::Homes, keys::home(&key))?;
                let home = home.ok_or_else(|| unknown_start(&key))?;
                keys::prefix([kind, keys::text(&home)?, after])
            }
            (None, None) => prefix.clone(),
        };
        let end = until.map_or_else(|| keys::end_of(prefix), |until| until.key().to_vec());
        if from >= end {
            return Ok(None);
        }
        for entry in self.range(StoreTable::Current, Bound::Included(from), Bound::Excluded(end)) {
            let (key, newest) = entry?;
            let id = keys::id_of(&key)?;
            let Some(value) = self.settle(kind, id, newest, scan.at)? else { continue };
            if (scan.deleted || !keys::is_deleted(&value)) && is_enough(&key, id, value)? {
                return Ok(Some(id.to_owned()));
            }
        }
        Ok(None)
    }

    /// Like `walk_kind`, for a type within a compartment. `has_guests` is `true` if resources with another
    /// home may be in it.
    fn walk_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
        has_guests: bool,
        mut is_enough: impl FnMut(&str, Slice) -> Result<bool, StoreError>,
    ) -> Result<Option<String>, StoreError> {
        let home = keys::prefix([kind, compartment]);
        let members = keys::prefix([compartment, kind]);
        let skip = members.len();
        let (home_from, from) = match scan.after {
            Some(after) => (
                keys::prefix([kind, compartment, after]),
                keys::end_of(keys::prefix([compartment, kind, after])),
            ),
            None => (home.clone(), members.clone()),
        };
        let mut at_home = self.prefixed(StoreTable::Current, home, home_from).peekable();
        let guests = has_guests.then(|| self.prefixed(StoreTable::Members, members, from));
        // Among the entries of one id, the first one at or before `at` applies.
        let mut decided = None::<Slice>;
        let mut guests = guests
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let (key, value) = match entry {
                    Ok(entry) => entry,
                    Err(error) => return Some(Err(error)),
                };
                let (id, seq) = match keys::split_member(&key[skip..]) {
                    Ok(split) => split,
                    Err(error) => return Some(Err(error)),
                };
                if seq > scan.at || decided.as_deref() == Some(id.as_bytes()) {
                    return None;
                }
                let id = key.slice(skip..skip + id.len());
                decided = Some(id.clone());
                (value[..] == [1]).then_some(Ok(id))
            })
            .peekable();
        loop {
            // Both sequences are ordered by id. For a resource whose home is this compartment, only its own
            // version applies.
            let resident = match at_home.peek() {
                Some(Err(error)) => return Err(error.clone()),
                Some(Ok((key, _))) => Some(keys::id_of(key)?),
                None => None,
            };
            let guest = match guests.peek() {
                Some(Err(error)) => return Err(error.clone()),
                Some(Ok(id)) => Some(keys::text(id)?),
                None => None,
            };
            let (key, newest, is_resident) = match (resident, guest) {
                (None, None) => return Ok(None),
                (Some(resident), guest) if guest.is_none_or(|guest| resident <= guest) => {
                    if guest == Some(resident) {
                        guests.next();
                    }
                    let Some((key, newest)) = at_home.next().transpose()? else { continue };
                    (key, newest, true)
                }
                _ => {
                    let Some(id) = guests.next().transpose()? else { continue };
                    let newest = self.newest(&ResourceKey::new(kind, keys::text(&id)?))?;
                    let Some(newest) = newest else { continue };
                    (id, newest, false)
                }
            };
            // In the result, the key of a resource with another home is its id.
            let id = keys::id_of(&key)?;
            let Some(value) = self.settle(kind, id, newest, scan.at)? else { continue };
            if is_resident && !StoredVersion::of(&value)?.is_in(compartment) {
                continue;
            }
            if (scan.deleted || !keys::is_deleted(&value)) && is_enough(id, value)? {
                return Ok(Some(id.to_owned()));
            }
        }
    }

    /// The resources of a compartment (see [`crate::Store::compartment_resources`]).
    pub fn compartment_resources(&self, compartment: &str) -> Result<Vec<ResourceKey>, StoreError> {
        let mut resources = BTreeSet::new();
        for kind in self.kinds(Seq::LATEST)? {
            let home = keys::prefix([&kind, compartment]);
            for entry in self.prefixed(StoreTable::Current, home.clone(), home) {
                resources.insert(ResourceKey::new(kind.as_str(), keys::id_of(&entry?.0)?));
            }
            let members = keys::prefix([compartment, &kind]);
            let skip = members.len();
            for entry in self.prefixed(StoreTable::Members, members.clone(), members) {
                let (key, _) = entry?;
                let (id, _) = keys::split_member(&key[skip..])?;
                resources.insert(ResourceKey::new(kind.as_str(), id));
            }
        }
        Ok(resources.into_iter().collect())
    }

    pub fn count(&self, kind: &str, seq: Seq) -> Result<u64, StoreError> {
        let mut count = 0;
        self.walk_kind(kind, (None, None), ScanOptions::at(seq), |_, _, _| {
            count += 1;
            Ok(false)
        })?;
        Ok(count)
    }

    pub fn kinds(&self, seq: Seq) -> Result<Vec<String>, StoreError> {
        let prefix = keys::prefix([keys::KIND]);
        let skip = prefix.len();
        let mut kinds = Vec::new();
        for entry in self.prefixed(StoreTable::Meta, prefix.clone(), prefix) {
            let (key, value) = entry?;
            if keys::decode_seq(&value)? <= seq {
                kinds.push(keys::text(&key[skip..])?.to_owned());
            }
        }
        Ok(kinds)
    }

    /// The first entry of the compartment index at or after a key.
    fn next_guest(&self, from: Vec<u8>) -> Result<Option<Slice>, StoreError> {
        let next = self.range(StoreTable::Members, Bound::Included(from), Bound::Unbounded).next();
        Ok(next.transpose()?.map(|(key, _)| key))
    }

    pub fn index_entries(&self, lookup: IndexLookup) -> Result<Vec<IndexEntry>, StoreError> {
        let IndexLookup { range, order, after, limit } = lookup;
        let (mut from, mut until) = keys::term_range(&range);
        match (order, after) {
            // The key with another zero byte is the smallest key after it.
            (KeyOrder::Ascending, Some(after)) => from = from.max([keys::term(&after), vec![0]].concat()),
            (KeyOrder::Descending, Some(after)) => until = until.min(keys::term(&after)),
            (_, None) => {}
        }
        self.ordered(StoreTable::Terms, order, from, until)
            .map(|entry| entry.and_then(|(key, _)| keys::split_term(&key)))
            .filter(|entry| entry.as_ref().map_or(true, |entry| range.contains(&entry.term)))
            .take(limit)
            .collect()
    }

    pub fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let all = keys::prefix([kind]);
        let (mut from, mut until) = (all.clone(), keys::end_of(all.clone()));
        match (order, after) {
            (KeyOrder::Ascending, Some(after)) => from = keys::prefix([kind, after]),
            (KeyOrder::Descending, Some(after)) => until = keys::joined([kind, after]),
            (_, None) => {}
        }
        self.ordered(StoreTable::Homes, order, from, until)
            .map(|entry| Ok(keys::text(&entry?.0[all.len()..])?.to_owned()))
            .take(limit)
            .collect()
    }

    /// The entries from the key `from` to before the key `until`, in an order.
    fn ordered(
        &self,
        table: StoreTable,
        order: KeyOrder,
        from: Vec<u8>,
        until: Vec<u8>,
    ) -> Box<dyn Iterator<Item = TableEntry> + '_> {
        if from >= until {
            return Box::new(std::iter::empty());
        }
        let entries = self.range(table, Bound::Included(from), Bound::Excluded(until));
        match order {
            KeyOrder::Ascending => Box::new(entries),
            KeyOrder::Descending => Box::new(entries.rev()),
        }
    }

    /// The sequence number of the last change whose time is not after `time`, by binary search. Every number
    /// up to the last one has an entry in the change feed, except those that a failed round has lost.
    pub fn seq_at(&self, time: Timestamp) -> Result<Seq, StoreError> {
        let (mut low, mut high) = (0, self.counters()?.seq);
        while low < high {
            let middle = low + (high - low) / 2;
            // The first change after `middle`, and whether it is too late.
            let Some(change) = self.changes(Seq(middle), 1)?.pop() else {
                high = middle;
                continue;
            };
            let version = self.read(&change.key, change.seq)?;
            if version.is_some_and(|version| version.updated <= time) {
                low = change.seq.0;
            } else {
                high = middle;
            }
        }
        Ok(Seq(low))
    }

    pub fn changes(&self, after: Seq, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        self.changes_after(after).take(limit).collect()
    }

    pub fn changes_of(
        &self,
        kinds: &[&str],
        after: Seq,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>, StoreError> {
        let is_wanted = |change: &Result<ChangeRecord, StoreError>| {
            change.as_ref().map_or(true, |change| kinds.contains(&change.key.kind.as_str()))
        };
        self.changes_after(after).filter(is_wanted).take(limit).collect()
    }

    pub fn changes_before(&self, kind: Option<&str>, range: ChangesBefore) -> Result<ChangePage, StoreError> {
        if range.after >= range.before {
            return Ok(ChangePage::default());
        }
        let [after, before] = [range.after, range.before].map(|seq| seq.0.to_be_bytes().to_vec());
        let bounds = (Bound::Excluded(after), Bound::Excluded(before));
        let table = self.tables.of(StoreTable::Changes);
        let entries = self.snapshot.range(table, bounds).rev();
        let changes = entries.map(|entry| {
            let (key, value) = entry.into_inner().map_err(read_failure(table))?;
            keys::decode_change(&key, &value)
        });
        ChangePage::of_kind(kind, range, changes)
    }

    fn changes_after(&self, after: Seq) -> impl Iterator<Item = Result<ChangeRecord, StoreError>> {
        let from = Bound::Excluded(after.0.to_be_bytes().to_vec());
        let entries = self.range(StoreTable::Changes, from, Bound::Unbounded);
        entries.map(|entry| entry.and_then(|(key, value)| keys::decode_change(&key, &value)))
    }
}

/// A cache for the next resource with another home in a compartment. Most compartments contain none, and one
/// lookup covers many resources in key order.
#[derive(Default)]
struct NextGuest {
    /// The index has no entry between the two keys. Without a second key, no entry follows the first key.
    between: Option<(Vec<u8>, Option<Slice>)>,
}

impl NextGuest {
    fn are_in(
        &mut self,
        view: &CommittedView<'_>,
        compartment: &str,
        kind: &str,
    ) -> Result<bool, StoreError> {
        let prefix = keys::prefix([compartment, kind]);
        let is_known = |(from, next): &(Vec<u8>, Option<Slice>)| {
            *from <= prefix && next.as_ref().is_none_or(|next| **next >= *prefix)
        };
        let (from, next) = match self.between.take().filter(is_known) {
            Some(interval) => interval,
            None => (prefix.clone(), view.next_guest(prefix.clone())?),
        };
        let is_in = next.as_ref().is_some_and(|key| key.starts_with(&prefix));
        self.between = Some((from, next));
        Ok(is_in)
    }
}
