//! A round of writes as one batch of the engine, which can be tried a second time.

use std::collections::HashSet;

use fjall::{OwnedWriteBatch, PersistMode, Slice};

use super::disk::OpenEngine;
use super::keys::StoreTable;
use crate::plan::StoreCounters;

/// A round that is decided and not written yet.
pub(super) struct PreparedRound {
    pub entries: Vec<TableEntry>,
    pub counters: StoreCounters,
    /// Types that get their first sequence number.
    pub new_kinds: HashSet<String>,
}

impl PreparedRound {
    /// Commits it durably. The entries are shared with the engine and not copied.
    pub fn commit(&self, opened: &OpenEngine) -> fjall::Result<()> {
        let mut batch = OwnedWriteBatch::with_capacity(opened.db.clone(), self.entries.len());
        for (table, key, value) in &self.entries {
            match value {
                Some(value) => batch.insert(opened.tables.of(*table), key.clone(), value.clone()),
                None => batch.remove(opened.tables.of(*table), key.clone()),
            }
        }
        batch.durability(Some(PersistMode::SyncAll)).commit()
    }
}

/// An entry to put, or to remove.
pub(super) type TableEntry = (StoreTable, Slice, Option<Slice>);

/// Entries of one batch. The engine gives all entries of a batch the same number, so the winner between two entries
/// with one key would be undefined. Only the last entry for a key is passed on.
#[derive(Default)]
pub(super) struct BatchEntries(Vec<TableEntry>);

impl BatchEntries {
    pub fn put(&mut self, table: StoreTable, key: Vec<u8>, value: Vec<u8>) {
        self.0.push((table, key.into(), Some(value.into())));
    }

    pub fn remove(&mut self, table: StoreTable, key: Vec<u8>) {
        self.0.push((table, key.into(), None));
    }

    /// The entries, each key once.
    pub fn in_order(self) -> Vec<TableEntry> {
        let mut entries = self.0;
        entries.reverse();
        // The sort is stable: among equal keys, the entry added last comes first, and it is kept.
        entries.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        entries.dedup_by(|b, a| (a.0, &a.1) == (b.0, &b.1));
        entries
    }
}
