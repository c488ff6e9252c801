//! The ledger as identity sees it: reads go straight through, writes are noticed.
//!
//! What decides whether a token stands (clients, users, revocations) changes seldom and is asked for on every
//! request. Each write to one of those records begins a new *age*; a token that was judged in the present age
//! still stands, and nothing is read for it.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use store::{Ledger as _, LedgerWrite, Store, StoreError};

/// Records that decide whether tokens stand.
const DECIDING: [&str; 3] = [CLIENT, "user/", "revoked/"];
const CLIENT: &str = "client/";

/// The store, with its present age.
pub(crate) struct Records {
    store: Store,
    age: AtomicU64,
    client_epoch: AtomicU64,
}

impl Records {
    pub fn new(store: Store) -> Self {
        Self { store, age: AtomicU64::new(0), client_epoch: AtomicU64::new(0) }
    }

    /// The present age. Read it before the records that a judgement rests on: whatever is acknowledged after
    /// that has begun another.
    pub fn age(&self) -> u64 {
        self.age.load(Ordering::Acquire)
    }

    /// A number that grows with each write to a client.
    pub fn client_epoch(&self) -> u64 {
        self.client_epoch.load(Ordering::Acquire)
    }

    /// Writes a batch, all or nothing; see [`store::Ledger::write`].
    pub async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let decides =
            writes.iter().any(|write| DECIDING.iter().any(|prefix| write.key().starts_with(prefix)));
        let changes_client = writes.iter().any(|write| write.key().starts_with(CLIENT));
        let written = self.store.write(writes, now).await;
        // After a failure too: nobody knows whether it reached the disk.
        if decides {
            self.age.fetch_add(1, Ordering::AcqRel);
        }
        if changes_client {
            self.client_epoch.fetch_add(1, Ordering::AcqRel);
        }
        written
    }
}

impl Deref for Records {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}
