//! The record of a job, stored under `bulk/job/{id}`.

use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Seq, StoreError};

pub(crate) mod cursor;

use crate::GuideVersion;
use crate::files::export_files::AttemptFile;
use crate::request::kick_off::ExportLevel;
use crate::request::parameters::ExportParameters;
use cursor::ExportCursor;

/// A job as stored in the ledger. Every write is a compare-and-set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// 128 random bits.
    pub id: String,
    /// Client that started the job.
    pub client_id: String,
    /// Level of the export.
    pub level: ExportLevel,
    /// Checked parameters of the kick-off.
    pub parameters: ExportParameters,
    /// The types to export, sorted.
    pub kinds: Vec<String>,
    /// Version of the guide that determines the manifest.
    #[serde(default)]
    pub guide: GuideVersion,
    /// The full URL of the kick-off.
    pub request_url: String,
    /// The snapshot's sequence number.
    seq: u64,
    /// The snapshot's time.
    pub transaction_time: Timestamp,
    /// Complete files that are on the disk, in order.
    pub files: Vec<OutputFile>,
    /// Number of files listed up to the end of each page of the manifest, if it has pages. A page that is in this
    /// list may have been read by the client and does not change any more.
    #[serde(default)]
    pub(crate) pages: Vec<usize>,
    /// Start of the next file.
    pub(crate) next: Checkpoint,
    /// Progress at the time of this record.
    pub(crate) progress: JobProgress,
    /// Lease of the worker.
    pub lease: Lease,
    /// Current state.
    pub state: JobState,
}

/// The right of one process to run a job until a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Id of the process.
    pub owner: String,
    /// Incremented whenever a process acquires the lease. Files are written under this number.
    pub attempt: u32,
    /// Number of consecutive attempts that ended without a file.
    pub attempts_without_progress: u32,
    /// Time at which another process may acquire the lease.
    pub until: Timestamp,
}

/// Start of a file, from which a worker resumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Number of the part, see [`Job::part`].
    pub part: usize,
    /// Page of the part's selection.
    pub page: ExportCursor,
    /// Number of resources of the page that are in earlier files.
    pub skip: usize,
    /// Number of resources of the next block that are in earlier files.
    #[serde(default)]
    pub line: u64,
    /// Number of earlier files of the section and type.
    pub files: u32,
}

/// Progress as reported to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct JobProgress {
    /// Estimated percentage; it never decreases.
    pub percent: u8,
    /// Resources in the files.
    pub resources: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// State of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// In progress.
    Running,
    /// All parts are written.
    Complete {
        /// Time at which the job and its files are removed.
        expires: Timestamp,
    },
    /// The job cannot be completed.
    Failed {
        /// True if the stored data are the reason, false if the server is.
        by_data: bool,
        /// Reason, for the client.
        reason: String,
        /// Time at which the job is removed.
        expires: Timestamp,
    },
}

/// List of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManifestSection {
    /// Resources.
    Output,
    /// Bundles that name deleted resources.
    Deleted,
    /// OperationOutcomes.
    Error,
}

/// A file of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// List that contains the file.
    pub section: ManifestSection,
    /// Type of its resources; with organized output, type of the heads.
    pub kind: String,
    /// Whether its last block continues in the next file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// Name: the last segment of its URL.
    pub name: String,
    /// Attempt that wrote it.
    pub attempt: u32,
    /// Number of lines.
    pub count: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Hash of its bytes.
    pub hash: String,
}

/// Content of one part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportPart<'a> {
    /// The resources of a type.
    Kind(&'a str),
    /// All resources, in blocks for the resources of this type.
    Organized(&'a str),
    /// Deleted resources of a type.
    Deleted(&'a str),
}

impl OutputFile {
    /// Returns the name of the file in the storage.
    pub(crate) fn at<'a>(&'a self, job: &'a str) -> AttemptFile<'a> {
        AttemptFile { job, attempt: self.attempt, name: &self.name, made: "" }
    }
}

impl Job {
    /// Returns a job at its start.
    #[expect(clippy::too_many_arguments, reason = "one argument for each fact that a job begins with")]
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
            guide,
            request_url,
            seq: seq.0,
            transaction_time,
            files: Vec::new(),
            pages: Vec::new(),
            next: Checkpoint::default(),
            progress: JobProgress::default(),
            lease,
            state: JobState::Running,
        }
    }

    /// Returns the snapshot's sequence number.
    pub fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// Returns the job's key in the ledger.
    pub fn key(&self) -> String {
        key(&self.id)
    }

    /// Returns the time at which the job and its files are removed; `None` for a running job.
    pub fn expires(&self) -> Option<Timestamp> {
        match self.state {
            JobState::Running => None,
            JobState::Complete { expires } | JobState::Failed { expires, .. } => Some(expires),
        }
    }

    /// Returns the number of parts. Deleted resources are listed only if the export has `_since`.
    pub(crate) fn parts(&self) -> usize {
        let deleted = if self.parameters.since.is_some() { self.kinds.len() } else { 0 };
        self.output_parts() + deleted
    }

    fn output_parts(&self) -> usize {
        if self.parameters.organize_by.is_some() { 1 } else { self.kinds.len() }
    }

    /// Returns the content of a part: first the output, one part for each type or one for all, then the deleted
    /// resources of each type.
    pub(crate) fn part(&self, part: usize) -> ExportPart<'_> {
        match (part.checked_sub(self.output_parts()), &self.parameters.organize_by) {
            (Some(part), _) => ExportPart::Deleted(&self.kinds[part]),
            (None, None) => ExportPart::Kind(&self.kinds[part]),
            (None, Some(by)) => ExportPart::Organized(by),
        }
    }

    /// Adds a page to the manifest if one is due: the first page as soon as a file is ready, another when the number
    /// of files has doubled, so that pages stay few, and the rest at the end.
    pub(crate) fn turn_page(&mut self) {
        if !self.parameters.partial_manifests {
            return;
        }
        // Errors come first and are listed on every page.
        let errors = self.files.iter().filter(|file| file.section == ManifestSection::Error).count();
        let ready = self.files.len() - errors;
        let listed = self.pages.last().map_or(0, |end| end.saturating_sub(errors));
        let is_due = match self.state {
            JobState::Running => ready >= (2 * listed).max(1),
            JobState::Complete { .. } => ready > listed || self.pages.is_empty(),
            JobState::Failed { .. } => false,
        };
        if is_due {
            self.pages.push(self.files.len());
        }
    }

    /// Returns the files of a page of the manifest, counted from 1, and whether another page follows. `None` if the
    /// page does not exist yet. A manifest without pages has one page, at the end.
    pub(crate) fn page(&self, number: usize) -> Option<(Range<usize>, bool)> {
        let all = [self.files.len()];
        let ends = match self.state {
            JobState::Complete { .. } if self.pages.is_empty() => &all[..],
            _ => &self.pages[..],
        };
        let end = *ends.get(number.checked_sub(1)?)?;
        let start = number.checked_sub(2).map_or(0, |before| ends[before]);
        // Damaged files are written again with the same content.
        let is_there = |end: &usize| *end <= self.files.len();
        is_there(&end).then(|| (start..end, ends.get(number).is_some_and(is_there)))
    }

    /// Returns the file with this name if it is visible to the client.
    pub(crate) fn listed(&self, name: &str) -> Option<&OutputFile> {
        let known = match self.state {
            JobState::Running => self.pages.iter().copied().filter(|end| *end <= self.files.len()).max()?,
            JobState::Complete { .. } => self.files.len(),
            JobState::Failed { .. } => 0,
        };
        self.files[..known].iter().find(|file| file.name == name)
    }

    /// Returns the value of `X-Progress`.
    pub fn progress(&self) -> String {
        let JobProgress { percent, resources, bytes } = self.progress;
        format!("{percent}%: {resources} resources, {} MB", bytes / 1_000_000)
    }
}

/// Returns the key of a job.
pub fn key(id: &str) -> String {
    format!("bulk/job/{id}")
}

/// State of a job.
#[derive(Debug, Clone)]
pub enum JobStatus {
    /// In progress.
    InProgress {
        /// Value of `X-Progress`, under 100 characters.
        progress: String,
        /// Value of `Retry-After`.
        retry_after_s: u32,
        /// Manifest of the files that are ready, as JSON, if the client asked for partial manifests.
        manifest: Option<Bytes>,
    },
    /// Polled too often.
    TooSoon {
        /// Value of `Retry-After`.
        retry_after_s: u32,
    },
    /// The manifest contains addresses of files of a type that the token does not grant.
    Forbidden {
        /// The type.
        kind: String,
    },
    /// Completed.
    Complete {
        /// The manifest as JSON.
        manifest: Bytes,
        /// Time at which the job and its files are removed.
        expires: Timestamp,
    },
    /// Failed.
    Failed {
        /// True if the stored data are the reason (422), false if the server is (500).
        by_data: bool,
        /// Reason.
        reason: String,
    },
}

/// Failure of a request about a job.
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
    fn pages_turn_when_there_is_twice_as_much() {
        let parameters = ExportParameters { partial_manifests: true, ..ExportParameters::default() };
        let lease = Lease {
            owner: String::new(),
            attempt: 1,
            attempts_without_progress: 0,
            until: Timestamp::UNIX_EPOCH,
        };
        let (at, level) = (Timestamp::UNIX_EPOCH, ExportLevel::System);
        let (id, client, url) = (String::new(), String::new(), String::new());
        let mut job =
            Job::new(id, client, level, parameters, Vec::new(), GuideVersion::V3, url, Seq(1), at, lease);
        let file = |section| OutputFile {
            section,
            kind: String::new(),
            continues: false,
            name: String::new(),
            attempt: 1,
            count: 1,
            bytes: 1,
            hash: String::new(),
        };
        job.files.push(file(ManifestSection::Error));
        job.turn_page();
        assert_eq!(job.page(1), None, "a page lists something");
        for _ in 0..20 {
            job.files.push(file(ManifestSection::Output));
            job.turn_page();
        }
        assert_eq!(job.pages, [2, 3, 5, 9, 17]);
        assert_eq!((job.page(1), job.page(5)), (Some((0..2, true)), Some((9..17, false))));
        // While files are written again, only the existing ones are listed.
        job.files.truncate(4);
        job.turn_page();
        assert_eq!((job.page(2), job.page(3)), (Some((2..3, false)), None));
        job.files.extend((0..17).map(|_| file(ManifestSection::Deleted)));
        job.state = JobState::Complete { expires: at };
        job.turn_page();
        assert_eq!((job.page(5), job.page(6)), (Some((9..17, true)), Some((17..21, false))));
        assert_eq!((job.page(0), job.page(7)), (None, None));
    }
}
