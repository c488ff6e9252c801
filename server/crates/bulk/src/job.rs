//! The record of a job, under `bulk/job/{id}`, and what a poll learns from it.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Seq, StoreError};

use crate::files::FileAt;
use crate::kick_off::{Level, Parameters};
use crate::selection::Cursor;

/// A job as it stands in the ledger. Every write of it is a compare-and-set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// 128 random bits.
    pub id: String,
    /// Whose it is.
    pub client_id: String,
    /// What is exported.
    pub level: Level,
    /// What was asked for.
    pub parameters: Parameters,
    /// The types to export, sorted.
    pub kinds: Vec<String>,
    /// The full URL of the kick-off.
    pub request_url: String,
    /// The snapshot's sequence number.
    seq: u64,
    /// The snapshot's time.
    pub transaction_time: Timestamp,
    /// The files that are whole and on the disk, in their order.
    pub files: Vec<OutputFile>,
    /// Where the next file begins.
    pub(crate) next: Place,
    /// How far it was when this was written.
    pub(crate) progress: Progress,
    /// Whose turn it is to work on it.
    pub lease: Lease,
    /// Where it stands.
    pub state: State,
}

/// Who works on a job and until when nobody else does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The process.
    pub owner: String,
    /// Rises each time that somebody takes the job up; files are written under it.
    pub attempt: u32,
    /// How many attempts in a row have ended without a file.
    pub in_vain: u32,
    /// From then on others may take it up.
    pub until: Timestamp,
}

/// Where a file begins, which is where work goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Number of the part: first one for each type, then one for the deleted of each type.
    pub part: usize,
    /// The page of the part's selection.
    pub page: Cursor,
    /// How many of the page are in the files before.
    pub skip: usize,
    /// How many files of the section and type there are before.
    pub files: u32,
}

/// What was done, as it is told to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Of an estimate; never falls.
    pub percent: u8,
    /// Resources in the files.
    pub resources: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Under way.
    Running,
    /// All parts are done.
    Complete {
        /// When job and files are taken away.
        expires: Timestamp,
    },
    /// It cannot be done.
    Failed {
        /// Is what is stored at fault, or the server?
        by_data: bool,
        /// Why, for the client.
        reason: String,
        /// When the job is taken away.
        expires: Timestamp,
    },
}

/// The list of the manifest that a file stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Resources.
    Output,
    /// Bundles that name what was deleted.
    Deleted,
    /// OperationOutcomes.
    Error,
}

/// A file of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Where it is listed.
    pub section: Section,
    /// The type of its resources.
    pub kind: String,
    /// Its name: the last segment of its URL.
    pub name: String,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// Number of lines.
    pub count: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Hash of its bytes.
    pub hash: String,
}

impl OutputFile {
    /// Where it lies.
    pub(crate) fn at<'a>(&'a self, job: &'a str) -> FileAt<'a> {
        FileAt { job, attempt: self.attempt, name: &self.name, made: "" }
    }
}

impl Job {
    /// A job that begins.
    #[expect(clippy::too_many_arguments, reason = "one argument for each fact that a job begins with")]
    pub fn new(
        id: String,
        client_id: String,
        level: Level,
        parameters: Parameters,
        kinds: Vec<String>,
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
            request_url,
            seq: seq.0,
            transaction_time,
            files: Vec::new(),
            next: Place::default(),
            progress: Progress::default(),
            lease,
            state: State::Running,
        }
    }

    /// The snapshot's sequence number.
    pub fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// Its key in the ledger.
    pub fn key(&self) -> String {
        key(&self.id)
    }

    /// When job and files are taken away; a running job has no such time.
    pub fn expires(&self) -> Option<Timestamp> {
        match self.state {
            State::Running => None,
            State::Complete { expires } | State::Failed { expires, .. } => Some(expires),
        }
    }

    /// How many parts there are. What was deleted is told where only changes are asked for.
    pub(crate) fn parts(&self) -> usize {
        let deleted = if self.parameters.since.is_some() { self.kinds.len() } else { 0 };
        self.kinds.len() + deleted
    }

    /// What a part is.
    pub(crate) fn part(&self, part: usize) -> (Section, &str) {
        match part.checked_sub(self.kinds.len()) {
            None => (Section::Output, &self.kinds[part]),
            Some(part) => (Section::Deleted, &self.kinds[part]),
        }
    }

    /// For `X-Progress`.
    pub fn progress(&self) -> String {
        let Progress { percent, resources, bytes } = self.progress;
        format!("{percent}%: {resources} resources, {} MB", bytes / 1_000_000)
    }
}

/// Key of a job.
pub fn key(id: &str) -> String {
    format!("bulk/job/{id}")
}

/// State of a job.
#[derive(Debug, Clone)]
pub enum Status {
    /// Not finished.
    InProgress {
        /// For `X-Progress`, under 100 characters.
        progress: String,
        /// For `Retry-After`.
        retry_after_s: u32,
    },
    /// Asked for too often.
    TooSoon {
        /// For `Retry-After`.
        retry_after_s: u32,
    },
    /// Finished.
    Complete {
        /// The manifest as JSON.
        manifest: Bytes,
        /// When it is taken away.
        expires: Timestamp,
    },
    /// Failed.
    Failed {
        /// Is what is stored at fault (422), or the server (500)?
        by_data: bool,
        /// Why.
        reason: String,
    },
}

/// Why a job could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// No such job, another client's, deleted or expired.
    #[error("there is no export {job}; it may have been deleted or have expired")]
    NotFound {
        /// Its id.
        job: String,
    },
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}
