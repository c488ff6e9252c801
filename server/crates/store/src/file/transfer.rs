//! Reading and replaying the whole content (see [`crate::transfer`]).

use std::sync::Arc;

use fjall::Snapshot;

use super::FileEngine;
use super::disk::DiskSpace;
use super::view::CommittedView;
use super::writer::WriteRequest;
use crate::transfer::MOMENT_PAGE;
use crate::{LedgerEntry, PageLimit, ReplayPart, Seq, StoreError, StoreMoment, Version};

/// A snapshot of the engine, from which the ledger is read.
pub(crate) struct FileMoment {
    engine: FileEngine,
    snapshot: Snapshot,
    /// How often the engine had been reopened when the snapshot was made.
    reopened: u64,
    /// Key of the last record that was read.
    last: Option<String>,
}

impl FileMoment {
    /// The next records (see [`crate::LedgerMoment::next_page`]).
    pub async fn next_page(&mut self) -> Result<Vec<LedgerEntry>, StoreError> {
        let (disk, reopened) = (Arc::clone(&self.engine.shared.disk), self.reopened);
        let (snapshot, last) = (self.snapshot.clone(), self.last.clone());
        let read = move || {
            disk.with(|engine| {
                check_engine(&disk, reopened)?;
                CommittedView::at(snapshot, &engine.tables).entries(last.as_deref(), MOMENT_PAGE)
            })
        };
        let entries = self.engine.shared.readers.read(read).await?;
        if let Some(last) = entries.last() {
            self.last = Some(last.key.clone());
        }
        Ok(entries)
    }
}

/// Checks that the engine is still the one that made a snapshot.
fn check_engine(disk: &DiskSpace, reopened: u64) -> Result<(), StoreError> {
    if disk.reopened() == reopened {
        return Ok(());
    }
    let reason = "the store was reopened after a failed write; start again".to_owned();
    Err(StoreError::Engine { action: "read the ledger as it was", reason })
}

impl FileEngine {
    /// The present moment (see [`crate::Store::moment`]).
    pub(crate) fn moment(&self) -> Result<(StoreMoment, FileMoment), StoreError> {
        let disk = &self.shared.disk;
        disk.with(|engine| {
            let view = engine.view();
            let at = StoreMoment::of(view.counters()?);
            let (snapshot, reopened) = (view.into_snapshot(), disk.reopened());
            Ok((at, FileMoment { engine: self.clone(), snapshot, reopened, last: None }))
        })
    }

    /// A part of the log (see [`crate::Store::read_log`]).
    pub(crate) async fn read_log(
        &self,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        self.page(move |view| view.read_log(after, until, limit)).await
    }

    /// Adds a part of another store (see [`crate::Store::replay`]).
    pub(crate) async fn replay(&self, part: ReplayPart) -> Result<(), StoreError> {
        self.ask(|reply| WriteRequest::Replay(part, reply)).await
    }
}
