//! The removal of jobs and their files: deletes, ends, and sweeps of what is no longer needed.

use jiff::{SignedDuration, Timestamp};
use store::{Expect, Ledger as _, LedgerWrite, StoreError};

use super::{Bulk, RunningJob, decode_or_log};
use crate::job::{self, Job, JobRequestError, JobState, decode, open_jobs};

/// Number of files that a request for a delete removes itself. More are removed in the background.
const FILES_REMOVED_AT_ONCE: usize = 100;
/// Minimum time between the sweeps of nodes on one database.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_secs(20);

impl Bulk {
    /// Deletes a job in any state, with its files. Many files are removed in the background: a client does
    /// not wait for them, and a node that stops meanwhile removes the rest at its next start.
    ///
    /// # Errors
    /// Returns [`JobRequestError`] if the job does not exist, which is the case after the first delete, or
    /// the store fails.
    pub async fn delete(&self, id: &str, client_id: &str, now: Timestamp) -> Result<(), JobRequestError> {
        let (job, revision) = self.job(id, client_id, now).await?;
        if job.file_count <= FILES_REMOVED_AT_ONCE {
            self.remove(&job, revision, now).await?;
            return Ok(());
        }
        self.stop(&job).await;
        if let Err(error) = self.remove_record(&job, revision, now).await {
            // Disk space is freed even if the store is read-only.
            self.worker.files.remove(&job.id).await;
            return Err(error.into());
        }
        let bulk = self.clone();
        tokio::spawn(async move {
            bulk.worker.files.remove(&job.id).await;
            bulk.worker.leave(&job.id, (bulk.clock.now)()).await;
        });
        Ok(())
    }

    /// Stops the jobs of this process that have ended according to their records, and removes their files.
    /// Call it after [`end_exports`](crate::serve::archive::ExportArchive::end_exports).
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read.
    pub async fn stop_ended(&self, now: Timestamp) -> Result<(), StoreError> {
        let ids: Vec<String> = self.running().keys().cloned().collect();
        for id in ids {
            let key = job::key(&id);
            let record = self.worker.store.get(&key, now).await?;
            let job_in_store = record.map(|record| decode::<Job>(&key, &record.value)).transpose()?;
            if job_in_store.is_some_and(|job| job.state == JobState::Running) {
                continue;
            }
            let running = self.running().remove(&id);
            if let Some(RunningJob { task, .. }) = running {
                task.abort();
                // The result states only whether the task was aborted.
                drop(task.await);
            }
            self.worker.leave(&id, now).await;
        }
        Ok(())
    }

    /// Removes the files before the record, so that disk space is freed even if the store is read-only. A
    /// worker of another process that still runs finds the record missing and removes its files itself.
    async fn remove(&self, job: &Job, revision: u64, now: Timestamp) -> Result<(), StoreError> {
        self.stop(job).await;
        self.worker.files.remove(&job.id).await;
        self.remove_record(job, revision, now).await?;
        // The worker may have written more files after the first removal, before it stopped.
        self.worker.leave(&job.id, now).await;
        Ok(())
    }

    /// Stops the worker of a job, if this process runs it.
    async fn stop(&self, job: &Job) {
        let running = self.running().remove(&job.id);
        if let Some(RunningJob { task, .. }) = running {
            // A worker that has recorded the end of the export reports it before it stops.
            if job.state == JobState::Running {
                task.abort();
            }
            // The result states only whether the task was aborted.
            drop(task.await);
        }
    }

    /// Removes the record of a job, which stays open until its files are removed.
    async fn remove_record(&self, job: &Job, mut revision: u64, now: Timestamp) -> Result<(), StoreError> {
        loop {
            // The job is open until its list of files is removed, which can be long.
            let delete = LedgerWrite::delete(job.key(), Expect::Revision(revision));
            match self.worker.store.write(vec![delete, open_jobs::add(&job.id)], now).await {
                Ok(_) => return Ok(()),
                // Another request has updated or deleted the job.
                Err(StoreError::Conflict { .. }) => match self.worker.store.get(&job.key(), now).await? {
                    Some(record) => revision = record.revision,
                    None => return Ok(()),
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes expired jobs with their files, resumes jobs whose lease has expired, and cleans up after ended
    /// jobs whose worker has stopped. Returns the number of expired jobs. If a job's record cannot be
    /// removed, its files are nevertheless removed, and the other jobs are processed. Nodes on one database
    /// and one bucket take turns.
    ///
    /// # Errors
    /// Returns the first [`StoreError`] after all jobs were processed.
    pub async fn sweep(&self, now: Timestamp) -> Result<usize, StoreError> {
        let mut failed = self.take_over_expired(now).await.err();
        // Listed before the jobs: the record of a job is written before its files. A node that cannot list
        // them takes no turn.
        let Some((mut unclear, _)) = self.jobs_with_files().await else { return failed.map_or(Ok(0), Err) };
        if !self.takes_sweep_turn(now).await? {
            return failed.map_or(Ok(0), Err);
        }
        let (mut count, mut after) = (0, None::<String>);
        loop {
            let page = self.worker.store.scan(job::PREFIX, after.as_deref(), 100, now).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, record) in &page {
                let Some(job) = decode_or_log(key, &record.value) else { continue };
                // A failed export may have files in the folder of each node.
                if !matches!(job.state, JobState::Failed { .. }) {
                    unclear.remove(&job.id);
                }
                let result = if job.expires().is_some_and(|expiry| expiry <= now) {
                    count += 1;
                    self.remove(&job, record.revision, now).await
                } else if job.state == JobState::Running && job.lease.until <= now {
                    // Servers of earlier versions did not list their jobs.
                    self.worker.store.write(vec![open_jobs::add(&job.id)], now).await.map(drop)
                } else {
                    Ok(())
                };
                failed = failed.or(result.err());
            }
        }
        // Files without a record, and open jobs whose worker stopped before it cleaned up, are no longer
        // needed.
        unclear.extend(open_jobs::ids(&self.worker.store, now).await?);
        for id in unclear {
            if !self.running().contains_key(&id) {
                failed = failed.or(self.worker.clean_up(&id, now).await.err());
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// Takes the turn to sweep. Returns `false` if another node has taken it within [`SWEEP_INTERVAL`].
    async fn takes_sweep_turn(&self, now: Timestamp) -> Result<bool, StoreError> {
        // Each node removes the files in its own folder.
        if !self.worker.store.is_shared() || !self.worker.files.are_in_bucket() {
            return Ok(true);
        }
        let turn = LedgerWrite::put("bulk/sweep", "", Expect::Absent).expiring(now + SWEEP_INTERVAL);
        match self.worker.store.write(vec![turn], now).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
