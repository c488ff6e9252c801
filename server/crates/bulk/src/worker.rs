//! Carries a job out: file by file, so that whoever takes it up again goes on behind the last file that is on the disk
//! and gives the same bytes.
//!
//! A file ends before the line that would make it longer than the size that is configured, and where its type ends. So
//! the files follow from the snapshot alone, whoever writes them and however often the work is broken off. Nobody waits
//! for the disk before the end: what is on it is recorded as soon as it is half a file or more, else once a second and at
//! the end, so that many small types are one record. Each record prolongs the lease, and is a compare-and-set: whoever
//! finds the record changed has lost the job and writes no more.

mod blocks;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fhir::{IssueCode, OperationOutcome};
use jiff::{SignedDuration, Timestamp};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use crate::criteria::{Criteria, MembersError, Reading};
use crate::deleted;
use crate::files::{FileAt, Files, WriteError};
use crate::format::Lines;
use crate::job::{Job, OutputFile, Part, Place, Section, State};
use crate::selection::{Selection, SelectionError};
use crate::task::Task;

/// How long a job belongs to whoever wrote its record.
pub(crate) const LEASE: SignedDuration = SignedDuration::from_secs(60);
/// How often the record is written where no file is full.
const BEAT: SignedDuration = SignedDuration::from_secs(1);
/// Files that are being brought to the disk at the same time.
const CLOSING: usize = 16;
/// Attempts in a row that may end without a file.
const IN_VAIN: u32 = 50;

/// Why a job ended early.
pub(crate) enum Stopped {
    /// Somebody else wrote its record: it was deleted, or another process took it up.
    Overtaken,
    /// The store takes no writes now; whoever finds the lease at its end goes on.
    Later,
    /// The disk is nearly full. The files of the job are removed, since others may wait for the space too, and the job
    /// begins again when its lease ends.
    NoSpace,
    /// It cannot be done.
    Failed { by_data: bool, reason: String },
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::Overtaken,
            StoreError::ReadOnly { .. } | StoreError::Clock { .. } => Self::Later,
            error => {
                tracing::error!(%error, "export");
                let reason = match error {
                    StoreError::Corrupt { .. } => "what is stored is damaged; the server's log says where",
                    _ => "the store failed; the server's log says why",
                };
                Self::Failed { by_data: false, reason: reason.to_owned() }
            }
        }
    }
}

impl From<SelectionError> for Stopped {
    fn from(error: SelectionError) -> Self {
        match error {
            SelectionError::Store(error) => error.into(),
            error => Self::Failed { by_data: true, reason: error.to_string() },
        }
    }
}

impl From<WriteError> for Stopped {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSpace(error) => {
                tracing::warn!(%error, "an export waits for space");
                Self::NoSpace
            }
            WriteError::Files(error) => error.into(),
        }
    }
}

impl From<object_store::Error> for Stopped {
    fn from(error: object_store::Error) -> Self {
        tracing::error!(%error, "export");
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        let mut why = "the server's log says why";
        while let Some(error) = cause {
            match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
                Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
                    return Self::NoSpace;
                }
                Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => {
                    why = "its folder cannot be written";
                }
                _ => {}
            }
            cause = error.source();
        }
        Self::Failed { by_data: false, reason: format!("an output file could not be written: {why}") }
    }
}

/// What a job needs to be carried out.
pub(crate) struct Worker {
    pub store: Store,
    pub files: Files,
    pub reading: Reading,
    pub retention: SignedDuration,
    /// Longest file, but for a single longer line.
    pub file_size: u64,
}

impl Worker {
    /// Carries the job out and records how it ended; `bytes` counts the bytes of its files.
    pub async fn run(
        &self,
        job: Job,
        revision: u64,
        bytes: &AtomicU64,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) {
        let id = job.id.clone();
        let mut run = Run {
            worker: self,
            place: job.next.clone(),
            written: job.progress.resources,
            job,
            revision,
            recorded: now(),
            now: &now,
            bytes,
            unrecorded: 0,
            file: None,
            closing: VecDeque::new(),
        };
        let ended = run.carry_out().await;
        run.file = None;
        run.closing.clear();
        let expires = now() + self.retention;
        run.job.state = match ended {
            Ok(()) => State::Complete { expires },
            Err(Stopped::Overtaken) => return self.leave(&id, now()).await,
            Err(Stopped::Later) => return,
            Err(Stopped::NoSpace) => return self.files.remove(&id).await,
            Err(Stopped::Failed { by_data, reason }) => {
                // Nobody can read them any more; the space is free even if the record cannot be written.
                self.files.remove(&id).await;
                State::Failed { by_data, reason, expires }
            }
        };
        // Whoever reads that it has ended may begin another one.
        bytes.store(0, Ordering::Relaxed);
        match run.record().await {
            Ok(()) => self.files.remove_others(&id, run.job.files.iter().map(|file| file.at(&id))).await,
            Err(Stopped::Overtaken) => self.leave(&id, now()).await,
            Err(_) => tracing::error!(job = id, "the end of an export could not be recorded"),
        }
    }

    /// Leaves the job to whoever has it now; where nobody has, its files go with it.
    async fn leave(&self, job: &str, now: Timestamp) {
        if let Ok(None) = self.store.get(&crate::job::key(job), now).await {
            self.files.remove(job).await;
        }
    }

    async fn criteria(&self, job: &Job) -> Result<Criteria, Stopped> {
        Criteria::of(job, &self.store, &self.reading).await.map_err(|error| match error {
            MembersError::Store(error) => error.into(),
            error => Stopped::Failed { by_data: true, reason: error.to_string() },
        })
    }
}

/// One attempt at a job.
struct Run<'a, N> {
    worker: &'a Worker,
    job: Job,
    revision: u64,
    now: &'a N,
    /// Bytes of the files, for whoever counts those of all jobs.
    bytes: &'a AtomicU64,
    /// When the record was written.
    recorded: Timestamp,
    /// Bytes that came to the disk in whole files since then.
    unrecorded: u64,
    /// The file that is being written, and its number of lines.
    file: Option<Growing>,
    /// Where it begins; where there is none, where the next one will.
    place: Place,
    /// Files on their way to the disk, in their order. Unless there are many, nothing waits for them before the end.
    closing: VecDeque<Closing>,
    /// Resources in files, those that are not on the disk yet too.
    written: u64,
}

struct Growing {
    section: Section,
    kind: String,
    continues: bool,
    name: String,
    count: u64,
    lines: Lines,
}

/// A file on its way to the disk.
struct Closing {
    file: OutputFile,
    hash: Task<object_store::Result<String>>,
    /// Where the file behind it begins.
    next: Place,
}

impl<N: Fn() -> Timestamp + Send + Sync> Run<'_, N> {
    async fn carry_out(&mut self) -> Result<(), Stopped> {
        let job = self.job.clone();
        self.begin().await?;
        let criteria = self.worker.criteria(&job).await?;
        if self.job.next == Place::default() && self.job.files.is_empty() {
            self.write_notes().await?;
        }
        while self.place.part < job.parts() {
            match job.part(self.place.part) {
                Part::Kind(kind) => self.write_kind(&job, &criteria, kind).await?,
                Part::Organized(by) => self.write_organized(&job, &criteria, by).await?,
                Part::Deleted(_) => self.write_deleted(&job, &criteria).await?,
            }
        }
        while !self.closing.is_empty() {
            self.settle_first().await?;
        }
        self.job.progress.percent = 100;
        Ok(())
    }

    /// Makes sure of the job before anything is written: it may have waited for its turn, and files may be
    /// damaged.
    async fn begin(&mut self) -> Result<(), Stopped> {
        if self.job.lease.in_vain > IN_VAIN {
            let reason = format!(
                "this export was begun {IN_VAIN} times without writing a file: the server stopped, or its disk was full"
            );
            return Err(Stopped::Failed { by_data: false, reason });
        }
        if !self.job.files.is_empty() && !self.worker.files.has_any(&self.job.id) {
            tracing::info!(job = self.job.id, "an export that gave up its files begins anew");
            self.begin_anew();
        }
        self.worker.files.check_space().map_err(WriteError::from)?;
        if !self.job.parameters.format.is_offered() {
            let reason = "this server does not write the format of this export any more".to_owned();
            return Err(Stopped::Failed { by_data: false, reason });
        }
        for file in &self.job.files {
            if !self.worker.files.has(file.at(&self.job.id), file.bytes).await {
                tracing::warn!(
                    job = self.job.id,
                    file.name,
                    "a file of an export is damaged; it begins anew"
                );
                self.begin_anew();
                break;
            }
        }
        if (self.now)() + LEASE / 2 >= self.job.lease.until { self.record().await } else { Ok(()) }
    }

    fn begin_anew(&mut self) {
        self.job.files.clear();
        self.job.next = Place::default();
        self.place = Place::default();
        self.written = 0;
    }

    /// The resources of one type, from the place on.
    async fn write_kind(&mut self, job: &Job, criteria: &Criteria, kind: &str) -> Result<(), Stopped> {
        let part = self.place.part;
        let store = &self.worker.store;
        let mut selection = Selection::from(store, job, kind, criteria, self.place.page.clone());
        let mut skip = self.place.skip;
        loop {
            let page = selection.cursor();
            let Some(lines) = selection.next_lines().await? else { break };
            let count = lines.ends.len();
            let mut at = skip.min(count);
            skip -= at;
            while at < count {
                let fit = self.fitting(&lines.ends, at);
                if fit == 0 {
                    let files = self.place.files + 1;
                    let place = Place { part, page: page.clone(), skip: at, line: 0, files };
                    self.close(place).await?;
                    continue;
                }
                let from = at.checked_sub(1).map_or(0, |before| lines.ends[before]);
                let text = lines.text.slice(from..lines.ends[at + fit - 1]);
                self.lines(Section::Output, kind, kind, text, fit as u64);
                self.written += fit as u64;
                at += fit;
            }
            self.beat(job).await?;
        }
        self.close(Place { part: part + 1, ..Place::default() }).await
    }

    /// What was deleted, from the place on to the end: Bundles do not end where types do.
    async fn write_deleted(&mut self, job: &Job, criteria: &Criteria) -> Result<(), Stopped> {
        let store = &self.worker.store;
        let mut bundle = deleted::Bundle::default();
        let start = self.place.clone();
        let mut begins = start.clone();
        for part in start.part..job.parts() {
            let Part::Deleted(kind) = job.part(part) else { continue };
            let from = if part == start.part { start.clone() } else { Place::default() };
            let mut skip = from.skip;
            let mut selection = Selection::from(store, job, kind, criteria, from.page).of_deleted();
            loop {
                let page = selection.cursor();
                let Some(versions) = selection.next().await? else { break };
                for (at, version) in versions.iter().enumerate().skip(skip) {
                    if bundle.is_empty() {
                        let files = self.place.files;
                        begins = Place { part, page: page.clone(), skip: at, line: 0, files };
                    }
                    bundle.add(&version.key);
                    if bundle.is_full() {
                        self.write_bundle(&mut bundle, &begins).await?;
                    }
                }
                skip = 0;
                self.beat(job).await?;
            }
        }
        if !bundle.is_empty() {
            self.write_bundle(&mut bundle, &begins).await?;
        }
        self.close(Place { part: job.parts(), ..Place::default() }).await
    }

    async fn write_bundle(&mut self, bundle: &mut deleted::Bundle, begins: &Place) -> Result<(), Stopped> {
        let line = bundle.take();
        if self.is_full_with(&line) {
            let files = self.place.files + 1;
            self.close(Place { files, ..begins.clone() }).await?;
        }
        self.line(Section::Deleted, "Bundle", "deleted", &line);
        Ok(())
    }

    /// One OperationOutcome for each thing that was left out.
    async fn write_notes(&mut self) -> Result<(), Stopped> {
        for note in std::mem::take(&mut self.job.parameters.notes) {
            let issue = fhir::Issue::new(fhir::Severity::Warning, IssueCode::NotSupported, &note);
            let line = serde_json::to_vec(&OperationOutcome::from(issue)).expect("an outcome serialises");
            self.line(Section::Error, "OperationOutcome", "error", &line);
            self.job.parameters.notes.push(note);
        }
        self.close(Place::default()).await
    }

    /// Would this line make the file too long?
    fn is_full_with(&self, line: &[u8]) -> bool {
        let bytes = self.file.as_ref().map_or(0, |file| file.lines.bytes);
        bytes > 0 && bytes + line.len() as u64 + 1 > self.worker.file_size
    }

    /// How many lines from `at` on go into the file; at least one goes into an empty one.
    fn fitting(&self, ends: &[usize], at: usize) -> usize {
        let begun = self.file.as_ref().map_or(0, |file| file.lines.bytes);
        let from = at.checked_sub(1).map_or(0, |before| ends[before]);
        let is_in = |end: &usize| begun + (end - from) as u64 <= self.worker.file_size;
        ends[at..].partition_point(is_in).max(usize::from(begun == 0))
    }

    fn line(&mut self, section: Section, kind: &str, name: &str, line: &[u8]) {
        self.lines(section, kind, name, [line, b"\n"].concat().into(), 1);
    }

    fn lines(&mut self, section: Section, kind: &str, name: &str, text: Bytes, count: u64) {
        let file = self.file.get_or_insert_with(|| {
            let format = self.job.parameters.format;
            let name = format!("{name}.{:04}.{}", self.place.files + 1, format.extension());
            let at = FileAt { job: &self.job.id, attempt: self.job.lease.attempt, name: &name, made: "" };
            let lines = format.begin(self.worker.files.create(at));
            let kind = kind.to_owned();
            Growing { section, kind, continues: false, name, count: 0, lines }
        });
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        file.lines.add(text);
        file.count += count;
    }

    /// Ends the file, where there is one; the next one begins at `next`.
    async fn close(&mut self, next: Place) -> Result<(), Stopped> {
        if let Some(Growing { section, kind, continues, name, count, lines }) = self.file.take() {
            let (attempt, hash) = (self.job.lease.attempt, String::new());
            let (bytes, finishing) = lines.finish().await?;
            let file = OutputFile { section, kind, continues, name, attempt, count, bytes, hash };
            self.closing.push_back(Closing { file, hash: finishing, next: next.clone() });
            if self.closing.len() > CLOSING {
                self.settle_first().await?;
            }
        }
        self.place = next;
        // What is empty has no file to wait for.
        let work_goes_on = self.closing.back_mut().map_or(&mut self.job.next, |last| &mut last.next);
        work_goes_on.clone_from(&self.place);
        Ok(())
    }

    /// Waits until the first of the files that are being closed is on the disk.
    async fn settle_first(&mut self) -> Result<(), Stopped> {
        if let Some(Closing { mut file, hash, next }) = self.closing.pop_front() {
            file.hash = hash.await?;
            self.unrecorded += file.bytes;
            self.job.lease.in_vain = 0;
            self.job.files.push(file);
            self.job.next = next;
        }
        Ok(())
    }

    /// Between two pages: passes bytes on, and records where it is time.
    async fn beat(&mut self, job: &Job) -> Result<(), Stopped> {
        if let Some(file) = &mut self.file {
            file.lines.flush_if_large().await?;
        }
        while self.closing.front().is_some_and(|first| first.hash.is_finished()) {
            self.settle_first().await?;
        }
        if self.unrecorded < self.worker.file_size / 2 && (self.now)() < self.recorded + BEAT {
            return Ok(());
        }
        self.estimate(job);
        self.record().await
    }

    /// The store counts writes, not resources: so many of them are the most that there can be.
    fn estimate(&mut self, job: &Job) {
        let share = |done: u64, of: u64| done.saturating_mul(100) / of.max(1);
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

    /// Writes the job's record and prolongs the lease; whoever wrote it meanwhile has the last word.
    async fn record(&mut self) -> Result<(), Stopped> {
        let now = (self.now)();
        self.job.lease.until = now + LEASE;
        self.job.turn_page();
        let value = serde_json::to_vec(&self.job).expect("a job serialises");
        let write = LedgerWrite::put(self.job.key(), value, Expect::Revision(self.revision));
        self.revision = self.worker.store.write(vec![write], now).await?[0];
        (self.recorded, self.unrecorded) = (now, 0);
        Ok(())
    }
}
