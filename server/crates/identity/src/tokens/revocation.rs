//! Revoked tokens, families, sessions and consents; and token revocation (RFC 7009).

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use store::{Expect, Ledger as _, Store, StoreError};

use crate::ledger_keys;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// The records of revocations in the ledger.
#[derive(Clone)]
pub(crate) struct RevocationList {
    ledger: Arc<EpochLedger>,
    restored: Arc<Mutex<Option<KnownRestore>>>,
}

/// The time of the last restore, if there was one, and the cache epoch in which it was read.
#[derive(Clone, Copy)]
struct KnownRestore {
    epoch: u64,
    time: Option<Timestamp>,
}

/// Ends all sessions, codes, refresh tokens and access tokens of before in a restored store: it lacks
/// revocations, and codes that were spent are live again. Servers that use the store must start again.
///
/// # Errors
/// Returns [`StoreError`] if the record cannot be written.
pub async fn end_all_before(store: Store, now: Timestamp) -> Result<(), StoreError> {
    let write = records::put_record(ledger_keys::RESTORED.to_owned(), &now, None, Expect::Any);
    EpochLedger::new(store).write(vec![write], now).await.map(drop)
}

impl RevocationList {
    pub(crate) fn new(ledger: Arc<EpochLedger>) -> Self {
        Self { ledger, restored: Arc::default() }
    }

    /// The time before which nothing is valid, if the database was ever restored. It is read once in each
    /// cache epoch.
    pub(crate) async fn restored_at(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let epoch = self.ledger.cache_epoch();
        let cached = *self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(restore) = cached.filter(|candidate| Some(candidate.epoch) == epoch) {
            return Ok(restore.time);
        }
        let record = self.ledger.read_record::<Timestamp>(ledger_keys::RESTORED, now).await?;
        let time = record.map(|record| record.value);
        if let Some(epoch) = epoch {
            *self.restored.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(KnownRestore { epoch, time });
        }
        Ok(time)
    }

    pub(crate) async fn mark_revoked(
        &self,
        kind: &str,
        id: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let write = records::put_record(ledger_keys::revocation(kind, id), &true, Some(until), Expect::Any);
        self.ledger.write(vec![write], now).await.map(drop)
    }

    pub(crate) async fn is_revoked(&self, kind: &str, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        Ok(self.ledger.get(&ledger_keys::revocation(kind, id), now).await?.is_some())
    }

    /// `true` if the consent was withdrawn after the grant was issued at `grant_time`.
    pub(crate) async fn is_consent_withdrawn(
        &self,
        sub: &str,
        client_id: &str,
        grant_time: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let withdrawn = self
            .ledger
            .read_record::<Timestamp>(&ledger_keys::withdrawn_consent(sub, client_id), now)
            .await?;
        Ok(withdrawn.is_some_and(|withdrawn| grant_time <= withdrawn.value))
    }
}
