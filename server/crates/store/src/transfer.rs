//! The whole content of a store, independent of its engine: read for a backup or a copy, and replayed into
//! an empty store.
//!
//! The content consists of two parts. The *log* is all versions in the order of their sequence numbers; a
//! part of it never changes once it is written. The *ledger* has no history, so that it is read as of one
//! [`StoreMoment`]. Everything else is derived from the two: compartments and change feed by the store, terms
//! of the search index by the caller.

use std::vec;

use bytes::Bytes;
use jiff::Timestamp;

use crate::file::FileMoment;
use crate::plan::{StoreCounters, StoredRecord};
use crate::postgres::PostgresMoment;
use crate::store::StoreEngine;
use crate::{IndexTerm, Ledger as _, PageLimit, Seq, Store, StoreError, Version, Versions as _};

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

impl StoreMoment {
    pub(crate) fn of(counters: StoreCounters) -> Self {
        let StoreCounters { seq, revision, floor_ms } = counters;
        Self { seq: Seq(seq), revision, floor_ms }
    }
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

/// The ledger at one moment. Later writes do not change what it returns. While it exists, the engine keeps
/// what has been replaced since.
pub struct LedgerMoment {
    at: StoreMoment,
    source: MomentSource,
}

enum MomentSource {
    Memory(vec::IntoIter<LedgerEntry>),
    File(FileMoment),
    Postgres(Box<PostgresMoment>),
}

/// Number of records on a page of a [`LedgerMoment`].
pub(crate) const MOMENT_PAGE: usize = 2_000;

impl LedgerMoment {
    /// The moment.
    pub fn at(&self) -> StoreMoment {
        self.at
    }

    /// The next records, in byte order of their keys. The result is empty after the last record.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if the engine had to be reopened meanwhile: the moment is lost. Returns
    /// [`StoreError::Unavailable`] if the connection to the database is lost.
    pub async fn next_page(&mut self) -> Result<Vec<LedgerEntry>, StoreError> {
        match &mut self.source {
            MomentSource::Memory(entries) => Ok(entries.by_ref().take(MOMENT_PAGE).collect()),
            MomentSource::File(moment) => moment.next_page().await,
            MomentSource::Postgres(moment) => moment.next_page().await,
        }
    }
}

impl Store {
    /// The present moment, with the ledger as it is now.
    ///
    /// # Errors
    /// Returns the error of the engine if its state cannot be read.
    pub async fn moment(&self) -> Result<LedgerMoment, StoreError> {
        let (at, source) = match &self.engine {
            StoreEngine::Memory(memory) => {
                let (at, entries) = memory.moment()?;
                (at, MomentSource::Memory(entries.into_iter()))
            }
            StoreEngine::SharedMemory(node) => {
                let (at, entries) = node.memory().moment()?;
                (at, MomentSource::Memory(entries.into_iter()))
            }
            StoreEngine::File(file) => {
                let (at, moment) = file.moment()?;
                (at, MomentSource::File(moment))
            }
            StoreEngine::Postgres(database) => {
                let (at, moment) = database.moment().await?;
                (at, MomentSource::Postgres(Box::new(moment)))
            }
        };
        Ok(LedgerMoment { at, source })
    }

    /// The versions after sequence number `after` up to `until`, in their order. The result is empty if there
    /// are no more.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if a version is missing.
    pub async fn read_log(
        &self,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        match &self.engine {
            StoreEngine::Memory(memory) => memory.read_log(after, until, limit),
            StoreEngine::SharedMemory(node) => node.memory().read_log(after, until, limit),
            StoreEngine::File(file) => file.read_log(after, until, limit).await,
            StoreEngine::Postgres(database) => database.read_log(after, until, limit).await,
        }
    }

    /// Adds a part of the content of another store, all of it or nothing, durably. The store must have been
    /// empty before the first part, and must not be used otherwise before the last one.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if the versions do not follow those of the store in their order.
    pub async fn replay(&self, part: ReplayPart) -> Result<(), StoreError> {
        match &self.engine {
            StoreEngine::Memory(memory) => memory.replay(part),
            StoreEngine::SharedMemory(node) => node.memory().replay(part),
            StoreEngine::File(file) => file.replay(part).await,
            StoreEngine::Postgres(database) => database.replay(part).await,
        }
    }

    /// Returns whether the store has no content: nothing was ever committed, and the ledger has no record.
    ///
    /// # Errors
    /// Returns the error of the engine if its state cannot be read.
    pub async fn is_empty(&self) -> Result<bool, StoreError> {
        if self.last_seq().await? != Seq::ZERO {
            return Ok(false);
        }
        // No record has expired at the earliest time.
        Ok(self.scan("", None, 1, Timestamp::MIN).await?.is_empty())
    }
}

/// The error of a version that the change feed lists and no table contains.
pub(crate) fn missing_version(seq: Seq, key: &crate::ResourceKey) -> StoreError {
    StoreError::Corrupt { what: format!("the version of {key} with sequence number {seq} is missing") }
}
