//! A round of writes as one batch of the engine, which can be retried.

use std::collections::HashSet;

use fjall::{OwnedWriteBatch, PersistMode, Slice};

use super::engine::OpenEngine;
use super::keys::StoreTable;
use crate::plan::StoreCounters;

/// The writes of a round that was decided but is not written yet.
pub(super) struct PreparedRound {
    pub entries: Vec<TableEntry>,
    pub counters: StoreCounters,
    /// Types that are written for the first time in this round.
    pub new_kinds: HashSet<String>,
}

impl PreparedRound {
    /// Commits the batch durably. The engine shares the memory of the entries, so nothing is copied.
    pub fn commit(&self, engine: &OpenEngine) -> fjall::Result<()> {
        let mut batch = OwnedWriteBatch::with_capacity(engine.db.clone(), self.entries.len());
        for (table, key, value) in &self.entries {
            match value {
                Some(value) => batch.insert(engine.tables.of(*table), key.clone(), value.clone()),
                None => batch.remove(engine.tables.of(*table), key.clone()),
            }
        }
        batch.durability(Some(PersistMode::SyncAll)).commit()
    }
}

/// A key of a table with its new value, or `None` to remove the key.
pub(super) type TableEntry = (StoreTable, Slice, Option<Slice>);

/// Entries of one batch. The engine assigns the same number to all entries of a batch, so two entries with
/// the same key would be ambiguous. Only the last entry for each key is passed to the engine.
#[derive(Default)]
pub(super) struct BatchEntries(Vec<TableEntry>);

impl BatchEntries {
    pub fn put(&mut self, table: StoreTable, key: Vec<u8>, value: Vec<u8>) {
        self.0.push((table, key.into(), Some(value.into())));
    }

    pub fn remove(&mut self, table: StoreTable, key: Vec<u8>) {
        self.0.push((table, key.into(), None));
    }

    /// The entries sorted by table and key, each key once.
    pub fn in_order(self) -> Vec<TableEntry> {
        let mut entries = self.0;
        entries.reverse();
        // The sort is stable and the entries are reversed, so the entry added last comes first among equal
        // keys and is kept.
        entries.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        entries.dedup_by(|b, a| (a.0, &a.1) == (b.0, &b.1));
        entries
    }
}
