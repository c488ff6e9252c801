//! The exports of a server: start, poll, delete, download, and resumption after a restart.

mod job_requests;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use resources::{ResourceError, Resources};
use store::{Expect, Ledger as _, LedgerWrite, ResourceKey, Seq, Store, StoreError, Versions as _};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::GuideVersion;
use crate::abort_on_drop::AbortOnDrop;
use crate::files::export_files::ExportFiles;
use crate::files::file_location::FileLocation;
use crate::files::file_stream::DownloadLimits;
use crate::group::GroupError;
use crate::group::GroupMembers;
use crate::job::{self, Job, JobRequestError, JobState, Lease, decode, file_list};
use crate::plan::export_plan::{ExportPlan, GroupReader};
use crate::request::kick_off::{self, ExportLevel, KickOff, KickOffError};
use crate::request::parameters::{ExportParameters, ParameterRules, check_parameters};
use crate::serve::address::{AddressSigning, FileAddresses};
use crate::serve::download::GzipLocks;
use crate::write::job_record::JobRecord;
use crate::write::worker::{CompletionObserver, Worker};

/// Maximum number of jobs that run concurrently. Other jobs wait.
const AT_ONCE: usize = 2;
/// Maximum number of unfinished jobs of one client and of all clients. Further kick-offs are rejected with a time to
/// retry.
const PER_CLIENT: usize = 50;
const IN_ALL: usize = 500;

/// A function that fills a buffer with random bytes.
pub type RandomSource = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Sources of time and randomness.
#[derive(Clone)]
pub struct BulkClock {
    /// Returns the current time.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Fills a buffer with random bytes.
    pub random: RandomSource,
}

/// Settings of bulk export.
#[derive(Debug, Clone)]
pub struct BulkOptions {
    /// Where the output files are kept.
    pub files: FileLocation,
    /// Base URL of the FHIR interface. The URLs of jobs and files are below its path `/bulk`.
    pub fhir_base: String,
    /// Time for which a completed export is kept.
    pub retention: Duration,
    /// Time after which another worker resumes a job whose worker has stopped.
    pub lease: SignedDuration,
    /// Version of the guide that determines the supported parameters.
    pub guide: GuideVersion,
    /// `true` if members of nested Groups are exported.
    pub nested_groups: bool,
    /// Maximum number of concurrent downloads.
    pub open_downloads: usize,
    /// Maximum length of an output file in bytes, unless a single resource is longer.
    pub file_size: u64,
    /// Maximum number of polls of one job per minute. `None` means unlimited.
    pub poll_limit: Option<u32>,
    /// Key of signed URLs. `None` means that files require a token.
    pub signing: Option<AddressSigning>,
    /// Limits on the size of running exports.
    pub in_flight: InFlight,
}

/// Maximum number of bytes that running exports may have written when another export starts. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default)]
pub struct InFlight {
    /// Maximum for the exports of the requesting client, in bytes.
    pub of_client: Option<u64>,
    /// Maximum for the exports of all clients, in bytes.
    pub of_all: Option<u64>,
}

/// The exports of a server. Clones share the same state and are cheap.
#[derive(Clone)]
pub struct Bulk {
    resources: Resources,
    worker: Arc<Worker>,
    addresses: FileAddresses,
    guide: GuideVersion,
    /// Id of this process, which its leases contain.
    owner: String,
    clock: BulkClock,
    turns: Arc<Semaphore>,
    running: Arc<Mutex<HashMap<String, RunningJob>>>,
    gzips: Arc<GzipLocks>,
    poll_limit: Option<u32>,
    in_flight: InFlight,
    /// For each job, the time of its first poll within the last minute, and the number of polls since then.
    polls: Arc<Mutex<HashMap<String, (Timestamp, u32)>>>,
}

struct RunningJob {
    client_id: String,
    /// Number of bytes written to the job's files so far.
    bytes: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Bulk {
    /// Opens bulk export on a store. Stored jobs are not resumed.
    ///
    /// # Errors
    /// Returns an error if the folder for the files cannot be created.
    pub fn open(
        store: Store,
        resources: Resources,
        options: BulkOptions,
        clock: BulkClock,
    ) -> std::io::Result<Self> {
        let retention = SignedDuration::try_from(options.retention).unwrap_or(SignedDuration::from_hours(24));
        let reading =
            GroupReader { fhir_base: options.fhir_base.clone(), nested_groups: options.nested_groups };
        let downloads = DownloadLimits::new(options.open_downloads);
        let files = ExportFiles::open(options.files, store.id(), downloads)?;
        let worker = Worker {
            store,
            files,
            reading,
            retention,
            lease: options.lease,
            file_size: options.file_size,
            on_complete: OnceLock::new(),
        };
        Ok(Self {
            resources,
            worker: Arc::new(worker),
            addresses: FileAddresses::new(&options.fhir_base, options.signing),
            guide: options.guide,
            owner: random_id(&clock),
            clock,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            running: Arc::default(),
            gzips: Arc::default(),
            poll_limit: options.poll_limit,
            in_flight: options.in_flight,
            polls: Arc::default(),
        })
    }

    /// Resumes the jobs that a stopped process left unfinished, removes files that no job needs, and returns the number
    /// of resumed jobs. Must only be called when the process starts: on a store of its own, it does not wait until leases
    /// expire.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        let now = (self.clock.now)();
        let mut count = 0;
        for (job, revision) in self.jobs(now).await? {
            if job.state == JobState::Running {
                if self.worker.store.is_shared() && job.lease.until > now {
                    // Another node runs the job.
                    continue;
                }
                count += usize::from(self.acquire_lease(job, revision, now).await?);
            } else {
                // The previous process may have stopped before it removed unfinished files.
                match file_list::load(&self.worker.store, &job, now).await {
                    Ok(files) => {
                        let files = files.iter().map(|file| file.at(&job.id));
                        self.worker.files.remove_others(&job.id, files).await;
                    }
                    // The other jobs are resumed even if the files of one are not known.
                    Err(error) => tracing::error!(%error, "the files of an export could not be read"),
                }
            }
        }
        let foreign = self.worker.files.jobs().await.map(|(_, foreign)| foreign).unwrap_or_default();
        if !foreign.is_empty() {
            let folders = foreign.join(", ");
            tracing::warn!(
                folders,
                "the folder of exports contains files that do not belong to this store; they are kept"
            );
        }
        self.remove_unknown(now).await?;
        Ok(count)
    }

    /// Acquires the lease of another process's job. Returns `false` if a third process has acquired it first.
    async fn acquire_lease(&self, mut job: Job, revision: u64, now: Timestamp) -> Result<bool, StoreError> {
        job.lease = Lease {
            owner: self.owner.clone(),
            attempt: job.lease.attempt + 1,
            attempts_without_progress: job.lease.attempts_without_progress + 1,
            until: now + self.worker.lease,
        };
        match self.worker.store.write(vec![job.put(Expect::Revision(revision))], now).await {
            Ok(revisions) => {
                self.spawn(job, revisions[0]);
                Ok(true)
            }
            // The job was deleted, or another process acquired the lease.
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes files of this store that belong to no job. Files of new jobs are safe, because the record of a job is
    /// written before its files.
    async fn remove_unknown(&self, now: Timestamp) -> Result<(), StoreError> {
        let with_files = self.worker.files.jobs().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the files of exports could not be listed");
            Default::default()
        });
        for id in with_files.0 {
            if self.worker.store.get(&job::key(&id), now).await?.is_none() {
                self.worker.files.remove(&id).await;
            }
        }
        // A process may have stopped between the removal of a job and that of its list.
        for id in file_list::jobs(&self.worker.store, now).await? {
            if self.worker.store.get(&job::key(&id), now).await?.is_none() {
                file_list::remove(&self.worker.store, &id, now).await?;
            }
        }
        Ok(())
    }

    async fn jobs(&self, now: Timestamp) -> Result<Vec<(Job, u64)>, StoreError> {
        let mut jobs = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.worker.store.scan("bulk/job/", after.as_deref(), 100, now).await?;
            let Some((last, _)) = page.last() else { return Ok(jobs) };
            after = Some(last.clone());
            for (key, record) in &page {
                match decode::<Job>(key, &record.value) {
                    Ok(job) => jobs.push((job, record.revision)),
                    // The other jobs are resumed even if one cannot be.
                    Err(error) => tracing::error!(%error, "an export could not be resumed"),
                }
            }
        }
    }

    /// Checks a kick-off request, takes the snapshot, creates and starts the job, and returns the job's id.
    ///
    /// # Errors
    /// Returns [`KickOffError`] if the request is rejected. In that case no job is created.
    pub async fn kick_off(&self, request: KickOff, now: Timestamp) -> Result<String, KickOffError> {
        let rules = ParameterRules { fhir_base: &self.worker.reading.fhir_base, guide: self.guide, now };
        let mut parameters = check_parameters(&request, rules)?;
        if let ExportLevel::Group(id) = &request.level {
            self.check_group(id, request.groups.as_deref()).await?;
        }
        self.check_patients(&request, &mut parameters, now).await?;
        self.check_limits(&request.client_id, now).await?;
        let store = &self.worker.store;
        let snapshot = store.snapshot(now).await?;
        let kinds = kick_off::kinds(&request, &parameters, store.kinds(snapshot.seq).await?);
        let lease = Lease {
            owner: self.owner.clone(),
            attempt: 1,
            attempts_without_progress: 0,
            until: now + self.worker.lease,
        };
        let mut job = Job::new(
            random_id(&self.clock),
            request.client_id,
            request.level,
            parameters,
            kinds,
            self.guide,
            request.request_url,
            snapshot.seq,
            snapshot.time,
            lease,
        );
        ExportPlan::choose_indexed_types(&mut job, store, &self.worker.reading.fhir_base).await?;
        let revisions = store.write(vec![job.put(Expect::Absent)], now).await?;
        let id = job.id.clone();
        self.spawn(job, revisions[0]);
        Ok(id)
    }

    /// Returns the unfinished jobs of all nodes: their clients, and the bytes written so far.
    async fn unfinished(&self, now: Timestamp) -> Result<Vec<(String, u64)>, StoreError> {
        if !self.worker.store.is_shared() {
            let running = self.running();
            let jobs = running.values();
            return Ok(jobs.map(|job| (job.client_id.clone(), job.bytes.load(Ordering::Relaxed))).collect());
        }
        let jobs = self.jobs(now).await?.into_iter();
        let unfinished = jobs.filter(|(job, _)| job.state == JobState::Running);
        Ok(unfinished.map(|(job, _)| (job.client_id, job.progress.bytes)).collect())
    }

    /// Checks the limits on running jobs for another job of this client.
    async fn check_limits(&self, client_id: &str, now: Timestamp) -> Result<(), KickOffError> {
        let running = self.unfinished(now).await?;
        let of_client = || running.iter().filter(|(client, _)| client == client_id);
        let bytes = |(_, bytes): &(String, u64)| *bytes;
        let InFlight { of_client: most_of_client, of_all: most_of_all } = self.in_flight;
        let reached = |most: Option<u64>, bytes: u64| most.filter(|most| bytes >= *most);
        let why = if of_client().count() >= PER_CLIENT || running.len() >= IN_ALL {
            "too many exports are running".to_owned()
        } else if let Some(most) = reached(most_of_client, of_client().map(bytes).sum()) {
            format!("the running exports of this client have together reached the limit of {most} bytes")
        } else if let Some(most) = reached(most_of_all, running.iter().map(bytes).sum()) {
            format!("the running exports of all clients have together reached the limit of {most} bytes")
        } else {
            return Ok(());
        };
        Err(KickOffError::TooManyExports { why, retry_after_s: 10 })
    }

    /// Returns the current members of a Group. With `nested_groups`, includes the members of nested Groups.
    ///
    /// # Errors
    /// Returns [`GroupError`] if the Group does not exist or cannot be read.
    pub async fn members(&self, group: &str, now: Timestamp) -> Result<GroupMembers, GroupError> {
        self.worker.reading.members(&self.worker.store, group, Seq::LATEST, now).await
    }

    async fn check_group(&self, id: &str, allowed: Option<&[String]>) -> Result<(), KickOffError> {
        let unknown = || KickOffError::UnknownGroup { id: id.to_owned() };
        if !fhir::is_id(id) || allowed.is_some_and(|groups| !groups.iter().any(|group| group == id)) {
            return Err(unknown());
        }
        match self.resources.read("Group", id).await {
            Ok(_) => Ok(()),
            Err(ResourceError::NotFound { .. } | ResourceError::Gone { .. }) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the Patients of the request exist and are members of the Group. Under `handling=lenient`, other
    /// Patients are omitted.
    async fn check_patients(
        &self,
        request: &KickOff,
        parameters: &mut ExportParameters,
        now: Timestamp,
    ) -> Result<(), KickOffError> {
        let Some(named) = parameters.patients.take() else { return Ok(()) };
        let (store, reading) = (&self.worker.store, &self.worker.reading);
        let members = match &request.level {
            ExportLevel::Group(id) => Some(reading.members(store, id, Seq::LATEST, now).await?),
            _ => None,
        };
        let (mut known, mut strangers) = (Vec::new(), Vec::new());
        for id in named {
            let is_known = match &members {
                Some(members) => members.position(&id).is_some(),
                None => {
                    let found = store.read(&ResourceKey::new("Patient", &*id), Seq::LATEST).await?;
                    found.is_some_and(|patient| !patient.is_deleted())
                }
            };
            if is_known { known.push(id) } else { strangers.push(format!("Patient/{id}")) }
        }
        let why = if members.is_some() { "not in the Group" } else { "not found" };
        if request.lenient {
            let note = |patient: &String| format!("patient: {patient} is {why}; it was left out");
            parameters.notes.extend(strangers.iter().map(note));
        } else if !strangers.is_empty() {
            strangers.truncate(10);
            return Err(KickOffError::UnknownPatients { why, patients: strangers });
        }
        parameters.patients = Some(known);
        Ok(())
    }

    /// Sets a function that is called after this process has completed an export, with its files. Only the first call of
    /// this method has an effect.
    pub fn on_complete(&self, observer: CompletionObserver) {
        drop(self.worker.on_complete.set(observer));
    }

    /// Returns the duration of a lease.
    pub fn lease(&self) -> SignedDuration {
        self.worker.lease
    }

    /// Returns the number of jobs that this process runs, or has in its queue.
    pub fn running_jobs(&self) -> usize {
        self.running().len()
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, RunningJob>> {
        self.running.lock().expect("no thread panics while it holds the lock")
    }

    fn spawn(&self, job: Job, revision: u64) {
        let (id, client_id) = (job.id.clone(), job.client_id.clone());
        let (bulk, mine) = (self.clone(), id.clone());
        let bytes = Arc::new(AtomicU64::new(job.progress.bytes));
        let counted = bytes.clone();
        // The task removes itself when it has ended, so it must be added before.
        let mut running = self.running();
        let task = tokio::spawn(async move {
            let (store, duration) = (bulk.worker.store.clone(), bulk.worker.lease);
            let record = Arc::new(JobRecord::new(store, duration, &job, revision));
            let lost = AbortOnDrop::of(Arc::clone(&record).keep_lease(bulk.clock.now.clone()));
            let work = async {
                let _turn = bulk.turns.acquire().await.expect("the semaphore is never closed");
                let work = bulk.worker.run(job.clone(), &record, &counted, || (bulk.clock.now)());
                // A panic fails only this export, and the client receives the failure.
                if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                    bulk.fail(job, "the export failed; the server's log has the reason").await;
                }
            };
            tokio::select! {
                () = work => {}
                () = lost => bulk.worker.leave(&mine, (bulk.clock.now)()).await,
            }
            bulk.running().remove(&mine);
        });
        running.insert(id, RunningJob { client_id, bytes, task: task.abort_handle() });
    }

    async fn fail(&self, mut job: Job, reason: &str) {
        tracing::error!(job = job.id, "an export panicked");
        let now = (self.clock.now)();
        let expires = now + self.worker.retention;
        job.state = JobState::Failed { by_data: false, reason: reason.to_owned(), expires };
        let Ok(Some(record)) = self.worker.store.get(&job.key(), now).await else { return };
        let stored = decode::<Job>(&job.key(), &record.value);
        if stored.is_ok_and(|stored| {
            stored.lease.owner != job.lease.owner || stored.lease.attempt != job.lease.attempt
        }) {
            // Another node has acquired the lease.
            return;
        }
        let write = job.put(Expect::Revision(record.revision));
        if let Err(error) = self.worker.store.write(vec![write], now).await {
            tracing::error!(%error, "the failure of an export could not be recorded");
        }
    }

    /// Deletes a job in any state, with its files.
    ///
    /// # Errors
    /// Returns [`JobRequestError`] if the job does not exist, which is the case after the first delete, or the store
    /// fails.
    pub async fn delete(&self, id: &str, client_id: &str, now: Timestamp) -> Result<(), JobRequestError> {
        let (job, revision) = self.job(id, client_id, now).await?;
        self.remove(&job, revision, now).await?;
        Ok(())
    }

    /// Removes the files before the record, so that disk space is freed even if the store is read-only. A worker that
    /// still runs finds the record missing and removes its files itself.
    async fn remove(&self, job: &Job, revision: u64, now: Timestamp) -> Result<(), StoreError> {
        if let Some(running) = self.running().remove(&job.id) {
            running.task.abort();
        }
        self.worker.files.remove(&job.id).await;
        let mut revision = revision;
        loop {
            let write = LedgerWrite::delete(job.key(), Expect::Revision(revision));
            match self.worker.store.write(vec![write], now).await {
                Ok(_) => break,
                // Another request has updated or deleted the job.
                Err(StoreError::Conflict { .. }) => match self.worker.store.get(&job.key(), now).await? {
                    Some(record) => revision = record.revision,
                    None => break,
                },
                Err(error) => return Err(error),
            }
        }
        // The worker may have written more files after the first removal, before it stopped. It cannot add to the list of
        // files any more, because that needs the record of the job.
        self.worker.files.remove(&job.id).await;
        file_list::remove(&self.worker.store, &job.id, now).await
    }

    /// Removes expired jobs with their files, and resumes jobs whose lease has expired. Returns the number of removed
    /// jobs. If a job's record cannot be removed, its files are nevertheless removed, and the other jobs are processed.
    ///
    /// # Errors
    /// Returns the first [`StoreError`] after all jobs were processed.
    pub async fn sweep(&self, now: Timestamp) -> Result<usize, StoreError> {
        let (mut count, mut failed) = (0, None);
        let jobs = self.jobs(now).await?;
        let (expired, others): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|(job, _)| job.expires().is_some_and(|at| at <= now));
        for (job, revision) in expired {
            match self.remove(&job, revision, now).await {
                Ok(()) => count += 1,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.take_over(others, now).await?;
        self.remove_unknown(now).await?;
        failed.map_or(Ok(count), Err)
    }

    /// Resumes jobs whose node has ended, as soon as their leases have expired.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the jobs cannot be read or written.
    pub async fn take_over_expired(&self, now: Timestamp) -> Result<(), StoreError> {
        let jobs = self.jobs(now).await?;
        self.take_over(jobs, now).await
    }

    async fn take_over(&self, jobs: Vec<(Job, u64)>, now: Timestamp) -> Result<(), StoreError> {
        for (job, revision) in jobs {
            let is_mine = self.running().contains_key(&job.id);
            if job.state != JobState::Running || job.lease.until > now || is_mine {
                continue;
            }
            if self.worker.store.is_shared() && self.turns.available_permits() == 0 {
                // Another node may have more time.
                break;
            }
            self.acquire_lease(job, revision, now).await?;
        }
        Ok(())
    }
}

/// Returns a new job id: 128 random bits as text.
fn random_id(clock: &BulkClock) -> String {
    let mut random = [0; 16];
    (clock.random)(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
