//! Revoked tokens, families, sessions and consents; and token revocation (RFC 7009).

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use store::{Expect, Ledger as _, StoreError};

use crate::ledger_keys;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// The records of revocations in the ledger.
#[derive(Clone)]
pub(crate) struct RevocationList {
    ledger: Arc<EpochLedger>,
    /// Knowledge of the last restore.
    restored: Arc<Mutex<Option<KnownRestore>>>,
}

/// The time of the last restore, if there was one, and the cache epoch in which it was read.
#[derive(Clone, Copy)]
struct KnownRestore {
    epoch: u64,
    time: Option<Timestamp>,
}

/// Time within which several nodes notice the same restore. Only the first of them ends what was issued
/// before.
const ONE_RESTORE: SignedDuration = SignedDuration::from_mins(1);

impl RevocationList {
    pub(crate) fn new(ledger: Arc<EpochLedger>) -> Self {
        Self { ledger, restored: Arc::default() }
    }

    /// Ends all sessions, grants and tokens that were issued before `now`, because the database went back in
    /// time: it lacks revocations, and codes that were spent are live again. Does nothing if another node has
    /// done so for this restore.
    pub(crate) async fn end_all_before(&self, now: Timestamp) -> Result<bool, StoreError> {
        let stored = self.ledger.read_record::<Timestamp>(ledger_keys::RESTORED, now).await?;
        if stored.as_ref().is_some_and(|stored| stored.value > now - ONE_RESTORE) {
            return Ok(false);
        }
        let expect = stored.map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
        let write = records::put_record(ledger_keys::RESTORED.to_owned(), &now, None, expect);
        match self.ledger.write(vec![write], now).await {
            Ok(_) => Ok(true),
            // Another node was faster.
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The time before which nothing is valid, if the database was ever restored. It is read once in each
    /// cache epoch.
    pub(crate) async fn restored_at(&self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let epoch = self.ledger.cache_epoch();
        let known = *self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.filter(|known| Some(known.epoch) == epoch) {
            return Ok(known.time);
        }
        let stored = self.ledger.read_record::<Timestamp>(ledger_keys::RESTORED, now).await?;
        let time = stored.map(|stored| stored.value);
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

    /// `true` if the consent was withdrawn after the grant was issued at `granted`.
    pub(crate) async fn is_consent_withdrawn(
        &self,
        sub: &str,
        client_id: &str,
        granted: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let withdrawn = self
            .ledger
            .read_record::<Timestamp>(&ledger_keys::withdrawn_consent(sub, client_id), now)
            .await?;
        Ok(withdrawn.is_some_and(|withdrawn| granted <= withdrawn.value))
    }
}
