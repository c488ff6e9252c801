//! The whole content of a store, independent of its engine, as it is read for a backup or a copy and replayed
//! into an empty store (see [`crate::content`]).
//!
//! The content consists of two parts. The *log* is all versions in the order of their sequence numbers; a
//! part of it never changes once it is written. The *ledger* has no history, so that it is read as of one
//! [`StoreMoment`]. Everything else is derived from the two: compartments and change feed by the store, terms
//! of the search index by the caller.

use bytes::Bytes;
use jiff::Timestamp;

use crate::{IndexTerm, ResourceKey, Seq, StoreError, Version};

/// A moment in the life of a store. Later writes have greater numbers, and later times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreMoment {
    /// Sequence number of the last commit.
    pub seq: Seq,
    /// Number that no ledger record exceeds.
    pub revision: u64,
    /// Earliest time of the next write, in milliseconds since 1970.
    pub floor_ms: i64,
}

/// A record of the ledger, with everything that the store keeps about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The key.
    pub key: String,
    /// The stored bytes.
    pub value: Bytes,
    /// Number of the write.
    pub revision: u64,
    /// Time from which the record is treated as absent. A record that has expired may still be stored.
    pub expires: Option<Timestamp>,
}

/// A version that is added to a store with its number and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedVersion {
    /// The version.
    pub version: Version,
    /// The first compartment that was given when the resource was created (see
    /// [`VersionWrite::compartments`](crate::VersionWrite::compartments)).
    pub home: Option<String>,
    /// Terms of the search index under which the version can be found. A tombstone has none.
    pub terms: Vec<IndexTerm>,
}

/// A part of the content of another store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayPart {
    /// Versions in the order of the log. All follow those of earlier parts.
    pub versions: Vec<ReplayedVersion>,
    /// Records of the ledger.
    pub records: Vec<LedgerEntry>,
    /// The moment that the store has reached with this part, if it is the last one.
    pub reached: Option<StoreMoment>,
}

/// Number of records on a page of a ledger that is read as of a moment.
pub(crate) const MOMENT_PAGE: usize = 2_000;

/// The error of a version that the change feed lists and no table contains.
pub(crate) fn missing_version(seq: Seq, key: &ResourceKey) -> StoreError {
    StoreError::Corrupt { what: format!("the version of {key} with sequence number {seq} is missing") }
}
