//! The record of a job, under `bulk/job/{id}`, and what a poll learns from it.

use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Seq, StoreError};

use crate::Guide;
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
    /// The version of the guide whose manifest the client gets.
    #[serde(default)]
    pub guide: Guide,
    /// The full URL of the kick-off.
    pub request_url: String,
    /// The snapshot's sequence number.
    seq: u64,
    /// The snapshot's time.
    pub transaction_time: Timestamp,
    /// The files that are whole and on the disk, in their order.
    pub files: Vec<OutputFile>,
    /// How many of the files are listed up to the end of each page of the manifest, where it has pages. A page that
    /// stands here may have been read by the client, and does not change any more.
    #[serde(default)]
    pub(crate) pages: Vec<usize>,
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
    /// Number of the part: see [`Job::part`].
    pub part: usize,
    /// The page of the part's selection.
    pub page: Cursor,
    /// How many of the page are in the files before.
    pub skip: usize,
    /// How many resources of the block that comes then are in the files before.
    #[serde(default)]
    pub line: u64,
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
    /// The type of its resources; that of their headers where output is organized.
    pub kind: String,
    /// Does its last block go on in the next file?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
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

/// What a part of a job gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The resources of a type.
    Kind(&'a str),
    /// All resources, in blocks for those of a type.
    Organized(&'a str),
    /// What was deleted of a type.
    Deleted(&'a str),
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
        guide: Guide,
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
        self.output_parts() + deleted
    }

    fn output_parts(&self) -> usize {
        if self.parameters.organize_by.is_some() { 1 } else { self.kinds.len() }
    }

    /// What a part is: first the output, one part for each type or one for all, then the deleted of each type.
    pub(crate) fn part(&self, part: usize) -> Part<'_> {
        match (part.checked_sub(self.output_parts()), &self.parameters.organize_by) {
            (Some(part), _) => Part::Deleted(&self.kinds[part]),
            (None, None) => Part::Kind(&self.kinds[part]),
            (None, Some(by)) => Part::Organized(by),
        }
    }

    /// Lists the files that there are now in a page of the manifest, where one is due: the first as soon as there is
    /// something to list, another one when there is twice as much, so that there never are many, and the rest at the end.
    pub(crate) fn turn_page(&mut self) {
        if !self.parameters.partial_manifests {
            return;
        }
        // These come first, and stand on every page.
        let errors = self.files.iter().filter(|file| file.section == Section::Error).count();
        let ready = self.files.len() - errors;
        let listed = self.pages.last().map_or(0, |end| end.saturating_sub(errors));
        let is_due = match self.state {
            State::Running => ready >= (2 * listed).max(1),
            State::Complete { .. } => ready > listed || self.pages.is_empty(),
            State::Failed { .. } => false,
        };
        if is_due {
            self.pages.push(self.files.len());
        }
    }

    /// The files of a page of the manifest, counted from 1, and whether there is another one behind it; `None` where
    /// there is no such page yet. A manifest without pages is one page, at the end.
    pub(crate) fn page(&self, number: usize) -> Option<(Range<usize>, bool)> {
        let all = [self.files.len()];
        let ends = match self.state {
            State::Complete { .. } if self.pages.is_empty() => &all[..],
            _ => &self.pages[..],
        };
        let end = *ends.get(number.checked_sub(1)?)?;
        let start = number.checked_sub(2).map_or(0, |before| ends[before]);
        // Files that were damaged are being written again, and are what they were.
        let is_there = |end: &usize| *end <= self.files.len();
        is_there(&end).then(|| (start..end, ends.get(number).is_some_and(is_there)))
    }

    /// The file of this name, where the client may know of it.
    pub(crate) fn listed(&self, name: &str) -> Option<&OutputFile> {
        let known = match self.state {
            State::Running => self.pages.iter().copied().filter(|end| *end <= self.files.len()).max()?,
            State::Complete { .. } => self.files.len(),
            State::Failed { .. } => 0,
        };
        self.files[..known].iter().find(|file| file.name == name)
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
        /// What can be downloaded already, where the client asked for that: a manifest as JSON.
        manifest: Option<Bytes>,
    },
    /// Asked for too often.
    TooSoon {
        /// For `Retry-After`.
        retry_after_s: u32,
    },
    /// The manifest would open files of a type that the token does not open.
    Forbidden {
        /// The type.
        kind: String,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_turn_when_there_is_twice_as_much() {
        let parameters = Parameters { partial_manifests: true, ..Parameters::default() };
        let lease = Lease { owner: String::new(), attempt: 1, in_vain: 0, until: Timestamp::UNIX_EPOCH };
        let (at, level) = (Timestamp::UNIX_EPOCH, Level::System);
        let (id, client, url) = (String::new(), String::new(), String::new());
        let mut job = Job::new(id, client, level, parameters, Vec::new(), Guide::V3, url, Seq(1), at, lease);
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
        job.files.push(file(Section::Error));
        job.turn_page();
        assert_eq!(job.page(1), None, "a page lists something");
        for _ in 0..20 {
            job.files.push(file(Section::Output));
            job.turn_page();
        }
        assert_eq!(job.pages, [2, 3, 5, 9, 17]);
        assert_eq!((job.page(1), job.page(5)), (Some((0..2, true)), Some((9..17, false))));
        // While files are written again, what is not there is not given.
        job.files.truncate(4);
        job.turn_page();
        assert_eq!((job.page(2), job.page(3)), (Some((2..3, false)), None));
        job.files.extend((0..17).map(|_| file(Section::Deleted)));
        job.state = State::Complete { expires: at };
        job.turn_page();
        assert_eq!((job.page(5), job.page(6)), (Some((9..17, true)), Some((17..21, false))));
        assert_eq!((job.page(0), job.page(7)), (None, None));
    }
}
