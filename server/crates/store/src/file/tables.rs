//! The tables of the file engine.

use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, FilterPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::failure::{FORMAT_NUMBER, engine, other_format, read_failure};
use super::keys;
use super::keys::StoreTable;
use crate::StoreError;

/// The tables of the engine, by number.
pub(super) struct StoreTables([Keyspace; StoreTable::NAMES.len()]);

impl StoreTables {
    pub(super) fn open(db: &Database) -> Result<Self, fjall::Error> {
        // Filters are partitioned. Otherwise, each lookup would read and check the whole filter of a file,
        // which has up to several megabytes on the deeper levels. Measured: the import of 1,000,000 resources
        // is three times as fast.
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .filter_block_partitioning_policy(PartitioningPolicy::new([false, true]))
                .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        };
        let open = |name| db.keyspace(name, options);
        // Options for tables that are mostly read sequentially.
        let in_runs = || {
            options()
                .data_block_size_policy(BlockSizePolicy::all(RUN_BLOCK_BYTES))
                .index_block_pinning_policy(PinningPolicy::all(true))
        };
        // Entries of the search index are small, and their keys are in no order of time. Small levels are
        // rewritten more cheaply: with the default of 64 MiB, every few flushed megabytes are merged with all
        // of the first level. Measured: the import of 1,000,000 resources takes half the CPU time. No key is
        // read alone, so there are no filters.
        let index = || {
            let levels = Leveled::default()
                .with_table_target_size(INDEX_TABLE_BYTES)
                .with_l0_threshold(INDEX_RUNS)
                .with_level_ratio_policy(vec![INDEX_LEVEL_RATIO]);
            options()
                .filter_policy(FilterPolicy::disabled())
                .index_block_pinning_policy(PinningPolicy::all(true))
                .compaction_strategy(Arc::new(levels))
        };
        let [homes, current, history, members, changes, terms, records, expiries, meta] = StoreTable::NAMES;
        Ok(Self([
            open(homes)?,
            db.keyspace(current, in_runs)?,
            open(history)?,
            open(members)?,
            open(changes)?,
            db.keyspace(terms, index)?,
            open(records)?,
            open(expiries)?,
            open(meta)?,
        ]))
    }

    pub fn of(&self, table: StoreTable) -> &Keyspace {
        &self.0[table as usize]
    }
}

/// Maximum size of a memtable for the engine. It is never reached, because `memtable_budget` flushes
/// memtables earlier.
pub(super) const MEMTABLE_BYTES: u64 = 256 << 20;

/// Block size of the newest versions. An export of all resources reads whole blocks. A Group export and a
/// read by id use only a part of a block, so larger blocks would cost more there.
pub(super) const RUN_BLOCK_BYTES: u32 = 16 << 10;

/// Size of the files of the search index, number of flushed files that are merged together, and ratio of its
/// levels.
pub(super) const INDEX_TABLE_BYTES: u64 = 4 << 20;

pub(super) const INDEX_RUNS: u8 = 8;

pub(super) const INDEX_LEVEL_RATIO: f32 = 8.0;

pub(super) fn check_format(tables: &StoreTables) -> Result<(), StoreError> {
    let meta = tables.of(StoreTable::Meta);
    match meta.get(keys::FORMAT).map_err(read_failure(meta))? {
        None => meta.insert(keys::FORMAT, FORMAT_NUMBER).map_err(engine("mark a new store")),
        Some(format) if *format == *FORMAT_NUMBER => Ok(()),
        Some(format) => {
            Err(other_format("the store has", format.escape_ascii(), FORMAT_NUMBER.escape_ascii()))
        }
    }
}
