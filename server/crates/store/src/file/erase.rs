//! Erasure of resources, and the compaction that removes their bytes from the files (see [`crate::erase`]).

use std::sync::Arc;

use super::disk::DiskSpace;
use super::failure::engine;
use super::keys::StoreTable;
use super::writer::WriteRequest;
use super::{FileEngine, memtable_budget};
use crate::{Erasure, Reassignment, ResourceKey, Seq, StoreError};

impl FileEngine {
    /// Erases resources (see [`crate::Store::erase`]).
    pub(crate) async fn erase(&self, erasures: Vec<Erasure>) -> Result<Seq, StoreError> {
        self.ask(|reply| WriteRequest::Erase(erasures, reply)).await
    }

    /// Removes resources (see [`crate::Store::remove_replayed`]).
    pub(crate) async fn remove_replayed(&self, removed: Vec<Erasure>) -> Result<(), StoreError> {
        self.ask(|reply| WriteRequest::RemoveReplayed(removed, reply)).await
    }

    /// Replaces the compartments of resources (see [`crate::Store::reassign`]).
    pub(crate) async fn reassign(&self, reassignments: Vec<Reassignment>) -> Result<Seq, StoreError> {
        self.ask(|reply| WriteRequest::Reassign(reassignments, reply)).await
    }

    /// The resources of a compartment (see [`crate::Store::compartment_resources`]).
    pub(crate) async fn compartment_resources(
        &self,
        compartment: &str,
    ) -> Result<Vec<ResourceKey>, StoreError> {
        let compartment = compartment.to_owned();
        self.page(move |view| view.compartment_resources(&compartment)).await
    }

    /// Rewrites the files (see [`crate::Store::compact`]).
    pub(crate) async fn compact(&self) -> Result<(), StoreError> {
        // The engine keeps removed entries while a snapshot may read them. Reopening it ends all snapshots.
        self.ask(WriteRequest::EmptyJournal).await?;
        let disk = Arc::clone(&self.shared.disk);
        let compacted = tokio::task::spawn_blocking(move || compact_tables(&disk)).await;
        compacted.map_err(engine("compact the store"))??;
        // The engine may keep replaced files until it is opened again.
        self.ask(WriteRequest::EmptyJournal).await
    }
}

/// Rewrites all tables. Other threads read and write meanwhile.
fn compact_tables(disk: &DiskSpace) -> Result<(), StoreError> {
    let largest = disk.with(|engine| {
        Ok(StoreTable::ALL.map(|table| engine.tables.of(table).disk_space()).into_iter().max())
    })?;
    let bytes = usize::try_from(largest.unwrap_or_default()).unwrap_or(usize::MAX);
    if let Err(no_space) = disk.has_room(bytes) {
        return Err(StoreError::ReadOnly { part: "disk", reason: no_space.to_string() });
    }
    disk.with(|open_engine| {
        // Removals in memory are merged with the tables only once they are in a file.
        memtable_budget::write_all_out(open_engine);
        for table in StoreTable::ALL {
            open_engine.tables.of(table).major_compact().map_err(engine("compact a table of the store"))?;
        }
        Ok(())
    })
}
