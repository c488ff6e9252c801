//! Import of files: NDJSON, resources, Bundles, FHIR packages, folders, each also with gzip.
//!
//! | file | what lives there |
//! |---|---|
//! | `files` | finds files and reads them in pieces of bounded size |
//! | `reader` | from files to writes, on a thread of its own |
//! | here | commits, counts and reports |
//!
//! NDJSON goes in line by line: a bad line is listed and the others go in. One resource or one Bundle (of
//! type collection, searchset, transaction or batch) goes in whole or not at all; so does each resource of
//! a package. What is the same already is not written again, so an import that was interrupted is simply
//! run again; only resources without id become new ones each time.

mod files;
mod reader;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use store::{Effect, StoreError, VersionWrite, Versions};
use tokio::sync::mpsc;

use self::reader::Reader;
use crate::{Limits, Resources};

/// The report lists this many bad and skipped inputs; [`Progress`] tells of all.
const LISTED: usize = 1_000;
/// Prepared batches that wait for the store; bounds the memory of an import.
const WAITING: usize = 2;

/// How an import treats its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOptions {
    /// What one resource may measure. Terminology may be large, so the default is 256 MiB.
    pub limits: Limits,
    /// What a Bundle may measure as text, in bytes. It is held in memory; the default is 512 MiB.
    pub bundle_bytes: usize,
    /// Maximum length of a line of NDJSON, in bytes. A line is held in memory; the default is 64 MiB.
    pub line_bytes: usize,
    /// A progress event comes after so many lines of NDJSON.
    pub lines: u64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        let limits = Limits { bytes: 256 << 20, ..Limits::default() };
        Self { limits, bundle_bytes: 512 << 20, line_bytes: 64 << 20, lines: 1_000 }
    }
}

/// What happens while an import runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A file is being read.
    File {
        /// Its path; within an archive, that of the archive.
        file: String,
    },
    /// So many bytes were read, though not all that they gave is on disk yet.
    Bytes {
        /// The file that is being read.
        file: String,
        /// Bytes of all files so far, packed where they are packed.
        bytes: u64,
        /// Bytes of all files to import.
        of: u64,
    },
    /// The lines up to this one are dealt with, and what they gave is on disk: given every
    /// [`ImportOptions::lines`] lines and at the end of the file.
    Lines {
        /// The file.
        file: String,
        /// Lines so far, bad and empty ones included.
        lines: u64,
    },
    /// Something could not be imported.
    Bad(Bad),
    /// All of the file is dealt with, and on disk.
    Done {
        /// The file.
        file: String,
    },
}

/// An input that could not be imported, or was left aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The file; within an archive `archive:path`.
    pub file: String,
    /// The line, from 1, where the file is NDJSON.
    pub line: Option<u64>,
    /// Why.
    pub reason: String,
}

/// What became of the resources of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// New resources.
    pub created: u64,
    /// New versions.
    pub replaced: u64,
    /// Resources that were there with the same content.
    pub same: u64,
}

impl Count {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.created + self.replaced + self.same
    }
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Files that were read.
    pub files: u64,
    /// By resource type.
    pub resources: BTreeMap<&'static str, Count>,
    /// How many inputs could not be imported.
    pub bad_total: u64,
    /// The first 1,000 of them.
    pub bad: Vec<Bad>,
    /// How many files hold no resources.
    pub skipped_total: u64,
    /// The first 1,000 of them.
    pub skipped: Vec<Bad>,
}

impl Report {
    /// Resources that are in the store now because of this import.
    pub fn total(&self) -> u64 {
        self.resources.values().map(Count::total).sum()
    }
}

/// What the reader hands over, in the order of the files.
enum Work {
    File(String),
    Bytes {
        file: String,
        bytes: u64,
        of: u64,
    },
    /// To be written in one commit.
    Writes(Vec<VersionWrite>),
    Lines(String, u64),
    Bad(Bad),
    Skipped(Bad),
    Done(String),
}

impl Resources {
    /// Imports files and folders, in this order; the files of a folder in the order of their names.
    ///
    /// `new_id` gives ids to resources without one, `now` the time of each commit. Bad input is in the
    /// report, not an error.
    ///
    /// # Errors
    /// The store failed; what was acknowledged before is on disk.
    pub async fn import(
        &self,
        paths: Vec<PathBuf>,
        options: ImportOptions,
        new_id: impl FnMut() -> String + Send + 'static,
        mut progress: impl FnMut(Progress),
        now: impl Fn() -> Timestamp,
    ) -> Result<Report, StoreError> {
        let (sink, mut source) = mpsc::channel(WAITING);
        let base = self.fhir_base().to_owned();
        let reading =
            tokio::task::spawn_blocking(move || Reader::new(options, base, new_id, sink).run(&paths));
        let mut report = Report::default();
        while let Some(work) = source.recv().await {
            match work {
                Work::File(file) => {
                    report.files += 1;
                    progress(Progress::File { file });
                }
                Work::Bytes { file, bytes, of } => progress(Progress::Bytes { file, bytes, of }),
                Work::Writes(writes) => self.write(writes, now(), &mut report).await?,
                Work::Lines(file, lines) => progress(Progress::Lines { file, lines }),
                Work::Bad(bad) => {
                    report.bad_total += 1;
                    if report.bad.len() < LISTED {
                        report.bad.push(bad.clone());
                    }
                    progress(Progress::Bad(bad));
                }
                Work::Skipped(skipped) => {
                    report.skipped_total += 1;
                    if report.skipped.len() < LISTED {
                        report.skipped.push(skipped);
                    }
                }
                Work::Done(file) => progress(Progress::Done { file }),
            }
        }
        let ended = |error: tokio::task::JoinError| StoreError::Engine {
            action: "read the files to import",
            reason: error.to_string(),
        };
        reading.await.map_err(ended)?;
        Ok(report)
    }

    async fn write(
        &self,
        writes: Vec<VersionWrite>,
        now: Timestamp,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let kinds: Vec<_> = writes.iter().map(|write| fhir::resource_type(&write.key.kind)).collect();
        let commit = self.store().commit(writes, now).await?;
        for (kind, written) in kinds.into_iter().zip(commit.written) {
            let count =
                report.resources.entry(kind.expect("only prepared resources are written")).or_default();
            match written.effect {
                Effect::Created => count.created += 1,
                Effect::Replaced | Effect::Deleted => count.replaced += 1,
                Effect::Nothing => count.same += 1,
            }
        }
        Ok(())
    }
}
