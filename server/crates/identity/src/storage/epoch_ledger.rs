//! A ledger wrapper that increments a cache epoch on every write that can invalidate a token.
//!
//! The records that decide whether a token is valid (clients, users, revocations, keys) are read on every
//! request but rarely written. A token validated in the current epoch is served from the cache without
//! reading the store.
//!
//! Several nodes can share a store. A write of such a record then also writes a marker, in the same
//! transaction, and each node reads the markers a few times a second ([`EpochLedger::follow`]). A node that
//! has not succeeded for [`MAX_SILENCE`] uses no cache.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};
use tokio::time::Instant;

use crate::ledger_keys;
use crate::storage::records::{self, LedgerEntry};

/// Time after which a node that has not heard of the other nodes trusts no cache.
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// A number that increases with each write of some records.
struct WatchedRecords {
    prefixes: &'static [&'static str],
    /// Key of the marker that other nodes read.
    marker: &'static str,
    epoch: Arc<AtomicU64>,
}

impl WatchedRecords {
    fn new(prefixes: &'static [&'static str], marker: &'static str) -> Self {
        Self { prefixes, marker, epoch: Arc::default() }
    }

    fn are_changed_by(&self, writes: &[LedgerWrite]) -> bool {
        let mut keys = writes.iter().map(LedgerWrite::key);
        keys.any(|key| self.prefixes.iter().any(|prefix| key.starts_with(prefix)))
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn increment(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

/// The ledger with its cache epoch.
pub(crate) struct EpochLedger {
    store: Store,
    /// The records that decide whether a token is valid.
    token_state: WatchedRecords,
    clients: WatchedRecords,
    secrets: WatchedRecords,
    /// Knowledge of the other nodes; `None` if the store belongs to this node alone.
    others: Option<Mutex<OtherNodes>>,
}

/// Knowledge of a node of the writes of other nodes.
struct OtherNodes {
    markers: HashMap<String, u64>,
    /// Time before the last successful read of the markers.
    heard: Instant,
}

impl EpochLedger {
    pub fn new(store: Store) -> Self {
        let others = store.is_shared().then(|| {
            // Nothing is cached yet, so nothing can be stale.
            Mutex::new(OtherNodes { markers: HashMap::new(), heard: Instant::now() })
        });
        Self {
            store,
            token_state: WatchedRecords::new(
                &[ledger_keys::CLIENTS, ledger_keys::USERS, ledger_keys::REVOCATIONS],
                ledger_keys::TOKEN_STATE_MARKER,
            ),
            clients: WatchedRecords::new(&[ledger_keys::CLIENTS], ledger_keys::CLIENTS_MARKER),
            secrets: WatchedRecords::new(&[ledger_keys::SECRETS], ledger_keys::SECRETS_MARKER),
            others,
        }
    }

    fn watched(&self) -> [&WatchedRecords; 3] {
        [&self.token_state, &self.clients, &self.secrets]
    }

    /// Returns the current cache epoch, or `None` if nothing may be served from a cache, because this node
    /// does not know what other nodes have written. A cache must read the epoch before it reads the records
    /// that it caches: every acknowledged write has incremented the epoch.
    pub fn cache_epoch(&self) -> Option<u64> {
        let is_current = self.others.as_ref().is_none_or(|others| {
            others.lock().unwrap_or_else(PoisonError::into_inner).heard.elapsed() < MAX_SILENCE
        });
        is_current.then(|| self.token_state.epoch())
    }

    /// Returns a number that increases with each write of a client record.
    pub fn client_epoch(&self) -> u64 {
        self.clients.epoch()
    }

    /// Returns a number that increases with each write of a secret, such as the signing keys.
    pub fn secrets_epoch(&self) -> u64 {
        self.secrets.epoch()
    }

    /// Reads what other nodes have written. Returns the time for [`EpochLedger::confirm`].
    ///
    /// # Errors
    /// Returns [`StoreError`] if the markers cannot be read.
    pub async fn follow(&self, now: Timestamp) -> Result<Instant, StoreError> {
        let before = Instant::now();
        let Some(others) = &self.others else { return Ok(before) };
        let rows = self.store.scan(ledger_keys::MARKERS, None, self.watched().len(), now).await?;
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, record) in rows {
            if others.markers.get(&key) != Some(&record.revision) {
                self.watched()
                    .into_iter()
                    .filter(|watched| watched.marker == key)
                    .for_each(WatchedRecords::increment);
                others.markers.insert(key, record.revision);
            }
        }
        Ok(before)
    }

    /// Records that everything which other nodes had written at this time is known here, so that caches may
    /// be used.
    pub fn confirm(&self, time: Instant) {
        if let Some(others) = &self.others {
            let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
            others.heard = others.heard.max(time);
        }
    }

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
        let mut out = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.store.scan(prefix, after.as_deref(), 256, now).await?;
            let Some((last, _)) = page.last() else { return Ok(out) };
            after = Some(last.clone());
            for (key, record) in &page {
                out.push(records::decode_record(key, &record.value)?);
            }
        }
    }

    /// Writes a batch in one transaction; see [`store::Ledger::write`].
    pub async fn write(&self, mut writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let changes: Vec<_> = self
            .watched()
            .into_iter()
            .filter(|watched| watched.are_changed_by(&writes))
            .map(|watched| (watched.marker, Arc::clone(&watched.epoch)))
            .collect();
        if changes.is_empty() {
            return self.store.write(writes, now).await;
        }
        let count = writes.len();
        if self.others.is_some() {
            writes.extend(changes.iter().map(|(marker, _)| LedgerWrite::put(*marker, "", Expect::Any)));
        }
        let store = self.store.clone();
        // The store completes a write whose caller is cancelled, and then the epoch must be incremented too.
        let write = tokio::spawn(async move {
            let mut result = store.write(writes, now).await;
            // A failed write also increments the epoch, because it may have reached the disk.
            for (_, epoch) in changes {
                epoch.fetch_add(1, Ordering::AcqRel);
            }
            if let Ok(revisions) = &mut result {
                revisions.truncate(count);
            }
            result
        });
        let interruption = |_| StoreError::Unavailable { reason: "the write was interrupted".to_owned() };
        write.await.map_err(interruption)?
    }
}

impl Deref for EpochLedger {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}

#[cfg(test)]
mod tests {
    use store::shared_memory::{SharedMemory, StoppingLink, StoreStep};

    use super::*;

    #[tokio::test]
    async fn a_node_that_has_not_heard_of_the_others_for_a_second_uses_no_cache() {
        let ledger =
            EpochLedger::new(Store::shared_memory(&SharedMemory::default(), Arc::<StoppingLink>::default()));
        assert_eq!(ledger.cache_epoch(), Some(0));
        ledger.others.as_ref().unwrap().lock().unwrap().heard = Instant::now() - MAX_SILENCE;
        assert_eq!(ledger.cache_epoch(), None);
        let read = ledger.follow(Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(ledger.cache_epoch(), None, "the keys may still be old");
        ledger.confirm(read);
        assert_eq!(ledger.cache_epoch(), Some(0));
    }

    #[tokio::test]
    async fn a_write_increments_the_epoch_although_its_caller_has_left() {
        let link = Arc::<StoppingLink>::default();
        let ledger = EpochLedger::new(Store::shared_memory(
            &SharedMemory::default(),
            Arc::<StoppingLink>::clone(&link),
        ));
        let stop = link.stop_at(StoreStep::Answer, 0);
        let key = format!("{}jti", ledger_keys::REVOCATIONS);
        tokio::select! {
            biased;
            _ = ledger.write(vec![LedgerWrite::put(key, "", Expect::Any)], Timestamp::UNIX_EPOCH) => {
                panic!("the write was not stopped")
            }
            () = stop.reached() => {}
        }
        assert_eq!(ledger.token_state.epoch(), 0);
        stop.release();
        while ledger.token_state.epoch() == 0 {
            tokio::task::yield_now().await;
        }
    }
}
