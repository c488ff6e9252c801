//! One run of an export: kick-off, polling, manifest, downloads. The run continues at the phase in the record
//! of the export, so that the same code starts and resumes exports.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::download::download;
use super::folder::{ExportFolder, FolderError};
use super::job::{ExportFile, ExportJob, ExportPhase, FileList, FileProgress, FileStatus};
use super::log::ExportLog;
use super::registry::ExportRegistry;
use super::retry::RetryCounter;
use crate::api::{Api, ApiError, Bearer, ExportStatus, ManifestPage};
use crate::args::PARALLEL_DOWNLOADS;

/// An export that this process works on.
pub struct ExportRun<W> {
    api: Api,
    bearer: Bearer,
    folder: ExportFolder,
    log: ExportLog,
    job: ExportJob,
    parallel: usize,
    watch: W,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportEvent {
    /// The record of the export changed.
    Record(Box<ExportJob>),
    /// The server is running the export.
    Polled {
        /// Progress text of the server (`X-Progress`).
        progress: Option<String>,
        next_poll: Timestamp,
    },
    /// A request failed for this reason and is sent again.
    Retrying { reason: String, next_attempt: Timestamp },
    /// Progress of the file at this index of the record.
    File { index: usize, progress: FileProgress },
}

/// Failure of an export. The export can be resumed unless the server reported a failure.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// Some files could not be downloaded.
    #[error("{failed} of {files} files could not be downloaded; the first error is: {first}")]
    Files { failed: usize, files: usize, first: String },
    /// The export belongs to another server, to which the token of this profile must not be sent.
    #[error("the export belongs to the server {0}; select its profile with --profile, --demo or --base-url")]
    OtherServer(String),
    /// The export was cancelled or deleted before.
    #[error("the export was deleted on the server; start a new one")]
    Deleted,
}

impl<W: Fn(ExportEvent) + Send + Sync> ExportRun<W> {
    /// Prepares an export in a new folder.
    ///
    /// # Errors
    /// [`ExportError::Folder`] if the folder cannot be used. Nothing was sent to the server in that case.
    pub fn start(
        api: &Api,
        bearer: Bearer,
        job: ExportJob,
        folder: &Path,
        registry: &ExportRegistry,
        watch: W,
    ) -> Result<Self, ExportError> {
        if let Some(status_url) = &job.status_url {
            crate::api::check_safe(status_url)?;
        }
        let folder = ExportFolder::create(folder)?;
        folder.save(&job)?;
        registry.add(folder.path())?;
        let log = open_log(&folder)?;
        Ok(Self { api: api.clone(), bearer, folder, log, job, parallel: PARALLEL_DOWNLOADS, watch })
    }

    /// Prepares the continuation of the export in a folder.
    ///
    /// # Errors
    /// [`ExportError::Folder`] if there is no record of an export in the folder.
    pub fn resume(api: &Api, bearer: Bearer, folder: &Path, watch: W) -> Result<Self, ExportError> {
        let (folder, mut job) = ExportFolder::open(folder)?;
        check_server(api, &job)?;
        match job.phase {
            // A failure of the server is reported again if it persists.
            ExportPhase::Failed(_) => job.phase = ExportPhase::Running,
            ExportPhase::Deleted => return Err(ExportError::Deleted),
            _ => {}
        }
        let log = open_log(&folder)?;
        Ok(Self { api: api.clone(), bearer, folder, log, job, parallel: PARALLEL_DOWNLOADS, watch })
    }

    /// Sets the number of concurrent downloads.
    #[must_use]
    pub fn with_parallel_downloads(mut self, parallel: usize) -> Self {
        self.parallel = parallel.max(1);
        self
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the export to its end and returns its record and the progress of each file.
    ///
    /// # Errors
    /// [`ExportError`]. What was downloaded so far is kept, and [`ExportRun::resume`] continues.
    pub async fn to_completion(mut self) -> Result<(ExportJob, Vec<FileProgress>), ExportError> {
        self.report_record();
        // Signed addresses may have expired while the export was interrupted.
        if self.job.phase == ExportPhase::Downloading {
            self.refresh_addresses().await;
        }
        if self.job.phase == ExportPhase::Starting {
            let status_url = self.kick_off().await?;
            self.job.status_url = Some(status_url);
            self.enter(ExportPhase::Running)?;
            self.log(
                "kickoff",
                json!({ "exportUrl": self.job.fhir_base, "requestParameters": self.job.request }),
            )?;
        }
        if self.job.phase == ExportPhase::Running {
            let page = self.wait_for_manifest().await?;
            self.log("status_complete", json!({ "transactionTime": page.manifest.transaction_time }))?;
            self.read_manifest(page).await?;
            self.enter(ExportPhase::Downloading)?;
            let count = |list| self.job.files.iter().filter(|file| file.list == list).count();
            self.log(
                "manifest_complete",
                json!({
                    "transactionTime": self.job.transaction_time,
                    "totalOutputFileCount": count(FileList::Output),
                    "totalDeletedFileCount": count(FileList::Deleted),
                    "totalErrorFileCount": count(FileList::Error),
                }),
            )?;
        }
        let files = self.download_files().await?;
        self.enter(ExportPhase::Complete)?;
        let (resources, bytes) = output_totals(&self.job, &files);
        let duration_s = self.api.now().as_second() - self.job.started_at.as_second();
        self.log(
            "export_complete",
            json!({ "files": files.len(), "resources": resources, "bytes": bytes, "duration": duration_s * 1000 }),
        )?;
        Ok((self.job, files))
    }

    /// Appends an event to the log of the export.
    fn log(&self, event: &str, detail: Value) -> Result<(), ExportError> {
        let result = self.log.append(self.api.now(), self.job.status_url.as_deref(), event, detail);
        result.map_err(|error| FolderError::Write { path: self.folder.path().to_owned(), error }.into())
    }

    fn report_record(&self) {
        (self.watch)(ExportEvent::Record(Box::new(self.job.clone())));
    }

    fn enter(&mut self, phase: ExportPhase) -> Result<(), ExportError> {
        self.job.phase = phase;
        self.folder.save(&self.job)?;
        self.report_record();
        Ok(())
    }

    async fn kick_off(&mut self) -> Result<String, ExportError> {
        let mut retries = RetryCounter::default();
        loop {
            let error = match self.api.kick_off(&self.job.request, &self.bearer).await {
                Ok(status_url) => return Ok(status_url),
                Err(error) => error,
            };
            // If the response was lost, the server may have started an export, and a second request would
            // start another one. A response with a status says that no export was started.
            if !matches!(error, ApiError::Refused { .. })
                || !self.wait_before_retry(&error, &mut retries).await
            {
                // There is nothing to resume.
                self.folder.remove();
                self.job.phase = ExportPhase::Failed(error.to_string());
                self.report_record();
                return Err(error.into());
            }
        }
    }

    /// Polls the status until the manifest is available.
    async fn wait_for_manifest(&mut self) -> Result<ManifestPage, ExportError> {
        let status_url = self.job.status_url.clone().unwrap_or_default();
        let mut retries = RetryCounter::default();
        loop {
            let error = match self.api.poll(&status_url, &self.bearer).await {
                Ok(ExportStatus::Complete(page)) => return Ok(page),
                Ok(ExportStatus::Running { progress, retry_after_s }) => {
                    retries.reset();
                    let delay = SignedDuration::from_secs(retry_after_s);
                    let next_poll = self.api.now().saturating_add(delay).unwrap_or(Timestamp::MAX);
                    self.log(
                        "status_progress",
                        json!({ "xProgress": progress, "retryAfter": retry_after_s }),
                    )?;
                    (self.watch)(ExportEvent::Polled { progress, next_poll });
                    self.api.wait(delay.unsigned_abs()).await;
                    continue;
                }
                Err(error) => error,
            };
            if !self.wait_before_retry(&error, &mut retries).await {
                if error.is_final_export_status() {
                    self.enter(ExportPhase::Failed(error.to_string()))?;
                }
                return Err(error.into());
            }
        }
    }

    /// Stores all pages of the manifest exactly as they were received, and lists their files.
    async fn read_manifest(&mut self, first: ManifestPage) -> Result<(), ExportError> {
        let mut urls = BTreeSet::new();
        let mut page = first;
        for number in 1.. {
            let name =
                if number == 1 { "manifest.json".to_owned() } else { format!("manifest.{number}.json") };
            self.folder.write(&name, &page.bytes)?;
            self.job.add_page(&page.manifest);
            let Some(next) = page.next else { break };
            if !urls.insert(next.clone()) {
                let reason = "the pages of the manifest form a cycle".to_owned();
                return Err(ApiError::Unexpected { url: next, reason }.into());
            }
            page = self.manifest_page(&next).await?;
        }
        Ok(())
    }

    async fn manifest_page(&self, url: &str) -> Result<ManifestPage, ExportError> {
        let mut retries = RetryCounter::default();
        loop {
            match self.api.manifest_page(url, &self.bearer).await {
                Ok(page) => return Ok(page),
                Err(error) if self.wait_before_retry(&error, &mut retries).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the manifest again before downloads are resumed, because signed addresses expire. If the server
    /// no longer has the manifest, or if it differs, the known addresses are used.
    async fn refresh_addresses(&mut self) {
        let Some(status_url) = &self.job.status_url else { return };
        let Ok(ExportStatus::Complete(first)) = self.api.poll(status_url, &self.bearer).await else { return };
        let mut fresh = ExportJob { files: Vec::new(), ..self.job.clone() };
        let mut page = first;
        loop {
            fresh.add_page(&page.manifest);
            let Some(next) = page.next.filter(|_| fresh.files.len() < self.job.files.len()) else { break };
            match self.api.manifest_page(&next, &self.bearer).await {
                Ok(refreshed) => page = refreshed,
                Err(_) => return,
            }
        }
        let key = |file: &ExportFile| (file.list, file.name.clone(), file.count);
        if fresh.transaction_time == self.job.transaction_time
            && fresh.files.iter().map(key).eq(self.job.files.iter().map(key))
        {
            self.job.files = fresh.files;
        }
    }

    /// Downloads all files. After a failure of one file, the others are still downloaded.
    async fn download_files(&self) -> Result<Vec<FileProgress>, ExportError> {
        if self.job.requires_access_token {
            // Before the first download, so that the user is asked once and not for each file. An unsafe
            // address is the failure of its file.
            let addresses =
                self.job.files.iter().map(|file| self.api.check_token_host(&file.url, &self.bearer));
            let foreign = addresses.filter_map(Result::err).find(ApiError::is_foreign_host);
            foreign.map_or(Ok(()), Err)?;
        }
        let downloads = (0..self.job.files.len()).map(|index| self.download_file(index));
        let mut files: Vec<_> =
            futures_util::stream::iter(downloads).buffer_unordered(self.parallel).try_collect().await?;
        files.sort_by_key(|(index, _)| *index);
        let files: Vec<FileProgress> = files.into_iter().map(|(_, file)| file).collect();
        let failures = files.iter().filter_map(|file| match &file.status {
            FileStatus::Failed(reason) => Some(reason),
            _ => None,
        });
        match failures.clone().next() {
            Some(first) => {
                Err(ExportError::Files { failed: failures.count(), files: files.len(), first: first.clone() })
            }
            None => Ok(files),
        }
    }

    /// Downloads one file and returns its index and progress. A failure of this file alone is part of the
    /// progress.
    async fn download_file(&self, index: usize) -> Result<(usize, FileProgress), ExportError> {
        let file = &self.job.files[index];
        let path = self.folder.file(&file.name)?;
        let bearer = self.job.requires_access_token.then_some(&self.bearer);
        let report = |progress| (self.watch)(ExportEvent::File { index, progress });
        let about = json!({ "fileUrl": file.url, "itemType": file.list, "resourceType": file.kind });
        self.log("download_request", about)?;
        let progress = match download(&self.api, file, &path, bearer, &report).await {
            Ok(progress) => {
                let (resources, bytes) = (progress.resources, progress.bytes);
                let about = json!({ "fileUrl": file.url, "resourceCount": resources, "fileSize": bytes });
                self.log("download_complete", about)?;
                progress
            }
            // Without space or permission, the other files cannot be written either.
            Err(error @ ApiError::File { .. }) => return Err(error.into()),
            Err(error) => {
                self.log("download_error", json!({ "fileUrl": file.url, "message": error.to_string() }))?;
                FileProgress { status: FileStatus::Failed(error.to_string()), ..FileProgress::default() }
            }
        };
        report(progress.clone());
        Ok((index, progress))
    }

    /// Waits before the next attempt. Returns false if the error is final.
    async fn wait_before_retry(&self, error: &ApiError, retries: &mut RetryCounter) -> bool {
        let Some(delay) = retries.next_delay(error, &self.api, Some(&self.bearer)).await else {
            return false;
        };
        let wait = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        let next_attempt = self.api.now().saturating_add(wait).unwrap_or(Timestamp::MAX);
        (self.watch)(ExportEvent::Retrying { reason: error.to_string(), next_attempt });
        self.api.wait(delay).await;
        true
    }
}

/// Checks that an export belongs to the server of the profile.
fn check_server(api: &Api, job: &ExportJob) -> Result<(), ExportError> {
    if job.fhir_base == api.profile().fhir_base {
        return Ok(());
    }
    Err(ExportError::OtherServer(job.fhir_base.clone()))
}

fn open_log(folder: &ExportFolder) -> Result<ExportLog, FolderError> {
    ExportLog::open(folder.path())
        .map_err(|error| FolderError::Write { path: folder.path().to_owned(), error })
}

/// The sizes of the output files: resources and bytes.
pub fn output_totals(job: &ExportJob, files: &[FileProgress]) -> (u64, u64) {
    let output = job.files.iter().zip(files).filter(|(file, _)| file.list == FileList::Output);
    output.fold((0, 0), |(resources, bytes), (_, file)| (resources + file.resources, bytes + file.bytes))
}

/// Cancels the export of a folder, or deletes its files on the server if it is complete. Downloaded files are
/// kept.
///
/// # Errors
/// [`ExportError`] if another process works on the export, or if the server rejects the request.
pub async fn delete(api: &Api, bearer: &Bearer, folder: &Path) -> Result<ExportJob, ExportError> {
    let (folder, mut job) = ExportFolder::open(folder)?;
    check_server(api, &job)?;
    if let Some(status_url) = &job.status_url {
        api.delete_export(status_url, bearer).await?;
    }
    job.phase = ExportPhase::Deleted;
    folder.save(&job)?;
    Ok(job)
}
