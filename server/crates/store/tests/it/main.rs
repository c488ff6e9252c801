//! Tests of the contract of the store on each engine.
//!
//! | module | contents |
//! |---|---|
//! | `rows` | single promises |
//! | `model` | law: any requests in any order, with restarts, have the results of a plain list |
//! | `reassignment` | law: replaced compartments are those of a store that had them before |
//! | `races` | laws under concurrency: compare-and-set, snapshots |
//! | `nodes` | laws of several nodes on one store, and of connections that break |
//! | `crash` | nothing acknowledged is lost when the process is killed |
//! | `power_cut` | nothing acknowledged is lost by a power cut |
//! | `erasure` | what was erased is in no file |
//! | `damage` | damaged files are reported, and the torn end of a crash is not damage |

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod crash;
mod damage;
mod erasure;
mod model;
mod nodes;
mod power_cut;
mod races;
mod reassignment;
mod rows;

use std::path::Path;
use std::sync::{Arc, mpsc};

use jiff::Timestamp;
use tempfile::TempDir;
use test_database::TestDatabase;
use trefoil_store::shared_memory::{LinkFuture, SharedMemory, StoreLink, StoreStep};
use trefoil_store::{
    DatabaseLimits, DatabaseUrl, LinePage, LineScanRange, ResourceDraft, ResourceKey, ScanOptions, Store,
    UpdatedRange, VersionHeader, VersionWrite, Versions as _,
};

/// An engine, with the folder that must outlive it.
struct StoreEngine {
    name: &'static str,
    store: Store,
    dir: Option<TempDir>,
    /// URL of the database, if it is in one.
    url: Option<DatabaseUrl>,
    /// The memory that several nodes share.
    shared: Option<SharedMemory>,
}

/// A link whose steps take turns with those of other tasks.
struct YieldingLink;

impl StoreLink for YieldingLink {
    fn pass(&self, _: StoreStep) -> LinkFuture<'_> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn time(&self) -> Timestamp {
        at(0)
    }
}

impl StoreEngine {
    fn memory() -> Self {
        Self { name: "memory", store: Store::memory(), dir: None, url: None, shared: None }
    }

    fn shared_memory() -> Self {
        let shared = SharedMemory::default();
        let store = Store::shared_memory(&shared, Arc::new(YieldingLink));
        Self { name: "shared memory", store, shared: Some(shared), ..Self::memory() }
    }

    fn file() -> Self {
        let dir = TempDir::new().unwrap();
        Self { name: "file", store: Store::open(dir.path()).unwrap(), dir: Some(dir), ..Self::memory() }
    }

    /// Returns the engine on a database, or `None` if PostgreSQL is not installed.
    async fn postgres() -> Option<Self> {
        let url = DatabaseUrl::new(TestDatabase::shared()?.create().unwrap(), None);
        let store = Store::postgres(&url, DatabaseLimits::default()).await.unwrap();
        Some(Self { name: "postgres", store, url: Some(url), ..Self::memory() })
    }

    async fn each() -> Vec<Self> {
        let shared = [Self::postgres().await, Self::pooled().await];
        [Some(Self::memory()), Some(Self::shared_memory()), Some(Self::file())]
            .into_iter()
            .chain(shared)
            .flatten()
            .collect()
    }

    /// Returns the engine on a database behind PgBouncer in transaction mode, which gives each transaction
    /// any of its connections. Returns `None` if it is not installed.
    async fn pooled() -> Option<Self> {
        let database = TestDatabase::shared()?;
        let url = DatabaseUrl::new(database.pooled(&database.create().unwrap())?, None);
        let store = Store::postgres(&url, DatabaseLimits::default()).await.unwrap();
        Some(Self { name: "pgbouncer", store, url: Some(url), ..Self::memory() })
    }

    /// Closes the engine and opens it again, unless it is in memory.
    async fn reopen(&mut self) {
        if let Some(dir) = &self.dir {
            self.store = Store::memory();
            self.store = open(dir.path());
        } else if let Some(url) = &self.url {
            self.store = Store::postgres(url, DatabaseLimits::default()).await.unwrap();
        }
    }
}

#[track_caller]
fn open(dir: &Path) -> Store {
    Store::open(dir).unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap()
}

/// Returns a draft that is stored as `v<version> t<updated> <text>`.
fn draft(text: &str) -> ResourceDraft {
    let bytes = format!("v t {text}").into_bytes();
    ResourceDraft { bytes, version_at: 1, updated_at: 3 }
}

/// Returns the stored text of a [`draft`].
fn ready(version: u64, updated: Timestamp, text: &str) -> String {
    format!("v{version} t{updated:.3} {text}")
}

fn put(kind: &str, id: &str, text: &str, compartments: &[&str]) -> VersionWrite {
    let compartments = compartments.iter().map(|&one| one.to_owned()).collect();
    VersionWrite::put(ResourceKey::new(kind, id), draft(text), compartments)
}

/// Returns up to three pages of a scan as text.
async fn pages_of_lines(
    store: &Store,
    kind: &str,
    of: LineScanRange,
    scan: ScanOptions<'_>,
    updated: UpdatedRange,
    keep: impl Fn(&VersionHeader<'_>) -> bool + Send + 'static,
) -> Vec<LinePage> {
    let (sender, pages) = mpsc::channel();
    let mut remaining = 3;
    let page = move |page| {
        remaining -= 1;
        sender.send(page).is_ok() && remaining > 0
    };
    store.scan_lines(kind, of, scan, updated, keep, page).await.unwrap();
    pages.iter().collect()
}
