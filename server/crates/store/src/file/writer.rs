//! The writer thread. It takes the waiting requests, checks each against the store and the earlier requests
//! of the round, commits one batch with one fsync, and answers all requests.
//!
//! After a failed write, the engine is reopened immediately and the write is retried: a background task may
//! have failed long before, and the disk may have space again. If the retry also fails, rounds are rejected
//! until [`REOPEN_DELAY`] has passed, and the next round reopens the engine.
//!
//! Each caller awaits its answer before it sends another request, and a round takes a limited number of
//! requests in order of arrival. Imports and API requests therefore get a fair share of the writer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use super::batch::{BatchEntries, PreparedRound};
use super::disk;
use super::disk::DiskSpace;
use super::engine::OpenEngine;
use super::failure::read_failure;
use super::keys::{self, StoreTable};
use super::memtable_budget;
use super::reassign::add_compartments;
use super::removals::add_removals;
use super::tables::StoreTables;
use crate::plan::{PresentState, RoundPuts, StoreCounters, StoredRecord, VersionPut, WriteRound};
use crate::{
    Commit, Erasure, IndexEntry, IndexRange, LedgerWrite, Reassignment, ReplayPart, ResourceKey, Seq,
    StoreError, StoreSnapshot, Version, VersionWrite,
};

/// Size in bytes at which a round takes no further requests.
const ROUND_BYTES: usize = 4 << 20;
/// Maximum number of requests in a round.
const ROUND_REQUESTS: usize = 512;

pub(super) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A request of a caller to the writer.
pub(super) enum WriteRequest {
    Commit(Vec<VersionWrite>, Timestamp, ReplySender<Commit>),
    Write(Vec<LedgerWrite>, Timestamp, ReplySender<Vec<u64>>),
    Snapshot(Timestamp, ReplySender<StoreSnapshot>),
    Sweep(Timestamp, usize, ReplySender<usize>),
    Replay(ReplayPart, ReplySender<()>),
    Erase(Vec<Erasure>, ReplySender<Seq>),
    RemoveReplayed(Vec<Erasure>, ReplySender<()>),
    Reassign(Vec<Reassignment>, ReplySender<Seq>),
    /// Moves all writes from the journal to the tables.
    EmptyJournal(ReplySender<()>),
    /// Checks whether a small write is possible.
    Check(ReplySender<()>),
    /// Ends the writer after the requests before it.
    End(ReplySender<()>),
}

/// The error of a write after the end of the writer.
pub(super) fn has_ended() -> StoreError {
    StoreError::ReadOnly { part: "engine", reason: "the writer has stopped".to_owned() }
}

impl WriteRequest {
    /// Answers the request with an error.
    fn refuse(self, error: StoreError) {
        // A caller that was cancelled needs no answer.
        match self {
            Self::Commit(_, _, reply) => drop(reply.send(Err(error))),
            Self::Write(_, _, reply) => drop(reply.send(Err(error))),
            Self::Snapshot(_, reply) => drop(reply.send(Err(error))),
            Self::Sweep(_, _, reply) => drop(reply.send(Err(error))),
            Self::Erase(_, reply) | Self::Reassign(_, reply) => drop(reply.send(Err(error))),
            Self::Replay(_, reply)
            | Self::RemoveReplayed(_, reply)
            | Self::EmptyJournal(reply)
            | Self::Check(reply)
            | Self::End(reply) => {
                drop(reply.send(Err(error)));
            }
        }
    }

    /// The approximate number of bytes that the request adds to a round.
    fn weight(&self) -> usize {
        match self {
            Self::Commit(writes, ..) => {
                writes.iter().map(|write| write.body.as_ref().map_or(64, |draft| draft.bytes.len())).sum()
            }
            Self::Write(writes, ..) => writes
                .iter()
                .map(|write| match write {
                    LedgerWrite::Put { value, .. } => value.len(),
                    LedgerWrite::Delete { .. } => 64,
                })
                .sum(),
            Self::Replay(part, _) => {
                let bodies = part.versions.iter().filter_map(|replayed| replayed.version.body.as_ref());
                let values = part.records.iter().map(|entry| &entry.value);
                bodies.chain(values).map(|bytes| 64 + bytes.len()).sum()
            }
            Self::Snapshot(..) => 64,
            Self::Erase(erasures, _) | Self::RemoveReplayed(erasures, _) => {
                erasures.iter().map(|erasure| 64 * (1 + erasure.terms.len())).sum()
            }
            Self::Reassign(reassignments, _) => {
                reassignments.iter().map(|one| 64 * (1 + one.terms.len() + one.versions.len())).sum()
            }
            Self::EmptyJournal(_) | Self::Check(_) | Self::End(_) => 0,
            Self::Sweep(_, limit, _) => limit.saturating_mul(64),
        }
    }
}

/// Answers one caller when the result of the round is known.
type RoundAnswer = Box<dyn FnOnce(Result<(), StoreError>)>;

fn answer<T: 'static>(reply: ReplySender<T>, decided: Result<T, StoreError>) -> RoundAnswer {
    Box::new(move |round| {
        // The caller may have been cancelled; its write is kept nevertheless.
        let _gone = reply.send(round.and(decided));
    })
}

/// Minimum time between a failed write and the next attempt to reopen the engine.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of bytes written between two checkpoints. A checkpoint writes its number into each table,
/// and the file with this number overlaps all others of its table. With 64 MiB, an import takes a fifth
/// longer.
const CHECKPOINT_BYTES: usize = 512 << 20;
/// Number of descriptors that the engine needs for background tasks.
const DESCRIPTORS: usize = 8;

/// A monotonic clock: returns the time since a fixed but arbitrary point.
pub(super) type MonotonicClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The state of the writer thread.
pub(super) struct WriterThread {
    disk: Arc<DiskSpace>,
    elapsed: MonotonicClock,
    /// Time without a write after which the store is considered idle.
    idle_after: Duration,
    counters: StoreCounters,
    /// The types that have at least one version.
    kinds: HashSet<String>,
    last: watch::Sender<Seq>,
    /// Reason of a failed write and the time from which the engine may be reopened. After a failed write, the
    /// content of the disk is unknown.
    failed: Option<(String, Duration)>,
    /// Number of bytes written since the last checkpoint.
    since_checkpoint: usize,
}

impl WriterThread {
    /// Creates a writer that continues with these counters.
    pub fn new(
        disk: Arc<DiskSpace>,
        elapsed: MonotonicClock,
        idle_after: Duration,
        counters: StoreCounters,
        kinds: Vec<String>,
        last: watch::Sender<Seq>,
    ) -> Self {
        let kinds = kinds.into_iter().collect();
        Self { disk, elapsed, idle_after, counters, kinds, last, failed: None, since_checkpoint: 0 }
    }

    /// Processes requests until all handles of the store are dropped, or one asks for the end.
    pub fn run(mut self, mut queue: mpsc::Receiver<WriteRequest>) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clock = clock.expect("a current-thread runtime needs no resources of the system");
        loop {
            let next = clock.block_on(async { tokio::time::timeout(self.idle_after, queue.recv()).await });
            let first = match next {
                Ok(Some(first)) => first,
                Ok(None) => break,
                Err(_) => {
                    self.settle(memtable_budget::rest);
                    self.checkpoint(1, false);
                    match queue.blocking_recv() {
                        Some(first) => first,
                        None => break,
                    }
                }
            };
            let mut requests = vec![first];
            let mut weight = requests[0].weight();
            while weight < ROUND_BYTES && requests.len() < ROUND_REQUESTS {
                let Ok(next) = queue.try_recv() else { break };
                weight += next.weight();
                requests.push(next);
            }
            if let Some(at) = requests.iter().position(|request| matches!(request, WriteRequest::End(_))) {
                let rest = requests.split_off(at);
                self.round(requests, weight);
                self.end();
                // Later requests find a store that has ended.
                for request in rest {
                    match request {
                        WriteRequest::End(reply) => drop(reply.send(Ok(()))),
                        late => late.refuse(has_ended()),
                    }
                }
                return;
            }
            self.round(requests, weight);
            self.settle(memtable_budget::bound);
            self.checkpoint(CHECKPOINT_BYTES, false);
        }
        self.end();
    }

    /// Writes everything to the tables, and records that the store has ended as it should.
    fn end(&mut self) {
        self.settle(memtable_budget::end);
        self.checkpoint(0, true);
    }

    /// Takes a checkpoint if at least `bytes` bytes were written since the last one.
    fn checkpoint(&mut self, bytes: usize, is_clean: bool) {
        if self.since_checkpoint < bytes || self.failed.is_some() || self.disk.has_room(0).is_err() {
            return;
        }
        match self.disk.checkpoint(is_clean) {
            Ok(()) => self.since_checkpoint = 0,
            // The last checkpoint stays valid, and the next write finds out whether the engine has failed.
            Err(error) => tracing::warn!(%error, "a checkpoint of the store failed"),
        }
    }

    /// Calls `how` to flush memtables, unless the engine has failed or the disk lacks space. Flushed files
    /// are merged, and a merge temporarily needs the space of its files a second time.
    fn settle(&self, how: impl Fn(&OpenEngine)) {
        if self.failed.is_none() && self.disk.has_room_to_merge() {
            // An engine that is not open has nothing to flush.
            drop(self.disk.with(|engine| {
                how(engine);
                Ok(())
            }));
        }
    }

    /// Processes requests in their order. Some need a batch of their own; the others are written together.
    fn round(&mut self, requests: Vec<WriteRequest>, weight: usize) {
        let mut together = Vec::with_capacity(requests.len());
        for request in requests {
            match request {
                WriteRequest::Erase(erasures, reply) => {
                    self.write_together(std::mem::take(&mut together), weight);
                    let erased = self.ready(weight).and_then(|()| self.erase(erasures));
                    // The caller may have been cancelled.
                    drop(reply.send(erased));
                }
                WriteRequest::RemoveReplayed(removed, reply) => {
                    self.write_together(std::mem::take(&mut together), weight);
                    let removed = self.ready(weight).and_then(|()| self.remove_replayed(removed));
                    drop(reply.send(removed));
                }
                WriteRequest::Reassign(reassignments, reply) => {
                    self.write_together(std::mem::take(&mut together), weight);
                    let result = self.ready(weight).and_then(|()| self.reassign(&reassignments));
                    drop(reply.send(result));
                }
                WriteRequest::EmptyJournal(reply) => {
                    self.write_together(std::mem::take(&mut together), weight);
                    let emptied = self.ready(weight).and_then(|()| self.empty_journal());
                    drop(reply.send(emptied));
                }
                request => together.push(request),
            }
        }
        self.write_together(together, weight);
    }

    /// Decides requests one after the other, and writes them in one batch.
    fn write_together(&mut self, requests: Vec<WriteRequest>, weight: usize) {
        if requests.is_empty() {
            return;
        }
        if let Err(error) = self.ready(weight) {
            return requests.into_iter().for_each(|request| request.refuse(error.clone()));
        }
        let disk = Arc::clone(&self.disk);
        let mut answers: Vec<RoundAnswer> = Vec::with_capacity(requests.len());
        let is_check = requests.iter().any(|request| matches!(request, WriteRequest::Check(_)));
        let space = if is_check { self.check() } else { Ok(()) };
        let prepared = disk.with(|engine| {
            let mut round = WriteRound::new(&engine.tables, self.counters);
            answers.extend(requests.into_iter().map(|request| match request {
                WriteRequest::Commit(writes, now, reply) => answer(reply, round.commit(writes, now)),
                WriteRequest::Write(writes, now, reply) => answer(reply, round.write(writes, now)),
                WriteRequest::Snapshot(now, reply) => answer(reply, Ok(round.snapshot(now))),
                WriteRequest::Sweep(now, limit, reply) => answer(reply, round.sweep(now, limit)),
                WriteRequest::Replay(part, reply) => answer(reply, round.replay(part)),
                WriteRequest::Check(reply) => answer(reply, space.clone()),
                WriteRequest::Erase(..)
                | WriteRequest::RemoveReplayed(..)
                | WriteRequest::Reassign(..)
                | WriteRequest::EmptyJournal(_)
                | WriteRequest::End(_) => {
                    unreachable!("they are not written together with others")
                }
            }));
            self.prepare(engine, round)
        });
        let outcome = prepared.and_then(|prepared| match prepared {
            Some(prepared) => {
                self.since_checkpoint += weight.max(1);
                self.write(&prepared)
            }
            None => Ok(()),
        });
        for result in answers {
            result(outcome.clone());
        }
    }

    fn erase(&mut self, erasures: Vec<Erasure>) -> Result<Seq, StoreError> {
        let counters = StoreCounters { seq: self.counters.seq + 1, ..self.counters };
        self.write_alone(counters, |engine, entries| {
            erasures.into_iter().try_for_each(|erasure| add_removals(engine, erasure, entries))
        })
    }

    /// Removes resources without a sequence number.
    fn remove_replayed(&mut self, removed: Vec<Erasure>) -> Result<(), StoreError> {
        let removals = |engine: &OpenEngine, entries: &mut BatchEntries| {
            removed.into_iter().try_for_each(|erasure| add_removals(engine, erasure, entries))
        };
        self.write_alone(self.counters, removals).map(drop)
    }

    fn reassign(&mut self, reassignments: &[Reassignment]) -> Result<Seq, StoreError> {
        let counters = StoreCounters { seq: self.counters.seq + 1, ..self.counters };
        self.write_alone(counters, |engine, entries| {
            reassignments.iter().try_for_each(|reassignment| add_compartments(engine, reassignment, entries))
        })
    }

    /// Writes entries in a batch of their own, after which the store has these counters.
    fn write_alone(
        &mut self,
        counters: StoreCounters,
        add: impl FnOnce(&OpenEngine, &mut BatchEntries) -> Result<(), StoreError>,
    ) -> Result<Seq, StoreError> {
        let disk = Arc::clone(&self.disk);
        let mut entries = BatchEntries::default();
        disk.with(|engine| add(engine, &mut entries))?;
        entries.put(StoreTable::Meta, keys::COUNTERS.to_vec(), keys::encode_counters(&counters));
        let entries = entries.in_order();
        self.since_checkpoint += entries.len();
        self.write(&PreparedRound { entries, counters, new_kinds: HashSet::new() })?;
        Ok(Seq(counters.seq))
    }

    /// Moves all writes to the tables, empties the journal, and reopens the engine.
    fn empty_journal(&mut self) -> Result<(), StoreError> {
        let emptied = self.disk.empty_journal();
        let counters = super::disk::counters(&self.disk);
        let (counters, kinds) = emptied.and(counters).map_err(|error| self.fail(error.to_string()))?;
        self.kinds = kinds.into_iter().collect();
        self.arrive_at(counters);
        self.since_checkpoint = 0;
        Ok(())
    }

    /// Checks that a round can be written. After a failed write, reopens the engine first.
    fn ready(&mut self, weight: usize) -> Result<(), StoreError> {
        if let Some((reason, again)) = &self.failed
            && (self.elapsed)() < *again
        {
            return Err(StoreError::ReadOnly { part: "engine", reason: reason.clone() });
        }
        if let Err(no_space) = self.disk.has_room(weight) {
            let reason = no_space.to_string();
            tracing::warn!(reason, "a write is rejected");
            return Err(StoreError::ReadOnly { part: "disk", reason });
        }
        if self.failed.is_some() {
            let (counters, kinds) = self.reopen()?;
            self.kinds = kinds.into_iter().collect();
            self.arrive_at(counters);
        }
        Ok(())
    }

    /// Reopens the engine and returns its counters and types.
    fn reopen(&mut self) -> Result<(StoreCounters, Vec<String>), StoreError> {
        let result = self.disk.reopen().and_then(|()| super::disk::counters(&self.disk));
        let engine = result.map_err(|error| self.fail(error.to_string()))?;
        tracing::info!("the store was reopened after a failed write");
        self.failed = None;
        Ok(engine)
    }

    /// Checks the requirements that otherwise only a write would reveal to be missing.
    fn check(&mut self) -> Result<(), StoreError> {
        let descriptors = (0..DESCRIPTORS).map(|_| self.disk.descriptor()).collect::<Result<Vec<_>, _>>();
        if let Err(error) = descriptors {
            return Err(StoreError::ReadOnly {
                part: "descriptors",
                reason: format!("the process can open no more files: {error}"),
            });
        }
        if self.disk.with(|engine| Ok(engine.is_poisoned()))? {
            let (counters, kinds) = self.reopen()?;
            self.kinds = kinds.into_iter().collect();
            self.arrive_at(counters);
        }
        Ok(())
    }

    /// Records that a write failed, and returns the error for the callers.
    fn fail(&mut self, reason: String) -> StoreError {
        tracing::error!(reason, "a write failed: the store is read-only until it is reopened");
        self.failed = Some((reason.clone(), (self.elapsed)() + REOPEN_DELAY));
        StoreError::ReadOnly { part: "engine", reason }
    }

    fn arrive_at(&mut self, counters: StoreCounters) {
        let StoreCounters { seq, revision, floor_ms } = self.counters;
        assert!(
            seq <= counters.seq && revision <= counters.revision && floor_ms <= counters.floor_ms,
            "counters of written rounds never fall: {:?} {counters:?}",
            self.counters
        );
        self.counters = counters;
        self.last.send_if_modified(|last| {
            let is_new = last.0 != counters.seq;
            *last = Seq(counters.seq);
            is_new
        });
    }

    /// Writes a round durably. If the write fails, reopens the engine and tries a second time.
    fn write(&mut self, prepared: &PreparedRound) -> Result<(), StoreError> {
        let disk = Arc::clone(&self.disk);
        let commit = || disk.with(|engine| Ok(prepared.commit(engine)));
        if let Err(error) = commit()? {
            tracing::warn!(%error, "a write failed; the store is reopened and the write is retried");
            let (engine, _) = self.reopen()?;
            // The first attempt was either written completely or not at all.
            let is_written = engine == prepared.counters && engine != self.counters;
            if !is_written && let Err(error) = commit()? {
                return Err(self.fail(error.to_string()));
            }
        }
        self.kinds.extend(prepared.new_kinds.iter().cloned());
        self.arrive_at(prepared.counters);
        Ok(())
    }

    /// The entries of a round, or `None` if the round changes nothing.
    fn prepare(
        &self,
        engine: &OpenEngine,
        round: WriteRound<'_, StoreTables>,
    ) -> Result<Option<PreparedRound>, StoreError> {
        let RoundPuts { versions, confirmed, records, counters } = round.into_puts();
        if counters == self.counters && versions.is_empty() && confirmed.is_empty() && records.is_empty() {
            return Ok(None);
        }
        let mut entries = BatchEntries::default();
        let mut homes = HashMap::new();
        let mut new_kinds = HashSet::new();
        // Each body is dropped after it was encoded, because bodies may be large.
        for VersionPut { mut new, replaced, home, joined, left, terms } in versions {
            let change = keys::encode_change(&new);
            let body = new.body.take();
            let key = &new.key;
            let home = match homes.get(key).cloned() {
                Some(home) => home,
                None if replaced.is_none() => {
                    let home = home.unwrap_or_default();
                    entries.put(StoreTable::Homes, keys::home(key), home.clone().into_bytes());
                    home
                }
                None => disk::home(&engine.tables, key)?.unwrap_or_default(),
            };
            entries.put(StoreTable::Current, keys::current(key, &home), keys::encode_version(&new, body));
            if let Some(old) = &replaced {
                entries.put(
                    StoreTable::History,
                    keys::history(key, old.seq),
                    keys::encode_version(old, old.body.clone()),
                );
            }
            // A scan finds a resource in its home compartment without an index entry.
            let guest_of = |compartments: &[String], is_in: u8, entries: &mut BatchEntries| {
                for compartment in compartments.iter().filter(|compartment| **compartment != home) {
                    entries.put(StoreTable::Members, keys::member(compartment, key, new.seq), vec![is_in]);
                }
            };
            guest_of(&joined, 1, &mut entries);
            guest_of(&left, 0, &mut entries);
            entries.put(StoreTable::Changes, new.seq.0.to_be_bytes().to_vec(), change);
            for term in terms {
                let entry = IndexEntry { term, id: key.id.clone() };
                entries.put(StoreTable::Terms, keys::term(&entry), new.seq.0.to_be_bytes().to_vec());
            }
            if !self.kinds.contains(&key.kind) && new_kinds.insert(key.kind.clone()) {
                let first = new.seq.0.to_be_bytes().to_vec();
                entries.put(StoreTable::Meta, keys::joined([keys::KIND, &key.kind]), first);
            }
            homes.insert(new.key, home);
        }
        for mut version in confirmed {
            let body = version.body.take();
            let home = match homes.get(&version.key).cloned() {
                Some(home) => home,
                None => disk::home(&engine.tables, &version.key)?.unwrap_or_default(),
            };
            let key = keys::current(&version.key, &home);
            entries.put(StoreTable::Current, key, keys::encode_version(&version, body));
        }
        for put in records {
            if let Some(expires_us) = put.replaced.and_then(|record| record.expires_us) {
                entries.remove(StoreTable::Expiries, keys::expiry(expires_us, &put.key));
            }
            if let Some(expires_us) = put.new.as_ref().and_then(|record| record.expires_us) {
                entries.put(StoreTable::Expiries, keys::expiry(expires_us, &put.key), Vec::new());
            }
            match put.new {
                Some(record) => {
                    entries.put(StoreTable::Records, put.key.into_bytes(), keys::encode_record(&record));
                }
                None => entries.remove(StoreTable::Records, put.key.into_bytes()),
            }
        }
        entries.put(StoreTable::Meta, keys::COUNTERS.to_vec(), keys::encode_counters(&counters));

        Ok(Some(PreparedRound { entries: entries.in_order(), counters, new_kinds }))
    }
}

/// The writer is the only thread that writes, so it always reads its own last write.
impl PresentState for StoreTables {
    fn newest(&self, key: &ResourceKey) -> Result<Option<Version>, StoreError> {
        let Some(home) = disk::home(self, key)? else { return Ok(None) };
        let current = self.of(StoreTable::Current);
        let value = current.get(keys::current(key, &home)).map_err(read_failure(current))?;
        value.map(|value| keys::decode_version(&key.kind, &key.id, Bytes::from(value))).transpose()
    }

    fn is_indexed_since(&self, range: &IndexRange, since: Seq) -> Result<bool, StoreError> {
        let terms = self.of(StoreTable::Terms);
        let (from, until) = keys::term_range(range);
        for entry in terms.range(from..until) {
            let value = entry.value().map_err(read_failure(terms))?;
            if keys::decode_seq(&value)? > since {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        let records = self.of(StoreTable::Records);
        let value = records.get(key).map_err(read_failure(records))?;
        value.map(|value| keys::decode_record(&Bytes::from(value))).transpose()
    }

    fn expired(&self, now_us: i64, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut keys = Vec::new();
        let expiries = self.of(StoreTable::Expiries);
        // The range starts at the shortest key of an expiry, which sorts after the key of the checkpoint.
        for entry in expiries.range([0; 8]..).take(limit) {
            let key = entry.key().map_err(read_failure(expiries))?;
            let (expiry, key) = keys::split_expiry(&key)?;
            if expiry > now_us {
                break;
            }
            keys.push(key.to_owned());
        }
        Ok(keys)
    }
}
