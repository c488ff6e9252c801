//! The exports of a server: begin, ask, delete, download, and take up what a stopped process left.

mod asked;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use resources::{ResourceError, Resources};
use store::space::Disk;
use store::{Expect, Ledger as _, LedgerWrite, ResourceKey, Seq, Store, StoreError, Versions as _};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::Guide;
use crate::address::{Addresses, Signing};
use crate::criteria::{MembersError, Reading};
use crate::download::Gzips;
use crate::file_stream::DownloadLimits;
use crate::files::Files;
use crate::group::Members;
use crate::job::{self, Job, JobError, Lease, State};
use crate::kick_off::{self, KickOff, KickOffError, Level};
use crate::parameters::{Parameters, Rules, check_parameters};
use crate::worker::{LEASE, Worker};

/// Jobs that work at the same time; others wait their turn.
const AT_ONCE: usize = 2;
/// Jobs under way for one client, and for all; beyond, a kick-off is told to come back.
const PER_CLIENT: usize = 50;
const IN_ALL: usize = 500;

/// Fills a buffer with random bytes.
pub type RandomSource = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Time and chance, passed in.
#[derive(Clone)]
pub struct Clock {
    /// What time it is.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Fills a buffer with random bytes.
    pub random: RandomSource,
}

/// Settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the output files.
    pub files: PathBuf,
    /// The disk of that folder.
    pub disk: Disk,
    /// Address of the FHIR side; jobs and files lie below it, in `/bulk`.
    pub fhir_base: String,
    /// How long a finished export is kept.
    pub retention: Duration,
    /// The version of the guide whose parameters are known.
    pub guide: Guide,
    /// Are members of Groups within a Group its members?
    pub nested_groups: bool,
    /// Maximum number of export files that are being downloaded.
    pub open_downloads: usize,
    /// Longest output file in bytes, but for a single longer resource.
    pub file_size: u64,
    /// How often the status of a job may be asked for within a minute; `None` is without limit.
    pub poll_limit: Option<u32>,
    /// Files are reached by signed addresses and without a token.
    pub signing: Option<Signing>,
    /// How much may be under way.
    pub in_flight: InFlight,
}

/// The most bytes that the files of exports under way may have when one more begins; `None` is without limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct InFlight {
    /// Those of the client that asks.
    pub of_client: Option<u64>,
    /// Everybody's.
    pub of_all: Option<u64>,
}

/// The exports of a server. Cheap to clone.
#[derive(Clone)]
pub struct Bulk {
    resources: Resources,
    worker: Arc<Worker>,
    addresses: Addresses,
    guide: Guide,
    /// Names this process in the records of its jobs.
    owner: String,
    clock: Clock,
    turns: Arc<Semaphore>,
    running: Arc<Mutex<HashMap<String, Running>>>,
    gzips: Arc<Gzips>,
    poll_limit: Option<u32>,
    in_flight: InFlight,
    /// When a job was first asked about within the last minute, and how often.
    polls: Arc<Mutex<HashMap<String, (Timestamp, u32)>>>,
}

struct Running {
    client_id: String,
    /// Bytes of its files by now.
    bytes: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Bulk {
    /// Opens the exports over a store.
    ///
    /// # Errors
    /// The folder of the files cannot be made.
    pub fn open(store: Store, resources: Resources, options: Options, clock: Clock) -> std::io::Result<Self> {
        let retention = SignedDuration::try_from(options.retention).unwrap_or(SignedDuration::from_hours(24));
        let reading = Reading { fhir_base: options.fhir_base.clone(), nested_groups: options.nested_groups };
        let downloads = DownloadLimits::new(options.open_downloads);
        let files = Files::open(options.files, store.id(), options.disk, downloads)?;
        let worker = Worker { store, files, reading, retention, file_size: options.file_size };
        Ok(Self {
            resources,
            worker: Arc::new(worker),
            addresses: Addresses::new(&options.fhir_base, options.signing),
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

    /// Takes up the jobs that a stopped process left under way, and removes files that no job knows or needs any more;
    /// gives the number of jobs. For the start of the only process on its store: leases are not waited for.
    ///
    /// # Errors
    /// The store's.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        let now = (self.clock.now)();
        let mut count = 0;
        for (job, revision) in self.jobs(now).await? {
            if job.state == State::Running {
                count += usize::from(self.take_up(job, revision, now).await?);
            } else {
                // Its process may have stopped between its end and this.
                let files = job.files.iter().map(|file| file.at(&job.id));
                self.worker.files.remove_others(&job.id, files).await;
            }
        }
        let (_, foreign) = self.worker.files.jobs();
        if !foreign.is_empty() {
            let folders = foreign.join(", ");
            tracing::warn!(
                folders,
                "the folder of exports has files that are not of this store; they are left alone"
            );
        }
        self.remove_unknown(now).await?;
        Ok(count)
    }

    /// Makes a job of somebody else's this process's own; says whether it was to be had.
    async fn take_up(&self, mut job: Job, revision: u64, now: Timestamp) -> Result<bool, StoreError> {
        job.lease = Lease {
            owner: self.owner.clone(),
            attempt: job.lease.attempt + 1,
            in_vain: job.lease.in_vain + 1,
            until: now + LEASE,
        };
        let value = serde_json::to_vec(&job).expect("a job serialises");
        let write = LedgerWrite::put(job.key(), value, Expect::Revision(revision));
        match self.worker.store.write(vec![write], now).await {
            Ok(revisions) => {
                self.spawn(job, revisions[0]);
                Ok(true)
            }
            // It was deleted or taken up in between.
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes files of this store that no job knows. A job's record is there before its files.
    async fn remove_unknown(&self, now: Timestamp) -> Result<(), StoreError> {
        for id in self.worker.files.jobs().0 {
            if self.worker.store.get(&job::key(&id), now).await?.is_none() {
                self.worker.files.remove(&id).await;
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
                match decode(key, &record.value) {
                    Ok(job) => jobs.push((job, record.revision)),
                    // The others go on.
                    Err(error) => tracing::error!(%error, "an export is left alone"),
                }
            }
        }
    }

    /// Checks a kick-off, marks the snapshot and begins; gives the job's id.
    ///
    /// # Errors
    /// [`KickOffError`]: nothing has begun.
    pub async fn kick_off(&self, request: KickOff, now: Timestamp) -> Result<String, KickOffError> {
        let rules = Rules { fhir_base: &self.worker.reading.fhir_base, guide: self.guide, now };
        let mut parameters = check_parameters(&request, rules)?;
        if let Level::Group(id) = &request.level {
            self.check_group(id, request.groups.as_deref()).await?;
        }
        self.check_patients(&request, &mut parameters, now).await?;
        self.check_limits(&request.client_id)?;
        let store = &self.worker.store;
        let snapshot = store.snapshot(now).await?;
        let kinds = kick_off::kinds(&request, &parameters, store.kinds(snapshot.seq).await?);
        let lease = Lease { owner: self.owner.clone(), attempt: 1, in_vain: 0, until: now + LEASE };
        let job = Job::new(
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
        let value = serde_json::to_vec(&job).expect("a job serialises");
        let revisions = store.write(vec![LedgerWrite::put(job.key(), value, Expect::Absent)], now).await?;
        let id = job.id.clone();
        self.spawn(job, revisions[0]);
        Ok(id)
    }

    /// Is there room for one more?
    fn check_limits(&self, client_id: &str) -> Result<(), KickOffError> {
        let running = self.running();
        let of_client = || running.values().filter(|job| job.client_id == client_id);
        let bytes = |job: &Running| job.bytes.load(Ordering::Relaxed);
        let InFlight { of_client: most_of_client, of_all: most_of_all } = self.in_flight;
        let reached = |most: Option<u64>, bytes: u64| most.filter(|most| bytes >= *most);
        let why = if of_client().count() >= PER_CLIENT || running.len() >= IN_ALL {
            "too many exports are under way".to_owned()
        } else if let Some(most) = reached(most_of_client, of_client().map(bytes).sum()) {
            format!("the exports of this client that are under way have reached {most} bytes")
        } else if let Some(most) = reached(most_of_all, running.values().map(bytes).sum()) {
            format!("all exports that are under way have reached {most} bytes")
        } else {
            return Ok(());
        };
        Err(KickOffError::TooMany { why, retry_after_s: 10 })
    }

    /// Returns the current members of a Group; with `nested_groups`, also those of the Groups within it.
    ///
    /// # Errors
    /// Returns [`MembersError`] if the Group is missing or cannot be read.
    pub async fn members(&self, group: &str, now: Timestamp) -> Result<Members, MembersError> {
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

    /// The Patients that are named exist, and are members of the Group; under `handling=lenient` the others are left out.
    async fn check_patients(
        &self,
        request: &KickOff,
        parameters: &mut Parameters,
        now: Timestamp,
    ) -> Result<(), KickOffError> {
        let Some(named) = parameters.patients.take() else { return Ok(()) };
        let (store, reading) = (&self.worker.store, &self.worker.reading);
        let members = match &request.level {
            Level::Group(id) => Some(reading.members(store, id, Seq::LATEST, now).await?),
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
        let why = if members.is_some() { "not in the Group" } else { "not known here" };
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

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().expect("no thread panics while it holds the map")
    }

    fn spawn(&self, job: Job, revision: u64) {
        let (id, client_id) = (job.id.clone(), job.client_id.clone());
        let (bulk, mine) = (self.clone(), id.clone());
        let bytes = Arc::new(AtomicU64::new(job.files.iter().map(|file| file.bytes).sum()));
        let counted = bytes.clone();
        let task = tokio::spawn(async move {
            let _turn = bulk.turns.acquire().await.expect("the semaphore is never closed");
            let work = bulk.worker.run(job.clone(), revision, &counted, || (bulk.clock.now)());
            // A bug in one export ends that export, and its client learns of it.
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                bulk.fail(job, "the export failed; the server's log says why").await;
            }
            bulk.running().remove(&mine);
        });
        // The task may have ended before it is listed; then it is not listed.
        let mut running = self.running();
        if !task.is_finished() {
            running.insert(id, Running { client_id, bytes, task: task.abort_handle() });
        }
    }

    async fn fail(&self, mut job: Job, reason: &str) {
        tracing::error!(job = job.id, "an export panicked");
        let now = (self.clock.now)();
        let expires = now + self.worker.retention;
        job.state = State::Failed { by_data: false, reason: reason.to_owned(), expires };
        let value = serde_json::to_vec(&job).expect("a job serialises");
        let Ok(Some(record)) = self.worker.store.get(&job.key(), now).await else { return };
        let write = LedgerWrite::put(job.key(), value, Expect::Revision(record.revision));
        if let Err(error) = self.worker.store.write(vec![write], now).await {
            tracing::error!(%error, "the failure of an export could not be recorded");
        }
    }

    /// Deletes a job with its files, whatever its state.
    ///
    /// # Errors
    /// [`JobError`]; a second delete finds nothing.
    pub async fn delete(&self, id: &str, client_id: &str, now: Timestamp) -> Result<(), JobError> {
        let (job, revision) = self.job(id, client_id, now).await?;
        self.remove(&job, revision, now).await?;
        Ok(())
    }

    /// Removes the files, then the record: the space is free even if the store cannot be written. A worker that is not
    /// stopped in time finds the record gone and cleans up itself.
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
                // It has gone on in between, or somebody else has deleted it.
                Err(StoreError::Conflict { .. }) => match self.worker.store.get(&job.key(), now).await? {
                    Some(record) => revision = record.revision,
                    None => break,
                },
                Err(error) => return Err(error),
            }
        }
        // What the worker wrote before it stopped.
        self.worker.files.remove(&job.id).await;
        Ok(())
    }

    /// Takes expired jobs and their files away, and takes up jobs whose worker has gone; gives the number of
    /// those taken away. A job whose record cannot be removed loses its files nevertheless, and the others go on.
    ///
    /// # Errors
    /// The store's: the first one.
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
        for (job, revision) in others {
            let is_mine = self.running().contains_key(&job.id);
            if job.state == State::Running && job.lease.until <= now && !is_mine {
                self.take_up(job, revision, now).await?;
            }
        }
        self.remove_unknown(now).await?;
        failed.map_or(Ok(count), Err)
    }
}

/// 128 random bits.
fn random_id(clock: &Clock) -> String {
    let mut random = [0; 16];
    (clock.random)(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(key: &str, value: &[u8]) -> Result<Job, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })
}
