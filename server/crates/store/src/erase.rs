//! Erasing resources, and removing their bytes from the files (see [`crate::erasure`]).

use jiff::Timestamp;

use crate::page::PageBuilder;
use crate::store::StoreEngine;
use crate::{
    Compaction, Erasure, ErasureRecord, Expect, Histories, Ledger as _, LedgerWrite, PageLimit, ResourceKey,
    Seq, Store, StoreError, Versions as _,
};

/// Beginning of the keys of the records.
const PREFIX: &str = "erasure/";
/// Number of records in one read.
const PAGE: usize = 1_000;

impl Store {
    /// Erases resources, all or none of them, durably: they have never existed then, and a new resource with
    /// the same id begins with version 1. Returns the sequence number of the erasure, which no commit has.
    ///
    /// Running scans may fail or omit the resources.
    ///
    /// # Errors
    /// Returns [`StoreError::Conflict`] with the first resource whose newest version is another one.
    pub async fn erase(&self, erasures: Vec<Erasure>) -> Result<Seq, StoreError> {
        self.pass_gate()?;
        match &self.engine {
            StoreEngine::Memory(memory) => memory.erase(&erasures),
            StoreEngine::SharedMemory(node) => node.memory().erase(&erasures),
            StoreEngine::File(file) => file.erase(erasures).await,
            StoreEngine::Postgres(database) => database.erase(&erasures).await,
        }
    }

    /// The resources that belong to a compartment, or had a version that did, in the order of their keys.
    ///
    /// # Errors
    /// Returns the error of the engine if it cannot be read.
    pub async fn compartment_resources(&self, compartment: &str) -> Result<Vec<ResourceKey>, StoreError> {
        match &self.engine {
            StoreEngine::Memory(memory) => Ok(memory.compartment_resources(compartment)),
            StoreEngine::SharedMemory(node) => Ok(node.memory().compartment_resources(compartment)),
            StoreEngine::File(file) => file.compartment_resources(compartment).await,
            StoreEngine::Postgres(database) => database.compartment_resources(compartment).await,
        }
    }

    /// All versions of resources, the newest of each first, in the order of the keys. A full page ends within
    /// the versions of its last resource.
    ///
    /// # Errors
    /// Returns the error of the engine if they cannot be read.
    pub async fn histories(&self, keys: &[ResourceKey], limit: PageLimit) -> Result<Histories, StoreError> {
        if let StoreEngine::Postgres(database) = &self.engine {
            return database.histories(keys, limit).await;
        }
        let mut page = PageBuilder::new(limit);
        for key in keys {
            for version in self.history(key, Seq::LATEST, limit).await? {
                if page.push(version) {
                    return Ok(Histories { versions: page.last().versions, is_complete: false });
                }
            }
        }
        Ok(Histories { versions: page.last().versions, is_complete: true })
    }

    /// Rewrites the files of the store, so that they no longer contain what was removed or replaced in it.
    /// Takes as long as a copy of the files; reads and writes are possible meanwhile. A
    /// [moment](Store::moment) that is being read is lost.
    ///
    /// # Errors
    /// Returns [`StoreError::ReadOnly`] if the disk has too little space for the largest table a second time.
    pub async fn compact(&self) -> Result<Compaction, StoreError> {
        self.pass_gate()?;
        match &self.engine {
            StoreEngine::Memory(_) | StoreEngine::SharedMemory(_) => Ok(Compaction::Complete),
            StoreEngine::File(file) => file.compact().await.map(|()| Compaction::Complete),
            StoreEngine::Postgres(database) => database.vacuum().await.map(|()| Compaction::LeftToDatabase),
        }
    }

    /// Records an erasure in the ledger. It replaces an earlier record of the same resource and time.
    ///
    /// # Errors
    /// Returns the error of the engine if it cannot be written.
    pub async fn record_erasure(&self, record: &ErasureRecord) -> Result<(), StoreError> {
        let key = format!("{PREFIX}{:.6}/{}", record.time, record.resource);
        let value = serde_json::to_vec(record).expect("a record has string keys only");
        self.write(vec![LedgerWrite::put(key, value, Expect::Any)], record.time).await.map(drop)
    }

    /// The records of all erasures, the oldest first.
    ///
    /// # Errors
    /// Returns the error of the engine if the records cannot be read.
    pub async fn erasures(&self) -> Result<Vec<ErasureRecord>, StoreError> {
        let (mut records, mut after) = (Vec::new(), None::<String>);
        loop {
            // The records do not expire, so that every time finds them.
            let page = self.scan(PREFIX, after.as_deref(), PAGE, Timestamp::UNIX_EPOCH).await?;
            let Some((last, _)) = page.last() else { return Ok(records) };
            after = Some(last.clone());
            for (key, record) in &page {
                records.push(
                    serde_json::from_slice(&record.value)
                        .map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })?,
                );
            }
        }
    }
}
