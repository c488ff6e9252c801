//! The two traits of a store engine. The other crates use only these.
//!
//! They expose nothing of an engine: a sequence number is a stored fact, a condition is part of the write, and no
//! handle outlives a call. The caller supplies the time; the store never reads a clock.

use std::future::Future;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    ChangeRecord, Commit, LedgerRecord, LedgerWrite, LinePage, LineScanRange, PageLimit, ResourceKey,
    ScanOptions, Seq, StoreError, StoreSnapshot, Version, VersionHeader, VersionPage, VersionWrite,
};

/// Small records with compare-and-set and expiry: users, clients, codes, sessions, jobs, audit.
pub trait Ledger: Clone + Send + Sync + 'static {
    /// Returns the record under `key`; `None` if it is absent or has expired by `now`.
    fn get(
        &self,
        key: &str,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<LedgerRecord>, StoreError>> + Send;

    /// Performs all writes or none, durably. Returns one new revision for each put and 0 for each delete. Writes of
    /// one batch see each other in order.
    ///
    /// # Errors
    /// Returns [`StoreError::Conflict`] with the first key whose condition does not hold.
    fn write(
        &self,
        writes: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Returns up to `limit` records whose key begins with `prefix` and follows the key `after`, in byte order of the
    /// keys.
    fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(String, LedgerRecord)>, StoreError>> + Send;

    /// Removes up to `limit` records that have expired by `now`, the earliest first, and returns their number.
    /// Expired records count as absent already, so this only frees space.
    fn sweep(&self, now: Timestamp, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

/// Resource bytes by key and sequence, with a compartment index and tombstones.
///
/// Each version remains readable at its sequence as long as the store exists: history is not pruned for now.
pub trait Versions: Clone + Send + Sync + 'static {
    /// Performs all writes or none, durably; all become visible at once. Writes of one commit see each other in
    /// order. `lastUpdated` is the latest of `now`, the previous `lastUpdated`, and one millisecond after the last
    /// snapshot.
    ///
    /// # Errors
    /// Returns [`StoreError::Conflict`] with the first resource whose condition does not hold.
    fn commit(
        &self,
        writes: Vec<VersionWrite>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Commit, StoreError>> + Send;

    /// Takes a durable snapshot of the current state: see [`StoreSnapshot`].
    fn snapshot(&self, now: Timestamp) -> impl Future<Output = Result<StoreSnapshot, StoreError>> + Send;

    /// Returns the newest version of a resource at or before `at`, which may be a tombstone; `None` if the resource
    /// did not exist then.
    fn read(
        &self,
        key: &ResourceKey,
        at: Seq,
    ) -> impl Future<Output = Result<Option<Version>, StoreError>> + Send;

    /// Returns versions of one resource, the newest first, from the newest one *before* `before` ([`Seq::LATEST`] for
    /// the first page, then the `seq` of the last version of the previous page). Empty after the last one.
    fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> impl Future<Output = Result<Vec<Version>, StoreError>> + Send;

    /// Reads the resources of one type as of [`ScanOptions::at`], each once, in an order that the engine chooses.
    ///
    /// # Errors
    /// Returns [`StoreError::Key`] if [`ScanOptions::after`] names a resource that never existed.
    fn scan_kind(
        &self,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> impl Future<Output = Result<VersionPage, StoreError>> + Send;

    /// Like [`scan_kind`](Self::scan_kind), but only for resources whose version at [`ScanOptions::at`] belongs to
    /// `compartment`. A tombstone belongs to the compartments of the version that it replaced.
    fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> impl Future<Output = Result<VersionPage, StoreError>> + Send;

    /// Like [`scan_kind`](Self::scan_kind), but returns the bodies as lines of text, without tombstones, for callers
    /// that only forward them. `keep` selects resources. [`ScanOptions::after`] is in the first of the compartments.
    /// `page` receives each page as soon as it is full, and returns whether to continue; the last page has
    /// [`LinePage::done`]. It must not block, because it runs on a reader thread.
    ///
    /// # Errors
    /// Returns [`StoreError::Key`] if [`ScanOptions::after`] names a resource that never existed.
    fn scan_lines(
        &self,
        kind: &str,
        of: LineScanRange,
        scan: ScanOptions<'_>,
        keep: impl Fn(&VersionHeader<'_>) -> bool + Send + 'static,
        page: impl FnMut(LinePage) -> bool + Send + 'static,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the types that had at least one version at `at`, sorted. The newest version may be a tombstone.
    fn kinds(&self, at: Seq) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Returns up to `limit` writes after `after`, in order, so that an index can follow the store.
    fn changes(
        &self,
        after: Seq,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ChangeRecord>, StoreError>> + Send;

    /// Returns the sequence number of the last visible commit.
    fn last_seq(&self) -> Seq;

    /// Watches [`Versions::last_seq`], which changes after each commit that wrote something.
    fn watch(&self) -> watch::Receiver<Seq>;
}
