//! The record of a job, stored under `bulk/job/{id}`.

use std::ops::Range;

use bytes::Bytes;
use fhir::patient_compartment::{contains_type, is_joined};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, Seq, StoreError};

pub(crate) mod cursor;
pub(crate) mod file_list;
pub(crate) mod open_jobs;

use crate::files::export_files::AttemptFile;
use crate::request::exported_kinds::{ExportRole, role};
use crate::request::kick_off::ExportLevel;
use crate::request::parameters::ExportParameters;
use crate::{GroupLeavers, GuideVersion};
use cursor::ExportCursor;

/// Beginning of the keys of all jobs.
pub(crate) const PREFIX: &str = "bulk/job/";

/// A job as stored in the ledger. Every update is a compare-and-set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Id of the job: 128 random bits as text.
    pub id: String,
    /// Client that started the job.
    pub client_id: String,
    /// Level of the export.
    pub level: ExportLevel,
    /// Checked parameters of the kick-off request.
    pub parameters: ExportParameters,
    /// Resource types to export, sorted.
    pub kinds: Vec<String>,
    /// Types whose resources are read by id, from the candidates of the search index. All others are scanned.
    /// This is decided at the kick-off, because it determines the order of the resources.
    #[serde(default)]
    pub(crate) indexed_types: Vec<String>,
    /// Time from which the types that R4 left out of the Patient compartment are in it
    /// ([`fhir::patient_compartment::JOINED`]). An increment since an earlier time contains all their
    /// resources. `None` in jobs of earlier versions, in which these types are not in the compartment.
    #[serde(default)]
    pub(crate) joined_since: Option<Timestamp>,
    /// The list in which an increment reports what has left the export.
    #[serde(default)]
    pub(crate) group_leavers: GroupLeavers,
    /// Version of the guide that determines the format of the manifest.
    #[serde(default)]
    pub guide: GuideVersion,
    /// Full URL of the kick-off request.
    pub request_url: String,
    seq: u64,
    /// Time of the snapshot.
    pub transaction_time: Timestamp,
    /// Files that are complete and synced, in order. They are stored separately (see [`file_list`]), and are
    /// empty until they are loaded.
    #[serde(skip)]
    pub files: Vec<OutputFile>,
    /// Number of the files when the record was written.
    pub file_count: usize,
    /// For each page of the manifest, the number of files listed up to the end of the page. A client may have
    /// read these pages, so they must not change. Empty if the manifest has no pages.
    #[serde(default)]
    pub(crate) pages: Vec<usize>,
    /// Position at which the next file begins.
    pub(crate) next: Checkpoint,
    /// Progress at the time of the last update of this record.
    pub(crate) progress: JobProgress,
    /// Lease of the worker that runs the job.
    pub lease: Lease,
    /// Current state of the job.
    pub state: JobState,
}

/// The right of one process to run a job until the lease expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Id of the process.
    pub owner: String,
    /// Number of the attempt, incremented whenever a process acquires the lease. It is part of the names of
    /// the written files.
    pub attempt: u32,
    /// Number of consecutive attempts that completed no file.
    pub attempts_without_progress: u32,
    /// Time at which the lease expires and another process may acquire it.
    pub until: Timestamp,
}

/// Start of a file. A worker resumes an interrupted job from the last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Index of the part (see [`Job::part`]).
    pub part: usize,
    /// Cursor of the page in the part's selection.
    pub page: ExportCursor,
    /// Number of resources of the page that earlier files contain.
    pub skip: usize,
    /// Number of earlier files of the same section and type.
    pub files: u32,
}

/// Progress of a job, as reported to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct JobProgress {
    /// Estimated percentage, which never decreases.
    pub percent: u8,
    /// Number of resources in the files.
    pub resources: u64,
    /// Number of bytes in the files.
    pub bytes: u64,
}

/// State of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// The job is waiting or running.
    Running,
    /// All files are written.
    Complete {
        /// Time at which the job and its files are removed.
        expires: Timestamp,
    },
    /// The job cannot be completed.
    Failed {
        /// `true` if the stored data caused the failure, `false` if the server did.
        by_data: bool,
        /// Reason of the failure, as sent to the client.
        reason: String,
        /// Time at which the job is removed.
        expires: Timestamp,
    },
}

/// A list of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManifestSection {
    /// Exported resources.
    Output,
    /// Bundles that list deleted resources.
    Deleted,
    /// OperationOutcomes about omitted parameters.
    Error,
}

/// An output file of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// List of the manifest that contains the file.
    pub section: ManifestSection,
    /// Type of the file's resources.
    pub kind: String,
    /// File name: the last segment of its URL.
    pub name: String,
    /// Number of the attempt that wrote the file.
    pub attempt: u32,
    /// Number of lines.
    pub count: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Hash of the file's bytes.
    pub hash: String,
}

/// The content of one part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportPart<'a> {
    /// The exported resources of a type.
    Kind(&'a str),
    /// The deleted resources of a type.
    Deleted(&'a str),
}

impl OutputFile {
    /// The file's name in the storage of export files.
    pub(crate) fn at<'a>(&'a self, job: &'a str) -> AttemptFile<'a> {
        AttemptFile { job, attempt: self.attempt, name: &self.name, made: "" }
    }
}

impl Job {
    /// A new job before its first file.
    #[expect(clippy::too_many_arguments, reason = "one argument for each initial field of a job")]
    pub fn new(
        id: String,
        client_id: String,
        level: ExportLevel,
        parameters: ExportParameters,
        kinds: Vec<String>,
        guide: GuideVersion,
        request_url: String,
        seq: Seq,
        transaction_time: Timestamp,
        lease: Lease,
    ) -> Self {
        Self {
            id,
            client_id,
            level,
            parameters,
            kinds,
            indexed_types: Vec::new(),
            joined_since: Some(Timestamp::UNIX_EPOCH),
            group_leavers: GroupLeavers::default(),
            guide,
            request_url,
            seq: seq.0,
            transaction_time,
            files: Vec::new(),
            file_count: 0,
            pages: Vec::new(),
            next: Checkpoint::default(),
            progress: JobProgress::default(),
            lease,
            state: JobState::Running,
        }
    }

    /// `true` if resources of the type are in the compartments of Patients.
    pub(crate) fn has_compartments_of(&self, kind: &str) -> bool {
        contains_type(kind) && (self.joined_since.is_some() || !is_joined(kind))
    }

    /// The role of a type.
    pub(crate) fn role(&self, kind: &str) -> ExportRole {
        let has_compartments = self.has_compartments_of(kind);
        role(&self.level, &self.parameters, kind, has_compartments).unwrap_or(ExportRole::Main)
    }

    /// The full export that this request would have been at another time, from the snapshot `seq`.
    pub(crate) fn in_full(&self, seq: Seq, time: Timestamp) -> Self {
        let mut job = self.clone();
        (job.seq, job.transaction_time) = (seq.0, time);
        job.parameters.since = None;
        job.joined_since = job.joined_since.filter(|joined| *joined <= time);
        job
    }

    /// `true` if the export has Provenance only of other exported resources.
    pub(crate) fn has_associated_provenance(&self) -> bool {
        self.parameters.provenance.is_some() && self.kinds.iter().any(|kind| kind == "Provenance")
    }

    /// `true` if resources of some type are exported because others refer to them.
    pub(crate) fn has_supporting(&self) -> bool {
        self.kinds.iter().any(|kind| self.role(kind).is_supporting())
    }

    /// `true` if all resources of the type are new to a client that has the export of `_since`: the type
    /// was not in the compartment then.
    pub(crate) fn is_new_type(&self, kind: &str) -> bool {
        let joined_since = self.joined_since.filter(|_| is_joined(kind) && self.level != ExportLevel::System);
        joined_since.is_some_and(|joined| self.parameters.since.is_some_and(|since| since < joined))
    }

    /// `true` if the export contains a [new type](Self::is_new_type), so that its Provenance is new, too.
    pub(crate) fn has_new_type(&self) -> bool {
        self.kinds.iter().any(|kind| self.is_new_type(kind))
    }

    /// The sequence number of the snapshot.
    pub fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// The key of the job in the ledger.
    pub fn key(&self) -> String {
        key(&self.id)
    }

    /// The write of the job's record.
    pub(crate) fn put(&self, expect: Expect) -> LedgerWrite {
        let value = serde_json::to_vec(self).expect("a job has string keys only, so it serializes to JSON");
        LedgerWrite::put(self.key(), value, expect)
    }

    /// The time at which the job and its files are removed; `None` for a running job.
    pub fn expires(&self) -> Option<Timestamp> {
        match self.state {
            JobState::Running => None,
            JobState::Complete { expires } | JobState::Failed { expires, .. } => Some(expires),
        }
    }

    /// The number of parts. Deleted resources are exported only if the request has `_since`.
    pub(crate) fn parts(&self) -> usize {
        let deleted = if self.parameters.since.is_some() { self.kinds.len() } else { 0 };
        self.kinds.len() + deleted
    }

    /// The content of a part: the resources of each type come first, and the deleted ones of each type
    /// follow.
    pub(crate) fn part(&self, part: usize) -> ExportPart<'_> {
        match part.checked_sub(self.kinds.len()) {
            Some(part) => ExportPart::Deleted(&self.kinds[part]),
            None => ExportPart::Kind(&self.kinds[part]),
        }
    }

    /// Adds a page to the manifest if one is due. The first page is added when the first file is complete.
    /// Another one is added whenever the number of files has doubled, so that there are few pages. The last
    /// page is added when the job is complete.
    pub(crate) fn turn_page(&mut self) {
        if !self.parameters.partial_manifests {
            return;
        }
        // Files with errors are first in the list, and every page lists them.
        let errors = self.files.iter().filter(|file| file.section == ManifestSection::Error).count();
        let ready = self.files.len() - errors;
        let position = self.pages.last().map_or(0, |end| end.saturating_sub(errors));
        let is_due = match self.state {
            JobState::Running => ready >= (2 * position).max(1),
            JobState::Complete { .. } => ready > position || self.pages.is_empty(),
            JobState::Failed { .. } => false,
        };
        if is_due {
            self.pages.push(self.files.len());
        }
    }

    /// The files of a page of the manifest, counted from 1, and whether another page follows. Returns `None`
    /// if the page does not exist yet. A manifest without pages consists of one page, which exists when the
    /// job is complete.
    pub(crate) fn page(&self, number: usize) -> Option<(Range<usize>, bool)> {
        let all = [self.file_count];
        let ends = match self.state {
            JobState::Complete { .. } if self.pages.is_empty() => &all[..],
            _ => &self.pages[..],
        };
        let end = *ends.get(number.checked_sub(1)?)?;
        let start = number.checked_sub(2).map_or(0, |before| ends[before]);
        // After a restart because of damaged files, `files` is shorter until they are written again with the
        // same content.
        let is_there = |end: &usize| *end <= self.file_count;
        is_there(&end).then(|| (start..end, ends.get(number).is_some_and(is_there)))
    }

    /// The number of files that the client may read.
    pub(crate) fn readable_files(&self) -> usize {
        match self.state {
            JobState::Running => {
                self.pages.iter().copied().filter(|end| *end <= self.file_count).max().unwrap_or_default()
            }
            JobState::Complete { .. } => self.file_count,
            JobState::Failed { .. } => 0,
        }
    }

    /// The value of the header `X-Progress`.
    pub fn progress(&self) -> String {
        let JobProgress { percent, resources, bytes } = self.progress;
        format!("{percent}%: {resources} resources, {} MB", bytes / 1_000_000)
    }
}

/// Decodes a record of the ledger.
pub(crate) fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })
}

/// The key of a job in the ledger.
pub fn key(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// State of a job, as returned to its client.
#[derive(Debug, Clone)]
pub enum JobStatus {
    /// The job is waiting or running.
    InProgress {
        /// Value of the header `X-Progress`, less than 100 characters.
        progress: String,
        /// Value of the header `Retry-After` in seconds.
        retry_after_s: u32,
        /// Manifest of the completed files as JSON, if the client requested partial manifests.
        manifest: Option<Bytes>,
    },
    /// The client polled too often.
    TooSoon {
        /// Value of the header `Retry-After` in seconds.
        retry_after_s: u32,
    },
    /// The job exports a type that the token does not grant access to.
    Forbidden {
        /// The resource type.
        kind: String,
    },
    /// The job is complete.
    Complete {
        /// The manifest as JSON.
        manifest: Bytes,
        /// Time at which the job and its files are removed.
        expires: Timestamp,
    },
    /// The job has failed.
    Failed {
        /// `true` if the stored data caused the failure (422), `false` if the server did (500).
        by_data: bool,
        /// Reason of the failure, as sent to the client.
        reason: String,
    },
}

/// Reasons why a request about a job fails.
#[derive(Debug, thiserror::Error)]
pub enum JobRequestError {
    /// The job does not exist, belongs to another client, was deleted or has expired.
    #[error("export {job} does not exist; it may have been deleted or may have expired")]
    NotFound {
        /// Id of the job.
        job: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_added_when_the_number_of_files_has_doubled() {
        let parameters = ExportParameters { partial_manifests: true, ..ExportParameters::default() };
        let lease = Lease {
            owner: String::new(),
            attempt: 1,
            attempts_without_progress: 0,
            until: Timestamp::UNIX_EPOCH,
        };
        let (time, level) = (Timestamp::UNIX_EPOCH, ExportLevel::System);
        let (id, client, url) = (String::new(), String::new(), String::new());
        let mut job =
            Job::new(id, client, level, parameters, Vec::new(), GuideVersion::V3, url, Seq(1), time, lease);
        let file = |section| OutputFile {
            section,
            kind: String::new(),
            name: String::new(),
            attempt: 1,
            count: 1,
            bytes: 1,
            hash: String::new(),
        };
        job.files.push(file(ManifestSection::Error));
        job.turn_page();
        assert_eq!(job.page(1), None, "there is no page without files");
        for _ in 0..20 {
            job.files.push(file(ManifestSection::Output));
            job.turn_page();
        }
        job.file_count = job.files.len();
        assert_eq!(job.pages, [2, 3, 5, 9, 17]);
        assert_eq!((job.page(1), job.page(5)), (Some((0..2, true)), Some((9..17, false))));
        // While damaged files are written again, pages list only the files that exist.
        job.files.truncate(4);
        job.file_count = job.files.len();
        job.turn_page();
        assert_eq!((job.page(2), job.page(3)), (Some((2..3, false)), None));
        job.files.extend((0..17).map(|_| file(ManifestSection::Deleted)));
        job.state = JobState::Complete { expires: time };
        job.turn_page();
        job.file_count = job.files.len();
        assert_eq!((job.page(5), job.page(6)), (Some((9..17, true)), Some((17..21, false))));
        assert_eq!((job.page(0), job.page(7)), (None, None));
    }
}
