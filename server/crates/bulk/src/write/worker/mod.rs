//! Runs jobs file by file. After an interruption, another worker resumes after the last synced file and
//! writes the same bytes.
//!
//! A file ends before the line that would exceed the configured size, and at the end of its type. The content
//! of the files therefore depends only on the snapshot, not on the workers or the number of interruptions.
//! Files are synced in the background until the end of the job. Synced files are recorded as soon as they
//! amount to half a file, and otherwise once a second and at the end, so that many small files share one
//! record. A worker that finds the record changed by another process has lost its lease and stops (see
//! [`crate::write::job_record`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fhir::{Json as _, OperationOutcome};
use jiff::{SignedDuration, Timestamp};
use store::{Ledger as _, LedgerWrite, ResourceKey, Store, StoreError};

use crate::abort_on_drop::AbortOnDrop;
use crate::files::attachment_urls::absolute_lines;
use crate::files::export_files::{AttemptFile, ExportFiles};
use crate::files::file_writer::FileWriter;
use crate::files::write_error::WriteError;
use crate::group::GroupError;
use crate::job::{self, Checkpoint, ExportPart, Job, JobState, ManifestSection, OutputFile, decode};
use crate::job::{file_list, open_jobs};
use crate::plan::export_plan::ExportPlan;
use crate::plan::membership::GroupReader;
use crate::read::delete_bundle;
use crate::read::selection::{Selection, SelectionError};
use crate::read::supporting_comparison::SupportingComparison;
use crate::write::job_record::JobRecord;

/// Interval between writes of the record while no file is completed.
const CHECKPOINT_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Maximum number of consecutive attempts that complete no file.
const MAX_ATTEMPTS_WITHOUT_PROGRESS: u32 = 50;

/// Reasons why an attempt ends before the job is complete.
pub(crate) enum JobError {
    /// The record was changed by another process: the job was deleted, or its lease was acquired.
    LeaseLost,
    /// The store is read-only or unavailable. Another worker resumes the job when the lease expires.
    StoreReadOnly,
    /// The bucket of the files is unavailable. Another worker resumes the job when the lease expires.
    BucketUnavailable,
    /// The disk is nearly full. The job's files are removed, because other jobs may need the space, and the
    /// job starts again when its lease expires.
    NoSpace,
    Failed {
        by_data: bool,
        reason: String,
    },
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::LeaseLost,
            StoreError::ReadOnly { .. } | StoreError::Clock { .. } | StoreError::Unavailable { .. } => {
                Self::StoreReadOnly
            }
            error => {
                tracing::error!(%error, "export");
                let reason = match error {
                    StoreError::Corrupt { .. } => {
                        "the stored data is corrupt; the server's log has the details"
                    }
                    _ => "the store failed; the server's log has the reason",
                };
                Self::Failed { by_data: false, reason: reason.to_owned() }
            }
        }
    }
}

impl From<GroupError> for JobError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Store(error) => error.into(),
            error => Self::Failed { by_data: true, reason: error.to_string() },
        }
    }
}

impl From<SelectionError> for JobError {
    fn from(error: SelectionError) -> Self {
        match error {
            SelectionError::Store(error) => error.into(),
            error => Self::Failed { by_data: true, reason: error.to_string() },
        }
    }
}

impl From<WriteError> for JobError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSpace(error) => {
                tracing::warn!(%error, "an export waits for space");
                Self::NoSpace
            }
            WriteError::Unavailable(error) => {
                tracing::warn!(%error, "an export waits until its files can be written");
                Self::BucketUnavailable
            }
            WriteError::Files(error) => error.into(),
        }
    }
}

impl From<object_store::Error> for JobError {
    fn from(error: object_store::Error) -> Self {
        tracing::error!(%error, "export");
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        let mut reason = match &error {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                "the bucket of the export denied access"
            }
            _ => "the server's log has the reason",
        };
        while let Some(error) = cause {
            match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
                Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
                    return Self::NoSpace;
                }
                Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => {
                    reason = "the folder of the export cannot be written";
                }
                _ => {}
            }
            cause = error.source();
        }
        Self::Failed { by_data: false, reason: format!("an output file could not be written: {reason}") }
    }
}

/// A function that is called with a completed job and its files.
pub type CompletionObserver = Arc<dyn Fn(&Job) + Send + Sync>;

/// Dependencies and settings for running jobs.
pub(crate) struct Worker {
    pub store: Store,
    pub files: ExportFiles,
    pub reading: GroupReader,
    pub retention: SignedDuration,
    /// Duration of a lease, counted from the last write of the job's record.
    pub lease: SignedDuration,
    /// Maximum length of a file, unless a single line is longer.
    pub file_size: u64,
    /// Called after a job was completed.
    pub on_complete: OnceLock<CompletionObserver>,
}

impl Worker {
    /// Runs a job and records its result. `bytes` counts the bytes written to its files.
    pub async fn run(
        &self,
        job: Job,
        record: &JobRecord,
        bytes: &AtomicU64,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) {
        let id = job.id.clone();
        let mut run = JobRun {
            worker: self,
            place: job.next.clone(),
            written: job.progress.resources,
            job,
            record,
            recorded: now(),
            now: &now,
            bytes,
            unrecorded: 0,
            recorded_files: 0,
            file: None,
            closing: VecDeque::new(),
        };
        let end = run.carry_out().await;
        run.file = None;
        run.closing.clear();
        let expires = now() + self.retention;
        run.job.state = match end {
            Ok(()) => JobState::Complete { expires },
            Err(JobError::LeaseLost) => return self.leave(&id, now()).await,
            Err(JobError::StoreReadOnly | JobError::BucketUnavailable) => return,
            Err(JobError::NoSpace) => {
                self.files.remove(&id).await;
                return;
            }
            Err(JobError::Failed { by_data, reason }) => JobState::Failed { by_data, reason, expires },
        };
        // The counter is reset before the end is recorded, because a client that sees the end may start
        // another export immediately.
        bytes.store(0, Ordering::Relaxed);
        let is_complete = matches!(run.job.state, JobState::Complete { .. });
        match run.record().await {
            Ok(()) if is_complete => {
                if let Some(observer) = self.on_complete.get() {
                    observer(&run.job);
                }
                self.leave(&id, now()).await;
            }
            Ok(()) | Err(JobError::LeaseLost) => self.leave(&id, now()).await,
            // Space is freed even if the record cannot be written. In a bucket, the files may be those of
            // another node.
            Err(JobError::StoreReadOnly) if !is_complete && !self.files.are_in_bucket() => {
                self.files.remove(&id).await;
            }
            Err(_) => tracing::error!(job = id, "the end of an export could not be recorded"),
        }
    }

    /// Leaves a job, which another worker may have acquired. Cleans up if it has ended.
    pub async fn leave(&self, id: &str, now: Timestamp) {
        if let Err(error) = self.clean_up(id, now).await {
            tracing::warn!(%error, job = id, "an ended export is cleaned up later");
        }
    }

    /// Cleans up after a job that has ended or was deleted. After that it is no longer open. A running job is
    /// left as it is.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn clean_up(&self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        // A delete that comes in between adds the job again, because its list of files may then be left.
        let open = open_jobs::revision(&self.store, id, now).await?;
        if self.remove_unneeded(id, now).await?
            && let Some(revision) = open
        {
            open_jobs::remove(&self.store, id, revision, now).await?;
        }
        Ok(())
    }

    /// Removes the files of an ended or deleted job that no manifest lists. Returns `false` if the job is
    /// running, or if some files are left. If the manifest cannot be read, all files stay until the job
    /// expires.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn remove_unneeded(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        match self.remove_unlisted(id, now).await {
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(%error, "the list of the files of an export could not be read");
                Ok(true)
            }
            removed => removed,
        }
    }

    async fn remove_unlisted(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let key = job::key(id);
        let Some(record) = self.store.get(&key, now).await? else {
            file_list::remove(&self.store, id, now).await?;
            return Ok(self.files.remove(id).await);
        };
        let job: Job = decode(&key, &record.value)?;
        Ok(match job.state {
            JobState::Running => false,
            JobState::Complete { .. } => {
                let files = file_list::load(&self.store, &job, now).await?;
                self.files.remove_others(id, files.iter().map(|file| file.at(id))).await
            }
            // The files of a failed job can no longer be read.
            JobState::Failed { .. } => self.files.remove(id).await,
        })
    }
}

/// The state of one attempt at a job.
struct JobRun<'a, N> {
    worker: &'a Worker,
    job: Job,
    record: &'a JobRecord,
    now: &'a N,
    /// Number of bytes written, for the limits on all running jobs.
    bytes: &'a AtomicU64,
    /// Time at which the record was last written.
    recorded: Timestamp,
    /// Number of bytes in files completed since the last record.
    unrecorded: u64,
    /// Number of files in the stored list.
    recorded_files: usize,
    /// The file that is being written, if any.
    file: Option<OpenFile>,
    /// Start of the open file. If no file is open, start of the next one.
    place: Checkpoint,
    /// Files that are being synced, in order. The worker waits for the oldest one only if there are
    /// [`ExportFiles::max_closing`] files, or at the end.
    closing: VecDeque<SyncingFile>,
    /// Number of resources in all files, including files that are not synced yet.
    written: u64,
}

struct OpenFile {
    section: ManifestSection,
    kind: String,
    name: String,
    count: u64,
    lines: FileWriter,
}

/// A complete file that is being synced.
struct SyncingFile {
    file: OutputFile,
    hash: AbortOnDrop<Result<String, WriteError>>,
    next: Checkpoint,
}

impl<N: Fn() -> Timestamp + Send + Sync> JobRun<'_, N> {
    async fn carry_out(&mut self) -> Result<(), JobError> {
        let job = self.job.clone();
        self.begin().await?;
        let criteria = Box::pin(self.prepare(&job)).await?;
        if self.job.next == Checkpoint::default() && self.job.files.is_empty() {
            self.write_notes(&job, &criteria).await?;
        }
        while self.place.part < job.parts() {
            match job.part(self.place.part) {
                ExportPart::Kind(kind) => self.write_kind(&job, &criteria, kind).await?,
                ExportPart::Deleted(_) => self.write_deleted(&job, &criteria).await?,
            }
        }
        while !self.closing.is_empty() {
            self.finish_oldest_file().await?;
        }
        self.job.progress.percent = 100;
        Ok(())
    }

    /// Prepares the selection of the job.
    async fn prepare(&mut self, job: &Job) -> Result<ExportPlan, JobError> {
        let (store, reading) = (&self.worker.store, &self.worker.reading);
        let mut supporting = None;
        if let Some(comparison) = SupportingComparison::of(job, store, reading).await? {
            while !comparison.advance().await? {
                self.record_if_due(job).await?;
            }
            supporting = Some(comparison.into_sets());
        }
        Ok(ExportPlan::of(job, store, reading, supporting).await?)
    }

    /// Prepares the attempt: starts again if a file is damaged.
    async fn begin(&mut self) -> Result<(), JobError> {
        if self.job.lease.attempts_without_progress > MAX_ATTEMPTS_WITHOUT_PROGRESS {
            let reason = format!(
                "this export was started {MAX_ATTEMPTS_WITHOUT_PROGRESS} times without writing a file: the server stopped, or its disk was full"
            );
            return Err(JobError::Failed { by_data: false, reason });
        }
        self.job.files = file_list::load(&self.worker.store, &self.job, (self.now)()).await?;
        self.recorded_files = self.job.files.len();
        self.bytes.store(self.job.files.iter().map(|file| file.bytes).sum(), Ordering::Relaxed);
        if !self.job.files.is_empty() && !self.worker.files.has_any(&self.job.id) {
            tracing::info!(job = self.job.id, "the files of an export were removed; the export starts again");
            self.start_again().await?;
        }
        self.worker.files.check_space().map_err(WriteError::from)?;
        if self.job.parameters.are_former() {
            let reason =
                "the output format of this export is no longer supported; start a new export".to_owned();
            return Err(JobError::Failed { by_data: false, reason });
        }
        for index in 0..self.job.files.len() {
            let file = &self.job.files[index];
            if !self.worker.files.has(file.at(&self.job.id), file.bytes).await? {
                tracing::warn!(
                    job = self.job.id,
                    file.name,
                    "a file of an export is corrupt; the export starts again"
                );
                self.start_again().await?;
                break;
            }
        }
        Ok(())
    }

    /// Starts the export again. One write clears its files and their list, if the worker still has the lease.
    async fn start_again(&mut self) -> Result<(), JobError> {
        self.job.files.clear();
        self.recorded_files = 0;
        self.job.next = Checkpoint::default();
        self.place = Checkpoint::default();
        self.written = 0;
        let deletes = file_list::deletes(&self.worker.store, &self.job.id, (self.now)()).await?;
        self.record_with(deletes).await
    }

    /// Writes the remaining resources of one type, from the checkpoint.
    async fn write_kind(&mut self, job: &Job, criteria: &ExportPlan, kind: &str) -> Result<(), JobError> {
        let part = self.place.part;
        let store = &self.worker.store;
        let mut selection = Selection::from(store, job, kind, criteria, self.place.page.clone());
        let mut skip = self.place.skip;
        loop {
            let page = selection.cursor();
            let Some(lines) = selection.next_lines().await? else { break };
            let lines = absolute_lines(lines, &criteria.fhir_base);
            let count = lines.ends.len();
            let mut index = skip.min(count);
            skip -= index;
            while index < count {
                let fit = self.fitting(&lines.ends, index);
                if fit == 0 {
                    let files = self.place.files + 1;
                    let checkpoint = Checkpoint { part, page: page.clone(), skip: index, files };
                    self.close(checkpoint).await?;
                    continue;
                }
                let from = index.checked_sub(1).map_or(0, |before| lines.ends[before]);
                let text = lines.text.slice(from..lines.ends[index + fit - 1]);
                self.lines(ManifestSection::Output, kind, kind, text, fit as u64);
                self.written += fit as u64;
                index += fit;
            }
            self.record_if_due(job).await?;
        }
        self.close(Checkpoint { part: part + 1, ..Checkpoint::default() }).await
    }

    /// Writes the remaining deleted resources, from the checkpoint. A Bundle can contain resources of several
    /// types.
    async fn write_deleted(&mut self, job: &Job, criteria: &ExportPlan) -> Result<(), JobError> {
        let store = &self.worker.store;
        let mut bundle = delete_bundle::DeleteBundle::default();
        let start = self.place.clone();
        let mut begins = start.clone();
        for part in start.part..job.parts() {
            let ExportPart::Deleted(kind) = job.part(part) else { continue };
            let from = if part == start.part { start.clone() } else { Checkpoint::default() };
            let mut skip = from.skip;
            let mut selection = Selection::from(store, job, kind, criteria, from.page).of_deleted();
            loop {
                let page = selection.cursor();
                let Some(versions) = selection.next().await? else { break };
                for (index, version) in versions.iter().enumerate().skip(skip) {
                    // It is listed below.
                    if criteria.scope.lists(&version.key) {
                        continue;
                    }
                    if bundle.is_empty() {
                        let files = self.place.files;
                        begins = Checkpoint { part, page: page.clone(), skip: index, files };
                    }
                    bundle.add(&version.key);
                    if bundle.is_full() {
                        self.write_bundle(&mut bundle, &begins).await?;
                    }
                }
                // Candidates of a search may have been added since, so that the page has other bounds.
                skip = skip.saturating_sub(versions.len());
                self.record_if_due(job).await?;
            }
            // They form one page after the tombstones.
            let page = selection.cursor();
            for (index, id) in criteria.scope.listed(kind).into_iter().enumerate().skip(skip) {
                if bundle.is_empty() {
                    let files = self.place.files;
                    begins = Checkpoint { part, page: page.clone(), skip: index, files };
                }
                bundle.add(&ResourceKey::new(kind, id));
                if bundle.is_full() {
                    self.write_bundle(&mut bundle, &begins).await?;
                }
            }
        }
        if !bundle.is_empty() {
            self.write_bundle(&mut bundle, &begins).await?;
        }
        self.close(Checkpoint { part: job.parts(), ..Checkpoint::default() }).await
    }

    async fn write_bundle(
        &mut self,
        bundle: &mut delete_bundle::DeleteBundle,
        begins: &Checkpoint,
    ) -> Result<(), JobError> {
        let line = bundle.take();
        if self.is_full_with(&line) {
            let files = self.place.files + 1;
            self.close(Checkpoint { files, ..begins.clone() }).await?;
        }
        self.line(ManifestSection::Deleted, "Bundle", "deleted", &line);
        Ok(())
    }

    /// Writes an OperationOutcome for each note of the plan into one file, so that a worker that resumes the
    /// job finds all of them or none.
    async fn write_notes(&mut self, job: &Job, criteria: &ExportPlan) -> Result<(), JobError> {
        for issue in criteria.notes(job) {
            self.line(
                ManifestSection::Error,
                "OperationOutcome",
                "error",
                &OperationOutcome::from(issue).to_json(),
            );
            if let Some(file) = &mut self.file {
                file.lines.flush_if_large().await?;
            }
        }
        self.close(Checkpoint::default()).await
    }

    /// `true` if the file would exceed its maximum length with this line.
    fn is_full_with(&self, line: &[u8]) -> bool {
        let bytes = self.file.as_ref().map_or(0, |file| file.lines.bytes);
        bytes > 0 && bytes + line.len() as u64 + 1 > self.worker.file_size
    }

    /// The number of lines from index `at` that fit into the file. For an empty file, returns at least one.
    fn fitting(&self, ends: &[usize], index: usize) -> usize {
        let start = self.file.as_ref().map_or(0, |file| file.lines.bytes);
        let from = index.checked_sub(1).map_or(0, |before| ends[before]);
        let is_in = |end: &usize| start + (end - from) as u64 <= self.worker.file_size;
        ends[index..].partition_point(is_in).max(usize::from(start == 0))
    }

    fn line(&mut self, section: ManifestSection, kind: &str, name: &str, line: &[u8]) {
        self.lines(section, kind, name, [line, b"\n"].concat().into(), 1);
    }

    fn lines(&mut self, section: ManifestSection, kind: &str, name: &str, text: Bytes, count: u64) {
        let file = self.file.get_or_insert_with(|| {
            let format = self.job.parameters.format;
            let name = format!("{name}.{:04}.{}", self.place.files + 1, format.extension());
            let attempt_file =
                AttemptFile { job: &self.job.id, attempt: self.job.lease.attempt, name: &name, made: "" };
            let lines = FileWriter::new(&self.worker.files, attempt_file);
            let kind = kind.to_owned();
            OpenFile { section, kind, name, count: 0, lines }
        });
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        file.lines.add(self.job.parameters.format.content(text));
        file.count += count;
    }

    /// Completes the open file, if there is one. The next file starts at `next`.
    async fn close(&mut self, next: Checkpoint) -> Result<(), JobError> {
        if let Some(OpenFile { section, kind, name, count, lines }) = self.file.take() {
            let (attempt, hash) = (self.job.lease.attempt, String::new());
            let bytes = lines.bytes;
            let finishing = lines.finish().await?;
            let file = OutputFile { section, kind, name, attempt, count, bytes, hash };
            self.closing.push_back(SyncingFile { file, hash: finishing, next: next.clone() });
            if self.closing.len() > self.worker.files.max_closing() {
                self.finish_oldest_file().await?;
            }
        }
        self.place = next;
        // If the part was empty, no file was opened: the checkpoint of the previous file moves to the next
        // part.
        let work_goes_on = self.closing.back_mut().map_or(&mut self.job.next, |last| &mut last.next);
        work_goes_on.clone_from(&self.place);
        Ok(())
    }

    /// Waits until the oldest of the files in `closing` is synced.
    async fn finish_oldest_file(&mut self) -> Result<(), JobError> {
        if let Some(SyncingFile { mut file, hash, next }) = self.closing.pop_front() {
            file.hash = hash.await?;
            assert!(file.count > 0 && file.bytes > 0, "'{}' is listed without a line", file.name);
            self.unrecorded += file.bytes;
            self.job.lease.attempts_without_progress = 0;
            self.job.files.push(file);
            self.job.next = next;
        }
        Ok(())
    }

    /// Writes collected bytes between two pages. Writes the job's record if it is due.
    async fn record_if_due(&mut self, job: &Job) -> Result<(), JobError> {
        if let Some(file) = &mut self.file {
            file.lines.flush_if_large().await?;
        }
        while self.closing.front().is_some_and(|first| first.hash.is_finished()) {
            self.finish_oldest_file().await?;
        }
        if self.unrecorded < self.worker.file_size / 2 && (self.now)() < self.recorded + CHECKPOINT_INTERVAL {
            return Ok(());
        }
        self.estimate(job);
        self.record().await
    }

    /// Updates the estimated progress. The store counts writes instead of resources, so the snapshot's
    /// sequence number is an upper bound for the number of resources.
    fn estimate(&mut self, job: &Job) {
        let share = |part: u64, of: u64| part.saturating_mul(100) / of.max(1);
        let by_part = share(self.place.part as u64, job.parts() as u64);
        let by_count = share(self.written, job.seq().0);
        let open = self.file.as_ref().map_or(0, |file| file.lines.bytes);
        let bytes = self.job.files.iter().map(|file| file.bytes).sum::<u64>() + open;
        let progress = &mut self.job.progress;
        let percent = u8::try_from(by_part.max(by_count).min(99)).unwrap_or(99);
        progress.percent = progress.percent.max(percent);
        progress.resources = progress.resources.max(self.written);
        progress.bytes = progress.bytes.max(bytes);
    }

    /// Writes the job's record and extends the lease. Returns [`JobError::LeaseLost`] if another process has
    /// changed the record.
    async fn record(&mut self) -> Result<(), JobError> {
        self.record_with(Vec::new()).await
    }

    /// Records the job as [`JobRun::record`] does, together with further writes.
    async fn record_with(&mut self, mut further: Vec<LedgerWrite>) -> Result<(), JobError> {
        let now = (self.now)();
        assert!(self.job.files.len() >= self.recorded_files, "a recorded file stays in the list");
        self.job.turn_page();
        self.job.file_count = self.job.files.len();
        further.extend(file_list::writes(&self.job, self.recorded_files));
        self.record.write(&mut self.job, further, now).await?;
        (self.recorded, self.unrecorded, self.recorded_files) = (now, 0, self.job.files.len());
        Ok(())
    }
}
