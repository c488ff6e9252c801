//! The record of a running job in the ledger, with the lease of the worker. The worker writes the record when
//! there is progress. A heartbeat extends the lease independently of it, so that a slow upload does not lose
//! the lease.
//!
//! Each write is a compare-and-set: a worker whose lease was acquired by another one can no longer change the
//! record.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};
use tokio::sync::Mutex;

use crate::job::{Job, decode};

/// Number of times that a lease is extended before it would expire.
const BEATS: i32 = 3;

/// The record of a job whose lease this process has.
pub(crate) struct JobRecord {
    store: Store,
    key: String,
    /// Duration of the lease after each write.
    duration: SignedDuration,
    /// End of the lease as it was acquired.
    until: Timestamp,
    revision: Mutex<u64>,
}

impl JobRecord {
    /// Continues a record after its last write.
    pub fn new(store: Store, duration: SignedDuration, job: &Job, revision: u64) -> Self {
        Self { store, key: job.key(), duration, until: job.lease.until, revision: Mutex::new(revision) }
    }

    /// Writes the job and extends its lease. Performs further writes in the same batch.
    ///
    /// # Errors
    /// Returns [`StoreError::Conflict`] if the lease is lost.
    pub async fn write(
        &self,
        job: &mut Job,
        further: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut revision = self.revision.lock().await;
        job.lease.until = now + self.duration;
        *revision = self.put(job, *revision, further, now).await?;
        Ok(())
    }

    /// Extends the lease until it is lost, and returns then. A lease is also lost if it expires because the
    /// store cannot be written.
    pub async fn keep_lease(self: Arc<Self>, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) {
        let interval: Duration = (self.duration / BEATS).unsigned_abs();
        let mut until = self.until;
        loop {
            tokio::time::sleep(interval).await;
            match self.extend(now()).await {
                Ok(extended) => until = extended,
                Err(StoreError::Conflict { .. }) => {
                    tracing::warn!(record = self.key, "the lease of an export was lost");
                    return;
                }
                Err(error) if now() >= until => {
                    tracing::warn!(%error, record = self.key, "the lease of an export has expired");
                    return;
                }
                Err(error) => tracing::warn!(%error, record = self.key, "a lease was not extended"),
            }
        }
    }

    /// Extends the lease and returns its end.
    async fn extend(&self, now: Timestamp) -> Result<Timestamp, StoreError> {
        let mut revision = self.revision.lock().await;
        let record = self.store.get(&self.key, now).await?;
        let record = record.ok_or_else(|| StoreError::Conflict { key: self.key.clone() })?;
        let mut job: Job = decode(&self.key, &record.value)?;
        job.lease.until = now + self.duration;
        *revision = self.put(&job, *revision, Vec::new(), now).await?;
        Ok(job.lease.until)
    }

    async fn put(
        &self,
        job: &Job,
        revision: u64,
        further: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let fence = Expect::Revision(revision);
        let mut writes = vec![job.put(fence)];
        writes.extend(further);
        Ok(self.store.write(writes, now).await?[0])
    }
}
