//! A store that is closed for writes, because its content moves to another store.

use jiff::Timestamp;

use crate::postgres::ClosedDatabase;
use crate::store::StoreEngine;
use crate::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

/// A store that accepts no writes of other programs until this value is dropped.
pub struct ClosedStore {
    store: Store,
    database: Option<ClosedDatabase>,
}

impl Store {
    /// Closes the store for the writes of all programs, waits for those that have begun, and keeps it closed
    /// until the returned value is dropped or the process ends. Only a database is written to by other
    /// programs; this program refuses its own writes by its gate.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, or another program has closed
    /// it.
    pub async fn close(&self) -> Result<ClosedStore, StoreError> {
        let database = match &self.engine {
            StoreEngine::Postgres(database) => Some(database.close().await?),
            _ => None,
        };
        Ok(ClosedStore { store: self.clone(), database })
    }

    /// Opens a store that was closed for good.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn reopen(&self) -> Result<(), StoreError> {
        match &self.engine {
            StoreEngine::Postgres(database) => database.reopen().await,
            _ => Ok(()),
        }
    }

    /// Completes when another program has closed the store for good, and never if no other program uses it.
    pub async fn moved(&self) {
        match &self.engine {
            StoreEngine::Postgres(database) => database.moved().await,
            _ => std::future::pending().await,
        }
    }
}

impl ClosedStore {
    /// Returns whether the store itself refuses writes. Otherwise only the gate of this program does.
    pub fn refuses_writes(&self) -> bool {
        self.database.is_some()
    }

    /// Closes the store for good, and writes the record that says so in the same step.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, or was open for a moment since
    /// [`Store::close`].
    pub async fn complete(self, key: &str, value: Vec<u8>, now: Timestamp) -> Result<(), StoreError> {
        match self.database {
            Some(database) => database.complete(key, &value).await,
            None => self.store.write(vec![LedgerWrite::put(key, value, Expect::Any)], now).await.map(drop),
        }
    }
}
