//! Import of files: NDJSON, resources, Bundles, FHIR packages and folders, each also with gzip.
//!
//! | file | contents |
//! |---|---|
//! | `files` | finds files and reads them in pieces of bounded size |
//! | `reader` | converts files to writes, on a separate thread |
//! | here | commits, counts and reports |
//!
//! NDJSON is imported line by line: a bad line is reported and the others are imported. A resource or a Bundle (of
//! type collection, searchset, transaction or batch) is imported entirely or not at all, and so is each resource of a
//! package. Unchanged resources are not written again, so an interrupted import can simply be repeated; only
//! resources without an id are then created a second time.

mod files;
mod reader;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use store::{StoreError, VersionWrite, Versions, WriteEffect};
use tokio::sync::mpsc;

use self::reader::LineReader;
use crate::{ResourceLimits, Resources};

/// Maximum number of bad and skipped inputs in the report; [`ImportProgress`] reports all of them.
const LISTED: usize = 1_000;
/// Prepared batches that wait for the store; bounds the memory of an import.
const WAITING: usize = 2;

/// How an import treats its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOptions {
    /// Limits of one resource. Terminology may be large, so the default is 256 MiB.
    pub limits: ResourceLimits,
    /// Maximum length of a Bundle as text, in bytes. A Bundle is held in memory; the default is 512 MiB.
    pub bundle_bytes: usize,
    /// Maximum length of a line of NDJSON, in bytes. A line is held in memory; the default is 64 MiB.
    pub line_bytes: usize,
    /// A progress event comes after so many lines of NDJSON.
    pub lines: u64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        let limits = ResourceLimits { bytes: 256 << 20, ..ResourceLimits::default() };
        Self { limits, bundle_bytes: 512 << 20, line_bytes: 64 << 20, lines: 1_000 }
    }
}

/// Event of a running import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportProgress {
    /// A file is being read.
    File {
        /// Its path; within an archive, that of the archive.
        file: String,
    },
    /// Bytes were read; the resources in them may not be on the disk yet.
    Bytes {
        /// The file that is being read.
        file: String,
        /// Bytes of all files so far, packed where they are packed.
        bytes: u64,
        /// Bytes of all files to import.
        of: u64,
    },
    /// All lines up to this one are processed and their resources are on disk. Sent every [`ImportOptions::lines`]
    /// lines and at the end of the file.
    Lines {
        /// The file.
        file: String,
        /// Lines so far, bad and empty ones included.
        lines: u64,
    },
    /// Something could not be imported.
    ImportFault(ImportFault),
    /// All of the file is dealt with, and on disk.
    Done {
        /// The file.
        file: String,
    },
}

/// An input that could not be imported, or was left aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFault {
    /// The file; within an archive `archive:path`.
    pub file: String,
    /// The line, from 1, where the file is NDJSON.
    pub line: Option<u64>,
    /// Why.
    pub reason: String,
}

/// Counts of the resources of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportCount {
    /// New resources.
    pub created: u64,
    /// New versions.
    pub replaced: u64,
    /// Resources that were there with the same content.
    pub same: u64,
}

impl ImportCount {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.created + self.replaced + self.same
    }
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// Files that were read.
    pub files: u64,
    /// By resource type.
    pub resources: BTreeMap<&'static str, ImportCount>,
    /// Number of inputs that could not be imported.
    pub bad_total: u64,
    /// The first 1,000 of them.
    pub bad: Vec<ImportFault>,
    /// Number of files without resources.
    pub skipped_total: u64,
    /// The first 1,000 of them.
    pub skipped: Vec<ImportFault>,
}

impl ImportReport {
    /// Resources that are in the store now because of this import.
    pub fn total(&self) -> u64 {
        self.resources.values().map(ImportCount::total).sum()
    }
}

/// Work that the reader passes on, in the order of the files.
enum ImportWork {
    File(String),
    Bytes {
        file: String,
        bytes: u64,
        of: u64,
    },
    /// To be written in one commit.
    Writes(Vec<VersionWrite>),
    Lines(String, u64),
    ImportFault(ImportFault),
    Skipped(ImportFault),
    FileDone(String),
}

impl Resources {
    /// Imports files and folders in this order; the files of a folder in the order of their names.
    ///
    /// `new_id` creates ids of resources without one; `now` returns the time of each commit. Bad input is listed in
    /// the report and is not an error.
    ///
    /// # Errors
    /// Returns an error if the store fails; everything acknowledged before is on the disk.
    pub async fn import(
        &self,
        paths: Vec<PathBuf>,
        options: ImportOptions,
        new_id: impl FnMut() -> String + Send + 'static,
        mut progress: impl FnMut(ImportProgress),
        now: impl Fn() -> Timestamp,
    ) -> Result<ImportReport, StoreError> {
        let (sink, mut source) = mpsc::channel(WAITING);
        let base = self.fhir_base().to_owned();
        let reading =
            tokio::task::spawn_blocking(move || LineReader::new(options, base, new_id, sink).run(&paths));
        let mut report = ImportReport::default();
        while let Some(work) = source.recv().await {
            match work {
                ImportWork::File(file) => {
                    report.files += 1;
                    progress(ImportProgress::File { file });
                }
                ImportWork::Bytes { file, bytes, of } => progress(ImportProgress::Bytes { file, bytes, of }),
                ImportWork::Writes(writes) => self.write(writes, now(), &mut report).await?,
                ImportWork::Lines(file, lines) => progress(ImportProgress::Lines { file, lines }),
                ImportWork::ImportFault(bad) => {
                    report.bad_total += 1;
                    if report.bad.len() < LISTED {
                        report.bad.push(bad.clone());
                    }
                    progress(ImportProgress::ImportFault(bad));
                }
                ImportWork::Skipped(skipped) => {
                    report.skipped_total += 1;
                    if report.skipped.len() < LISTED {
                        report.skipped.push(skipped);
                    }
                }
                ImportWork::FileDone(file) => progress(ImportProgress::Done { file }),
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
        report: &mut ImportReport,
    ) -> Result<(), StoreError> {
        let kinds: Vec<_> = writes.iter().map(|write| fhir::resource_type(&write.key.kind)).collect();
        let commit = self.store().commit(writes, now).await?;
        for (kind, written) in kinds.into_iter().zip(commit.written) {
            let count =
                report.resources.entry(kind.expect("only prepared resources are written")).or_default();
            match written.effect {
                WriteEffect::Created => count.created += 1,
                WriteEffect::Replaced | WriteEffect::Deleted => count.replaced += 1,
                WriteEffect::Nothing => count.same += 1,
            }
        }
        Ok(())
    }
}
