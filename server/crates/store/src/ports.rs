//! The two ports. Domains are written against these; an engine is whatever keeps their promises.
//!
//! Nothing here is special to an engine: a sequence number is a stored fact, a condition is part of the
//! write, and no handle outlives a call. Callers pass the time in; the store never asks for it.

use std::future::Future;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    Change, Commit, LedgerWrite, Limit, Lines, Page, Record, ResourceKey, Scan, Seen, Seq, Snapshot,
    StoreError, Version, VersionWrite, Whole,
};

/// Small records with compare-and-set and expiry: users, clients, codes, sessions, jobs, audit.
pub trait Ledger: Clone + Send + Sync + 'static {
    /// The record under `key`, or `None` where it is absent or has expired by `now`.
    fn get(
        &self,
        key: &str,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Carries out all writes or none, durably; gives one new revision for each put and 0 for each
    /// delete. Writes of one batch see each other in their order.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] names the first key whose condition does not hold.
    fn write(
        &self,
        writes: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Up to `limit` records whose key begins with `prefix`, behind the key `after`, in the order of keys
    /// (byte by byte).
    fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(String, Record)>, StoreError>> + Send;

    /// Removes up to `limit` records that have expired by `now`, those that expired first before the
    /// others; gives their number. Only frees space: they count as absent already.
    fn sweep(&self, now: Timestamp, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

/// Resource bytes by key and sequence, with a compartment index and tombstones.
///
/// Every version stays readable at its sequence for as long as the store exists: history is not pruned
/// for now.
pub trait Versions: Clone + Send + Sync + 'static {
    /// Carries out all writes or none, durably; all become visible at once. Writes of one commit see each
    /// other in their order. `lastUpdated` is the latest of `now`, the last one given, and one millisecond
    /// after the last snapshot.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] names the first resource whose condition does not hold.
    fn commit(
        &self,
        writes: Vec<VersionWrite>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Commit, StoreError>> + Send;

    /// Marks this moment, durably: see [`Snapshot`] for what holds before and after it.
    fn snapshot(&self, now: Timestamp) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// The newest version of a resource at or before `at`, tombstones included; `None` where it did not
    /// exist yet.
    fn read(
        &self,
        key: &ResourceKey,
        at: Seq,
    ) -> impl Future<Output = Result<Option<Version>, StoreError>> + Send;

    /// Versions of one resource, the newest first, beginning with the newest one *before* `before`
    /// ([`Seq::LATEST`] for the first page, then the `seq` of the last version that was given). Empty when
    /// nothing is left.
    fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: Limit,
    ) -> impl Future<Output = Result<Vec<Version>, StoreError>> + Send;

    /// The resources of one type as they were at [`Scan::at`], each once, in an order of the engine's own.
    ///
    /// # Errors
    /// [`StoreError::Key`] when [`Scan::after`] names a resource that never was.
    fn scan_kind(&self, kind: &str, scan: Scan<'_>) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// The same, but only resources whose version at [`Scan::at`] belongs to `compartment`. A tombstone
    /// belongs to the compartments of the version that it replaced.
    fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: Scan<'_>,
    ) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// The same as text, for those who only pass it on: the bodies of the resources that `keep` wants, tombstones left
    /// out. [`Scan::after`] is within the first of the compartments. `page` takes one page after the other, as soon as
    /// each is full, and says whether one more is wanted; the last one is [`Lines::done`]. It must not wait: it runs
    /// where pages are read.
    ///
    /// # Errors
    /// [`StoreError::Key`] when [`Scan::after`] names a resource that never was.
    fn scan_lines(
        &self,
        kind: &str,
        of: Whole,
        scan: Scan<'_>,
        keep: impl Fn(&Seen<'_>) -> bool + Send + 'static,
        page: impl FnMut(Lines) -> bool + Send + 'static,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The types that had at least one version at `at` (which may be a tombstone by then), sorted.
    fn kinds(&self, at: Seq) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Up to `limit` writes behind `after`, in their order: what an index needs to follow the store.
    fn changes(
        &self,
        after: Seq,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Change>, StoreError>> + Send;

    /// The number of the last commit that is visible.
    fn last_seq(&self) -> Seq;

    /// Follows [`Versions::last_seq`]: changes after each commit that wrote something.
    fn watch(&self) -> watch::Receiver<Seq>;
}
