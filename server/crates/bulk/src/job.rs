//! The record of a job, under `bulk/job/{id}`, and what a poll learns from it.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Seq, StoreError};

use crate::kick_off::{Level, Parameters};

/// A job as it stands in the ledger.
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
    /// The types to export, sorted: one part each.
    pub kinds: Vec<String>,
    /// The full URL of the kick-off.
    pub request_url: String,
    /// The snapshot's sequence number.
    seq: u64,
    /// The snapshot's time.
    pub transaction_time: Timestamp,
    /// Output files of the parts that are done, in the order of types.
    pub output: Vec<OutputFile>,
    /// How many parts are done.
    pub done: usize,
    /// Where it stands.
    pub state: State,
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

/// A file of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// The type of its resources.
    pub kind: String,
    /// Its name: the last segment of its URL.
    pub name: String,
    /// Number of lines.
    pub count: u64,
    /// Length in bytes.
    pub bytes: u64,
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
            output: Vec::new(),
            done: 0,
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

    /// For `X-Progress`: rises with every part that is done.
    pub fn progress(&self) -> String {
        let parts = self.kinds.len().max(1);
        format!("{}% ({} of {} types)", self.done * 100 / parts, self.done, self.kinds.len())
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

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such file.
    #[error("there is no file {file}")]
    NotFound {
        /// Its name.
        file: String,
    },
    /// The store's.
    #[error(transparent)]
    Store(StoreError),
    /// The files' store.
    #[error("failed to read an output file: {0}")]
    Files(String),
}
