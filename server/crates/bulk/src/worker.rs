//! Carries a job out: part by part, each durable with its file before the next begins.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fhir::{IssueCode, OperationOutcome};
use jiff::{SignedDuration, Timestamp};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};
use tokio::io::AsyncWriteExt as _;

use crate::criteria::{Criteria, MembersError, Reading};
use crate::job::{Job, OutputFile, State};
use crate::manifest::NOTES;
use crate::selection::{Cursor, Selection, SelectionError};

/// Bytes that are gathered before the file's writer is called.
const CHUNK: usize = 256 * 1024;

/// Why a job ended early.
pub(crate) enum Stopped {
    /// Somebody else wrote its record: it was deleted, or another process took it up.
    Overtaken,
    /// It cannot be done.
    Failed { by_data: bool, reason: String },
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::Overtaken,
            error => {
                tracing::error!(%error, "export");
                Self::Failed {
                    by_data: false,
                    reason: "the store failed; the server's log says why".to_owned(),
                }
            }
        }
    }
}

impl From<SelectionError> for Stopped {
    fn from(error: SelectionError) -> Self {
        match error {
            SelectionError::Store(error) => error.into(),
            error @ SelectionError::TooManySupporting => {
                Self::Failed { by_data: true, reason: error.to_string() }
            }
        }
    }
}

/// A failure of the files' store.
fn file_trouble(error: impl std::fmt::Display) -> Stopped {
    tracing::error!(%error, "export");
    Stopped::Failed {
        by_data: false,
        reason: "an output file could not be written; the server's log says why".to_owned(),
    }
}

/// What a job needs to be carried out.
pub(crate) struct Worker {
    pub store: Store,
    pub files: Arc<LocalFileSystem>,
    pub folder: PathBuf,
    pub reading: Reading,
    pub retention: SignedDuration,
}

impl Worker {
    /// Carries the job out and records how it ended.
    pub async fn run(&self, mut job: Job, mut revision: u64, now: impl Fn() -> Timestamp) {
        let ended = self.carry_out(&mut job, &mut revision, &now).await;
        let expires = now() + self.retention;
        job.state = match ended {
            Ok(()) => State::Complete { expires },
            Err(Stopped::Overtaken) => return self.leave(&job, now()).await,
            Err(Stopped::Failed { by_data, reason }) => State::Failed { by_data, reason, expires },
        };
        if let Err(Stopped::Overtaken) = self.record(&job, &mut revision, now()).await {
            self.leave(&job, now()).await;
        }
    }

    /// Leaves the job to whoever has it now; where nobody has, its files go with it.
    async fn leave(&self, job: &Job, now: Timestamp) {
        if let Ok(None) = self.store.get(&job.key(), now).await {
            self.remove_files(&job.id).await;
        }
    }

    async fn carry_out(
        &self,
        job: &mut Job,
        revision: &mut u64,
        now: &impl Fn() -> Timestamp,
    ) -> Result<(), Stopped> {
        let criteria = self.criteria(job).await?;
        if job.done == 0 && !job.parameters.notes.is_empty() && job.output.is_empty() {
            let file = self.write_notes(job).await?;
            job.output.push(file);
        }
        while job.done < job.kinds.len() {
            let kind = job.kinds[job.done].clone();
            if let Some(file) = self.write_part(job, &kind, &criteria).await? {
                job.output.push(file);
            }
            job.done += 1;
            self.record(job, revision, now()).await?;
        }
        Ok(())
    }

    /// Writes the job's record; whoever deleted it meanwhile has the last word.
    async fn record(&self, job: &Job, revision: &mut u64, now: Timestamp) -> Result<(), Stopped> {
        let value = serde_json::to_vec(job).expect("a job serialises");
        let write = LedgerWrite::put(job.key(), value, Expect::Revision(*revision));
        *revision = self.store.write(vec![write], now).await?[0];
        Ok(())
    }

    async fn criteria(&self, job: &Job) -> Result<Criteria, Stopped> {
        Criteria::of(job, &self.store, &self.reading).await.map_err(|error| match error {
            MembersError::Store(error) => error.into(),
            error => Stopped::Failed { by_data: true, reason: error.to_string() },
        })
    }

    /// Writes the file of one type; no file where there is nothing.
    async fn write_part(
        &self,
        job: &Job,
        kind: &str,
        criteria: &Criteria,
    ) -> Result<Option<OutputFile>, Stopped> {
        let mut selection = Selection::from(&self.store, job, kind, criteria, Cursor::default());
        let name = format!("{kind}.ndjson");
        let mut file = Output::new(self, &job.id, name);
        while let Some(versions) = selection.next().await? {
            for version in versions {
                if let Some(body) = version.body {
                    file.line(&body).await?;
                }
            }
        }
        file.finish(kind).await
    }

    /// One OperationOutcome for each thing that was left out.
    async fn write_notes(&self, job: &Job) -> Result<OutputFile, Stopped> {
        let mut file = Output::new(self, &job.id, NOTES.to_owned());
        for note in &job.parameters.notes {
            let issue = fhir::Issue::new(fhir::Severity::Warning, IssueCode::NotSupported, note);
            let line = serde_json::to_vec(&OperationOutcome::from(issue)).expect("an outcome serialises");
            file.line(&line).await?;
        }
        let written = file.finish("OperationOutcome").await?;
        Ok(written.expect("there is at least one note"))
    }

    /// Takes the files of a job away.
    pub async fn remove_files(&self, job: &str) {
        let folder = self.folder.join(job);
        match tokio::fs::remove_dir_all(&folder).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, folder = %folder.display(), "files of an export are left behind");
            }
            _ => {}
        }
    }
}

/// A file as it grows. It appears under its name only when it is whole.
struct Output<'a> {
    worker: &'a Worker,
    path: Path,
    name: String,
    writer: Option<BufWriter>,
    gathered: BytesMut,
    count: u64,
    bytes: u64,
}

impl<'a> Output<'a> {
    fn new(worker: &'a Worker, job: &str, name: String) -> Self {
        let path = Path::from_iter([job, name.as_str()]);
        Self { worker, path, name, writer: None, gathered: BytesMut::new(), count: 0, bytes: 0 }
    }

    async fn line(&mut self, resource: &[u8]) -> Result<(), Stopped> {
        self.gathered.reserve(resource.len() + 1);
        self.gathered.extend_from_slice(resource);
        self.gathered.extend_from_slice(b"\n");
        self.count += 1;
        self.bytes += resource.len() as u64 + 1;
        if self.gathered.len() >= CHUNK { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Stopped> {
        let pieces: Bytes = self.gathered.split().freeze();
        let files = self.worker.files.clone();
        let writer = self.writer.get_or_insert_with(|| BufWriter::new(files, self.path.clone()));
        writer.put(pieces).await.map_err(file_trouble)
    }

    async fn finish(mut self, kind: &str) -> Result<Option<OutputFile>, Stopped> {
        if self.count == 0 {
            return Ok(None);
        }
        self.flush().await?;
        if let Some(mut writer) = self.writer.take() {
            writer.shutdown().await.map_err(file_trouble)?;
        }
        // The record that names the file comes after the file is on the disk.
        let path = self.worker.files.path_to_filesystem(&self.path).map_err(file_trouble)?;
        tokio::fs::File::open(path).await.map_err(file_trouble)?.sync_all().await.map_err(file_trouble)?;
        Ok(Some(OutputFile { kind: kind.to_owned(), name: self.name, count: self.count, bytes: self.bytes }))
    }
}
