//! The one thread that writes. It drains what waits, decides each request against the store and this
//! round, commits one batch with one fsync, and answers all.
//!
//! After a failed write, the engine is opened again at once and the write is tried a second time: work behind the writes
//! may have failed long before, on a disk that has room again. If that fails too, rounds are refused for a moment, and the
//! next one opens the engine again.
//!
//! Every caller awaits its answer before it sends again, and a round takes a bounded amount of work in the
//! order of arrival; so an import and the callers of the API take turns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use super::batch::{Entries, Prepared};
use super::disk::{self, Disk, Opened, Tables};
use super::keys::{self, Table};
use super::{read_failure, unflushed};
use crate::plan::{Counters, Present, Round, StoredRecord, VersionPut};
use crate::{Commit, LedgerWrite, ResourceKey, Seq, Snapshot, StoreError, Version, VersionWrite};

/// A round takes requests until their content reaches this many bytes.
const ROUND_BYTES: usize = 4 << 20;
/// And at most this many requests.
const ROUND_REQUESTS: usize = 512;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What callers ask for.
pub(super) enum Request {
    Commit(Vec<VersionWrite>, Timestamp, Reply<Commit>),
    Write(Vec<LedgerWrite>, Timestamp, Reply<Vec<u64>>),
    Snapshot(Timestamp, Reply<Snapshot>),
    Sweep(Timestamp, usize, Reply<usize>),
    /// Could a small write be carried out?
    Check(Reply<()>),
}

impl Request {
    /// Answers that it was not done.
    fn refuse(self, error: StoreError) {
        // A caller that went away needs no answer.
        match self {
            Self::Commit(_, _, reply) => drop(reply.send(Err(error))),
            Self::Write(_, _, reply) => drop(reply.send(Err(error))),
            Self::Snapshot(_, reply) => drop(reply.send(Err(error))),
            Self::Sweep(_, _, reply) => drop(reply.send(Err(error))),
            Self::Check(reply) => drop(reply.send(Err(error))),
        }
    }

    /// Roughly how much this adds to a round, in bytes.
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
            Self::Snapshot(..) => 64,
            Self::Check(_) => 0,
            Self::Sweep(_, limit, _) => limit.saturating_mul(64),
        }
    }
}

/// Tells one caller how it went, once it is known whether the round was written.
type Answer = Box<dyn FnOnce(Result<(), StoreError>)>;

fn answer<T: 'static>(reply: Reply<T>, decided: Result<T, StoreError>) -> Answer {
    Box::new(move |round| {
        // A caller that went away needs no answer; what it asked for stands.
        let _gone = reply.send(round.and(decided));
    })
}

/// How long after a failed write the engine is opened again at the earliest.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// A checkpoint is taken at the latest when this many bytes were written since the last one. It writes its number into each
/// table, and those files overlap all others of their table, so a long import takes few.
const CHECKPOINT_BYTES: usize = 512 << 20;
/// Descriptors that the engine needs for its work behind a write.
const DESCRIPTORS: usize = 8;

/// The time since some moment, by a clock that never goes back.
pub(super) type Elapsed = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The writer's state.
pub(super) struct Writer {
    disk: Arc<Disk>,
    elapsed: Elapsed,
    /// Time without a write after which the store is idle.
    idle_after: Duration,
    /// What the last round ended with.
    counters: Counters,
    /// The types that have a first sequence number.
    kinds: HashSet<String>,
    last: watch::Sender<Seq>,
    /// A write failed, so that what the disk holds behind the last answer is not known: why, and when the engine
    /// may be opened again to find out.
    failed: Option<(String, Duration)>,
    /// Bytes written since the last checkpoint.
    since_checkpoint: usize,
}

impl Writer {
    /// A writer that goes on where these end.
    pub fn new(
        disk: Arc<Disk>,
        elapsed: Elapsed,
        idle_after: Duration,
        counters: Counters,
        kinds: Vec<String>,
        last: watch::Sender<Seq>,
    ) -> Self {
        let kinds = kinds.into_iter().collect();
        Self { disk, elapsed, idle_after, counters, kinds, last, failed: None, since_checkpoint: 0 }
    }

    /// Works until every handle of the store is gone.
    pub fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clock = clock.expect("a runtime of one thread takes nothing that can be missing");
        loop {
            let next = clock.block_on(async { tokio::time::timeout(self.idle_after, queue.recv()).await });
            let first = match next {
                Ok(Some(first)) => first,
                Ok(None) => break,
                Err(_) => {
                    self.settle(unflushed::rest);
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
            self.round(requests, weight);
            self.settle(unflushed::bound);
            self.checkpoint(CHECKPOINT_BYTES, false);
        }
        self.settle(unflushed::end);
        self.checkpoint(0, true);
    }

    /// Takes a checkpoint if at least this much was written since the last one.
    fn checkpoint(&mut self, bytes: usize, is_clean: bool) {
        if self.since_checkpoint < bytes || self.failed.is_some() || self.disk.has_room(0).is_err() {
            return;
        }
        match self.disk.checkpoint(is_clean) {
            Ok(()) => self.since_checkpoint = 0,
            // The last one stays valid, and the next write finds out whether the engine has failed.
            Err(error) => tracing::warn!(%error, "the store took no checkpoint"),
        }
    }

    /// Sees to what is not written out yet, unless the engine failed or the disk has no room for it: what is written out
    /// is merged, and that takes the space of the merged files once more.
    fn settle(&self, how: impl Fn(&Opened)) {
        if self.failed.is_none() && self.disk.has_room_to_merge() {
            // An engine that is not open has nothing to write out.
            drop(self.disk.with(|opened| {
                how(opened);
                Ok(())
            }));
        }
    }

    fn round(&mut self, requests: Vec<Request>, weight: usize) {
        if let Err(error) = self.ready(weight) {
            return requests.into_iter().for_each(|request| request.refuse(error.clone()));
        }
        let disk = Arc::clone(&self.disk);
        let mut answers: Vec<Answer> = Vec::with_capacity(requests.len());
        let is_check = requests.iter().any(|request| matches!(request, Request::Check(_)));
        let checked = if is_check { self.check() } else { Ok(()) };
        let prepared = disk.with(|opened| {
            let mut round = Round::new(&opened.tables, self.counters);
            answers.extend(requests.into_iter().map(|request| match request {
                Request::Commit(writes, now, reply) => answer(reply, round.commit(writes, now)),
                Request::Write(writes, now, reply) => answer(reply, round.write(writes, now)),
                Request::Snapshot(now, reply) => answer(reply, Ok(round.snapshot(now))),
                Request::Sweep(now, limit, reply) => answer(reply, round.sweep(now, limit)),
                Request::Check(reply) => answer(reply, checked.clone()),
            }));
            self.prepare(opened, round)
        });
        let outcome = prepared.and_then(|prepared| match prepared {
            Some(prepared) => {
                self.since_checkpoint += weight.max(1);
                self.write(&prepared)
            }
            None => Ok(()),
        });
        for answer in answers {
            answer(outcome.clone());
        }
    }

    /// May a round be written? After a failed write the engine is opened again first.
    fn ready(&mut self, weight: usize) -> Result<(), StoreError> {
        if let Some((reason, again)) = &self.failed
            && (self.elapsed)() < *again
        {
            return Err(StoreError::ReadOnly { part: "engine", reason: reason.clone() });
        }
        if let Err(no_space) = self.disk.has_room(weight) {
            let reason = no_space.to_string();
            tracing::warn!(reason, "a write is refused");
            return Err(StoreError::ReadOnly { part: "disk", reason });
        }
        if self.failed.is_some() {
            let (counters, kinds) = self.reopen()?;
            self.kinds = kinds.into_iter().collect();
            self.arrive_at(counters);
        }
        Ok(())
    }

    /// Opens the engine again; returns what it holds now.
    fn reopen(&mut self) -> Result<(Counters, Vec<String>), StoreError> {
        let opened = self.disk.reopen().and_then(|()| disk::counters(&self.disk));
        let found = opened.map_err(|error| self.fail(error.to_string()))?;
        tracing::info!("the store was opened again after a failed write");
        self.failed = None;
        Ok(found)
    }

    /// Checks what only a write would find out.
    fn check(&mut self) -> Result<(), StoreError> {
        let descriptors = (0..DESCRIPTORS).map(|_| self.disk.descriptor()).collect::<Result<Vec<_>, _>>();
        if let Err(error) = descriptors {
            return Err(StoreError::ReadOnly {
                part: "descriptors",
                reason: format!("the process can open no more files: {error}"),
            });
        }
        if self.disk.with(|opened| Ok(opened.is_poisoned()))? {
            let (counters, kinds) = self.reopen()?;
            self.kinds = kinds.into_iter().collect();
            self.arrive_at(counters);
        }
        Ok(())
    }

    /// Notes that a write failed.
    fn fail(&mut self, reason: String) -> StoreError {
        tracing::error!(reason, "a write failed: the store only reads until it could be opened again");
        self.failed = Some((reason.clone(), (self.elapsed)() + REOPEN_DELAY));
        StoreError::ReadOnly { part: "engine", reason }
    }

    fn arrive_at(&mut self, counters: Counters) {
        self.counters = counters;
        self.last.send_if_modified(|last| {
            let is_new = last.0 != counters.seq;
            *last = Seq(counters.seq);
            is_new
        });
    }

    /// Writes a round durably; opens the engine again and tries a second time if that fails.
    fn write(&mut self, prepared: &Prepared) -> Result<(), StoreError> {
        let disk = Arc::clone(&self.disk);
        let commit = || disk.with(|opened| Ok(prepared.commit(opened)));
        if let Err(error) = commit()? {
            tracing::warn!(%error, "a write failed; the store is opened again to try it a second time");
            let (found, _) = self.reopen()?;
            // The first try may have reached the disk whole; if not, nothing of it did.
            let is_written = found == prepared.counters && found != self.counters;
            if !is_written && let Err(error) = commit()? {
                return Err(self.fail(error.to_string()));
            }
        }
        self.kinds.extend(prepared.new_kinds.iter().cloned());
        self.arrive_at(prepared.counters);
        Ok(())
    }

    /// The entries of a round; `None` if it changes nothing.
    fn prepare(&self, opened: &Opened, round: Round<'_, Tables>) -> Result<Option<Prepared>, StoreError> {
        let (versions, records, counters) = round.into_puts();
        if counters == self.counters && versions.is_empty() && records.is_empty() {
            return Ok(None);
        }
        let mut entries = Entries::default();
        let mut homes = HashMap::new();
        let mut new_kinds = HashSet::new();
        // Each is gone when it is encoded: bodies may be large.
        for VersionPut { new, replaced, home, joined, left } in versions {
            let key = &new.key;
            let home = match homes.get(key).cloned() {
                Some(home) => home,
                None if replaced.is_none() => {
                    let home = home.unwrap_or_default();
                    entries.put(Table::Homes, keys::home(key), home.clone().into_bytes());
                    home
                }
                None => disk::home(&opened.tables, key)?.unwrap_or_default(),
            };
            entries.put(Table::Current, keys::current(key, &home), keys::encode_version(&new));
            if let Some(old) = &replaced {
                entries.put(Table::History, keys::history(key, old.seq), keys::encode_version(old));
            }
            // At home a resource is found without an entry.
            let guest_of = |compartments: &[String], is_in: u8, entries: &mut Entries| {
                for compartment in compartments.iter().filter(|compartment| **compartment != home) {
                    entries.put(Table::Members, keys::member(compartment, key, new.seq), vec![is_in]);
                }
            };
            guest_of(&joined, 1, &mut entries);
            guest_of(&left, 0, &mut entries);
            entries.put(Table::Changes, new.seq.0.to_be_bytes().to_vec(), keys::encode_change(&new));
            if !self.kinds.contains(&key.kind) && new_kinds.insert(key.kind.clone()) {
                let first = new.seq.0.to_be_bytes().to_vec();
                entries.put(Table::Meta, keys::joined([keys::KIND, &key.kind]), first);
            }
            homes.insert(new.key, home);
        }
        for put in records {
            if let Some(at) = put.replaced.and_then(|record| record.expires_us) {
                entries.remove(Table::Expiries, keys::expiry(at, &put.key));
            }
            if let Some(at) = put.new.as_ref().and_then(|record| record.expires_us) {
                entries.put(Table::Expiries, keys::expiry(at, &put.key), Vec::new());
            }
            match put.new {
                Some(record) => {
                    entries.put(Table::Records, put.key.into_bytes(), keys::encode_record(&record));
                }
                None => entries.remove(Table::Records, put.key.into_bytes()),
            }
        }
        entries.put(Table::Meta, keys::COUNTERS.to_vec(), keys::encode_counters(&counters));

        Ok(Some(Prepared { entries: entries.in_order(), counters, new_kinds }))
    }
}

/// The writer sees what it wrote last: nobody else writes.
impl Present for Tables {
    fn newest(&self, key: &ResourceKey) -> Result<Option<Version>, StoreError> {
        let Some(home) = disk::home(self, key)? else { return Ok(None) };
        let current = self.of(Table::Current);
        let value = current.get(keys::current(key, &home)).map_err(read_failure(current))?;
        value.map(|value| keys::decode_version(&key.kind, &key.id, Bytes::from(value))).transpose()
    }

    fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        let records = self.of(Table::Records);
        let value = records.get(key).map_err(read_failure(records))?;
        value.map(|value| keys::decode_record(&Bytes::from(value))).transpose()
    }

    fn expired(&self, now_us: i64, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        let expiries = self.of(Table::Expiries);
        // The shortest key of an expiry, which sorts after the key of the checkpoint.
        for entry in expiries.range([0; 8]..).take(limit) {
            let key = entry.key().map_err(read_failure(expiries))?;
            let (at, key) = keys::split_expiry(&key)?;
            if at > now_us {
                break;
            }
            found.push(key.to_owned());
        }
        Ok(found)
    }
}
