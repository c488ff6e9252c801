//! The opened engine: its tables, and the checks of its files.

use std::panic::catch_unwind;
use std::path::Path;

use fjall::{AbstractTree as _, Database, PersistMode};

use super::failure::{damaged, failure, of_folder, read_failure};
use super::keys::StoreTable;
use super::state::StoreState;
use super::tables::{StoreTables, check_format};
use super::view::CommittedView;
use super::{journal, keys, state};
use crate::folder::{sync_folder, sync_folders};
use crate::{FileUsage, StoreError};

/// The engine and its tables while they are open.
pub(super) struct OpenEngine {
    pub db: Database,
    pub tables: StoreTables,
}

impl OpenEngine {
    pub(super) fn open(dir: &Path, expected: &StoreState, accept_damage: bool) -> Result<Self, StoreError> {
        let db_dir = dir.join("db");
        if expected.checkpoint == 0 && !accept_damage && db_dir.exists() {
            // The process ended while it created the engine's folder. Nothing was acknowledged, because the
            // first checkpoint precedes the first write. The files may be incomplete after a power cut.
            std::fs::remove_dir_all(&db_dir).map_err(of_folder("remove an unfinished store", &db_dir))?;
        }
        if !expected.is_clean {
            // A process that was killed may have created, renamed or removed files without the fsync of their
            // folder. The engine does not sync names that it finds.
            sync_folders(&db_dir).map_err(of_folder("sync the names in the folders below", &db_dir))?;
        }
        if !accept_damage {
            expected.check(dir, &db_dir)?;
        }
        journal::check(&db_dir, expected.journal.as_ref(), accept_damage)?;
        let open = || -> Result<_, fjall::Error> {
            let db = Database::builder(&db_dir)
                .cache_size(CACHE_BYTES)
                .max_journaling_size(JOURNAL_BYTES)
                .max_cached_files(Some(max_cached_files()))
                .worker_threads(WORKERS)
                .open()?;
            let tables = StoreTables::open(&db)?;
            Ok((db, tables))
        };
        // The engine does not validate some of its files and panics if they are corrupt.
        let open_result = catch_unwind(open)
            .map_err(|_| damaged(&db_dir, &"the engine stopped; the log has the reason"))?;
        let (db, tables) = open_result.map_err(failure("open the store", &db_dir))?;
        // The engine syncs neither the names of its tables nor its own. The state file, which requires them,
        // follows.
        for folder in [&db_dir.join("keyspaces"), dir] {
            sync_folder(folder).map_err(of_folder("sync the names in a folder", folder))?;
        }
        check_format(&tables)?;
        let engine = Self { db, tables };
        if !accept_damage {
            engine.check_checkpoint(dir, expected)?;
        }
        Ok(engine)
    }

    /// Checks that each table contains the writes before the last checkpoint.
    pub(super) fn check_checkpoint(&self, dir: &Path, expected: &StoreState) -> Result<(), StoreError> {
        if expected.checkpoint == 0 {
            return Ok(());
        }
        for table in StoreTable::ALL {
            let keyspace = self.tables.of(table);
            let checkpoint = keyspace.get(keys::CHECKPOINT).map_err(read_failure(keyspace))?;
            let checkpoint = checkpoint.map_or(Ok(crate::Seq(0)), |bytes| keys::decode_seq(&bytes))?;
            if checkpoint.0 < expected.checkpoint {
                let (name, path, number) =
                    (StoreTable::NAMES[table as usize], keyspace.path().display(), expected.checkpoint);
                let what = format!("the table {name} in {path} lacks writes before checkpoint {number}");
                return Err(state::damaged(dir, &what));
            }
        }
        let counters = self.view().counters()?;
        if counters.seq < expected.counters.seq || counters.revision < expected.counters.revision {
            let (stored, last) = (counters.seq, expected.counters.seq);
            let what =
                format!("the store ends at sequence number {stored}, and had {last} at its last checkpoint");
            return Err(state::damaged(dir, &what));
        }
        Ok(())
    }

    /// A view of the committed state.
    pub fn view(&self) -> CommittedView<'_> {
        CommittedView::new(&self.db, &self.tables)
    }

    /// `true` if a write or a background task has failed, so that the engine refuses all further writes.
    pub fn is_poisoned(&self) -> bool {
        self.db.persist(PersistMode::Buffer).is_err()
    }

    /// Returns whether all writes are in the files of the tables, so that the journal is not needed.
    pub fn has_written_out(&self) -> bool {
        StoreTable::ALL
            .map(|table| self.tables.of(table))
            .into_iter()
            .all(|table| table.tree.active_memtable().is_empty() && table.tree.sealed_memtable_count() == 0)
    }

    /// The space of the files.
    pub fn usage(&self) -> FileUsage {
        FileUsage {
            table_bytes: StoreTable::ALL.map(|table| self.tables.of(table).disk_space()).into_iter().sum(),
            // The length of a journal is read from its file.
            journal_bytes: self.db.journal_disk_space().unwrap_or_default(),
            compactions: self.db.compactions_completed() as u64,
        }
    }

    /// The maximum number of bytes that the engine may need at once to merge files of a table.
    pub(super) fn merge_bytes(&self) -> u64 {
        let bytes = |table: StoreTable| self.tables.of(table).disk_space().min(LARGEST_MERGE_BYTES);
        StoreTable::ALL.map(bytes).into_iter().max().unwrap_or_default()
    }
}

pub(super) const JOURNAL_BYTES: u64 = 64 << 20;

pub(super) const MAX_CACHED_FILES: usize = 900;

pub(super) const CACHE_BYTES: u64 = 6 << 20;

/// Number of the engine's background threads. The engine keeps one thread free for flushes, and this thread
/// spins while a compaction waits for the other two. On two cores, three threads ingest a fifth faster than
/// two; with one thread, flushes wait for compactions.
pub(super) const WORKERS: usize = 3;

/// Maximum number of bytes that the engine needs to merge files of one table.
pub(super) const LARGEST_MERGE_BYTES: u64 = 256 << 20;

/// The number of files that the engine may keep open: its own default, or a sixth of the descriptor limit if
/// that is lower.
pub(super) fn max_cached_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit
        .map_or(MAX_CACHED_FILES, |limit| usize::try_from(limit / 6).unwrap_or(usize::MAX))
        .clamp(16, MAX_CACHED_FILES)
}
