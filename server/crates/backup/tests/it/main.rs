//! Laws of backups, on each engine and across engines.
//!
//! | module | contents |
//! |---|---|
//! | `laws` | a restored store equals the store at its moment |
//! | `faults` | damaged, missing and interrupted backups and restores are refused |

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod faults;
mod laws;

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use resources::{ExpectedVersion, Resources};
use store::{
    DatabaseLimits, DatabaseUrl, Expect, Ledger as _, LedgerEntry, LedgerWrite, PageLimit, Seq, Store,
    Version,
};
use tempfile::TempDir;
use test_database::TestDatabase;
use trefoil_backup::{BackupKey, BackupLocation, BackupOptions, Manifest, RestoreReport, RestoreSelection};

/// Base URL of the server of a store.
const BASE: &str = "https://trefoil.example/fhir/R4";

/// A store, with the folder that must outlive it.
struct Engine {
    store: Store,
    _folder: Option<TempDir>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineKind {
    Memory,
    File,
    Postgres,
}

impl Engine {
    /// An empty store; `None` if PostgreSQL is not installed.
    async fn open(kind: EngineKind) -> Option<Self> {
        Some(match kind {
            EngineKind::Memory => Self { store: Store::memory(), _folder: None },
            EngineKind::File => {
                let folder = TempDir::new().unwrap();
                Self { store: Store::open(folder.path()).unwrap(), _folder: Some(folder) }
            }
            EngineKind::Postgres => {
                let url = DatabaseUrl::new(TestDatabase::shared()?.create().unwrap(), None);
                Self { store: Store::postgres(&url, DatabaseLimits::default()).await.unwrap(), _folder: None }
            }
        })
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
}

/// Everything that a store contains.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    log: Vec<Version>,
    ledger: Vec<LedgerEntry>,
}

async fn content(store: &Store) -> Content {
    let mut moment = store.moment().await.unwrap();
    let mut ledger = Vec::new();
    loop {
        let page = moment.next_page().await.unwrap();
        if page.is_empty() {
            break;
        }
        // The record of a restored or copied store is its own.
        ledger.extend(page.into_iter().filter(|entry| entry.key != "backup/succession"));
    }
    Content { log: log(store, moment.at().seq).await, ledger }
}

async fn log(store: &Store, until: Seq) -> Vec<Version> {
    let mut log = Vec::<Version>::new();
    loop {
        let after = log.last().map_or(Seq::ZERO, |last| last.seq);
        let page = store.read_log(after, until, PageLimit::default()).await.unwrap();
        if page.is_empty() {
            return log;
        }
        log.extend(page);
    }
}

/// Writes a new version of a Patient or an Observation, or deletes it if there is no text.
async fn write(store: &Store, index: usize, text: Option<&str>, now: Timestamp) {
    let resources = Resources::new(store.clone());
    let (kind, id) = if index.is_multiple_of(2) { ("Patient", "p") } else { ("Observation", "o") };
    let id = format!("{id}{}", index / 2);
    let Some(text) = text else {
        resources.delete(kind, &id, ExpectedVersion::Anything, now).await.unwrap();
        return;
    };
    let body = match kind {
        "Patient" => format!(r#"{{"resourceType":"Patient","id":"{id}","name":[{{"family":"{text}"}}]}}"#),
        _ => format!(
            r#"{{"resourceType":"Observation","id":"{id}","status":"final","code":{{"text":"{text}"}},"subject":{{"reference":"Patient/p{}"}}}}"#,
            text.len() % 2
        ),
    };
    resources.update(kind, &id, body.as_bytes(), ExpectedVersion::Anything, now).await.unwrap();
}

async fn put(store: &Store, key: &str, value: &str, now: Timestamp) {
    store.write(vec![LedgerWrite::put(key, value.to_owned(), Expect::Any)], now).await.unwrap();
}

async fn back_up(store: &Store, location: &BackupLocation, full: bool, now: Timestamp) -> Manifest {
    let options = BackupOptions { full, ..BackupOptions::default() };
    trefoil_backup::back_up(store, location, options, async || Ok(Vec::new()), now, &mut |_| {})
        .await
        .unwrap()
}

async fn restore(
    location: &BackupLocation,
    selection: RestoreSelection,
    store: &Store,
) -> Result<RestoreReport, trefoil_backup::BackupError> {
    trefoil_backup::restore(location, &selection, store, |_| None, async |_| Ok(()), at(0), &mut |_| {}).await
}

fn selection(backup: Option<String>, at: Option<Timestamp>) -> RestoreSelection {
    RestoreSelection { backup, at, left_out: &["left-out/"], ..RestoreSelection::default() }
}

fn key(byte: u8) -> Arc<BackupKey> {
    Arc::new(BackupKey::from_base64(&STANDARD.encode([byte; 32])).unwrap())
}
