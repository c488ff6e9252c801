//! Jobs that a process has left: those of this store after a restart, and those of nodes that have ended.

use std::collections::BTreeSet;

use jiff::Timestamp;
use store::{Expect, Ledger as _, StoreError};

use super::{AT_ONCE, Bulk};
use crate::job::{Job, JobState, Lease, open_jobs};

impl Bulk {
    /// Resumes the jobs that a stopped process left unfinished, removes files that no job needs, and returns
    /// the number of resumed jobs. Must only be called when the process starts: on a store of its own, it
    /// does not wait until leases expire.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        let now = (self.clock.now)();
        if !self.worker.files.are_in_bucket() {
            self.clean_folder(now).await?;
        }
        let is_shared = self.worker.store.is_shared();
        self.acquire_leases(|job| !is_shared || job.lease.until <= now, now).await
    }

    /// Removes the files that the previous process left in the folder of exports and no job needs.
    async fn clean_folder(&self, now: Timestamp) -> Result<(), StoreError> {
        let Some((with_files, foreign)) = self.jobs_with_files().await else { return Ok(()) };
        if !foreign.is_empty() {
            let folders = foreign.join(", ");
            tracing::warn!(
                folders,
                "the folder of exports contains files that do not belong to this store; they are kept"
            );
        }
        for id in &with_files {
            self.worker.remove_unneeded(id, now).await?;
        }
        Ok(())
    }

    /// Resumes jobs whose node has ended, as soon as their leases have expired.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the jobs cannot be read or written.
    pub async fn take_over_expired(&self, now: Timestamp) -> Result<(), StoreError> {
        self.acquire_leases(|job| job.lease.until <= now, now).await.map(drop)
    }

    /// Acquires the leases of the running jobs that are available, and returns their number. Returns the
    /// first error after all jobs were processed.
    async fn acquire_leases(
        &self,
        is_available: impl Fn(&Job) -> bool + Send,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let (mut count, mut failed) = (0, None);
        for (job, revision) in self.open_jobs(now).await? {
            // A busy node leaves jobs to the others.
            let is_busy = self.worker.store.is_shared() && self.running_jobs() >= AT_ONCE;
            let is_mine = self.running().contains_key(&job.id);
            if job.state == JobState::Running && is_available(&job) && !is_mine && !is_busy {
                match self.acquire_lease(job, revision, now).await {
                    Ok(is_acquired) => count += usize::from(is_acquired),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// Acquires the lease of another process's job. Returns `false` if a third process has acquired it first.
    async fn acquire_lease(&self, mut job: Job, revision: u64, now: Timestamp) -> Result<bool, StoreError> {
        job.lease = Lease {
            owner: self.owner.clone(),
            attempt: job.lease.attempt + 1,
            attempts_without_progress: job.lease.attempts_without_progress + 1,
            until: now + self.worker.lease,
        };
        let writes = vec![job.put(Expect::Revision(revision)), open_jobs::add(&job.id)];
        match self.worker.store.write(writes, now).await {
            Ok(revisions) => {
                self.spawn(job, revisions[0]);
                Ok(true)
            }
            // The job was deleted, or another process acquired the lease.
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The ids of the jobs of this store that have files, and the names of folders that belong to other
    /// stores. Logs a failure and returns `None` if the files cannot be listed.
    pub(super) async fn jobs_with_files(&self) -> Option<(BTreeSet<String>, Vec<String>)> {
        let jobs = self.worker.files.jobs().await;
        let jobs =
            jobs.inspect_err(|error| tracing::warn!(%error, "the files of exports could not be listed"));
        jobs.ok().map(|(jobs, foreign)| (jobs.into_iter().collect(), foreign))
    }
}
