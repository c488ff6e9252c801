//! What clients ask of their jobs: where they stand, and their files.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use store::Ledger as _;

use super::{Bulk, decode};
use crate::address::Signature;
use crate::download::{File, FileError};
use crate::job::{self, Job, JobError, OutputFile, State, Status};
use crate::kick_off::TypeAccess;
use crate::manifest::{self, Page};

impl Bulk {
    /// The job of this id, where it is this client's and has not expired.
    pub(super) async fn job(
        &self,
        id: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<(Job, u64), JobError> {
        let found = self.any_job(id, now).await?;
        if found.0.client_id != client_id {
            return Err(JobError::NotFound { job: id.to_owned() });
        }
        Ok(found)
    }

    /// The job of this id, whoever's it is, where it has not expired.
    async fn any_job(&self, id: &str, now: Timestamp) -> Result<(Job, u64), JobError> {
        let unknown = || JobError::NotFound { job: id.to_owned() };
        if !id.bytes().all(|b| b.is_ascii_hexdigit()) || id.len() != 32 {
            return Err(unknown());
        }
        let key = job::key(id);
        let record = self.worker.store.get(&key, now).await?.ok_or_else(unknown)?;
        let job: Job = decode(&key, &record.value)?;
        if job.expires().is_some_and(|at| at <= now) {
            return Err(unknown());
        }
        Ok((job, record.revision))
    }

    /// Where a job stands, with a page of its manifest, counted from 1, where there is one. `types` is what the token
    /// of the request opens: it matters where the manifest's addresses open files without one.
    ///
    /// # Errors
    /// [`JobError`]; there may be no such page yet.
    pub async fn status(
        &self,
        id: &str,
        page: usize,
        client_id: &str,
        types: &TypeAccess,
        now: Timestamp,
    ) -> Result<Status, JobError> {
        let (job, _) = self.job(id, client_id, now).await?;
        if self.addresses.are_signed()
            && let Some(kind) = job.kinds.iter().find(|kind| !types.has(kind))
        {
            return Ok(Status::Forbidden { kind: kind.clone() });
        }
        if let Some(retry_after_s) = self.too_soon(id, now) {
            return Ok(Status::TooSoon { retry_after_s });
        }
        let manifest = self.manifest(&job, page, now);
        let no_page = || JobError::NotFound { job: format!("{id}?page={page}") };
        Ok(match &job.state {
            State::Failed { by_data, reason, .. } => {
                Status::Failed { by_data: *by_data, reason: reason.clone() }
            }
            _ if manifest.is_none() && page != 1 => return Err(no_page()),
            State::Running => Status::InProgress { progress: job.progress(), retry_after_s: 1, manifest },
            State::Complete { expires } => {
                Status::Complete { manifest: manifest.ok_or_else(no_page)?, expires: *expires }
            }
        })
    }

    /// A page of the manifest of a job.
    fn manifest(&self, job: &Job, number: usize, now: Timestamp) -> Option<Bytes> {
        let (files, goes_on) = job.page(number)?;
        let next = goes_on.then(|| self.addresses.page(&job.id, number + 1));
        let page = Page { job, files, next, requires_token: !self.addresses.are_signed() };
        let address = |file: &OutputFile| self.addresses.file(job, &file.name, now);
        Some(manifest::write(&page, address).into())
    }

    /// Counts a poll; where it is one too many, gives the seconds until the next minute.
    fn too_soon(&self, id: &str, now: Timestamp) -> Option<u32> {
        let limit = self.poll_limit?;
        let minute = SignedDuration::from_mins(1);
        let mut polls = self.polls.lock().expect("no thread panics while it holds the map");
        polls.retain(|_, (first, _)| now < *first + minute);
        let (first, count) = polls.entry(id.to_owned()).or_insert((now, 0));
        *count = count.saturating_add(1);
        let left = (*first + minute).duration_since(now).as_secs().max(1);
        (*count > limit).then(|| u32::try_from(left).unwrap_or(60))
    }

    /// An output file that a manifest lists.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn file(
        &self,
        id: &str,
        name: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<File, FileError> {
        let (job, _) = self.job(id, client_id, now).await?;
        self.listed(&job, name)
    }

    /// The same by a signed address, for whoever has it.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::BadAddress`] where the signature is not ours or has expired.
    pub async fn signed_file(
        &self,
        id: &str,
        name: &str,
        signature: &Signature<'_>,
        now: Timestamp,
    ) -> Result<File, FileError> {
        self.addresses.check(id, name, signature, now)?;
        let (job, _) = self.any_job(id, now).await?;
        self.listed(&job, name)
    }

    /// Are files reached by signed addresses?
    pub fn signs_addresses(&self) -> bool {
        self.addresses.are_signed()
    }

    fn listed(&self, job: &Job, name: &str) -> Result<File, FileError> {
        let listed = job.listed(name).ok_or_else(|| FileError::NotFound { file: name.to_owned() })?;
        Ok(File::new(job, listed.clone(), self.worker.files.clone(), self.gzips.clone()))
    }
}
