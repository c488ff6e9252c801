//! Erasure: removes resources with all their versions, and everything that the store derives from them.
//!
//! A delete adds a version; an erasure leaves nothing. It has a sequence number of its own, so that it has a
//! place among the commits, but no entry in the change feed. Those who follow the feed, such as clients that
//! export increments, therefore do not learn of it. The [records](ErasureRecord) in the ledger contain the
//! times for which this matters.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{IndexTerm, ResourceKey, Seq, Version};

/// A resource to erase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// Type and id of the resource.
    pub key: ResourceKey,
    /// Number of its newest version, so that no version is erased that the caller has not seen.
    pub newest: u64,
    /// Terms of the search index of all its versions.
    pub terms: Vec<IndexTerm>,
}

/// Versions of several resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histories {
    /// The versions, the newest of each resource first.
    pub versions: Vec<Version>,
    /// Whether these are all. Otherwise the page is full, and versions of the last resource may be missing.
    pub is_complete: bool,
}

/// The result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// No file of the store contains removed bytes any more.
    Complete,
    /// The rows are removed. The files of the database, its log and its backups belong to the operator.
    LeftToDatabase,
}

/// A record of an erasure. It is never removed, and contains no content of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureRecord {
    /// The resource that the operator named, such as `Patient/p1`.
    pub resource: String,
    /// Time of the erasure in the order of the store: later than every snapshot that may contain what was
    /// erased. Of an erasure that is not complete, the time at which it began.
    pub time: Timestamp,
    /// Time of the earliest version that was erased. A client that has read the store before it has none
    /// of them.
    pub since: Timestamp,
    /// Number of resources that were erased.
    pub resources: u64,
    /// Sequence number of the erasure; greater than all others until it is complete.
    pub seq: u64,
}

impl ErasureRecord {
    /// Returns whether a copy of the store of this time may contain what was erased later.
    pub fn concerns(&self, copied: Timestamp) -> bool {
        let is_complete = self.seq != Seq::LATEST.0;
        self.since <= copied && (copied < self.time || !is_complete)
    }
}
