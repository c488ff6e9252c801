//! The handle that the domains hold: one of the engines, chosen when the server starts.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::file::{File, FileOptions};
use crate::memory::Memory;
use crate::{
    Change, Commit, Ledger, LedgerWrite, Limit, Lines, Page, Record, ResourceKey, Scan, Seen, Seq, Snapshot,
    StoreError, Version, VersionWrite, Versions, Whole,
};

/// Decides whether writes are accepted now.
pub type WriteGate = Arc<dyn Fn() -> Result<(), StoreError> + Send + Sync>;

/// A store on one of the engines. Clones share it.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
    gate: Arc<OnceLock<WriteGate>>,
}

#[derive(Clone)]
enum Engine {
    /// In memory: for tests and trials.
    Memory(Memory),
    /// In a folder: durable, for one process.
    File(File),
}

impl Store {
    fn over(engine: Engine) -> Self {
        Self { engine, gate: Arc::default() }
    }

    /// An empty store in memory.
    pub fn memory() -> Self {
        Self::over(Engine::Memory(Memory::new()))
    }

    /// The store in a folder, made where there is none; released when the last clone is dropped.
    ///
    /// # Errors
    /// See [`File::open`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        File::open(dir).map(|file| Self::over(Engine::File(file)))
    }

    /// The store in a folder, with other options.
    ///
    /// # Errors
    /// See [`File::open`].
    pub fn open_with(dir: &Path, options: FileOptions) -> Result<Self, StoreError> {
        File::open_with(dir, options).map(|file| Self::over(Engine::File(file)))
    }

    /// Asks `gate` before each write from now on, for this store and its clones. A store has one gate; a second call
    /// changes nothing.
    pub fn set_gate(&self, gate: WriteGate) {
        drop(self.gate.set(gate));
    }

    fn pass_gate(&self) -> Result<(), StoreError> {
        self.gate.get().map_or(Ok(()), |gate| gate())
    }

    /// The id of this store, which its export files carry. All stores in memory have one id: their files are of no use
    /// to the next process.
    pub fn id(&self) -> String {
        match &self.engine {
            Engine::Memory(_) => "memory".to_owned(),
            Engine::File(file) => file.id(),
        }
    }

    /// The latest time that was given to a write, if there was one.
    ///
    /// # Errors
    /// See [`File::last_time`].
    pub fn last_time(&self) -> Result<Option<Timestamp>, StoreError> {
        match &self.engine {
            Engine::Memory(_) => Ok(None),
            Engine::File(file) => file.last_time(),
        }
    }

    /// Checks what a write needs, without writing.
    ///
    /// # Errors
    /// [`StoreError::Clock`]; see [`File::check_writable`].
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        self.pass_gate()?;
        match &self.engine {
            Engine::Memory(_) => Ok(()),
            Engine::File(file) => file.check_writable().await,
        }
    }
}

/// The same call on whichever engine it is.
macro_rules! each {
    ($store:expr, $engine:ident => $call:expr) => {
        match &$store.engine {
            Engine::Memory($engine) => $call,
            Engine::File($engine) => $call,
        }
    };
}

impl Ledger for Store {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<Record>, StoreError> {
        each!(self, engine => engine.get(key, now).await)
    }

    async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        self.pass_gate()?;
        each!(self, engine => engine.write(writes, now).await)
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, Record)>, StoreError> {
        each!(self, engine => engine.scan(prefix, after, limit, now).await)
    }

    async fn sweep(&self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.pass_gate()?;
        each!(self, engine => engine.sweep(now, limit).await)
    }
}

impl Versions for Store {
    async fn commit(&self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        self.pass_gate()?;
        each!(self, engine => engine.commit(writes, now).await)
    }

    async fn snapshot(&self, now: Timestamp) -> Result<Snapshot, StoreError> {
        self.pass_gate()?;
        each!(self, engine => engine.snapshot(now).await)
    }

    async fn read(&self, key: &ResourceKey, at: Seq) -> Result<Option<Version>, StoreError> {
        each!(self, engine => engine.read(key, at).await)
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: Limit,
    ) -> Result<Vec<Version>, StoreError> {
        each!(self, engine => engine.history(key, before, limit).await)
    }

    async fn scan_kind(&self, kind: &str, scan: Scan<'_>) -> Result<Page, StoreError> {
        each!(self, engine => engine.scan_kind(kind, scan).await)
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: Scan<'_>,
    ) -> Result<Page, StoreError> {
        each!(self, engine => engine.scan_compartment(compartment, kind, scan).await)
    }

    async fn scan_lines(
        &self,
        kind: &str,
        of: Whole,
        scan: Scan<'_>,
        keep: impl Fn(&Seen<'_>) -> bool + Send + 'static,
        page: impl FnMut(Lines) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        each!(self, engine => engine.scan_lines(kind, of, scan, keep, page).await)
    }

    async fn kinds(&self, at: Seq) -> Result<Vec<String>, StoreError> {
        each!(self, engine => engine.kinds(at).await)
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<Change>, StoreError> {
        each!(self, engine => engine.changes(after, limit).await)
    }

    fn last_seq(&self) -> Seq {
        each!(self, engine => engine.last_seq())
    }

    fn watch(&self) -> watch::Receiver<Seq> {
        each!(self, engine => engine.watch())
    }
}
