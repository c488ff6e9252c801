//! The engine of a folder, and the space on its disk. The engine is reopened after a failed write. It is not
//! written to if the disk is nearly full.
//!
//! If the engine runs out of space during a write or a background task, it can only be reopened. Part of the
//! disk is therefore reserved for the engine, and writes are rejected before they use that part.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock};

use fjall::{OwnedWriteBatch, PersistMode};

use super::engine::OpenEngine;
use super::failure::{ACCEPT_DAMAGE, of_folder, read_failure};
use super::journal::{JournalPosition, JournalTail};
use super::keys::{self, StoreTable};
use super::state::{self, StoreState, TableFiles};
use super::tables::StoreTables;
use super::{journal, memtable_budget};
use crate::StoreError;
use crate::space::{self, NoSpace, WritePurpose};

/// A round of fewer bytes than this may use the reserve. A sign-in or a delete is therefore still possible
/// when an import is not.
const SMALL_ROUND_BYTES: usize = 64 << 10;

/// The engine of a folder, with the free space on its disk.
pub(super) struct DiskSpace {
    dir: PathBuf,
    space: space::DiskSpace,
    /// `None` while the engine is reopened, and after a failed attempt to reopen it.
    opened: RwLock<Option<OpenEngine>>,
    checkpoints: Mutex<CheckpointState>,
    /// How often the engine was reopened. A snapshot belongs to the engine that made it.
    reopened: AtomicU64,
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
        let engine = OpenEngine::open(dir, &state, accept_damage)?;
        let mut state = state;
        if std::mem::take(&mut state.is_clean)
            && let Err(error) = state.write(dir)
        {
            // If the process is killed, the next start does not sync the names of the files that it adds.
            tracing::warn!(%error, "the state of the store cannot be written; it counts as ended");
        }
        let checkpoints =
            CheckpointState { state, journal: JournalTail::default(), files: TableFiles::default() };
        let disk = Self {
            dir: dir.to_owned(),
            space,
            opened: RwLock::new(Some(engine)),
            checkpoints: Mutex::new(checkpoints),
            reopened: AtomicU64::new(0),
        };
        // Without a checkpoint, a truncated journal could not be distinguished from a new store.
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

    pub fn id(&self) -> String {
        self.checkpoints().state.id.clone()
    }

    fn checkpoints(&self) -> MutexGuard<'_, CheckpointState> {
        self.checkpoints.lock().expect("no thread panics during a checkpoint")
    }

    /// Calls `work` with the engine, which cannot be closed during the call.
    pub fn with<T>(&self, work: impl FnOnce(&OpenEngine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.opened.read().expect("no thread panics while the engine is opened") {
            Some(engine) => work(engine),
            None => Err(StoreError::Engine {
                action: "read the store",
                reason: "it could not be reopened after a failed write".to_owned(),
            }),
        }
    }

    /// How often the engine was reopened.
    pub fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Acquire)
    }

    /// Closes and reopens the engine, so that its content is read from the disk again.
    ///
    /// # Errors
    /// Returns the errors of [`DiskSpace::open`]. In that case nothing can be read until a later attempt
    /// succeeds.
    pub fn reopen(&self) -> Result<(), StoreError> {
        self.reopen_after(|| Ok(()))
    }

    /// Closes the engine, calls `change` on its closed files, and opens it again.
    fn reopen_after(&self, change: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut checkpoints = self.checkpoints();
        // The engine may have cut off the end of the journal, so the part after the checkpoint must be read
        // again.
        checkpoints.journal = JournalTail::default();
        let mut engine_slot = self.opened.write().expect("no thread panics while the engine is opened");
        self.reopened.fetch_add(1, Ordering::AcqRel);
        // The old engine must be dropped before the new one is opened, because it holds a lock on the folder.
        drop(engine_slot.take());
        let result = change();
        *engine_slot = Some(OpenEngine::open(&self.dir, &checkpoints.state, false)?);
        result
    }

    /// Moves all writes from the journal to the tables, empties the journal, and opens the engine again. Only
    /// the writer thread may call this function.
    ///
    /// # Errors
    /// Returns an error if a table cannot be written. If the engine cannot be opened, nothing can be read
    /// until a later attempt succeeds.
    pub fn empty_journal(&self) -> Result<(), StoreError> {
        let db_dir = self.dir.join("db");
        let failed =
            |error: &dyn std::fmt::Display| of_folder("empty the journal of the store", &self.dir)(error);
        let number = self.with(|engine| {
            memtable_budget::write_all_out(engine);
            let numbers = journal::numbers(&db_dir).map_err(|error| failed(&error))?;
            match numbers[..] {
                [number] if engine.has_written_out() => Ok(number),
                _ => Err(failed(&"the engine still writes to its tables; try again")),
            }
        })?;
        // The state is written before the journal is cut: it permits a longer journal, too, whose writes are
        // all in the tables.
        let mut checkpoints = self.checkpoints();
        let CheckpointState { state, journal, files } = &mut *checkpoints;
        let next = self.with(|engine| {
            let (tables, files) = files.list(&db_dir, &engine.tables).map_err(|error| failed(&error))?;
            let position = Some(JournalPosition::empty(number));
            Ok(StoreState { is_clean: false, journal: position, tables, files, ..state.clone() })
        })?;
        next.write(&self.dir).map_err(|error| failed(&error))?;
        *state = next;
        *journal = JournalTail::default();
        drop(checkpoints);
        self.reopen_after(|| journal::empty(&db_dir, number).map_err(|error| failed(&error)))?;
        // This write is newer than all removals, so that the next compaction may drop them.
        self.checkpoint(false)
    }

    /// Checks that the disk has space for a round of `weight` bytes.
    pub fn has_room(&self, weight: usize) -> Result<(), NoSpace> {
        // A round is written twice: to the journal and later to the tables.
        let bytes = 2 * weight as u64;
        if weight < SMALL_ROUND_BYTES {
            return self.space.check(bytes, WritePurpose::Small);
        }
        let merge = self.with(|engine| Ok(engine.merge_bytes())).unwrap_or_default();
        self.space.check(bytes, WritePurpose::Large { merge })
    }

    /// Opens a file, to check that the process has a free descriptor.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn descriptor(&self) -> std::io::Result<std::fs::File> {
        std::fs::File::open(self.dir.join("lock"))
    }

    /// `true` if tables can be flushed and merged without using the reserve.
    pub fn has_room_to_merge(&self) -> bool {
        self.has_room(SMALL_ROUND_BYTES).is_ok()
    }

    /// Writes the state file (see [`state`]). Only the writer thread may call this function.
    ///
    /// # Errors
    /// Returns the errors of the engine and of writing the state file. In that case the last checkpoint stays
    /// valid.
    pub fn checkpoint(&self, is_clean: bool) -> Result<(), StoreError> {
        let mut checkpoints = self.checkpoints();
        let CheckpointState { state, journal, files } = &mut *checkpoints;
        let db_dir = self.dir.join("db");
        let failed =
            |error: &dyn std::fmt::Display| of_folder("record what the store holds", &self.dir)(error);
        self.with(|engine| {
            // The engine may start another journal during the checkpoint; in that case the checkpoint is
            // repeated.
            for _ in 0..3 {
                if engine.db.journal_count() > 1 {
                    memtable_budget::write_all_out(engine);
                }
                let number = state.checkpoint + 1;
                let mut batch = OwnedWriteBatch::with_capacity(engine.db.clone(), StoreTable::ALL.len());
                for table in StoreTable::ALL {
                    batch.insert(engine.tables.of(table), keys::CHECKPOINT, number.to_be_bytes());
                }
                batch.durability(Some(PersistMode::SyncAll)).commit().map_err(|error| failed(&error))?;
                let [newest] = journal::numbers(&db_dir).map_err(|error| failed(&error))?[..] else {
                    continue;
                };
                let position = journal.advance(&db_dir, newest).map_err(|error| failed(&error))?;
                let (tables, files) = files.list(&db_dir, &engine.tables).map_err(|error| failed(&error))?;
                if journal::numbers(&db_dir).map_err(|error| failed(&error))? != [newest] {
                    continue;
                }
                let next = StoreState {
                    checkpoint: number,
                    is_clean,
                    counters: engine.view().counters()?,
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

/// The home compartment of a resource, or `None` if the resource was never written.
pub(super) fn home(tables: &StoreTables, key: &crate::ResourceKey) -> Result<Option<String>, StoreError> {
    let homes = tables.of(StoreTable::Homes);
    let home = homes.get(keys::home(key)).map_err(read_failure(homes))?;
    home.map(|home| keys::text(&home).map(str::to_owned)).transpose()
}

/// The counters and the types as they are stored on the disk.
pub(super) fn counters(disk: &DiskSpace) -> Result<(crate::plan::StoreCounters, Vec<String>), StoreError> {
    disk.with(|engine| {
        let view = engine.view();
        Ok((view.counters()?, view.kinds(crate::Seq::LATEST)?))
    })
}
