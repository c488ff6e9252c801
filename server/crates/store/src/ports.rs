//! The two traits of a store engine. The other crates use only these traits.
//!
//! The traits do not expose engine details: a sequence number is a stored number, a condition is part of the
//! write, and no handle outlives a call. The caller passes the time; the store never reads the wall clock.

use std::future::Future;

use jiff::Timestamp;

use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, IndexEntry, IndexLookup, KeyOrder, LedgerRecord,
    LedgerWrite, LinePage, LineScanRange, PageLimit, ResourceKey, ScanOptions, Seq, StoreError,
    StoreSnapshot, UpdatedRange, Version, VersionHeader, VersionPage, VersionWrite,
};

/// Small records with compare-and-set and expiry, for example users, clients, codes, sessions, jobs and audit
/// events.
pub trait Ledger: Clone + Send + Sync + 'static {
    /// The record under `key`, or `None` if it is absent or has expired at `now`.
    fn get(
        &self,
        key: &str,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<LedgerRecord>, StoreError>> + Send;

    /// Performs all writes or none, durably. Returns a new revision for each put and 0 for each delete. A
    /// write sees the earlier writes of the same batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] with the first key whose condition does not hold.
    fn write(
        &self,
        writes: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Up to `limit` records whose key begins with `prefix` and is greater than `after`, in byte order of the
    /// keys.
    fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(String, LedgerRecord)>, StoreError>> + Send;

    /// Removes up to `limit` records that have expired at `now`, in order of expiry, and returns their
    /// number. Expired records are already treated as absent, so this function only frees space.
    fn sweep(&self, now: Timestamp, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

/// Versions of resources by key and sequence number, with a compartment index and tombstones.
///
/// Every version remains readable at its sequence number as long as the store exists. History is not pruned;
/// only an [erasure](crate::erase) removes a resource with all its versions.
pub trait Versions: Clone + Send + Sync + 'static {
    /// Performs all writes or none, durably. All writes become visible at the same time. A write sees the
    /// earlier writes of the same commit. `lastUpdated` is the latest of three times: `now`, the previous
    /// `lastUpdated`, and one millisecond after the last snapshot.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] with the first resource whose condition does not hold.
    fn commit(
        &self,
        writes: Vec<VersionWrite>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Commit, StoreError>> + Send;

    /// Takes a durable snapshot of the current state (see [`StoreSnapshot`]).
    fn snapshot(&self, now: Timestamp) -> impl Future<Output = Result<StoreSnapshot, StoreError>> + Send;

    /// The newest version of a resource at or before `at`, which may be a tombstone. Returns `None` if the
    /// resource did not exist at `at`.
    fn read(
        &self,
        key: &ResourceKey,
        seq: Seq,
    ) -> impl Future<Output = Result<Option<Version>, StoreError>> + Send;

    /// Reads several resources of one type as [`read`](Self::read) does. The results have the order of `ids`.
    /// They end after the first body with which the bodies take `bytes` bytes or more together.
    fn read_many(
        &self,
        kind: &str,
        ids: Vec<String>,
        seq: Seq,
        bytes: usize,
    ) -> impl Future<Output = Result<Vec<Option<Version>>, StoreError>> + Send;

    /// Up to `limit` ids of the resources of a type, ordered by their bytes, after the id `after` in this
    /// order. Deleted resources are among them.
    fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// The entries of the search index for each of the lookups, ordered by the bytes of the term and of the
    /// id. The entries are a superset of those of the versions at any sequence number (see
    /// [`IndexTerm`](crate::IndexTerm)).
    fn index_entries(
        &self,
        lookups: Vec<IndexLookup>,
    ) -> impl Future<Output = Result<Vec<Vec<IndexEntry>>, StoreError>> + Send;

    /// Returns versions of one resource, newest first, starting with the newest one *before* `before`. Pass
    /// [`Seq::LATEST`] for the first page, and the `seq` of the last version of a page for the next page. The
    /// result is empty after the last version.
    fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> impl Future<Output = Result<Vec<Version>, StoreError>> + Send;

    /// Reads the resources of one type as of [`ScanOptions::at`], each once.
    ///
    /// The engine defines the order, for example by the first compartment of each resource. The place of a
    /// resource is fixed by its first version: later versions do not move it. Scans at different sequence
    /// numbers, on other nodes, after a restart and by [`scan_lines`](Self::scan_lines) therefore have the
    /// same order, and an interrupted scan can be continued anywhere.
    ///
    /// # Errors
    /// [`StoreError::Key`] if [`ScanOptions::after`] names a resource that never existed.
    fn scan_kind(
        &self,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> impl Future<Output = Result<VersionPage, StoreError>> + Send;

    /// Reads resources as [`scan_kind`](Self::scan_kind) does, but only those whose version at
    /// [`ScanOptions::at`] belongs to `compartment`. A tombstone belongs to the compartments of the version
    /// that it replaced. The order is that of the bytes of the ids.
    fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> impl Future<Output = Result<VersionPage, StoreError>> + Send;

    /// Reads resources as [`scan_kind`](Self::scan_kind) does, but returns the bodies as lines of text,
    /// without tombstones, for callers that only forward them. Selects the resources whose version was
    /// written in the range `updated`, and among these by `keep`; a database does not send the bodies of
    /// others than the former. [`ScanOptions::after`] refers to the first of the compartments. `page`
    /// receives each full page and returns whether to continue; the last page has [`LinePage::done`] set.
    /// `page` must not block, because it is called on a reader thread.
    ///
    /// # Errors
    /// [`StoreError::Key`] if [`ScanOptions::after`] names a resource that never existed.
    fn scan_lines(
        &self,
        kind: &str,
        of: LineScanRange,
        scan: ScanOptions<'_>,
        updated: UpdatedRange,
        keep: impl Fn(&VersionHeader<'_>) -> bool + Send + 'static,
        page: impl FnMut(LinePage) -> bool + Send + 'static,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The types that had at least one version at `at`, sorted. A type is included even if all its resources
    /// were deleted.
    fn kinds(&self, seq: Seq) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// The number of resources of a type as of `seq`, without deleted ones. Visits all of them without their
    /// bodies.
    fn count(&self, kind: &str, seq: Seq) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Up to `limit` writes after sequence number `after`, in order. An index can use them to follow the
    /// store.
    fn changes(
        &self,
        after: Seq,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ChangeRecord>, StoreError>> + Send;

    /// Returns changes as [`changes`](Self::changes) does, but only those of some types. The other changes
    /// cost little.
    fn changes_of(
        &self,
        kinds: &'static [&'static str],
        after: Seq,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ChangeRecord>, StoreError>> + Send;

    /// The changes of one type, or of all types, in a range, newest first.
    fn changes_before(
        &self,
        kind: Option<&str>,
        range: ChangesBefore,
    ) -> impl Future<Output = Result<ChangePage, StoreError>> + Send;

    /// The sequence number of the last write whose `lastUpdated` is not after `time`, or [`Seq::ZERO`] if
    /// there is none. `lastUpdated` never decreases from a write to the next, so all later writes are after
    /// `time`.
    fn seq_at(&self, time: Timestamp) -> impl Future<Output = Result<Seq, StoreError>> + Send;

    /// The sequence number of the last visible commit of any node.
    fn last_seq(&self) -> impl Future<Output = Result<Seq, StoreError>> + Send;

    /// The greatest sequence number that this node has heard of, without IO. It is at or after each commit
    /// and snapshot that this node has acknowledged, and each result of [`last_seq`](Self::last_seq).
    fn heard_seq(&self) -> Seq;
}
