//! Requests for the status and the files of a job.

use std::ops::Range;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use store::{Ledger as _, StoreError};

use super::Bulk;
use crate::files::file_source::FileSource;
use crate::files::file_stream::FileStream;
use crate::job::file_list;
use crate::job::{self, Job, JobRequestError, JobState, JobStatus, OutputFile, decode};
use crate::request::kick_off::TypeAccess;
use crate::serve::address::AddressSignature;
use crate::serve::download::{ExportFile, FileError};
use crate::serve::manifest::{self, ManifestPage};

impl Bulk {
    /// The job with this id if it belongs to this client and has not expired.
    pub(super) async fn job(
        &self,
        id: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<(Job, u64), JobRequestError> {
        let job_and_revision = self.any_job(id, now).await?;
        if job_and_revision.0.client_id != client_id {
            return Err(JobRequestError::NotFound { job: id.to_owned() });
        }
        Ok(job_and_revision)
    }

    /// The job with this id for any client, unless the job has expired.
    async fn any_job(&self, id: &str, now: Timestamp) -> Result<(Job, u64), JobRequestError> {
        let unknown = || JobRequestError::NotFound { job: id.to_owned() };
        if !id.bytes().all(|b| b.is_ascii_hexdigit()) || id.len() != 32 {
            return Err(unknown());
        }
        let key = job::key(id);
        let record = self.worker.store.get(&key, now).await?.ok_or_else(unknown)?;
        let job: Job = decode(&key, &record.value)?;
        if job.expires().is_some_and(|expiry| expiry <= now) {
            return Err(unknown());
        }
        Ok((job, record.revision))
    }

    /// The status of a job. If the manifest has pages, `number` selects one, counted from 1. `types` are the
    /// types that the token may read: the status is returned only if the token may read all exported types.
    ///
    /// # Errors
    /// Returns [`JobRequestError`] if the job does not exist, or the page does not exist yet.
    pub async fn status(
        &self,
        id: &str,
        page: usize,
        client_id: &str,
        types: &TypeAccess,
        now: Timestamp,
    ) -> Result<JobStatus, JobRequestError> {
        let (mut job, _) = self.job(id, client_id, now).await?;
        if let Some(kind) = job.kinds.iter().find(|kind| !types.has(kind)) {
            return Ok(JobStatus::Forbidden { kind: kind.clone() });
        }
        if let Some(retry_after_s) = self.too_soon(id, now) {
            return Ok(JobStatus::TooSoon { retry_after_s });
        }
        let manifest = self.manifest(&mut job, page, now).await?;
        let no_page = || JobRequestError::NotFound { job: format!("{id}?page={page}") };
        Ok(match &job.state {
            JobState::Failed { by_data, reason, .. } => {
                JobStatus::Failed { by_data: *by_data, reason: reason.clone() }
            }
            _ if manifest.is_none() && page != 1 => return Err(no_page()),
            JobState::Running => {
                JobStatus::InProgress { progress: job.progress(), retry_after_s: 1, manifest }
            }
            JobState::Complete { expires } => {
                JobStatus::Complete { manifest: manifest.ok_or_else(no_page)?, expires: *expires }
            }
        })
    }

    /// A page of the manifest of a job.
    async fn manifest(
        &self,
        job: &mut Job,
        number: usize,
        now: Timestamp,
    ) -> Result<Option<Bytes>, StoreError> {
        let Some((files, goes_on)) = job.page(number) else { return Ok(None) };
        job.files = file_list::load(&self.worker.store, job, now).await?;
        let next = goes_on.then(|| self.addresses.page(&job.id, number + 1));
        let page = ManifestPage { job, files, next, requires_token: !self.addresses.are_signed() };
        let address = |file: &OutputFile| self.addresses.file(job, &file.name, now);
        Ok(Some(manifest::write(&page, address).into()))
    }

    /// Counts a poll. If the limit is exceeded, returns the seconds until the client may poll again.
    fn too_soon(&self, id: &str, now: Timestamp) -> Option<u32> {
        let limit = self.poll_limit?;
        let minute = SignedDuration::from_mins(1);
        let mut polls = self.polls.lock().expect("no thread panics while it holds the lock");
        polls.retain(|_, (first, _)| now < *first + minute);
        let (first, count) = polls.entry(id.to_owned()).or_insert((now, 0));
        *count = count.saturating_add(1);
        let seconds = (*first + minute).duration_since(now).as_secs().max(1);
        (*count > limit).then(|| u32::try_from(seconds).unwrap_or(60))
    }

    /// An output file that the manifest of the client's job lists.
    ///
    /// # Errors
    /// Returns [`FileError`] if the client has no such file.
    pub async fn file(
        &self,
        id: &str,
        name: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<ExportFile, FileError> {
        let (job, _) = self.job(id, client_id, now).await?;
        self.listed(&job, name, now).await
    }

    /// A stream of a range of a file that belongs to no export, within the limits of all downloads.
    ///
    /// # Errors
    /// Returns [`FileError::Busy`] if too many downloads are open.
    pub fn stream_file(&self, file: std::fs::File, range: Range<u64>) -> Result<FileStream, FileError> {
        let permit = self.worker.files.admit_download().ok_or(FileError::Busy)?;
        Ok(FileStream::new(FileSource::Disk(file), range, permit))
    }

    /// An output file for a signed URL, without a token.
    ///
    /// # Errors
    /// Returns [`FileError::BadAddress`] if the signature is not valid or has expired, and other errors as
    /// [`Bulk::file`].
    pub async fn signed_file(
        &self,
        id: &str,
        name: &str,
        signature: &AddressSignature<'_>,
        now: Timestamp,
    ) -> Result<ExportFile, FileError> {
        self.addresses.check(id, name, signature, now)?;
        let (job, _) = self.any_job(id, now).await?;
        self.listed(&job, name, now).await
    }

    /// `true` if manifests contain signed URLs.
    pub fn signs_addresses(&self) -> bool {
        self.addresses.are_signed()
    }

    async fn listed(&self, job: &Job, name: &str, now: Timestamp) -> Result<ExportFile, FileError> {
        let listed_file =
            file_list::find(&self.worker.store, job, name, now).await.map_err(JobRequestError::from)?;
        let readable = listed_file.filter(|(index, _)| *index < job.readable_files());
        let (_, listed) = readable.ok_or_else(|| FileError::NotFound { file: name.to_owned() })?;
        Ok(ExportFile::new(job, listed, self.worker.files.clone(), self.gzips.clone()))
    }
}
