//! An empty store that is being filled. Until it is complete, a record in its ledger says so, and servers
//! refuse to use it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, ReplayPart, Store, StoreError, StoreMoment};

use crate::BackupError;

/// Key of the record.
pub(crate) const MARKER: &str = "transfer/state";

/// Why a store must not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfinished {
    /// A restore or copy into it was interrupted, or still runs.
    Incomplete {
        /// Source of its content.
        from: String,
    },
    /// Its content was copied elsewhere, and later writes would exist only here.
    Moved {
        /// Place of its content now.
        to: String,
    },
}

impl Unfinished {
    /// The value of the record.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("the state has string keys only")
    }
}

/// Returns why a store must not be used, if so.
///
/// # Errors
/// The error of the store if the record cannot be read.
pub async fn unfinished(store: &Store, now: Timestamp) -> Result<Option<Unfinished>, StoreError> {
    let Some(record) = store.get(MARKER, now).await? else { return Ok(None) };
    let wrong = |error| StoreError::Corrupt { what: format!("the record {MARKER}: {error}") };
    serde_json::from_slice(&record.value).map(Some).map_err(wrong)
}

/// Makes a store usable again whose content was moved.
///
/// # Errors
/// The error of the store if the record cannot be removed.
pub async fn reuse_moved(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    match unfinished(store, now).await? {
        Some(Unfinished::Moved { .. }) => {
            store.reopen().await?;
            unmark(store, now).await
        }
        _ => Ok(()),
    }
}

/// Writes the record of an incomplete store.
async fn mark(store: &Store, state: &Unfinished, now: Timestamp) -> Result<(), StoreError> {
    store.write(vec![LedgerWrite::put(MARKER, state.to_bytes(), Expect::Any)], now).await.map(drop)
}

/// Removes the record.
pub(crate) async fn unmark(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    store.write(vec![LedgerWrite::delete(MARKER, Expect::Any)], now).await.map(drop)
}

/// A store that is being filled.
pub(crate) struct Receiver<'a> {
    store: &'a Store,
    now: Timestamp,
}

impl<'a> Receiver<'a> {
    /// Checks that the store is empty, and marks it as incomplete.
    pub async fn open(store: &'a Store, from: &str, now: Timestamp) -> Result<Self, BackupError> {
        let occupied = match unfinished(store, now).await? {
            Some(Unfinished::Incomplete { from }) => Some(format!(
                "the target contains a part of {from}, whose transfer did not end; remove the target's store and \
                 start again"
            )),
            _ if !store.is_empty().await? => {
                Some("the target is not empty; choose a new folder or an empty database".to_owned())
            }
            _ => None,
        };
        if let Some(text) = occupied {
            return Err(BackupError::Refused(text));
        }
        mark(store, &Unfinished::Incomplete { from: from.to_owned() }, now).await?;
        Ok(Self { store, now })
    }

    pub async fn add(&self, part: ReplayPart) -> Result<(), BackupError> {
        Ok(self.store.replay(part).await?)
    }

    /// Sets the numbers of the store and calls `finish`, after which the store can be used.
    pub async fn complete(
        self,
        reached: StoreMoment,
        finish: impl AsyncFnOnce() -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        self.add(ReplayPart { reached: Some(reached), ..ReplayPart::default() }).await?;
        finish().await?;
        Ok(unmark(self.store, self.now).await?)
    }
}
