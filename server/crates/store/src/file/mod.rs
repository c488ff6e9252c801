//! The engine on a local folder: durable, for one process, on fjall (a log-structured merge tree).
//!
//! | file | what lives there |
//! |---|---|
//! | `keys` | the tables, their keys and values |
//! | `writer` | the one thread that writes |
//! | `view` | what is committed at a moment, read by key and by page |
//! | here | opening and locking the folder, the ports |
//!
//! Acknowledged means on disk: each round ends with an fsync before it is answered. Reads see only whole
//! commits. An engine iterator lives for one page. After a failed write nothing more is written until the
//! folder is opened again ([`StoreError::ReadOnly`]); reads go on.

mod keys;
mod view;
mod writer;

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use self::keys::Table;
use self::view::View;
use self::writer::{Reply, Request, Writer};
use crate::{
    Change, Commit, Ledger, LedgerWrite, Limit, Page, Record, ResourceKey, Scan, Seq, Snapshot, StoreError,
    Version, VersionWrite, Versions,
};

/// The layout that this program reads and writes.
const FORMAT_NUMBER: &[u8] = b"1";
/// Small, since all tables have one: memory stays bounded under a full import.
const MEMTABLE_BYTES: u64 = 8 << 20;
const JOURNAL_BYTES: u64 = 64 << 20;
const CACHE_BYTES: u64 = 8 << 20;
/// The engine's own threads: one keeps free for flushes (and spins while a compaction waits for the other
/// two), so three ingest a fifth faster than two on two cores, and one stalls behind compactions.
const WORKERS: usize = 3;
/// Requests that may wait for the writer before callers wait to send.
const QUEUE: usize = 256;

/// A store in a folder. Clones share it; the folder is released when the last one is dropped.
#[derive(Clone)]
pub struct File {
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    failure: Arc<OnceLock<String>>,
    last: watch::Receiver<Seq>,
    tables: Arc<Tables>,
    db: Database,
    /// Held until everything above is closed.
    _lock: fs::File,
}

impl Shared {
    /// What is committed now.
    fn view(&self) -> View {
        View::new(&self.db, &self.tables)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue = None;
        // The writer ends when the queue is closed and empty; the folder must not be unlocked before.
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the writer of the store panicked");
        }
    }
}

/// The tables, by number.
struct Tables([Keyspace; Table::NAMES.len()]);

impl Tables {
    fn open(db: &Database) -> Result<Self, fjall::Error> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let open = |name| db.keyspace(name, options);
        let [homes, current, history, members, changes, records, expiries, meta] = Table::NAMES;
        Ok(Self([
            open(homes)?,
            open(current)?,
            open(history)?,
            open(members)?,
            open(changes)?,
            open(records)?,
            open(expiries)?,
            open(meta)?,
        ]))
    }

    fn of(&self, table: Table) -> &Keyspace {
        &self.0[table as usize]
    }
}

impl File {
    /// Opens the store in `dir`, and makes it where there is none.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has it; [`StoreError::Engine`] when the folder cannot be
    /// used; [`StoreError::Corrupt`] when it holds something else.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(engine("make the folder of the store"))?;
        let lock = lock(dir)?;
        let db = Database::builder(dir.join("db"))
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads(WORKERS)
            .open()
            .map_err(engine("open the store"))?;
        let tables = Tables::open(&db).map_err(engine("open the tables of the store"))?;
        check_format(&tables)?;
        let tables = Arc::new(tables);
        let view = View::new(&db, &tables);
        let (counters, kinds) = (view.counters()?, view.kinds(Seq::LATEST)?);
        let (last, watched) = watch::channel(Seq(counters.seq));
        let failure = Arc::new(OnceLock::new());
        let writer = Writer {
            db: db.clone(),
            tables: Arc::clone(&tables),
            counters,
            kinds: kinds.into_iter().collect(),
            last,
            failure: Arc::clone(&failure),
        };
        let (queue, requests) = mpsc::channel(QUEUE);
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(requests))
            .map_err(engine("start the writer of the store"))?;
        let shared = Shared {
            queue: Some(queue),
            writer: Some(writer),
            failure,
            last: watched,
            tables,
            db,
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Hands a request to the writer and awaits its answer.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, StoreError> {
        let shared = &self.shared;
        if let Some(reason) = shared.failure.get() {
            return Err(StoreError::ReadOnly { reason: reason.clone() });
        }
        let stopped = || StoreError::ReadOnly { reason: "the writer has stopped".to_owned() };
        let (reply, answer) = oneshot::channel();
        let queue = shared.queue.as_ref().expect("the queue is open until the last handle is dropped");
        queue.send(request(reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Reads a page on a thread that may block.
    async fn page<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || read(&shared.view()))
            .await
            .map_err(|error| StoreError::Engine { action: "read a page", reason: error.to_string() })?
    }
}

/// Takes the folder for this process.
fn lock(dir: &Path) -> Result<fs::File, StoreError> {
    let failed = engine("lock the folder of the store");
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
            // The number is a help for people; without it the error is as true.
            let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            let holder =
                if known { format!("process {}", holder.trim()) } else { "another process".to_owned() };
            return Err(StoreError::Locked { dir: dir.to_owned(), holder });
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(&failed)?;
    Ok(file)
}

fn check_format(tables: &Tables) -> Result<(), StoreError> {
    let meta = tables.of(Table::Meta);
    match meta.get(keys::FORMAT).map_err(engine("read the format of the store"))? {
        None => meta.insert(keys::FORMAT, FORMAT_NUMBER).map_err(engine("mark a new store")),
        Some(found) if *found == *FORMAT_NUMBER => Ok(()),
        Some(found) => {
            let found = found.escape_ascii();
            Err(StoreError::Corrupt { what: format!("its format is {found}, this program reads format 1") })
        }
    }
}

/// Turns what the engine or the system says into our error.
fn engine<E: fmt::Display>(action: &'static str) -> impl Fn(E) -> StoreError {
    move |error| StoreError::Engine { action, reason: error.to_string() }
}

impl Ledger for File {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<Record>, StoreError> {
        self.shared.view().get(key, now)
    }

    async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        self.ask(|reply| Request::Write(writes, now, reply)).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, Record)>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.page(move |view| view.scan(&prefix, after.as_deref(), limit, now)).await
    }

    async fn sweep(&self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.ask(|reply| Request::Sweep(now, limit, reply)).await
    }
}

impl Versions for File {
    async fn commit(&self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        self.ask(|reply| Request::Commit(writes, now, reply)).await
    }

    async fn snapshot(&self, now: Timestamp) -> Result<Snapshot, StoreError> {
        self.ask(|reply| Request::Snapshot(now, reply)).await
    }

    async fn read(&self, key: &ResourceKey, at: Seq) -> Result<Option<Version>, StoreError> {
        self.shared.view().read(key, at)
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: Limit,
    ) -> Result<Vec<Version>, StoreError> {
        let key = key.clone();
        self.page(move |view| view.history(&key, before, limit)).await
    }

    async fn scan_kind(&self, kind: &str, scan: Scan<'_>) -> Result<Page, StoreError> {
        let (kind, after) = (kind.to_owned(), scan.after.map(str::to_owned));
        let Scan { at, limit, deleted, .. } = scan;
        self.page(move |view| view.scan_kind(&kind, Scan { after: after.as_deref(), at, limit, deleted }))
            .await
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: Scan<'_>,
    ) -> Result<Page, StoreError> {
        let (compartment, kind) = (compartment.to_owned(), kind.to_owned());
        let after = scan.after.map(str::to_owned);
        let Scan { at, limit, deleted, .. } = scan;
        self.page(move |view| {
            view.scan_compartment(&compartment, &kind, Scan { after: after.as_deref(), at, limit, deleted })
        })
        .await
    }

    async fn kinds(&self, at: Seq) -> Result<Vec<String>, StoreError> {
        self.page(move |view| view.kinds(at)).await
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<Change>, StoreError> {
        self.page(move |view| view.changes(after, limit)).await
    }

    fn last_seq(&self) -> Seq {
        *self.shared.last.borrow()
    }

    fn watch(&self) -> watch::Receiver<Seq> {
        self.shared.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expect;

    #[tokio::test]
    async fn after_a_failed_write_it_reads_but_does_not_write() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = File::open(dir.path()).unwrap();
        let put = || vec![LedgerWrite::put("k", "v", Expect::Any)];
        store.write(put(), Timestamp::UNIX_EPOCH).await.unwrap();

        store.shared.failure.set("no space left".to_owned()).unwrap();
        let refused = StoreError::ReadOnly { reason: "no space left".to_owned() };
        assert_eq!(store.write(put(), Timestamp::UNIX_EPOCH).await, Err(refused.clone()));
        assert_eq!(store.snapshot(Timestamp::UNIX_EPOCH).await, Err(refused));
        assert!(store.get("k", Timestamp::UNIX_EPOCH).await.unwrap().is_some());

        drop(store);
        let store = File::open(dir.path()).unwrap();
        store.write(put(), Timestamp::UNIX_EPOCH).await.unwrap();
    }
}
