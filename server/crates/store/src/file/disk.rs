//! The engine of a folder and the disk below it: opened, opened again after a failed write, and not written to
//! when the disk is nearly full.
//!
//! An engine that runs out of space in the middle of a write, or of its own work behind it, can only be opened
//! again. So a part of the disk is kept free for it, and writes are refused before they touch that part.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use fjall::config::{BlockSizePolicy, PinningPolicy};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::keys::{self, Table};
use super::view::View;
use super::{check_format, damaged, failure, journal, read_failure};
use crate::StoreError;

/// Small, since all tables have one: memory stays bounded under a full import.
const MEMTABLE_BYTES: u64 = 8 << 20;
const JOURNAL_BYTES: u64 = 64 << 20;
const CACHE_BYTES: u64 = 6 << 20;
/// What is read at once of the newest versions: an export reads all of it, and one of a Group, or a read by id, not much
/// in vain.
const RUN_BLOCK_BYTES: u32 = 16 << 10;
/// The engine's own threads: one keeps free for flushes (and spins while a compaction waits for the other
/// two), so three ingest a fifth faster than two on two cores, and one stalls behind compactions.
const WORKERS: usize = 3;

/// What stays free of the disk, for the engine's work behind the writes; on a small disk a tenth of it.
const RESERVE_BYTES: u64 = 48 << 20;
/// A round that weighs less than this may take from the reserve, down to an eighth of it: a sign-in or a delete
/// still works where an import does not.
const SMALL_ROUND_BYTES: usize = 64 << 10;

/// Space on the disk of a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    pub free: u64,
    pub total: u64,
}

/// How space is asked for; tests have disks of their own.
pub(super) type Probe = fn(&Path) -> std::io::Result<Space>;

/// What the operating system says.
pub(super) fn probe(dir: &Path) -> std::io::Result<Space> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(Space {
        free: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// The tables, by number.
pub(super) struct Tables([Keyspace; Table::NAMES.len()]);

impl Tables {
    fn open(db: &Database) -> Result<Self, fjall::Error> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let open = |name| db.keyspace(name, options);
        // Resources are read in long runs.
        let in_runs = || {
            options()
                .data_block_size_policy(BlockSizePolicy::all(RUN_BLOCK_BYTES))
                .index_block_pinning_policy(PinningPolicy::all(true))
        };
        let [homes, current, history, members, changes, records, expiries, meta] = Table::NAMES;
        Ok(Self([
            open(homes)?,
            db.keyspace(current, in_runs)?,
            open(history)?,
            open(members)?,
            open(changes)?,
            open(records)?,
            open(expiries)?,
            open(meta)?,
        ]))
    }

    pub fn of(&self, table: Table) -> &Keyspace {
        &self.0[table as usize]
    }
}

/// The engine while it is open.
pub(super) struct Opened {
    pub db: Database,
    pub tables: Tables,
}

impl Opened {
    fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = dir.join("db");
        journal::check(&dir)?;
        let open = || -> Result<_, fjall::Error> {
            let db = Database::builder(&dir)
                .cache_size(CACHE_BYTES)
                .max_journaling_size(JOURNAL_BYTES)
                .worker_threads(WORKERS)
                .open()?;
            let tables = Tables::open(&db)?;
            Ok((db, tables))
        };
        // The engine takes some of its files to be right, and panics where they are not.
        let opened = catch_unwind(open).map_err(|_| damaged(&dir, &"it stopped where the log says"))?;
        let (db, tables) = opened.map_err(failure("open the store", &dir))?;
        check_format(&tables)?;
        Ok(Self { db, tables })
    }

    /// What is committed now.
    pub fn view(&self) -> View<'_> {
        View::new(&self.db, &self.tables)
    }
}

/// The engine of a folder.
pub(super) struct Disk {
    dir: PathBuf,
    probe: Probe,
    /// `None` only while it is being opened again, or when that failed.
    opened: RwLock<Option<Opened>>,
}

impl Disk {
    /// Opens the engine in `dir`, and makes it where there is none.
    ///
    /// # Errors
    /// See [`File::open`](super::File::open).
    pub fn open(dir: &Path, probe: Probe) -> Result<Self, StoreError> {
        Ok(Self { dir: dir.to_owned(), probe, opened: RwLock::new(Some(Opened::open(dir)?)) })
    }

    /// Does something with the engine, which stays open for so long.
    pub fn with<T>(&self, work: impl FnOnce(&Opened) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.opened.read().expect("nobody panics while the engine is opened") {
            Some(opened) => work(opened),
            None => Err(StoreError::Engine {
                action: "read the store",
                reason: "it could not be opened again after a failed write".to_owned(),
            }),
        }
    }

    /// Closes the engine and opens it again: what it holds then is what is on the disk.
    ///
    /// # Errors
    /// As of [`Disk::open`]; nothing can be read until a later try succeeds.
    pub fn reopen(&self) -> Result<(), StoreError> {
        let mut opened = self.opened.write().expect("nobody panics while the engine is opened");
        // Its own lock goes with it.
        drop(opened.take());
        *opened = Some(Opened::open(&self.dir)?);
        Ok(())
    }

    /// Is there room for a round that weighs this much? Says how little there is where not.
    pub fn has_room(&self, weight: usize) -> Result<(), String> {
        // A disk that cannot be asked is found out by writing.
        let Ok(Space { free, total }) = (self.probe)(&self.dir) else { return Ok(()) };
        let reserve = RESERVE_BYTES.min(total / 10);
        let kept = if weight < SMALL_ROUND_BYTES { reserve / 8 } else { reserve };
        // A round stands in the journal, in memory tables that are flushed, and in a compaction.
        let needed = kept + 2 * weight as u64;
        if free >= needed {
            return Ok(());
        }
        Err(format!("the disk has {} KiB left and a write needs {} KiB", free >> 10, needed >> 10))
    }
}

/// Counters and kinds as they are on the disk.
pub(super) fn counters(disk: &Disk) -> Result<(crate::plan::Counters, Vec<String>), StoreError> {
    disk.with(|opened| {
        let view = opened.view();
        Ok((view.counters()?, view.kinds(crate::Seq::LATEST)?))
    })
}

/// The home of a resource that was ever written.
pub(super) fn home(tables: &Tables, key: &crate::ResourceKey) -> Result<Option<String>, StoreError> {
    let homes = tables.of(Table::Homes);
    let home = homes.get(keys::home(key)).map_err(read_failure(homes))?;
    home.map(|home| keys::text(&home).map(str::to_owned)).transpose()
}
