//! The engine of a folder, and the space on its disk. The engine is reopened after a failed write. It is not written to
//! if the disk is nearly full.
//!
//! If the engine runs out of space during a write or a background task, it can only be reopened. Part of the disk is
//! therefore reserved for the engine, and writes are rejected before they use that part.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, FilterPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};

use super::failure::{ACCEPT_DAMAGE, check_format, damaged, failure, of_folder, read_failure};
use super::journal::JournalTail;
use super::keys::{self, StoreTable};
use super::state::{self, StoreState, TableFiles};
use super::view::CommittedView;
use super::{journal, memtable_budget};
use crate::StoreError;
use crate::folder::{sync_folder, sync_folders};
use crate::space::{self, NoSpace, WritePurpose};

/// Maximum size of a memtable for the engine. It is never reached, because `memtable_budget` flushes memtables earlier.
const MEMTABLE_BYTES: u64 = 256 << 20;
const JOURNAL_BYTES: u64 = 64 << 20;
const MAX_CACHED_FILES: usize = 900;
const CACHE_BYTES: u64 = 6 << 20;
/// Block size of the newest versions. An export of all resources reads whole blocks. A Group export and a read by id
/// use only a part of a block, so larger blocks would cost more there.
const RUN_BLOCK_BYTES: u32 = 16 << 10;
/// Size of the files of the search index, number of flushed files that are merged together, and ratio of its levels.
const INDEX_TABLE_BYTES: u64 = 4 << 20;
const INDEX_RUNS: u8 = 8;
const INDEX_LEVEL_RATIO: f32 = 8.0;
/// Number of the engine's background threads. The engine keeps one thread free for flushes, and this thread spins while
/// a compaction waits for the other two. On two cores, three threads ingest a fifth faster than two; with one thread,
/// flushes wait for compactions.
const WORKERS: usize = 3;

/// A round of fewer bytes than this may use the reserve. A sign-in or a delete is therefore still possible when an
/// import is not.
const SMALL_ROUND_BYTES: usize = 64 << 10;
/// Maximum number of bytes that the engine needs to merge files of one table.
const LARGEST_MERGE_BYTES: u64 = 256 << 20;

/// Returns the number of files that the engine may keep open: its own default, or a sixth of the descriptor limit if
/// that is lower.
fn max_cached_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit
        .map_or(MAX_CACHED_FILES, |limit| usize::try_from(limit / 6).unwrap_or(usize::MAX))
        .clamp(16, MAX_CACHED_FILES)
}

/// The tables of the engine, by number.
pub(super) struct StoreTables([Keyspace; StoreTable::NAMES.len()]);

impl StoreTables {
    fn open(db: &Database) -> Result<Self, fjall::Error> {
        // Filters are partitioned. Otherwise, each lookup would read and check the whole filter of a file, which has up
        // to several megabytes on the deeper levels. Measured: the import of 1,000,000 resources is three times as
        // fast.
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
        // Entries of the search index are small, and their keys are in no order of time. Small levels are rewritten more
        // cheaply: with the default of 64 MiB, every few flushed megabytes are merged with all of the first level.
        // Measured: the import of 1,000,000 resources takes half the CPU time. No key is read alone, so there are no
        // filters.
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

/// The engine and its tables while they are open.
pub(super) struct OpenEngine {
    pub db: Database,
    pub tables: StoreTables,
}

impl OpenEngine {
    fn open(dir: &Path, expected: &StoreState, accept_damage: bool) -> Result<Self, StoreError> {
        let db_dir = dir.join("db");
        if expected.checkpoint == 0 && !accept_damage && db_dir.exists() {
            // The process ended while it created the engine's folder. Nothing was acknowledged, because the first
            // checkpoint precedes the first write. The files may be incomplete after a power cut.
            std::fs::remove_dir_all(&db_dir).map_err(of_folder("remove an unfinished store", &db_dir))?;
        }
        if !expected.is_clean {
            // A process that was killed may have created, renamed or removed files without the fsync of their folder.
            // The engine does not sync names that it finds.
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
        let opened = catch_unwind(open)
            .map_err(|_| damaged(&db_dir, &"the engine stopped; the log has the reason"))?;
        let (db, tables) = opened.map_err(failure("open the store", &db_dir))?;
        // The engine syncs neither the names of its tables nor its own. The state file, which requires them, follows.
        for folder in [&db_dir.join("keyspaces"), dir] {
            sync_folder(folder).map_err(of_folder("sync the names in a folder", folder))?;
        }
        check_format(&tables)?;
        let opened = Self { db, tables };
        if !accept_damage {
            opened.check_checkpoint(dir, expected)?;
        }
        Ok(opened)
    }

    /// Checks that each table contains the writes before the last checkpoint.
    fn check_checkpoint(&self, dir: &Path, expected: &StoreState) -> Result<(), StoreError> {
        if expected.checkpoint == 0 {
            return Ok(());
        }
        for table in StoreTable::ALL {
            let keyspace = self.tables.of(table);
            let found = keyspace.get(keys::CHECKPOINT).map_err(read_failure(keyspace))?;
            let found = found.map_or(Ok(crate::Seq(0)), |found| keys::decode_seq(&found))?;
            if found.0 < expected.checkpoint {
                let (name, path, number) =
                    (StoreTable::NAMES[table as usize], keyspace.path().display(), expected.checkpoint);
                let what = format!("the table {name} in {path} lacks writes before checkpoint {number}");
                return Err(state::damaged(dir, &what));
            }
        }
        let counters = self.view().counters()?;
        if counters.seq < expected.counters.seq || counters.revision < expected.counters.revision {
            let (found, last) = (counters.seq, expected.counters.seq);
            let what =
                format!("the store ends at sequence number {found}, and had {last} at its last checkpoint");
            return Err(state::damaged(dir, &what));
        }
        Ok(())
    }

    /// Returns a view of the committed state.
    pub fn view(&self) -> CommittedView<'_> {
        CommittedView::new(&self.db, &self.tables)
    }

    /// Returns `true` if a write or a background task has failed, so that the engine refuses all further writes.
    pub fn is_poisoned(&self) -> bool {
        self.db.persist(PersistMode::Buffer).is_err()
    }

    /// Returns the maximum number of bytes that the engine may need at once to merge files of a table.
    fn merge_bytes(&self) -> u64 {
        let bytes = |table: StoreTable| self.tables.of(table).disk_space().min(LARGEST_MERGE_BYTES);
        StoreTable::ALL.map(bytes).into_iter().max().unwrap_or_default()
    }
}

/// The engine of a folder, with the free space on its disk.
pub(super) struct DiskSpace {
    dir: PathBuf,
    space: space::DiskSpace,
    /// `None` while the engine is reopened, and after a failed attempt to reopen it.
    opened: RwLock<Option<OpenEngine>>,
    checkpoints: Mutex<CheckpointState>,
}

/// The last checkpoint, and the intermediate results that the next checkpoint reuses.
struct CheckpointState {
    state: StoreState,
    journal: JournalTail,
    files: TableFiles,
}

impl DiskSpace {
    /// Opens the engine in `dir`, or creates it.
    ///
    /// # Errors
    /// See [`FileEngine::open`](super::FileEngine::open).
    pub fn open(dir: &Path, space: space::DiskSpace) -> Result<Self, StoreError> {
        let accept = dir.join(ACCEPT_DAMAGE);
        let accept_damage = accept.exists();
        let state = match StoreState::read(dir) {
            Ok(Some(state)) => state,
            Err(_) if accept_damage => StoreState::new()?,
            Err(error) => return Err(error),
            Ok(None) if accept_damage || !dir.join("db").exists() => {
                let state = StoreState::new()?;
                state.write(dir).map_err(of_folder("write the state of the store", dir))?;
                state
            }
            Ok(None) => {
                let what = "the state file is missing, or an older version of Trefoil created the store";
                return Err(state::damaged(dir, &format!("{}: {what}", dir.display())));
            }
        };
        let is_new = state.checkpoint == 0;
        if !state.is_clean && !is_new {
            tracing::info!("the last stop was not clean; the journal of the store is read again");
        }
        let opened = OpenEngine::open(dir, &state, accept_damage)?;
        let checkpoints =
            CheckpointState { state, journal: JournalTail::default(), files: TableFiles::default() };
        let disk = Self {
            dir: dir.to_owned(),
            space,
            opened: RwLock::new(Some(opened)),
            checkpoints: Mutex::new(checkpoints),
        };
        if is_new || accept_damage {
            disk.checkpoint(false)?;
            if disk.checkpoints().state.checkpoint == 0 {
                return Err(of_folder("take the first checkpoint of the store", dir)("it was postponed"));
            }
        }
        if accept_damage {
            tracing::error!(dir = %dir.display(), "the store continues with its remaining data");
            std::fs::remove_file(accept)
                .map_err(of_folder("remove the marker file that accepts damage", dir))?;
        }
        Ok(disk)
    }

    /// Returns the id of the store.
    pub fn id(&self) -> String {
        self.checkpoints().state.id.clone()
    }

    fn checkpoints(&self) -> MutexGuard<'_, CheckpointState> {
        self.checkpoints.lock().expect("no thread panics during a checkpoint")
    }

    /// Calls `work` with the engine, which cannot be closed during the call.
    pub fn with<T>(&self, work: impl FnOnce(&OpenEngine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.opened.read().expect("no thread panics while the engine is opened") {
            Some(opened) => work(opened),
            None => Err(StoreError::Engine {
                action: "read the store",
                reason: "it could not be reopened after a failed write".to_owned(),
            }),
        }
    }

    /// Closes and reopens the engine, so that its content is read from the disk again.
    ///
    /// # Errors
    /// Returns the errors of [`DiskSpace::open`]. In that case nothing can be read until a later attempt succeeds.
    pub fn reopen(&self) -> Result<(), StoreError> {
        let mut checkpoints = self.checkpoints();
        // The engine may have cut off the end of the journal, so the part after the checkpoint must be read again.
        checkpoints.journal = JournalTail::default();
        let mut opened = self.opened.write().expect("no thread panics while the engine is opened");
        // The old engine must be dropped before the new one is opened, because it holds a lock on the folder.
        drop(opened.take());
        *opened = Some(OpenEngine::open(&self.dir, &checkpoints.state, false)?);
        Ok(())
    }

    /// Checks that the disk has space for a round of `weight` bytes.
    pub fn has_room(&self, weight: usize) -> Result<(), NoSpace> {
        // A round is written twice: to the journal and later to the tables.
        let bytes = 2 * weight as u64;
        if weight < SMALL_ROUND_BYTES {
            return self.space.check(bytes, WritePurpose::Small);
        }
        let merge = self.with(|opened| Ok(opened.merge_bytes())).unwrap_or_default();
        self.space.check(bytes, WritePurpose::Large { merge })
    }

    /// Opens a file, to check that the process has a free descriptor.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn descriptor(&self) -> std::io::Result<std::fs::File> {
        std::fs::File::open(self.dir.join("lock"))
    }

    /// Returns `true` if tables can be flushed and merged without using the reserve.
    pub fn has_room_to_merge(&self) -> bool {
        self.has_room(SMALL_ROUND_BYTES).is_ok()
    }

    /// Writes the state file (see [`state`]). Only the writer thread may call this function.
    ///
    /// # Errors
    /// Returns the errors of the engine and of writing the state file. In that case the last checkpoint stays valid.
    pub fn checkpoint(&self, is_clean: bool) -> Result<(), StoreError> {
        let mut checkpoints = self.checkpoints();
        let CheckpointState { state, journal, files } = &mut *checkpoints;
        let db_dir = self.dir.join("db");
        let failed =
            |error: &dyn std::fmt::Display| of_folder("record what the store holds", &self.dir)(error);
        self.with(|opened| {
            // The engine may start another journal during the checkpoint; in that case the checkpoint is repeated.
            for _ in 0..3 {
                if opened.db.journal_count() > 1 {
                    memtable_budget::write_all_out(opened);
                }
                let number = state.checkpoint + 1;
                let mut batch = OwnedWriteBatch::with_capacity(opened.db.clone(), StoreTable::ALL.len());
                for table in StoreTable::ALL {
                    batch.insert(opened.tables.of(table), keys::CHECKPOINT, number.to_be_bytes());
                }
                batch.durability(Some(PersistMode::SyncAll)).commit().map_err(|error| failed(&error))?;
                let [newest] = journal::numbers(&db_dir).map_err(|error| failed(&error))?[..] else {
                    continue;
                };
                let position = journal.advance(&db_dir, newest).map_err(|error| failed(&error))?;
                let (tables, files) = files.list(&db_dir, &opened.tables).map_err(|error| failed(&error))?;
                if journal::numbers(&db_dir).map_err(|error| failed(&error))? != [newest] {
                    continue;
                }
                let next = StoreState {
                    checkpoint: number,
                    is_clean,
                    counters: opened.view().counters()?,
                    journal: Some(position),
                    tables,
                    files,
                    ..state.clone()
                };
                next.write(&self.dir).map_err(|error| failed(&error))?;
                *state = next;
                return Ok(());
            }
            tracing::warn!("a checkpoint of the store is postponed: the engine still has older journals");
            Ok(())
        })
    }
}

/// Returns the counters and the types as they are stored on the disk.
pub(super) fn counters(disk: &DiskSpace) -> Result<(crate::plan::StoreCounters, Vec<String>), StoreError> {
    disk.with(|opened| {
        let view = opened.view();
        Ok((view.counters()?, view.kinds(crate::Seq::LATEST)?))
    })
}

/// Returns the home compartment of a resource, or `None` if the resource was never written.
pub(super) fn home(tables: &StoreTables, key: &crate::ResourceKey) -> Result<Option<String>, StoreError> {
    let homes = tables.of(StoreTable::Homes);
    let home = homes.get(keys::home(key)).map_err(read_failure(homes))?;
    home.map(|home| keys::text(&home).map(str::to_owned)).transpose()
}
