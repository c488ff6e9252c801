//! A store in memory that several nodes share, for simulations: it models how commits become visible in
//! PostgreSQL.
//!
//! Each node has a handle with a [`StoreLink`] of its own, which delays the steps of an operation or lets
//! them fail. As in PostgreSQL, a commit takes its sequence numbers under a lock that it holds until it is
//! visible, a commit that is interrupted before that has no effect, and one that is interrupted after it may
//! be unknown to its node. The ledger takes no part in the lock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, Notify};

use crate::memory::MemoryEngine;
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, IndexEntry, IndexLookup, KeyOrder, Ledger, LedgerRecord,
    LedgerWrite, LinePage, LineScanRange, PageLimit, ResourceKey, ScanOptions, Seq, StoreError,
    StoreSnapshot, UpdatedRange, Version, VersionHeader, VersionPage, VersionWrite, Versions,
};

/// Time between two looks at the sequence number of the other nodes.
const POLL: Duration = Duration::from_millis(250);

/// A step of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreStep {
    /// The request travels to the store. Nothing has happened yet.
    Request,
    /// A write is in its transaction. A commit holds the lock of the sequence.
    Transaction,
    /// The answer travels back. A write is visible.
    Answer,
}

/// The result of [`StoreLink::pass`].
pub type LinkFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// The way between a node and the store.
pub trait StoreLink: Send + Sync {
    /// Waits as long as a step takes, or fails.
    fn pass(&self, step: StoreStep) -> LinkFuture<'_>;

    /// The time of the database.
    fn time(&self) -> Timestamp;
}

/// A link of a test: it lets everything pass, except a step that [`StoppingLink::stop_at`] selects.
#[derive(Default)]
pub struct StoppingLink {
    /// The kind of the step, and the number of such steps that pass before it.
    stop: std::sync::Mutex<Option<(StoreStep, usize, StopPoint)>>,
}

/// The moment at which a [`StoppingLink`] holds a step.
#[derive(Clone, Default)]
pub struct StopPoint {
    reached: Arc<Notify>,
    released: Arc<Notify>,
}

impl StopPoint {
    /// Waits until the step has been reached.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets the step pass.
    pub fn release(&self) {
        self.released.notify_one();
    }
}

impl StoppingLink {
    /// Holds a step of this kind: the next one if `after` is 0.
    ///
    /// # Panics
    /// Panics if another thread has panicked while it used the link.
    pub fn stop_at(&self, step: StoreStep, after: usize) -> StopPoint {
        let point = StopPoint::default();
        let stop = Some((step, after, point.clone()));
        *self.stop.lock().expect("no thread panics while it holds the lock") = stop;
        point
    }
}

impl StoreLink for StoppingLink {
    fn pass(&self, step: StoreStep) -> LinkFuture<'_> {
        let mut stop = self.stop.lock().expect("no thread panics while it holds the lock");
        let point = stop.take_if(|(stop_step, after, _)| *stop_step == step && *after == 0);
        if let Some((stop_step, after, _)) = &mut *stop
            && *stop_step == step
        {
            *after -= 1;
        }
        Box::pin(async move {
            if let Some((_, _, point)) = point {
                point.reached.notify_one();
                point.released.notified().await;
            }
            Ok(())
        })
    }

    fn time(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

/// The store that the nodes share. Clones are the same store.
#[derive(Clone, Default)]
pub struct SharedMemory {
    data: MemoryEngine,
    /// The lock of the sequence, which a commit holds until it is visible.
    sequence: Arc<Mutex<()>>,
}

impl SharedMemory {
    /// The handle of a node. Like a node on PostgreSQL, it looks at the sequence number four times a second,
    /// until its last clone is dropped. Must be called on the runtime of the node.
    pub(crate) fn node(&self, link: Arc<dyn StoreLink>) -> SharedMemoryNode {
        let node = SharedMemoryNode { shared: self.clone(), link, heard: Arc::default() };
        let heard = Arc::downgrade(&node.heard);
        let follower = SharedMemoryNode { heard: Arc::default(), ..node.clone() };
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(POLL).await;
                // The next look may succeed.
                let seq = follower.last_seq().await.unwrap_or_default();
                let Some(heard) = heard.upgrade() else { break };
                heard.fetch_max(seq.0, Ordering::AcqRel);
            }
        });
        node
    }
}

/// The handle of one node.
#[derive(Clone)]
pub(crate) struct SharedMemoryNode {
    shared: SharedMemory,
    link: Arc<dyn StoreLink>,
    heard: Arc<AtomicU64>,
}

impl SharedMemoryNode {
    pub async fn time(&self) -> Result<Timestamp, StoreError> {
        self.ask(std::future::ready(Ok(self.link.time()))).await
    }

    /// Checks that the store can be reached.
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        self.ask(std::future::ready(Ok(()))).await
    }

    /// The memory that the nodes share.
    pub fn memory(&self) -> &MemoryEngine {
        &self.shared.data
    }

    /// Sends a request over the link, performs it, and returns its answer over the link.
    async fn ask<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.link.pass(StoreStep::Request).await?;
        let result = answer.await;
        self.link.pass(StoreStep::Answer).await?;
        result
    }

    /// Notes that this node has heard of a sequence number.
    fn hear(&self, seq: Seq) -> Seq {
        self.heard.fetch_max(seq.0, Ordering::AcqRel);
        seq
    }
}

impl Ledger for SharedMemoryNode {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<LedgerRecord>, StoreError> {
        self.ask(self.shared.data.get(key, now)).await
    }

    async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let result = async {
            self.link.pass(StoreStep::Transaction).await?;
            self.shared.data.write(writes, now).await
        };
        self.ask(result).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, LedgerRecord)>, StoreError> {
        self.ask(self.shared.data.scan(prefix, after, limit, now)).await
    }

    async fn sweep(&self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.ask(self.shared.data.sweep(now, limit)).await
    }
}

impl Versions for SharedMemoryNode {
    async fn commit(&self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        let result = async {
            let sequence = Arc::clone(&self.shared.sequence).lock_owned().await;
            let first = self.shared.data.reserve(writes.len());
            self.link.pass(StoreStep::Transaction).await?;
            let commit = self.shared.data.commit_at(first, writes, now);
            drop(sequence);
            commit
        };
        let commit = self.ask(result).await?;
        self.hear(commit.seq);
        Ok(commit)
    }

    async fn snapshot(&self, now: Timestamp) -> Result<StoreSnapshot, StoreError> {
        let state = async {
            let _sequence = self.shared.sequence.lock().await;
            self.link.pass(StoreStep::Transaction).await?;
            self.shared.data.snapshot(now).await
        };
        let snapshot = self.ask(state).await?;
        self.hear(snapshot.seq);
        Ok(snapshot)
    }

    async fn read(&self, key: &ResourceKey, seq: Seq) -> Result<Option<Version>, StoreError> {
        self.ask(self.shared.data.read(key, seq)).await
    }

    async fn read_many(
        &self,
        kind: &str,
        ids: Vec<String>,
        seq: Seq,
        bytes: usize,
    ) -> Result<Vec<Option<Version>>, StoreError> {
        self.ask(self.shared.data.read_many(kind, ids, seq, bytes)).await
    }

    async fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.ask(self.shared.data.ids(kind, order, after, limit)).await
    }

    async fn index_entries(&self, lookups: Vec<IndexLookup>) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        self.ask(self.shared.data.index_entries(lookups)).await
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        self.ask(self.shared.data.history(key, before, limit)).await
    }

    async fn scan_kind(&self, kind: &str, scan: ScanOptions<'_>) -> Result<VersionPage, StoreError> {
        self.ask(self.shared.data.scan_kind(kind, scan)).await
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> Result<VersionPage, StoreError> {
        self.ask(self.shared.data.scan_compartment(compartment, kind, scan)).await
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
        self.ask(self.shared.data.scan_lines(kind, of, scan, updated, keep, page)).await
    }

    async fn kinds(&self, seq: Seq) -> Result<Vec<String>, StoreError> {
        self.ask(self.shared.data.kinds(seq)).await
    }

    async fn count(&self, kind: &str, seq: Seq) -> Result<u64, StoreError> {
        self.ask(self.shared.data.count(kind, seq)).await
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        self.ask(self.shared.data.changes(after, limit)).await
    }

    async fn changes_of(
        &self,
        kinds: &'static [&'static str],
        after: Seq,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>, StoreError> {
        self.ask(self.shared.data.changes_of(kinds, after, limit)).await
    }

    async fn changes_before(
        &self,
        kind: Option<&str>,
        range: ChangesBefore,
    ) -> Result<ChangePage, StoreError> {
        self.ask(self.shared.data.changes_before(kind, range)).await
    }

    async fn seq_at(&self, time: Timestamp) -> Result<Seq, StoreError> {
        self.ask(self.shared.data.seq_at(time)).await
    }

    async fn last_seq(&self) -> Result<Seq, StoreError> {
        let seq = self.ask(self.shared.data.last_seq()).await?;
        Ok(self.hear(seq))
    }

    fn heard_seq(&self) -> Seq {
        Seq(self.heard.load(Ordering::Acquire))
    }
}
