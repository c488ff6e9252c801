//! The one thread that writes. It drains what waits, decides each request against the store and this
//! round, commits one batch with one fsync, and answers all.
//!
//! After a failed write, rounds are refused until the engine could be opened again; see `disk`.
//!
//! Every caller awaits its answer before it sends again, and a round takes a bounded amount of work in the
//! order of arrival; so an import and the callers of the API take turns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

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
}

impl Request {
    /// When it was asked.
    fn now(&self) -> Timestamp {
        match self {
            Self::Commit(_, now, _)
            | Self::Write(_, now, _)
            | Self::Snapshot(now, _)
            | Self::Sweep(now, ..) => *now,
        }
    }

    /// Answers that it was not done.
    fn refuse(self, error: StoreError) {
        // A caller that went away needs no answer.
        match self {
            Self::Commit(_, _, reply) => drop(reply.send(Err(error))),
            Self::Write(_, _, reply) => drop(reply.send(Err(error))),
            Self::Snapshot(_, reply) => drop(reply.send(Err(error))),
            Self::Sweep(_, _, reply) => drop(reply.send(Err(error))),
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

/// After so long without a write it is quiet.
const REST: Duration = Duration::from_millis(500);
/// How long after a failed write the engine is opened again at the earliest.
const AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// The writer's state.
pub(super) struct Writer {
    disk: Arc<Disk>,
    /// What the last round ended with.
    counters: Counters,
    /// The types that have a first sequence number.
    kinds: HashSet<String>,
    last: watch::Sender<Seq>,
    /// A write failed, so that what the disk holds behind the last answer is not known: why, and when the engine
    /// may be opened again to find out.
    failed: Option<(String, Timestamp)>,
}

impl Writer {
    /// A writer that goes on where these end.
    pub fn new(disk: Arc<Disk>, counters: Counters, kinds: Vec<String>, last: watch::Sender<Seq>) -> Self {
        Self { disk, counters, kinds: kinds.into_iter().collect(), last, failed: None }
    }

    /// Works until every handle of the store is gone.
    pub fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clock = clock.expect("a runtime of one thread takes nothing that can be missing");
        loop {
            let next = clock.block_on(async { tokio::time::timeout(REST, queue.recv()).await });
            let first = match next {
                Ok(Some(first)) => first,
                Ok(None) => break,
                Err(_) => {
                    self.settle(unflushed::rest);
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
        }
        self.settle(unflushed::end);
    }

    /// Sees to what is not written out yet, unless the engine failed.
    fn settle(&self, how: impl Fn(&Opened)) {
        if self.failed.is_none() {
            // An engine that is not open has nothing to write out.
            drop(self.disk.with(|opened| {
                how(opened);
                Ok(())
            }));
        }
    }

    fn round(&mut self, requests: Vec<Request>, weight: usize) {
        let now = requests.iter().map(Request::now).max().unwrap_or_default();
        if let Err(error) = self.ready(weight, now) {
            return requests.into_iter().for_each(|request| request.refuse(error.clone()));
        }
        let disk = Arc::clone(&self.disk);
        let mut answers: Vec<Answer> = Vec::with_capacity(requests.len());
        let outcome = disk.with(|opened| {
            let mut round = Round::new(&opened.tables, self.counters);
            answers.extend(requests.into_iter().map(|request| match request {
                Request::Commit(writes, now, reply) => answer(reply, round.commit(writes, now)),
                Request::Write(writes, now, reply) => answer(reply, round.write(writes, now)),
                Request::Snapshot(now, reply) => answer(reply, Ok(round.snapshot(now))),
                Request::Sweep(now, limit, reply) => answer(reply, round.sweep(now, limit)),
            }));
            self.write(opened, round, now)
        });
        for answer in answers {
            answer(outcome.clone());
        }
    }

    /// May a round be written? After a failed write the engine is opened again first.
    fn ready(&mut self, weight: usize, now: Timestamp) -> Result<(), StoreError> {
        if let Some((reason, again)) = &self.failed
            && now < *again
        {
            return Err(StoreError::ReadOnly { reason: reason.clone() });
        }
        if let Err(reason) = self.disk.has_room(weight) {
            tracing::warn!(reason, "a write is refused");
            return Err(StoreError::ReadOnly { reason });
        }
        if self.failed.is_some() {
            let opened = self.disk.reopen().and_then(|()| disk::counters(&self.disk));
            let (counters, kinds) = opened.map_err(|error| self.fail(error.to_string(), now))?;
            tracing::info!("the store was opened again after a failed write");
            self.failed = None;
            self.kinds = kinds.into_iter().collect();
            self.arrive_at(counters);
        }
        Ok(())
    }

    /// Notes that a write failed.
    fn fail(&mut self, reason: String, now: Timestamp) -> StoreError {
        tracing::error!(reason, "a write failed: the store only reads until it could be opened again");
        self.failed = Some((reason.clone(), now + AGAIN));
        StoreError::ReadOnly { reason }
    }

    fn arrive_at(&mut self, counters: Counters) {
        self.counters = counters;
        self.last.send_if_modified(|last| {
            let is_new = last.0 != counters.seq;
            *last = Seq(counters.seq);
            is_new
        });
    }

    /// Writes a round durably.
    fn write(&mut self, opened: &Opened, round: Round<'_, Tables>, now: Timestamp) -> Result<(), StoreError> {
        let (versions, records, counters) = round.into_puts();
        if counters == self.counters && versions.is_empty() && records.is_empty() {
            return Ok(());
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

        let batch = entries.into_batch(opened);
        if let Err(error) = batch.durability(Some(PersistMode::SyncAll)).commit() {
            return Err(self.fail(error.to_string(), now));
        }
        self.kinds.extend(new_kinds);
        self.arrive_at(counters);
        Ok(())
    }
}

/// The entries of one batch. The engine gives all entries of a batch the same number, so that two for one
/// key would be a matter of luck: the last one counts, and only it is handed on.
#[derive(Default)]
struct Entries(Vec<(Table, Vec<u8>, Option<Vec<u8>>)>);

impl Entries {
    fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.0.push((table, key, Some(value)));
    }

    fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.0.push((table, key, None));
    }

    fn into_batch(self, opened: &Opened) -> OwnedWriteBatch {
        let tables = &opened.tables;
        let mut entries = self.0;
        entries.reverse();
        // Stable, so that of equal keys the one added last stands first, which is the one kept.
        entries.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        entries.dedup_by(|b, a| (a.0, &a.1) == (b.0, &b.1));
        let mut batch = OwnedWriteBatch::with_capacity(opened.db.clone(), entries.len());
        for (table, key, value) in entries {
            match value {
                Some(value) => batch.insert(tables.of(table), key, value),
                None => batch.remove(tables.of(table), key),
            }
        }
        batch
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
        for entry in expiries.iter().take(limit) {
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
