//! The exports of a server.
//!
//! | module | contents |
//! |---|---|
//! | [`kick_off`] | the checks of a kick-off, and the new job |
//! | [`takeover`] | jobs that a process has left: after a restart, and of other nodes |
//! | [`job_requests`] | the requests about an export |
//! | [`removal`] | deletes and sweeps |
//! | here | the state of the exports, and the tasks that run them |

mod job_requests;
pub mod kick_off;
mod removal;
mod takeover;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use store::{Expect, Ledger as _, Seq, Store, StoreError};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::abort_on_drop::AbortOnDrop;
use crate::files::export_files::ExportFiles;
use crate::files::file_location::FileLocation;
use crate::files::file_stream::DownloadLimits;
use crate::group::{CurrentMembers, GroupError};
use crate::job::{self, Job, JobState, decode, open_jobs};
use crate::plan::membership::GroupReader;
use crate::serve::address::{AddressSigning, FileAddresses};
use crate::serve::download::GzipLocks;
use crate::write::job_record::JobRecord;
use crate::write::worker::{CompletionObserver, Worker};
use crate::{GroupLeavers, GuideVersion};

/// Maximum number of jobs that run concurrently. Other jobs wait.
const AT_ONCE: usize = 2;
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
    /// Place of the output files.
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

    /// The members of a Group at `now` in the snapshot `seq`. With `nested_groups`, includes nested Groups.
    ///
    /// # Errors
    /// Returns [`GroupError`] if the Group does not exist or cannot be read.
    pub async fn members(&self, group: &str, seq: Seq, now: Timestamp) -> Result<CurrentMembers, GroupError> {
        self.worker.reading.current_members(&self.worker.store, group, seq, now).await
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
        let byte_count = bytes.clone();
        // Locked until the task is added, because a task that ends immediately removes itself.
        let mut running = self.running();
        let task = tokio::spawn(async move {
            let (store, duration) = (bulk.worker.store.clone(), bulk.worker.lease);
            let record = Arc::new(JobRecord::new(store, duration, &job, revision));
            let lease = AbortOnDrop::of(Arc::clone(&record).keep_lease(bulk.clock.now.clone()));
            let work = async {
                let _turn = bulk.turns.acquire().await.expect("the semaphore is never closed");
                let work = bulk.worker.run(job.clone(), &record, &byte_count, || (bulk.clock.now)());
                // A panic fails only this export, and the client receives the failure.
                if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                    bulk.fail(job, "the export failed; the server's log has the reason").await;
                }
            };
            tokio::select! {
                () = work => {}
                () = lease => bulk.worker.leave(&mine, (bulk.clock.now)()).await,
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
        let record_job = decode::<Job>(&job.key(), &record.value);
        if record_job.is_ok_and(|other| {
            other.lease.owner != job.lease.owner || other.lease.attempt != job.lease.attempt
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
