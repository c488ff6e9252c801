//! Import of files: NDJSON, single resources, Bundles, FHIR packages and folders. Files may be compressed
//! with gzip.
//!
//! | module | contents |
//! |---|---|
//! | `files` | finds files and reads them in pieces of bounded size |
//! | `reader` | converts files to writes, on a separate thread |
//! | `options` | the options of an import, its work, and its reports |
//! | here | commits, counts and reports |
//!
//! NDJSON is imported line by line: an invalid line is reported, and the other lines are imported. A resource
//! or a Bundle (of type collection, searchset, transaction or batch) is imported completely or not at all,
//! and so is each resource of a package. Unchanged resources are not written again, so an interrupted import
//! can be repeated. Only resources without an id are then created a second time.

mod files;
mod options;
mod reader;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use store::{StoreError, VersionWrite, Versions, WriteEffect};
use tokio::sync::mpsc;

use self::options::ImportWork;
pub use self::options::{ImportFault, ImportOptions};
use self::reader::LineReader;
use crate::Resources;

/// Maximum number of invalid and skipped inputs in the report. [`ImportProgress`] events report all of them.
const LISTED: usize = 1_000;
/// Maximum number of prepared batches that wait for the store, which limits the memory of an import.
const WAITING: usize = 2;

/// Progress event of a running import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportProgress {
    /// A file is being read.
    File {
        /// Path of the file. Within an archive, the path of the archive.
        file: String,
    },
    /// Bytes were read. Their resources may not be on the disk yet.
    Bytes {
        /// The file that is being read.
        file: String,
        /// Number of bytes read from all files so far, before decompression.
        bytes: u64,
        /// Size in bytes of all files to import.
        of: u64,
    },
    /// All lines up to this one were processed, and their resources are on the disk. Emitted every
    /// [`ImportOptions::lines`] lines and at the end of the file.
    Lines {
        /// Path of the file.
        file: String,
        /// Number of lines so far, including invalid and empty ones.
        lines: u64,
    },
    /// An input could not be imported.
    ImportFault(ImportFault),
    /// The file was processed completely, and its resources are on the disk.
    Done {
        /// Path of the file.
        file: String,
    },
}

/// Numbers of imported resources of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportCount {
    /// Number of new resources.
    pub created: u64,
    /// Number of new versions of existing resources.
    pub replaced: u64,
    /// Number of resources that were already stored with the same content.
    pub same: u64,
}

impl ImportCount {
    /// The sum of the three numbers.
    pub fn total(&self) -> u64 {
        self.created + self.replaced + self.same
    }
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// Number of files that were read.
    pub files: u64,
    /// Numbers of resources by resource type.
    pub resources: BTreeMap<&'static str, ImportCount>,
    /// Number of inputs that could not be imported.
    pub bad_total: u64,
    /// The first 1,000 inputs that could not be imported.
    pub bad: Vec<ImportFault>,
    /// Number of files without resources.
    pub skipped_total: u64,
    /// The first 1,000 files without resources.
    pub skipped: Vec<ImportFault>,
    /// Number of imported resources with a number that a 64-bit floating-point number cannot hold.
    pub imprecise_total: u64,
    /// The first of these resources, such as `Observation/o`.
    pub first_imprecise: Option<String>,
}

impl ImportReport {
    /// The number of imported resources, including unchanged ones.
    pub fn total(&self) -> u64 {
        self.resources.values().map(ImportCount::total).sum()
    }
}

impl Resources {
    /// Imports files and folders in the given order. The files of a folder are imported in the order of their
    /// names.
    ///
    /// `new_id` creates ids for resources without one. `now` returns the time of each commit. Invalid input
    /// is listed in the report and is not an error.
    ///
    /// # Errors
    /// Returns an error if the store fails. Resources that were acknowledged before are on the disk.
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
        // Files are read on a blocking thread. The bounded channel keeps it from running ahead of the writes.
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
                ImportWork::Imprecise(resources) => {
                    report.imprecise_total += resources.len() as u64;
                    report.first_imprecise = report.first_imprecise.or(resources.into_iter().next());
                }
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
            let count = report
                .resources
                .entry(kind.expect("only prepared resources, which have a known type, are written"))
                .or_default();
            match written.effect {
                WriteEffect::Created => count.created += 1,
                WriteEffect::Replaced | WriteEffect::Deleted => count.replaced += 1,
                WriteEffect::Nothing => count.same += 1,
            }
        }
        Ok(())
    }
}
