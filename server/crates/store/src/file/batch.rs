//! A round of writes as one batch of the engine, which can be tried a second time.

use std::collections::HashSet;

use fjall::{OwnedWriteBatch, PersistMode, Slice};

use super::disk::Opened;
use super::keys::Table;
use crate::plan::Counters;

/// A round that is decided and not written yet.
pub(super) struct Prepared {
    pub entries: Vec<Entry>,
    pub counters: Counters,
    /// Types that get their first sequence number.
    pub new_kinds: HashSet<String>,
}

impl Prepared {
    /// Commits it durably. The entries are shared with the engine and not copied.
    pub fn commit(&self, opened: &Opened) -> fjall::Result<()> {
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
pub(super) type Entry = (Table, Slice, Option<Slice>);

/// The entries of one batch. The engine gives all entries of a batch the same number, so that two for one
/// key would be a matter of luck: the last one counts, and only it is handed on.
#[derive(Default)]
pub(super) struct Entries(Vec<Entry>);

impl Entries {
    pub fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.0.push((table, key.into(), Some(value.into())));
    }

    pub fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.0.push((table, key.into(), None));
    }

    /// The entries, each key once.
    pub fn in_order(self) -> Vec<Entry> {
        let mut entries = self.0;
        entries.reverse();
        // Stable, so that of equal keys the one added last stands first, which is the one kept.
        entries.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        entries.dedup_by(|b, a| (a.0, &a.1) == (b.0, &b.1));
        entries
    }
}
