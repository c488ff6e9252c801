//! [`Store`], the handle for one of the engines, which is chosen when the server starts.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use crate::file::{FileEngine, FileOptions, FolderFormat};
use crate::memory::MemoryEngine;
use crate::postgres::{
    Announcement, DatabaseLimits, DatabaseUrl, NodePresence, PostgresEngine, TablesVersion,
};
use crate::shared_memory::{SharedMemory, SharedMemoryNode, StoreLink};
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, IndexEntry, IndexLookup, KeyOrder, Ledger, LedgerRecord,
    LedgerWrite, LinePage, LineScanRange, PageLimit, ResourceKey, ScanOptions, Seq, StoreError,
    StoreSnapshot, StoreUsage, UpdatedRange, Version, VersionHeader, VersionPage, VersionWrite, Versions,
};

/// A function that decides whether writes are accepted now.
pub type WriteGate = Arc<dyn Fn() -> Result<(), StoreError> + Send + Sync>;

/// A store on one of the engines. Clones share the same data.
#[derive(Clone)]
pub struct Store {
    pub(crate) engine: StoreEngine,
    gate: Arc<OnceLock<WriteGate>>,
}

#[derive(Clone)]
pub(crate) enum StoreEngine {
    /// In memory, for tests and trials.
    Memory(MemoryEngine),
    /// In a folder: durable, for one process.
    File(FileEngine),
    /// In a database: durable, for several nodes.
    Postgres(PostgresEngine),
    /// In the memory of a simulation, for several of its nodes.
    SharedMemory(SharedMemoryNode),
}

impl Store {
    fn over(engine: StoreEngine) -> Self {
        Self { engine, gate: Arc::default() }
    }

    /// Creates an empty store in memory.
    pub fn memory() -> Self {
        Self::over(StoreEngine::Memory(MemoryEngine::new()))
    }

    /// Opens the store in a folder, or creates it. The store is closed when its last clone is dropped.
    ///
    /// # Errors
    /// See [`FileEngine::open`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        FileEngine::open(dir).map(|file| Self::over(StoreEngine::File(file)))
    }

    /// Opens the store in a folder with other options.
    ///
    /// # Errors
    /// See [`FileEngine::open`].
    pub fn open_with(dir: &Path, options: FileOptions) -> Result<Self, StoreError> {
        FileEngine::open_with(dir, options).map(|file| Self::over(StoreEngine::File(file)))
    }

    /// Opens the store in a PostgreSQL database, after its tables were created or updated. Several nodes may
    /// open the same database.
    ///
    /// # Errors
    /// See [`PostgresEngine::migrate`] and [`PostgresEngine::open`].
    pub async fn postgres(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<Self, StoreError> {
        Self::migrate_postgres(url, limits).await?;
        Self::migrated_postgres(url, limits).await
    }

    /// Creates or updates the tables in a PostgreSQL database. Returns the number of migrations that were
    /// necessary.
    ///
    /// # Errors
    /// See [`PostgresEngine::migrate`].
    pub async fn migrate_postgres(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<usize, StoreError> {
        PostgresEngine::migrate(url, limits).await
    }

    /// Opens the store in a PostgreSQL database whose tables are up to date, without the right to change
    /// them.
    ///
    /// # Errors
    /// See [`PostgresEngine::open`].
    pub async fn migrated_postgres(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<Self, StoreError> {
        PostgresEngine::open(url, limits).await.map(|engine| Self::over(StoreEngine::Postgres(engine)))
    }

    /// The store of one node of a memory that several nodes share. Must be called on the runtime of the node.
    pub fn shared_memory(shared: &SharedMemory, link: Arc<dyn StoreLink>) -> Self {
        Self::over(StoreEngine::SharedMemory(shared.node(link)))
    }

    /// The format of the store in a folder; `None` if the folder has no store. The store may be in use.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the file with the format cannot be read.
    pub fn folder_format(dir: &Path) -> Result<Option<FolderFormat>, StoreError> {
        FileEngine::folder_format(dir)
    }

    /// Compares the tables of a database with those that this program needs. The database may be in use.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn tables_version(
        url: &DatabaseUrl,
        limits: DatabaseLimits,
    ) -> Result<TablesVersion, StoreError> {
        PostgresEngine::tables_version(url, limits).await
    }

    /// Sets a function that is called before each write of this store and its clones, and can reject the
    /// write. Only the first call of this method has an effect.
    pub fn set_gate(&self, gate: WriteGate) {
        drop(self.gate.set(gate));
    }

    /// The same data without the gate, for the writes of the one who has closed it.
    #[must_use]
    pub fn without_gate(&self) -> Self {
        Self::over(self.engine.clone())
    }

    pub(crate) fn pass_gate(&self) -> Result<(), StoreError> {
        self.gate.get().map_or(Ok(()), |gate| gate())
    }

    /// The id of this store, which is part of the names of its export files. All stores in memory have the
    /// same id, because the next process cannot use their files.
    pub fn id(&self) -> String {
        match &self.engine {
            StoreEngine::Memory(_) | StoreEngine::SharedMemory(_) => "memory".to_owned(),
            StoreEngine::File(file) => file.id(),
            StoreEngine::Postgres(database) => database.id(),
        }
    }

    /// `true` if other processes may write to the same store.
    pub fn is_shared(&self) -> bool {
        matches!(self.engine, StoreEngine::Postgres(_) | StoreEngine::SharedMemory(_))
    }

    /// The latest time that was assigned to a write, or `None` if there was no write.
    ///
    /// # Errors
    /// See [`FileEngine::last_time`] and [`PostgresEngine::last_time`].
    pub async fn last_time(&self) -> Result<Option<Timestamp>, StoreError> {
        match &self.engine {
            StoreEngine::Memory(_) | StoreEngine::SharedMemory(_) => Ok(None),
            StoreEngine::File(file) => file.last_time(),
            StoreEngine::Postgres(database) => database.last_time().await,
        }
    }

    /// The time by the clock that all nodes share; `None` if the store belongs to this process alone.
    ///
    /// # Errors
    /// See [`PostgresEngine::time`].
    pub async fn shared_time(&self) -> Result<Option<Timestamp>, StoreError> {
        match &self.engine {
            StoreEngine::Memory(_) | StoreEngine::File(_) => Ok(None),
            StoreEngine::Postgres(database) => database.time().await.map(Some),
            StoreEngine::SharedMemory(node) => node.time().await.map(Some),
        }
    }

    /// Announces this node to the other nodes of a database, and lets it notice a database that went back in
    /// time. `file` is what the node remembers between two runs. Other stores have nothing to announce.
    ///
    /// # Errors
    /// See [`PostgresEngine::announce`].
    pub async fn announce(&self, base_url: &str, file: &Path) -> Result<Announcement, StoreError> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.announce(base_url, file).await,
            _ => Ok(Announcement { is_newly_accepted: false, earlier_base_url: None }),
        }
    }

    /// The id of this node among the [`nodes`](Self::nodes), after it was announced; `None` if the store
    /// belongs to this process alone.
    pub async fn node_id(&self) -> Option<String> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.node_id().await,
            _ => None,
        }
    }

    /// The nodes that use the store, the running ones first; empty if it belongs to this process alone.
    ///
    /// # Errors
    /// See [`PostgresEngine::nodes`].
    pub async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.nodes().await,
            _ => Ok(Vec::new()),
        }
    }

    /// Ends the use of the store by this process: marks the node as ended (see [`Store::announce`]), or
    /// writes the journal of a folder to its tables, so that the next start finds a clean end. Writes fail
    /// from then on.
    pub async fn depart(&self) {
        match &self.engine {
            StoreEngine::Postgres(database) => database.depart().await,
            // A failure is found by the next start, which reads the journal again.
            StoreEngine::File(file) => drop(file.end().await),
            StoreEngine::Memory(_) | StoreEngine::SharedMemory(_) => {}
        }
    }

    /// Completes when the operator has accepted a database that went back in time, and never for other
    /// stores. All requests fail from then on.
    pub async fn accepted(&self) {
        match &self.engine {
            StoreEngine::Postgres(database) => database.accepted().await,
            _ => std::future::pending().await,
        }
    }

    /// Why the database is refused: it lacks something that this node knows. `None` if it is used.
    pub fn refusal(&self) -> Option<String> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.refusal(),
            _ => None,
        }
    }

    /// Opens the same database for a caller without a memory of it, so that it is never refused. `None` if
    /// the store is not a database.
    ///
    /// # Errors
    /// See [`PostgresEngine::open`].
    pub async fn unannounced(&self) -> Result<Option<Self>, StoreError> {
        match &self.engine {
            StoreEngine::Postgres(database) => {
                Ok(Some(Self::over(StoreEngine::Postgres(database.unannounced().await?))))
            }
            _ => Ok(None),
        }
    }

    /// Checks that a database has everything that is in the memory of a stopped node. `memory` is the file of
    /// [`Store::announce`].
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, or lacks something.
    pub async fn check_known(&self, memory: &Path) -> Result<(), StoreError> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.check_known(memory).await,
            _ => Ok(()),
        }
    }

    /// Records the decision of the operator that a database is used from now on, although nodes know that it
    /// lacks something. `memory` is the file of [`Store::announce`] on this machine, if there is one.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn accept(&self, memory: &Path) -> Result<(), StoreError> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.accept(memory).await,
            _ => Ok(()),
        }
    }

    /// The resources that the store uses now. Costs no round trip.
    pub fn usage(&self) -> StoreUsage {
        match &self.engine {
            StoreEngine::Memory(_) | StoreEngine::SharedMemory(_) => StoreUsage::default(),
            StoreEngine::File(file) => StoreUsage { files: file.usage(), ..StoreUsage::default() },
            StoreEngine::Postgres(database) => {
                StoreUsage { database: Some(database.usage()), ..StoreUsage::default() }
            }
        }
    }

    /// Checks the requirements of a write without writing.
    ///
    /// # Errors
    /// Returns [`StoreError::Clock`] if the gate rejects writes, and the errors of
    /// [`FileEngine::check_writable`].
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        self.pass_gate()?;
        match &self.engine {
            StoreEngine::Memory(_) => Ok(()),
            StoreEngine::File(file) => file.check_writable().await,
            StoreEngine::Postgres(database) => database.check_writable().await,
            StoreEngine::SharedMemory(node) => node.check_writable().await,
        }
    }
}

/// Calls the same method on the engine of the store.
macro_rules! each {
    ($store:expr, $engine:ident => $call:expr) => {
        match &$store.engine {
            StoreEngine::Memory($engine) => $call,
            StoreEngine::File($engine) => $call,
            StoreEngine::Postgres($engine) => $call,
            StoreEngine::SharedMemory($engine) => $call,
        }
    };
}

impl Ledger for Store {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<LedgerRecord>, StoreError> {
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
    ) -> Result<Vec<(String, LedgerRecord)>, StoreError> {
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

    async fn snapshot(&self, now: Timestamp) -> Result<StoreSnapshot, StoreError> {
        self.pass_gate()?;
        each!(self, engine => engine.snapshot(now).await)
    }

    async fn read(&self, key: &ResourceKey, seq: Seq) -> Result<Option<Version>, StoreError> {
        each!(self, engine => engine.read(key, seq).await)
    }

    async fn read_many(
        &self,
        kind: &str,
        ids: Vec<String>,
        seq: Seq,
        bytes: usize,
    ) -> Result<Vec<Option<Version>>, StoreError> {
        each!(self, engine => engine.read_many(kind, ids, seq, bytes).await)
    }

    async fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        each!(self, engine => engine.ids(kind, order, after, limit).await)
    }

    async fn index_entries(&self, lookups: Vec<IndexLookup>) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        each!(self, engine => engine.index_entries(lookups).await)
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        each!(self, engine => engine.history(key, before, limit).await)
    }

    async fn scan_kind(&self, kind: &str, scan: ScanOptions<'_>) -> Result<VersionPage, StoreError> {
        each!(self, engine => engine.scan_kind(kind, scan).await)
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> Result<VersionPage, StoreError> {
        each!(self, engine => engine.scan_compartment(compartment, kind, scan).await)
    }

    async fn scan_lines(
        &self,
        kind: &str,
        of: LineScanRange,
        scan: ScanOptions<'_>,
        updated: UpdatedRange,
        keep: impl Fn(&VersionHeader<'_>) -> bool + Send + 'static,
        page: impl FnMut(LinePage) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        each!(self, engine => engine.scan_lines(kind, of, scan, updated, keep, page).await)
    }

    async fn kinds(&self, seq: Seq) -> Result<Vec<String>, StoreError> {
        each!(self, engine => engine.kinds(seq).await)
    }

    async fn count(&self, kind: &str, seq: Seq) -> Result<u64, StoreError> {
        each!(self, engine => engine.count(kind, seq).await)
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        each!(self, engine => engine.changes(after, limit).await)
    }

    async fn changes_of(
        &self,
        kinds: &'static [&'static str],
        after: Seq,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>, StoreError> {
        each!(self, engine => engine.changes_of(kinds, after, limit).await)
    }

    async fn changes_before(
        &self,
        kind: Option<&str>,
        range: ChangesBefore,
    ) -> Result<ChangePage, StoreError> {
        each!(self, engine => engine.changes_before(kind, range).await)
    }

    async fn seq_at(&self, time: Timestamp) -> Result<Seq, StoreError> {
        each!(self, engine => engine.seq_at(time).await)
    }

    async fn last_seq(&self) -> Result<Seq, StoreError> {
        each!(self, engine => engine.last_seq().await)
    }

    fn heard_seq(&self) -> Seq {
        each!(self, engine => engine.heard_seq())
    }
}
