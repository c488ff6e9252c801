//! The contract of the store, held against each engine.
//!
//! | module | what it holds |
//! |---|---|
//! | `rows` | one promise after the other |
//! | `model` | law: any requests, in any order, with restarts, answer as a plain list would |
//! | `races` | laws under concurrency: compare-and-set, snapshots |
//! | `crash` | nothing acknowledged is lost when the process is killed |
//! | `damage` | a file that is not what was written is told, and the torn end of a crash is none |

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod crash;
mod damage;
mod model;
mod races;
mod rows;

use std::path::Path;
use std::sync::mpsc;

use jiff::Timestamp;
use tempfile::TempDir;
use trefoil_store::{Draft, Lines, ResourceKey, Scan, Seen, Store, VersionWrite, Versions as _, Whole};

/// An engine with whatever must outlive it.
struct Engine {
    name: &'static str,
    store: Store,
    dir: Option<TempDir>,
}

impl Engine {
    fn memory() -> Self {
        Self { name: "memory", store: Store::memory(), dir: None }
    }

    fn file() -> Self {
        let dir = TempDir::new().unwrap();
        Self { name: "file", store: Store::open(dir.path()).unwrap(), dir: Some(dir) }
    }

    /// Every engine, empty.
    fn each() -> [Self; 2] {
        [Self::memory(), Self::file()]
    }

    /// Closes and opens again, where there is something to open.
    fn reopen(&mut self) {
        if let Some(dir) = &self.dir {
            self.store = Store::memory();
            self.store = open(dir.path());
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

/// A draft that reads `v<version> t<updated> <text>` when it is stored.
fn draft(text: &str) -> Draft {
    let bytes = format!("v t {text}").into_bytes();
    Draft { bytes, version_at: 1, updated_at: 3 }
}

/// What [`draft`] becomes.
fn ready(version: u64, updated: Timestamp, text: &str) -> String {
    format!("v{version} t{updated:.3} {text}")
}

fn put(kind: &str, id: &str, text: &str, compartments: &[&str]) -> VersionWrite {
    let compartments = compartments.iter().map(|&one| one.to_owned()).collect();
    VersionWrite::put(ResourceKey::new(kind, id), draft(text), compartments)
}

/// Up to three pages of a scan as text.
async fn pages_of_lines(
    store: &Store,
    kind: &str,
    of: Whole,
    scan: Scan<'_>,
    keep: impl Fn(&Seen<'_>) -> bool + Send + 'static,
) -> Vec<Lines> {
    let (sender, pages) = mpsc::channel();
    let mut left = 3;
    let page = move |page| {
        left -= 1;
        sender.send(page).is_ok() && left > 0
    };
    store.scan_lines(kind, of, scan, keep, page).await.unwrap();
    pages.iter().collect()
}
