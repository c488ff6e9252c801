//! The engine on a local folder: durable, for one process, based on fjall (a log-structured merge tree).
//!
//! | module | contents |
//! |---|---|
//! | `keys` | keys and values of the tables |
//! | `tables` | the tables of the engine |
//! | `disk` | the open engine, reopened after failures, with a reserve of free space |
//! | `engine` | an opened engine: its tables, and the checks of its files |
//! | `journal` | checks of the journals before the engine reads them |
//! | `state` | the state file: the minimum content of the folder |
//! | `memtable_budget` | bound on writes that are only in memory and in the journal |
//! | `writer` | the thread that writes |
//! | `batch` | a round of writes as one batch of the engine |
//! | `readers` | the threads that read pages |
//! | `view` | the committed state, read by key and by page |
//! | `transfer` | the whole content, for backups and copies |
//! | `reassign` | other compartments of stored versions |
//! | `erase`, `removals` | erasure of resources, and compaction |
//! | `failure` | errors, and the format of the folder |
//! | here | opening and locking the folder, the ports |
//!
//! A write is on the disk when it is acknowledged: each round ends with an fsync before its requests are
//! answered. Reads see only whole commits. An iterator of the engine exists only while one page is read. If
//! the disk is nearly full, and after a failed write, writes are rejected ([`StoreError::ReadOnly`]) while
//! reads continue. Writes resume automatically.

mod batch;
mod disk;
mod journal;
mod keys;
mod memtable_budget;
mod readers;
mod state;
mod view;
mod writer;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use self::disk::DiskSpace;
use self::failure::{engine, of_folder};
use self::readers::ReaderThreads;
pub use self::state::FolderFormat;
pub(crate) use self::transfer::FileMoment;
use self::view::CommittedView;
use self::writer::{MonotonicClock, ReplySender, WriteRequest, WriterThread, has_ended};
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, FileUsage, IndexEntry, IndexLookup, KeyOrder, Ledger,
    LedgerRecord, LedgerWrite, LinePage, LineScanRange, PageLimit, ResourceKey, ScanOptions, Seq, StoreError,
    StoreSnapshot, UpdatedRange, Version, VersionHeader, VersionPage, VersionWrite, Versions,
};
use crate::{folder, page, space};

/// Mode of the store's folder, if it is created here.
const FOLDER_MODE: u32 = 0o777;
/// Number of requests that may wait for the writer. Further callers wait until there is room.
const QUEUE: usize = 256;

/// A store in a folder. Clones share it. The folder is unlocked when the last clone is dropped.
#[derive(Clone)]
pub struct FileEngine {
    shared: Arc<SharedState>,
}

struct SharedState {
    /// `None` only while the store is being closed.
    queue: Option<mpsc::Sender<WriteRequest>>,
    writer: Option<JoinHandle<()>>,
    last: watch::Receiver<Seq>,
    disk: Arc<DiskSpace>,
    readers: ReaderThreads,
    /// Lock on the folder, held until all fields above are closed.
    _lock: FolderLock,
}

/// The lock on the folder. It is released explicitly, because a child process that is just being started has
/// a copy of the descriptor for a moment.
struct FolderLock(fs::File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file releases the lock as well.
        drop(self.0.unlock());
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        self.queue = None;
        // The writer stops when the queue is closed and empty. The folder must not be unlocked before.
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the writer of the store panicked");
        }
    }
}

/// Options for opening a store in a folder. Tests change them.
#[derive(Clone)]
pub struct FileOptions {
    /// Disk of the folder, and the source of its free space.
    pub disk: space::DiskSpace,
    /// Time without a write after which the store is considered idle and takes a checkpoint.
    pub idle_after: Duration,
}

impl FileOptions {
    /// The default options for a folder.
    pub fn of(dir: &Path) -> Self {
        Self { disk: space::DiskSpace::of(dir), idle_after: Duration::from_millis(500) }
    }
}

impl FileEngine {
    /// The format of a store (see [`crate::Store::folder_format`]).
    pub(crate) fn folder_format(dir: &Path) -> Result<Option<FolderFormat>, StoreError> {
        state::folder_format(dir)
    }

    /// Opens the store in `dir`, or creates it.
    ///
    /// # Errors
    /// Returns [`StoreError::Locked`] if another process has locked the folder, [`StoreError::Engine`] if the
    /// folder cannot be used, or [`StoreError::Corrupt`] if its content is invalid.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_with(dir, FileOptions::of(dir))
    }

    /// Opens the store with other options.
    ///
    /// # Errors
    /// See [`FileEngine::open`].
    pub fn open_with(dir: &Path, options: FileOptions) -> Result<Self, StoreError> {
        let started = Instant::now();
        Self::open_on(dir, options, Arc::new(move || started.elapsed()))
    }

    /// Opens the store with the given monotonic clock.
    fn open_on(dir: &Path, options: FileOptions, elapsed: MonotonicClock) -> Result<Self, StoreError> {
        let FileOptions { disk: space, idle_after } = options;
        folder::make_folder(dir, FOLDER_MODE).map_err(of_folder("make the folder of the store", dir))?;
        let lock = lock(dir)?;
        let disk = Arc::new(DiskSpace::open(dir, space)?);
        let (counters, kinds) = self::disk::counters(&disk)?;
        let (last, watched) = watch::channel(Seq(counters.seq));
        let writer = WriterThread::new(Arc::clone(&disk), elapsed, idle_after, counters, kinds, last);
        let (queue, requests) = mpsc::channel(QUEUE);
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(requests))
            .map_err(engine("start the writer of the store"))?;
        let shared = SharedState {
            queue: Some(queue),
            writer: Some(writer),
            last: watched,
            disk,
            readers: ReaderThreads::start()?,
            _lock: FolderLock(lock),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The id of this store: random, generated when the store is created, and never changed.
    pub fn id(&self) -> String {
        self.shared.disk.id()
    }

    /// The latest time that was assigned to a write, or `None` if there was no write.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if the time cannot be read.
    pub fn last_time(&self) -> Result<Option<Timestamp>, StoreError> {
        let (counters, _) = self::disk::counters(&self.shared.disk)?;
        let time = Timestamp::from_millisecond(counters.floor_ms).ok();
        Ok(time.filter(|_| counters.floor_ms != 0))
    }

    /// Checks the requirements of a write without writing: space on the disk, a working engine, and free
    /// descriptors. An engine that has failed is reopened first.
    ///
    /// # Errors
    /// Returns [`StoreError::ReadOnly`] with the reason if a write would fail.
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        self.ask(WriteRequest::Check).await
    }

    /// The space of the files; `None` while the engine is reopened.
    pub(crate) fn usage(&self) -> Option<FileUsage> {
        let read = |engine: &self::engine::OpenEngine| Ok(engine.usage());
        self.shared.disk.with(read).ok()
    }

    /// Sends a request to the writer and awaits its answer.
    async fn ask<T>(&self, request: impl FnOnce(ReplySender<T>) -> WriteRequest) -> Result<T, StoreError> {
        let shared = &self.shared;
        let (reply, answer) = oneshot::channel();
        let queue = shared.queue.as_ref().expect("the queue is open until the last handle is dropped");
        queue.send(request(reply)).await.map_err(|_| has_ended())?;
        answer.await.map_err(|_| has_ended())?
    }

    /// Ends the writer (see [`crate::Store::depart`]).
    pub(crate) async fn end(&self) -> Result<(), StoreError> {
        self.ask(WriteRequest::End).await
    }

    /// Reads a page on one of the reader threads.
    async fn page<T: Send + 'static>(
        &self,
        read: impl FnOnce(&CommittedView<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let disk = Arc::clone(&self.shared.disk);
        self.shared.readers.read(move || disk.with(|engine| read(&engine.view()))).await
    }
}

/// Locks the folder for this process.
fn lock(dir: &Path) -> Result<fs::File, StoreError> {
    let failed = of_folder("lock the folder of the store", dir);
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("lock"))
        .map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The process id only helps users; the error is correct without it.
            let has_holder = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            let holder =
                if has_holder { format!("process {}", holder.trim()) } else { "another process".to_owned() };
            return Err(StoreError::Locked { dir: dir.to_owned(), holder });
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(&failed)?;
    Ok(file)
}

impl Ledger for FileEngine {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<LedgerRecord>, StoreError> {
        self.shared.disk.with(|engine| engine.view().get(key, now))
    }

    async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        self.ask(|reply| WriteRequest::Write(writes, now, reply)).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, LedgerRecord)>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.page(move |view| view.scan(&prefix, after.as_deref(), limit, now)).await
    }

    async fn sweep(&self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.ask(|reply| WriteRequest::Sweep(now, limit, reply)).await
    }
}

impl Versions for FileEngine {
    async fn commit(&self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        self.ask(|reply| WriteRequest::Commit(writes, now, reply)).await
    }

    async fn snapshot(&self, now: Timestamp) -> Result<StoreSnapshot, StoreError> {
        self.ask(|reply| WriteRequest::Snapshot(now, reply)).await
    }

    async fn read(&self, key: &ResourceKey, seq: Seq) -> Result<Option<Version>, StoreError> {
        self.shared.disk.with(|engine| engine.view().read(key, seq))
    }

    async fn read_many(
        &self,
        kind: &str,
        ids: Vec<String>,
        seq: Seq,
        bytes: usize,
    ) -> Result<Vec<Option<Version>>, StoreError> {
        let kind = kind.to_owned();
        self.page(move |view| {
            page::read_until(ids, bytes, |id| view.read(&ResourceKey::new(kind.as_str(), id), seq))
        })
        .await
    }

    async fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let (kind, after) = (kind.to_owned(), after.map(str::to_owned));
        self.page(move |view| view.ids(&kind, order, after.as_deref(), limit)).await
    }

    async fn index_entries(&self, lookups: Vec<IndexLookup>) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        self.page(move |view| lookups.into_iter().map(|lookup| view.index_entries(lookup)).collect()).await
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        let key = key.clone();
        self.page(move |view| view.history(&key, before, limit)).await
    }

    async fn scan_kind(&self, kind: &str, scan: ScanOptions<'_>) -> Result<VersionPage, StoreError> {
        let (kind, after) = (kind.to_owned(), scan.after.map(str::to_owned));
        let ScanOptions { at, limit, deleted, .. } = scan;
        self.page(move |view| {
            view.scan_kind(&kind, ScanOptions { after: after.as_deref(), at, limit, deleted })
        })
        .await
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> Result<VersionPage, StoreError> {
        let (compartment, kind) = (compartment.to_owned(), kind.to_owned());
        let after = scan.after.map(str::to_owned);
        let ScanOptions { at, limit, deleted, .. } = scan;
        self.page(move |view| {
            view.scan_compartment(
                &compartment,
                &kind,
                ScanOptions { after: after.as_deref(), at, limit, deleted },
            )
        })
        .await
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
        let (kind, after) = (kind.to_owned(), scan.after.map(str::to_owned));
        let ScanOptions { at, limit, .. } = scan;
        self.page(move |view| {
            let scan = ScanOptions { after: after.as_deref(), at, limit, deleted: false };
            view.scan_lines(&kind, &of, scan, updated, keep, page)
        })
        .await
    }

    async fn kinds(&self, seq: Seq) -> Result<Vec<String>, StoreError> {
        self.page(move |view| view.kinds(seq)).await
    }

    async fn count(&self, kind: &str, seq: Seq) -> Result<u64, StoreError> {
        let kind = kind.to_owned();
        self.page(move |view| view.count(&kind, seq)).await
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        self.page(move |view| view.changes(after, limit)).await
    }

    async fn changes_of(
        &self,
        kinds: &'static [&'static str],
        after: Seq,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>, StoreError> {
        self.page(move |view| view.changes_of(kinds, after, limit)).await
    }

    async fn changes_before(
        &self,
        kind: Option<&str>,
        range: ChangesBefore,
    ) -> Result<ChangePage, StoreError> {
        let kind = kind.map(str::to_owned);
        self.page(move |view| view.changes_before(kind.as_deref(), range)).await
    }

    async fn seq_at(&self, time: Timestamp) -> Result<Seq, StoreError> {
        self.page(move |view| view.seq_at(time)).await
    }

    async fn last_seq(&self) -> Result<Seq, StoreError> {
        Ok(self.heard_seq())
    }

    fn heard_seq(&self) -> Seq {
        *self.shared.last.borrow()
    }
}

mod engine;
mod erase;
mod failure;
mod reassign;
mod removals;
mod tables;
#[cfg(test)]
mod tests;
mod transfer;
