//! Reading the whole content of a store, and adding it to an empty one (see [`crate::transfer`]).

use std::vec;

use jiff::Timestamp;

use crate::file::FileMoment;
use crate::postgres::PostgresMoment;
use crate::store::StoreEngine;
use crate::transfer::MOMENT_PAGE;
use crate::{
    Erasure, Ledger as _, LedgerEntry, PageLimit, ReplayPart, Seq, Store, StoreError, StoreMoment, Version,
    Versions as _,
};

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

    /// Removes resources from a store that is being filled, durably: those that were erased in the other
    /// store since they were added. Takes no sequence number, because the other store has assigned them.
    ///
    /// # Errors
    /// Returns [`StoreError::Conflict`] with the first resource whose newest version is another one.
    pub async fn remove_replayed(&self, removed: Vec<Erasure>) -> Result<(), StoreError> {
        match &self.engine {
            StoreEngine::Memory(memory) => memory.remove_replayed(&removed),
            StoreEngine::SharedMemory(node) => node.memory().remove_replayed(&removed),
            StoreEngine::File(file) => file.remove_replayed(removed).await,
            StoreEngine::Postgres(database) => database.remove_replayed(&removed).await,
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
