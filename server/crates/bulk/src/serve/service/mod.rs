//! The exports of a server: start, and resumption after a restart. [`job_requests`] has the requests about an
//! export, and [`removal`] the deletes and sweeps.

mod job_requests;
mod removal;

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use store::{Expect, Ledger as _, LedgerWrite, ResourceKey, Seq, Store, StoreError, Versions as _};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::abort_on_drop::AbortOnDrop;
use crate::files::export_files::ExportFiles;
use crate::files::file_location::FileLocation;
use crate::files::file_stream::DownloadLimits;
use crate::group::{CurrentMembers, Exclusion, GroupError};
use crate::job::{self, Job, JobState, Lease, decode, open_jobs};
use crate::plan::export_plan::ExportPlan;
use crate::plan::joined_types::joined_since;
use crate::plan::membership::{GroupReader, GroupsRead};
use crate::request::exported_kinds;
use crate::request::kick_off::{ExportLevel, KickOff, KickOffError, check_since};
use crate::request::parameters::{ExportParameters, ParameterRules, check_parameters};
use crate::serve::address::{AddressSigning, FileAddresses};
use crate::serve::download::GzipLocks;
use crate::write::job_record::JobRecord;
use crate::write::worker::{CompletionObserver, Worker};
use crate::{GroupLeavers, GuideVersion};

/// Maximum number of jobs that run concurrently. Other jobs wait.
const AT_ONCE: usize = 2;
/// Maximum number of unfinished jobs of one client. Further kick-offs are rejected with a time to retry.
pub const MAX_CLIENT_EXPORTS: usize = 50;
/// The same maximum for all clients together.
pub const MAX_EXPORTS: usize = 500;

/// Key of the record that each kick-off of several nodes writes, so that they check the limits one after the
/// other.
const LAST_KICK_OFF: &str = "bulk/last-kick-off";

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
    /// `true` if exports of Groups without `_type` contain supporting resources.
    pub supporting: bool,
    /// The list in which increments report what has left an export.
    pub group_leavers: GroupLeavers,
    /// Maximum number of concurrent downloads.
    pub open_downloads: usize,
    /// Maximum length of an output file in bytes, unless a single resource is longer.
    pub file_size: u64,
    /// Maximum number of polls of one job per minute. `None` means unlimited.
    pub poll_limit: Option<u32>,
    /// Signed URLs. `None` means that files require a token.
    pub signing: Option<AddressSigning>,
    /// Limits on the size of running exports.
    pub in_flight: InFlight,
}

/// Maximum number of bytes that running exports may have written when another export starts. `None` means
/// unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Maximum for the exports of the requesting client, in bytes.
    pub of_client: Option<u64>,
    /// Maximum for the exports of all clients, in bytes.
    pub of_all: Option<u64>,
}

/// An export that is waiting or running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenExport {
    /// Id of the job.
    pub id: String,
    /// The client that started it.
    pub client_id: String,
    /// Full URL of the kick-off request.
    pub request_url: String,
    /// Time of the snapshot.
    pub transaction_time: Timestamp,
    /// Estimated percentage.
    pub percent: u8,
    /// Number of bytes in the files so far.
    pub bytes: u64,
}

/// The exports of a server. Clones share the same state and are cheap.
#[derive(Clone)]
pub struct Bulk {
    worker: Arc<Worker>,
    addresses: FileAddresses,
    guide: GuideVersion,
    supporting: bool,
    group_leavers: GroupLeavers,
    /// Id of this process, which its leases contain.
    owner: String,
    clock: BulkClock,
    turns: Arc<Semaphore>,
    /// Held from the check of the limits until the job is stored.
    kick_offs: Arc<tokio::sync::Mutex<()>>,
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
    task: JoinHandle<()>,
}

impl Bulk {
    /// Opens bulk export on a store. Stored jobs are not resumed.
    ///
    /// # Errors
    /// Returns an error if the folder for the files cannot be created.
    pub fn open(store: Store, options: BulkOptions, clock: BulkClock) -> std::io::Result<Self> {
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
            worker: Arc::new(worker),
            addresses: FileAddresses::new(&options.fhir_base, options.signing),
            guide: options.guide,
            supporting: options.supporting,
            group_leavers: options.group_leavers,
            owner: random_id(&clock),
            clock,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            kick_offs: Arc::default(),
            running: Arc::default(),
            gzips: Arc::default(),
            poll_limit: options.poll_limit,
            in_flight: options.in_flight,
            polls: Arc::default(),
        })
    }

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

    /// The number of jobs that are waiting or running, of all processes.
    ///
    /// # Errors
    /// [`StoreError`] if the read fails.
    pub async fn open_job_count(&self, now: Timestamp) -> Result<usize, StoreError> {
        Ok(open_jobs::ids(&self.worker.store, now).await?.len())
    }

    /// The exports that are waiting or running, of all nodes.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read.
    pub async fn open_exports(&self, now: Timestamp) -> Result<Vec<OpenExport>, StoreError> {
        let jobs = self.open_jobs(now).await?.into_iter().map(|(job, _)| job);
        let running = jobs.filter(|job| job.state == JobState::Running);
        let exports = running.map(|job| OpenExport {
            id: job.id,
            client_id: job.client_id,
            request_url: job.request_url,
            transaction_time: job.transaction_time,
            percent: job.progress.percent,
            bytes: job.progress.bytes,
        });
        Ok(exports.collect())
    }

    /// The open jobs (see [`open_jobs`]) with the revisions of their records.
    async fn open_jobs(&self, now: Timestamp) -> Result<Vec<(Job, u64)>, StoreError> {
        const AT_ONCE: usize = 16;
        let ids = open_jobs::ids(&self.worker.store, now).await?;
        let jobs = stream::iter(ids).map(async |id| {
            let key = job::key(&id);
            let Some(record) = self.worker.store.get(&key, now).await? else { return Ok(None) };
            Ok(decode_or_log(&key, &record.value).map(|job| (job, record.revision)))
        });
        jobs.buffered(AT_ONCE).try_filter_map(async |job| Ok(job)).try_collect().await
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
    async fn jobs_with_files(&self) -> Option<(BTreeSet<String>, Vec<String>)> {
        let listed = self.worker.files.jobs().await;
        let listed =
            listed.inspect_err(|error| tracing::warn!(%error, "the files of exports could not be listed"));
        listed.ok().map(|(jobs, foreign)| (jobs.into_iter().collect(), foreign))
    }

    /// Checks a kick-off request, takes the snapshot, creates and starts the job, and returns the job's id.
    ///
    /// # Errors
    /// Returns [`KickOffError`] if the request is rejected. In that case no job is created.
    pub async fn kick_off(&self, request: KickOff, now: Timestamp) -> Result<String, KickOffError> {
        let (fhir_base, supporting) = (&self.worker.reading.fhir_base, self.supporting);
        let rules = ParameterRules { fhir_base, guide: self.guide, supporting, now };
        let mut parameters = check_parameters(&request, rules)?;
        let group = match &request.level {
            ExportLevel::Group(id) => Some(self.check_group(id, request.groups.as_deref(), now).await?),
            _ => None,
        };
        self.check_patients(&request, &mut parameters, group).await?;
        // Two concurrent requests must not both pass the check when only one more job is allowed. Those of
        // this process take turns. Those of several nodes write the same record, and the one that comes too
        // late checks again.
        let _turn = self.kick_offs.lock().await;
        let mut last = self.last_kick_off(now).await?;
        self.check_limits(&request.client_id, now).await?;
        let store = &self.worker.store;
        let snapshot = store.snapshot(now).await?;
        check_since(store, parameters.since).await?;
        let kinds = exported_kinds::kinds(&request, &parameters, store.kinds(snapshot.seq).await?);
        let lease = Lease { owner: self.owner.clone(), attempt: 1, attempts_without_progress: 0, until: now };
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
        job.group_leavers = self.group_leavers;
        job.joined_since = joined_since(store).await?;
        ExportPlan::choose_indexed_types(&mut job, store, &self.worker.reading.fhir_base).await?;
        loop {
            // The request may have waited for others.
            job.lease.until = (self.clock.now)() + self.worker.lease;
            let mut writes = vec![job.put(Expect::Absent), open_jobs::add(&job.id)];
            writes.extend(last.map(|expect| LedgerWrite::put(LAST_KICK_OFF, "", expect)));
            match store.write(writes, now).await {
                Ok(revisions) => {
                    let id = job.id.clone();
                    self.spawn(job, revisions[0]);
                    return Ok(id);
                }
                Err(StoreError::Conflict { key }) if key == LAST_KICK_OFF => {
                    last = self.last_kick_off(now).await?;
                    self.check_limits(&job.client_id, now).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The condition that no other node has started an export since this call, if several nodes share the
    /// store.
    async fn last_kick_off(&self, now: Timestamp) -> Result<Option<Expect>, StoreError> {
        let store = &self.worker.store;
        if !store.is_shared() {
            return Ok(None);
        }
        let last = store.get(LAST_KICK_OFF, now).await?;
        Ok(Some(last.map_or(Expect::Absent, |last| Expect::Revision(last.revision))))
    }

    /// The unfinished jobs of all nodes: their clients, and the bytes written so far.
    async fn unfinished(&self, now: Timestamp) -> Result<Vec<(String, u64)>, StoreError> {
        if !self.worker.store.is_shared() {
            let running = self.running();
            let jobs = running.values();
            return Ok(jobs.map(|job| (job.client_id.clone(), job.bytes.load(Ordering::Relaxed))).collect());
        }
        let jobs = self.open_jobs(now).await?.into_iter();
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
        let why = if of_client().count() >= MAX_CLIENT_EXPORTS || running.len() >= MAX_EXPORTS {
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

    /// The members of a Group at `now` in the snapshot `seq`. With `nested_groups`, includes nested Groups.
    ///
    /// # Errors
    /// Returns [`GroupError`] if the Group does not exist or cannot be read.
    pub async fn members(&self, group: &str, seq: Seq, now: Timestamp) -> Result<CurrentMembers, GroupError> {
        self.worker.reading.current_members(&self.worker.store, group, seq, now).await
    }

    /// Checks that the client may export the Group, and that the Group has readable members.
    async fn check_group(
        &self,
        id: &str,
        allowed: Option<&[String]>,
        now: Timestamp,
    ) -> Result<GroupsRead<'_>, KickOffError> {
        if !fhir::is_id(id) || allowed.is_some_and(|groups| !groups.iter().any(|group| group == id)) {
            return Err(KickOffError::UnknownGroup { id: id.to_owned() });
        }
        let group = self.worker.reading.read(&self.worker.store, id, Seq::LATEST, now).await?;
        match group.exclusion {
            Some(Exclusion::DescriptiveGroup) => Err(KickOffError::BadGroup(format!(
                "Group/{id} describes possible members (actual is false) and has none that could be exported; export a Group that lists its members"
            ))),
            _ => Ok(group),
        }
    }

    /// Checks that the Patients of the request exist and are members of the Group. Under `handling=lenient`,
    /// other Patients are omitted.
    async fn check_patients(
        &self,
        request: &KickOff,
        parameters: &mut ExportParameters,
        group: Option<GroupsRead<'_>>,
    ) -> Result<(), KickOffError> {
        let Some(named) = parameters.patients.take() else { return Ok(()) };
        let members = group.map(|group| group.into_members().members);
        let store = &self.worker.store;
        let (mut accessible, mut strangers) = (Vec::new(), Vec::new());
        for id in named {
            let is_known = match &members {
                Some(members) => members.position(&id).is_some(),
                None => {
                    let stored_patient = store.read(&ResourceKey::new("Patient", &*id), Seq::LATEST).await?;
                    stored_patient.is_some_and(|patient| !patient.is_deleted())
                }
            };
            if is_known { accessible.push(id) } else { strangers.push(format!("Patient/{id}")) }
        }
        let why = if members.is_some() { "not in the Group" } else { "not found" };
        if request.lenient {
            let note = |patient: &String| format!("patient: {patient} is {why}; it was left out");
            parameters.notes.extend(strangers.iter().map(note));
        } else if !strangers.is_empty() {
            strangers.truncate(10);
            return Err(KickOffError::UnknownPatients { why, patients: strangers });
        }
        parameters.patients = Some(accessible);
        Ok(())
    }

    /// Sets a function that is called after this process has completed an export, with its files. Only the
    /// first call of this method has an effect.
    pub fn on_complete(&self, observer: CompletionObserver) {
        drop(self.worker.on_complete.set(observer));
    }

    /// The duration of a lease.
    pub fn lease(&self) -> SignedDuration {
        self.worker.lease
    }

    /// The number of jobs that this process runs, or has in its queue.
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
        // Locked until the task is added, because a task that ends immediately removes itself.
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
        running.insert(id, RunningJob { client_id, bytes, task });
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
}

/// Decodes a job, or logs why that is not possible. Other jobs are processed even if one cannot be read.
fn decode_or_log(key: &str, value: &[u8]) -> Option<Job> {
    decode(key, value).inspect_err(|error| tracing::error!(%error, "an export could not be read")).ok()
}

/// A new job id: 128 random bits as text.
fn random_id(clock: &BulkClock) -> String {
    let mut random = [0; 16];
    (clock.random)(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}
