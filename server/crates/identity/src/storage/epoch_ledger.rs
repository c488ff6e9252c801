//! A ledger wrapper that increments a cache epoch on every write that can invalidate a token.
//!
//! The records that decide whether a token is valid (clients, users, revocations) are read on every request but rarely
//! written. A token validated in the current epoch is served from the cache without reading the store.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use store::{Ledger as _, LedgerWrite, Store, StoreError};

use crate::ledger_keys;
use crate::storage::records::{self, LedgerEntry};

/// Key prefixes of the records that decide whether a token is valid.
const TOKEN_STATE_PREFIXES: [&str; 3] = [ledger_keys::CLIENTS, ledger_keys::USERS, ledger_keys::REVOCATIONS];

/// The ledger with its cache epoch.
pub(crate) struct EpochLedger {
    store: Store,
    cache_epoch: AtomicU64,
    client_epoch: AtomicU64,
}

impl EpochLedger {
    pub fn new(store: Store) -> Self {
        Self { store, cache_epoch: AtomicU64::new(0), client_epoch: AtomicU64::new(0) }
    }

    /// Returns the current cache epoch. A cache must read the epoch before it reads the records that it caches: every
    /// acknowledged write has incremented the epoch.
    pub fn cache_epoch(&self) -> u64 {
        self.cache_epoch.load(Ordering::Acquire)
    }

    /// Returns a number that increases with each write of a client record.
    pub fn client_epoch(&self) -> u64 {
        self.client_epoch.load(Ordering::Acquire)
    }

    /// Reads and decodes a record.
    pub async fn read_record<T: DeserializeOwned>(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<LedgerEntry<T>>, StoreError> {
        let Some(record) = self.store.get(key, now).await? else { return Ok(None) };
        Ok(Some(LedgerEntry {
            value: records::decode_record(key, &record.value)?,
            revision: record.revision,
        }))
    }

    /// Reads and decodes all records whose key begins with `prefix`, ordered by key.
    pub async fn read_records<T: DeserializeOwned>(
        &self,
        prefix: &str,
        now: Timestamp,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.store.scan(prefix, after.as_deref(), 256, now).await?;
            let Some((last, _)) = page.last() else { return Ok(found) };
            after = Some(last.clone());
            for (key, record) in &page {
                found.push(records::decode_record(key, &record.value)?);
            }
        }
    }

    /// Writes a batch in one transaction; see [`store::Ledger::write`].
    pub async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let changes_token_state = writes
            .iter()
            .any(|write| TOKEN_STATE_PREFIXES.iter().any(|prefix| write.key().starts_with(prefix)));
        let changes_client = writes.iter().any(|write| write.key().starts_with(ledger_keys::CLIENTS));
        let written = self.store.write(writes, now).await;
        // A failed write also increments the epoch, because it may have reached the disk.
        if changes_token_state {
            self.cache_epoch.fetch_add(1, Ordering::AcqRel);
        }
        if changes_client {
            self.client_epoch.fetch_add(1, Ordering::AcqRel);
        }
        written
    }
}

impl Deref for EpochLedger {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}
