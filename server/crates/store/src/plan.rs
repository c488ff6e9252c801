//! The rules that every engine follows: checks the conditions of a request, assigns sequence numbers,
//! versions, revisions and times, and returns what to write. Performs no IO.
//!
//! A [`WriteRound`] receives several requests in order. Each request sees the decisions on the requests
//! before it. The engine then writes [`WriteRound::into_puts`] in one step and answers all requests. A
//! rejected request does not change the round.

use std::collections::HashMap;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::membership;
use crate::{
    Commit, Expect, ExpectVersion, IndexCondition, IndexRange, IndexTerm, LedgerEntry, LedgerRecord,
    LedgerWrite, ReplayPart, ReplayedVersion, ResourceDraft, ResourceKey, Seq, StoreError, StoreMoment,
    StoreSnapshot, Version, VersionWrite, WriteEffect, WriteResult,
};

/// Maximum length of a ledger key in bytes.
const LEDGER_KEY_LIMIT: usize = 1_024;
/// Maximum length of a type, id or compartment in bytes. An engine stores up to three of them in one key.
const KEY_LIMIT: usize = 255;
/// Maximum length of a term of the search index in bytes.
const TERM_LIMIT: usize = 255;

/// The counters that an engine stores besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct StoreCounters {
    /// The last assigned sequence number.
    pub seq: u64,
    /// The last assigned ledger revision.
    pub revision: u64,
    /// The minimum for the next `lastUpdated` in milliseconds (a hybrid clock). A commit sets it to its own
    /// time, and a snapshot to one millisecond after its own time.
    pub floor_ms: i64,
}

/// A ledger record in the form that engines store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    pub value: Bytes,
    pub revision: u64,
    /// Expiry in microseconds since 1970.
    pub expires_us: Option<i64>,
}

impl StoredRecord {
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_us.is_none_or(|expiry| now.as_microsecond() < expiry)
    }

    pub fn into_record(self) -> LedgerRecord {
        LedgerRecord { value: self.value, revision: self.revision }
    }
}

/// The content of an engine before a round. It may be read several times in a round and does not change
/// during the round.
pub(crate) trait PresentState {
    /// The newest version of a resource, which may be a tombstone.
    fn newest(&self, key: &ResourceKey) -> Result<Option<Version>, StoreError>;
    /// Returns whether a version with a term of this range was committed after `since`.
    fn is_indexed_since(&self, range: &IndexRange, since: Seq) -> Result<bool, StoreError>;
    /// The record under this key, expired or not.
    fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError>;
    /// Up to `limit` keys of expired records, in order of expiry.
    fn expired(&self, now_us: i64, limit: usize) -> Result<Vec<String>, StoreError>;
}

#[derive(Debug)]
pub(crate) struct VersionPut {
    pub new: Version,
    /// The newest version before this one.
    pub replaced: Option<Version>,
    /// The first compartment of the write. An engine may store a new resource with the other resources of
    /// this compartment.
    pub home: Option<String>,
    /// Compartments of the new version that the replaced version was not in.
    pub joined: Vec<String>,
    /// Compartments of the replaced version that the new version is not in.
    pub left: Vec<String>,
    pub terms: Vec<IndexTerm>,
}

impl StoreMoment {
    pub(crate) fn of(counters: StoreCounters) -> Self {
        let StoreCounters { seq, revision, floor_ms } = counters;
        Self { seq: Seq(seq), revision, floor_ms }
    }
}

impl LedgerEntry {
    pub(crate) fn of(key: String, record: StoredRecord) -> Result<Self, StoreError> {
        let StoredRecord { value, revision, expires_us } = record;
        let expires = expires_us.map(Timestamp::from_microsecond).transpose();
        let wrong =
            |error| StoreError::Corrupt { what: format!("the expiry of the record '{key}': {error}") };
        Ok(Self { expires: expires.map_err(wrong)?, key, value, revision })
    }

    pub(crate) fn into_record(self) -> (String, StoredRecord) {
        let Self { key, value, revision, expires } = self;
        (key, StoredRecord { value, revision, expires_us: expires.map(Timestamp::as_microsecond) })
    }
}

impl VersionPut {
    /// The put of a version, which may lie in other compartments than the one that it replaces.
    fn new(new: Version, replaced: Option<Version>, home: Option<String>, terms: Vec<IndexTerm>) -> Self {
        let old = replaced.as_ref().map_or(&[][..], |version| &version.compartments[..]);
        let joined = new.compartments.iter().filter(|&one| !old.contains(one)).cloned().collect();
        let former = old.iter().filter(|&one| !new.compartments.contains(one)).cloned().collect();
        Self { new, replaced, home, joined, left: former, terms }
    }
}

/// A record to write or to remove.
#[derive(Debug)]
pub(crate) struct RecordPut {
    pub key: String,
    pub new: Option<StoredRecord>,
    pub replaced: Option<StoredRecord>,
}

/// The writes of a round, in this order, and the counters after it.
#[derive(Debug)]
pub(crate) struct RoundPuts {
    pub versions: Vec<VersionPut>,
    /// Newest versions that an import has confirmed: they only get a later source time. Their bodies may not
    /// have been read.
    pub confirmed: Vec<Version>,
    pub records: Vec<RecordPut>,
    pub counters: StoreCounters,
}

/// Requests that are decided together and written in one step.
pub(crate) struct WriteRound<'a, P> {
    present: &'a P,
    newest: HashMap<ResourceKey, Option<Version>>,
    current: HashMap<String, Option<StoredRecord>>,
    /// Versions, to be written in this order.
    pub versions: Vec<VersionPut>,
    /// Versions that get a later source time, each with its source time before.
    confirmed: Vec<(Version, Option<Timestamp>)>,
    /// Records, to be written in this order.
    pub records: Vec<RecordPut>,
    /// Counters after all requests of the round.
    pub counters: StoreCounters,
    first: StoreCounters,
}

impl<'a, P: PresentState> WriteRound<'a, P> {
    pub fn new(present: &'a P, counters: StoreCounters) -> Self {
        Self {
            present,
            newest: HashMap::new(),
            current: HashMap::new(),
            versions: Vec::new(),
            confirmed: Vec::new(),
            records: Vec::new(),
            counters,
            first: counters,
        }
    }

    /// Decides a commit (see [`crate::Versions::commit`]).
    pub fn commit(&mut self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        let (before, mark, confirmed) = (self.counters, self.versions.len(), self.confirmed.len());
        let updated = self.updated(now);
        let text = format!("{updated:.3}");
        let results: Result<Vec<WriteResult>, StoreError> =
            writes.into_iter().map(|write| self.version(write, mark, updated, &text)).collect();
        match results {
            Ok(mut results) => {
                let versions = (self.versions.len() - mark) as u64;
                assert_eq!(self.counters.seq, before.seq + versions, "sequence numbers grow without a gap");
                let seq = Seq(self.counters.seq);
                for nowhere in results.iter_mut().filter(|result| result.version == 0) {
                    nowhere.seq = seq;
                }
                if self.versions.len() == mark {
                    self.counters = before;
                }
                Ok(Commit { seq, written: results })
            }
            Err(error) => {
                self.counters = before;
                for put in self.versions.drain(mark..).rev() {
                    self.newest.insert(put.new.key, put.replaced);
                }
                for (version, source_time) in self.confirmed.drain(confirmed..).rev() {
                    let newest = self.newest.get_mut(&version.key).and_then(Option::as_mut);
                    if let Some(newest) = newest.filter(|newest| newest.seq == version.seq) {
                        newest.source_time = source_time;
                    }
                }
                Err(error)
            }
        }
    }

    /// Decides a batch of ledger writes (see [`crate::Ledger::write`]).
    pub fn write(&mut self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let (before, mark) = (self.counters, self.records.len());
        let revisions: Result<Vec<u64>, StoreError> =
            writes.into_iter().map(|write| self.record(write, now)).collect();
        let new = self.records[mark..].iter().filter(|put| put.new.is_some()).count() as u64;
        if revisions.is_ok() {
            assert_eq!(self.counters.revision, before.revision + new, "revisions grow without a gap");
        } else {
            self.counters = before;
            for put in self.records.drain(mark..).rev() {
                self.current.insert(put.key, put.replaced);
            }
        }
        revisions
    }

    /// Decides a part of the content of another store (see [`crate::Store::replay`]).
    pub fn replay(&mut self, part: ReplayPart) -> Result<(), StoreError> {
        let ReplayPart { versions, records, reached } = part;
        let mut last = self.counters.seq;
        for version in versions.iter().map(|replayed| &replayed.version) {
            if version.seq.0 <= last {
                let what = format!("{} with sequence number {} follows {last}", version.key, version.seq);
                return Err(StoreError::Corrupt { what });
            }
            last = version.seq.0;
            if !self.newest.contains_key(&version.key) {
                self.newest.insert(version.key.clone(), self.present.newest(&version.key)?);
            }
        }
        for ReplayedVersion { version: new, home, terms } in versions {
            let replaced = self.newest.insert(new.key.clone(), Some(new.clone())).flatten();
            self.counters.seq = new.seq.0;
            self.counters.floor_ms = self.counters.floor_ms.max(new.updated.as_millisecond());
            self.versions.push(VersionPut::new(new, replaced, home, terms));
        }
        for (key, record) in records.into_iter().map(LedgerEntry::into_record) {
            let replaced = self.current_record(&key)?;
            self.counters.revision = self.counters.revision.max(record.revision);
            self.current.insert(key.clone(), Some(record.clone()));
            self.records.push(RecordPut { key, new: Some(record), replaced });
        }
        if let Some(reached) = reached {
            let StoreMoment { seq, revision, floor_ms } = reached;
            self.counters.seq = self.counters.seq.max(seq.0);
            self.counters.revision = self.counters.revision.max(revision);
            self.counters.floor_ms = self.counters.floor_ms.max(floor_ms);
        }
        Ok(())
    }

    /// Decides a snapshot (see [`StoreSnapshot`]).
    pub fn snapshot(&mut self, now: Timestamp) -> StoreSnapshot {
        let time = self.updated(now);
        self.counters.floor_ms += 1;
        StoreSnapshot { seq: Seq(self.counters.seq), time }
    }

    /// Decides which expired records are removed.
    pub fn sweep(&mut self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let mark = self.records.len();
        for key in self.present.expired(now.as_microsecond(), limit)? {
            // An earlier request of this round may have written the record again.
            let replaced = self.current_record(&key)?;
            if replaced.as_ref().is_some_and(|record| !record.is_live(now)) {
                self.current.insert(key.clone(), None);
                self.records.push(RecordPut { key, new: None, replaced });
            }
        }
        Ok(self.records.len() - mark)
    }

    /// The writes and the counters after them. The rest of the round is dropped, because bodies may be large.
    pub fn into_puts(self) -> RoundPuts {
        let Self { newest, versions, confirmed, records, counters, first, .. } = self;
        assert!(
            first.seq <= counters.seq
                && first.revision <= counters.revision
                && first.floor_ms <= counters.floor_ms,
            "counters never fall: {first:?} {counters:?}"
        );
        let numbers = versions.iter().map(|put| put.new.seq.0);
        assert!(
            numbers.clone().is_sorted_by(|one, next| one < next)
                && numbers.clone().all(|number| first.seq < number && number <= counters.seq),
            "the numbers of a round are new: {first:?} {counters:?}"
        );
        let is_newest = |version: &Version| {
            let newest = newest.get(&version.key).and_then(Option::as_ref);
            newest
                .is_some_and(|newest| newest.seq == version.seq && newest.source_time == version.source_time)
        };
        let confirmed = confirmed.into_iter().map(|(version, _)| version).filter(is_newest).collect();
        RoundPuts { versions, confirmed, records, counters }
    }

    /// Advances the hybrid clock to `now`, unless the clock is already ahead, and returns its time.
    fn updated(&mut self, now: Timestamp) -> Timestamp {
        self.counters.floor_ms = self.counters.floor_ms.max(now.as_millisecond());
        Timestamp::from_millisecond(self.counters.floor_ms)
            .expect("the floor is a valid timestamp plus a few milliseconds")
    }

    /// Decides one write. `mark` is the number of versions of the round before its commit.
    fn version(
        &mut self,
        write: VersionWrite,
        mark: usize,
        updated: Timestamp,
        text: &str,
    ) -> Result<WriteResult, StoreError> {
        let VersionWrite {
            key,
            expect,
            body,
            mut compartments,
            unless_same,
            terms,
            unless_indexed,
            is_check,
            source_time,
            unless_outdated,
        } = write;
        check_key(&key.kind)?;
        check_key(&key.id)?;
        terms.iter().try_for_each(check_term)?;
        if let Some(condition) = unless_indexed
            && self.is_indexed(&condition, mark)?
        {
            return Err(StoreError::IndexChanged { key: key.to_string() });
        }
        let replaced = match self.newest.get(&key) {
            Some(pending) => pending.clone(),
            None => self.present.newest(&key)?,
        };
        let live = replaced.as_ref().filter(|version| !version.is_deleted());
        let holds = match expect {
            ExpectVersion::Any => true,
            ExpectVersion::Absent => live.is_none(),
            ExpectVersion::Version(wanted) => live.is_some_and(|version| version.version == wanted),
        };
        if !holds && is_check {
            return Err(StoreError::IndexChanged { key: key.to_string() });
        }
        if !holds {
            return Err(StoreError::Conflict { key: key.to_string() });
        }

        // The first compartment is the home, under which the resource is stored; the order of the others has
        // no meaning.
        let home = compartments.first().cloned();
        compartments.sort_unstable();
        compartments.dedup();
        compartments.iter().try_for_each(|compartment| check_compartment(compartment))?;
        let source_time = source_time.map(whole_microseconds);
        let own_time = replaced.as_ref().and_then(|version| version.source_time);
        if unless_outdated && source_time.is_some_and(|own| own_time.is_some_and(|own_time| own < own_time)) {
            let version = replaced.expect("a version with a source time was read");
            let Version { version, updated, seq, .. } = version;
            return Ok(WriteResult { effect: WriteEffect::Outdated, version, updated, seq });
        }
        let same = match &body {
            _ if is_check => true,
            None => live.is_none(),
            Some(draft) => {
                if draft.version_at.max(draft.updated_at) > draft.bytes.len() {
                    return Err(StoreError::Draft { key: key.to_string(), length: draft.bytes.len() });
                }
                unless_same
                    && live.is_some_and(|version| {
                        version.compartments == compartments && is_same(draft, version, text)
                    })
            }
        };
        if same {
            if let Some(version) = replaced.clone().filter(|_| !is_check && source_time > own_time) {
                let version = Version { source_time, ..version };
                self.newest.insert(key, Some(version.clone()));
                self.confirmed.push((version, own_time));
            }
            let (version, updated, seq) = replaced
                .map_or((0, updated, Seq::ZERO), |version| (version.version, version.updated, version.seq));
            return Ok(WriteResult { effect: WriteEffect::Nothing, version, updated, seq });
        }

        let effect = match (&body, live) {
            (None, _) => WriteEffect::Deleted,
            (Some(_), None) => WriteEffect::Created,
            (Some(_), Some(_)) => WriteEffect::Replaced,
        };
        let number = replaced.as_ref().map_or(1, |version| version.version + 1);
        // A deleted resource stays in its compartments, so that their scans at an earlier sequence number
        // find it.
        if body.is_none() {
            compartments = replaced.as_ref().map_or(Vec::new(), |version| version.compartments.clone());
        }
        self.counters.seq += 1;
        let seq = Seq(self.counters.seq);
        let body = body.map(|draft| Bytes::from(filled(draft, &number.to_string(), text)));
        let new =
            Version { key: key.clone(), version: number, seq, updated, compartments, source_time, body };
        self.newest.insert(key, Some(new.clone()));
        let terms = if new.is_deleted() { Vec::new() } else { terms };
        self.versions.push(VersionPut::new(new, replaced, home, terms));
        Ok(WriteResult { effect, version: number, updated, seq })
    }

    /// Returns whether a version with one of the terms was committed after the search, in the store or by an
    /// earlier commit of this round (the first `mark` versions).
    fn is_indexed(&self, condition: &IndexCondition, mark: usize) -> Result<bool, StoreError> {
        let in_round = self.versions[..mark].iter().flat_map(|put| &put.terms);
        if in_round.into_iter().any(|term| condition.ranges.iter().any(|range| range.contains(term))) {
            return Ok(true);
        }
        for range in &condition.ranges {
            if self.present.is_indexed_since(range, condition.since)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn record(&mut self, write: LedgerWrite, now: Timestamp) -> Result<u64, StoreError> {
        check_ledger_key(write.key())?;
        let replaced = self.current_record(write.key())?;
        let live = replaced.as_ref().filter(|record| record.is_live(now));
        let (LedgerWrite::Put { expect, .. } | LedgerWrite::Delete { expect, .. }) = &write;
        let holds = match *expect {
            Expect::Any => true,
            Expect::Absent => live.is_none(),
            Expect::Revision(wanted) => live.is_some_and(|record| record.revision == wanted),
        };
        if !holds {
            return Err(StoreError::Conflict { key: write.key().to_owned() });
        }
        let (key, new) = match write {
            LedgerWrite::Put { key, value, expires, .. } => {
                self.counters.revision += 1;
                let expires_us = expires.map(Timestamp::as_microsecond);
                (key, Some(StoredRecord { value, revision: self.counters.revision, expires_us }))
            }
            LedgerWrite::Delete { key, .. } => (key, None),
        };
        let revision = new.as_ref().map_or(0, |record| record.revision);
        if new.is_some() || replaced.is_some() {
            self.current.insert(key.clone(), new.clone());
            self.records.push(RecordPut { key, new, replaced });
        }
        Ok(revision)
    }

    fn current_record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        match self.current.get(key) {
            Some(pending) => Ok(pending.clone()),
            None => self.present.record(key),
        }
    }
}

/// The time without its nanoseconds, which are not stored.
fn whole_microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).expect("a rounded time is in the range of times")
}

/// Checks that a type, id or compartment can be part of an engine's key.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    check_text(key, KEY_LIMIT, "it is longer than 255 bytes")
}

/// Checks that a compartment can be part of an engine's key, and is not the source time of a version.
fn check_compartment(name: &str) -> Result<(), StoreError> {
    match name.starts_with(membership::MARK) {
        true => Err(StoreError::Key { key: name.to_owned(), reason: "compartments do not begin with '='" }),
        false => check_key(name),
    }
}

/// Checks that a text can be a key of the ledger.
pub(crate) fn check_ledger_key(key: &str) -> Result<(), StoreError> {
    check_text(key, LEDGER_KEY_LIMIT, "it is longer than 1,024 bytes")
}

fn check_text(key: &str, limit: usize, too_long: &'static str) -> Result<(), StoreError> {
    let reason = if key.is_empty() {
        "it is empty"
    } else if key.len() > limit {
        too_long
    } else if key.contains('\0') {
        "it contains a zero byte"
    } else {
        return Ok(());
    };
    Err(StoreError::Key { key: key.to_owned(), reason })
}

/// Checks that a term of the search index has a valid length.
fn check_term(term: &IndexTerm) -> Result<(), StoreError> {
    if (1..=TERM_LIMIT).contains(&term.len()) {
        return Ok(());
    }
    let key = term.escape_ascii().to_string();
    Err(StoreError::Key { key, reason: "a term of the search index must have 1 to 255 bytes" })
}

/// Splits the draft at its two offsets, and inserts the version number and the update time as elements 1 and
/// 3.
fn pieces<'a>(draft: &'a ResourceDraft, version: &'a str, updated: &'a str) -> [&'a [u8]; 5] {
    let (version, updated) = (version.as_bytes(), updated.as_bytes());
    let bytes = &draft.bytes;
    let [(first_at, first), (second_at, second)] = if draft.version_at <= draft.updated_at {
        [(draft.version_at, version), (draft.updated_at, updated)]
    } else {
        [(draft.updated_at, updated), (draft.version_at, version)]
    };
    [&bytes[..first_at], first, &bytes[first_at..second_at], second, &bytes[second_at..]]
}

/// The draft with both values inserted. Reuses the draft's buffer, because a resource may be large.
fn filled(draft: ResourceDraft, version: &str, updated: &str) -> Vec<u8> {
    let ResourceDraft { mut bytes, version_at, updated_at } = draft;
    bytes.reserve_exact(version.len() + updated.len());
    let mut values = [(version_at, version), (updated_at, updated)];
    // The sort is stable, so the version number stays first if the offsets are equal. Inserting from the end
    // keeps the other offset valid.
    values.sort_by_key(|(offset, _)| *offset);
    for (offset, value) in values.into_iter().rev() {
        bytes.splice(offset..offset, value.bytes());
    }
    bytes
}

/// `true` if the draft, with the version number and a time of the stored version, equals the stored bytes.
/// `any_time` provides only the length of a time, which is the same for all times.
fn is_same(draft: &ResourceDraft, current: &Version, any_time: &str) -> bool {
    let number = current.version.to_string();
    let mut rest = current.body.as_deref().unwrap_or_default();
    for (index, piece) in pieces(draft, &number, any_time).into_iter().enumerate() {
        let Some((head, tail)) = rest.split_at_checked(piece.len()) else { return false };
        let is_value = index % 2 == 1;
        if !is_value && head != piece {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(draft: &ResourceDraft, version: u64) -> Version {
        let body = pieces(draft, &version.to_string(), "2026-11-21T08:00:00.000Z").concat();
        Version {
            key: ResourceKey::new("Patient", "p"),
            version,
            seq: Seq(1),
            updated: Timestamp::UNIX_EPOCH,
            compartments: Vec::new(),
            source_time: None,
            body: Some(body.into()),
        }
    }

    #[test]
    fn values_are_inserted_in_either_order() {
        #[track_caller]
        fn check(version_at: usize, updated_at: usize, expected: &str) {
            let draft = ResourceDraft { bytes: b"v=,t=.".to_vec(), version_at, updated_at };
            assert_eq!(pieces(&draft, "12", "now").concat(), expected.as_bytes());
            assert_eq!(filled(draft, "12", "now"), expected.as_bytes());
        }
        check(2, 5, "v=12,t=now.");
        check(5, 2, "v=now,t=12.");
        check(0, 6, "12v=,t=.now");
        check(3, 3, "v=,12nowt=.");
    }

    #[test]
    fn only_the_two_inserted_values_are_ignored_by_the_comparison() {
        let draft =
            |text: &str| ResourceDraft { bytes: text.as_bytes().to_vec(), version_at: 2, updated_at: 5 };
        let version = stored(&draft("v=,t=.end"), 117);
        let time = "1999-01-01T00:00:00.000Z";
        assert!(is_same(&draft("v=,t=.end"), &version, time));
        for other in ["v=,t=.eNd", "v=,t=.en", "v=,t=.end ", "w=,t=.end", "v=;t=.end"] {
            assert!(!is_same(&draft(other), &version, time), "{other}");
        }
    }

    struct EmptyStore;

    impl PresentState for EmptyStore {
        fn newest(&self, _: &ResourceKey) -> Result<Option<Version>, StoreError> {
            Ok(None)
        }

        fn is_indexed_since(&self, _: &IndexRange, _: Seq) -> Result<bool, StoreError> {
            Ok(false)
        }

        fn record(&self, _: &str) -> Result<Option<StoredRecord>, StoreError> {
            Ok(None)
        }

        fn expired(&self, _: i64, _: usize) -> Result<Vec<String>, StoreError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_request_that_fails_leaves_no_trace_in_its_round() {
        let now = Timestamp::UNIX_EPOCH;
        let draft = ResourceDraft { bytes: Vec::new(), version_at: 0, updated_at: 0 };
        let put = |expect| {
            VersionWrite::put(ResourceKey::new("Basic", "b"), draft.clone(), Vec::new()).expecting(expect)
        };
        let mut round = WriteRound::new(&EmptyStore, StoreCounters::default());
        let fails = vec![put(ExpectVersion::Absent), put(ExpectVersion::Any), put(ExpectVersion::Version(9))];
        assert!(round.commit(fails, now).is_err());
        let commit = round.commit(vec![put(ExpectVersion::Absent)], now).unwrap();
        assert_eq!((commit.seq, commit.written[0].version), (Seq(1), 1));
        assert_eq!(round.versions.len(), 1);

        let put = |expect| LedgerWrite::put("k", "v", expect);
        let fails = vec![put(Expect::Absent), put(Expect::Any), put(Expect::Revision(9))];
        assert!(round.write(fails, now).is_err());
        assert_eq!(round.write(vec![put(Expect::Absent)], now), Ok(vec![1]));
        assert_eq!(round.records.len(), 1);
        // The next request of the round sees the writes of successful requests only.
        assert!(round.write(vec![put(Expect::Absent)], now).is_err());
        assert_eq!(round.write(vec![put(Expect::Revision(1))], now), Ok(vec![2]));
    }

    #[test]
    fn invalid_keys_are_rejected() {
        assert!(check_key("Patient/p1").is_ok());
        assert!(check_key(&"a".repeat(KEY_LIMIT)).is_ok());
        for bad in ["", "a\0b", &"a".repeat(KEY_LIMIT + 1)] {
            assert!(matches!(check_key(bad), Err(StoreError::Key { .. })), "{bad}");
        }
    }
}
