//! Import of files: NDJSON, single resources, Bundles, FHIR packages and folders. Files may be compressed
//! with gzip.
//!
//! | module | contents |
//! |---|---|
//! | `files`, `gzip_members` | finds files and reads them in pieces of bounded size |
//! | `manifest` | the files of a bulk export, by its manifest |
//! | `reader`, `bundle_requests` | converts files to writes, on a separate thread |
//! | `pending_references` | conditional references, resolved before and after the write |
//! | `options` | the options of an import, its work, and its reports |
//! | here | commits, counts and reports |
//!
//! NDJSON is imported line by line: an invalid line is reported, and the other lines are imported. A single
//! resource or Bundle is imported completely or not at all. The requests of a batch or transaction are
//! applied, the resources of a collection or of search results are stored, and so are the files that a
//! manifest lists as output; its deletions are applied. Unchanged resources are not written again, so an
//! interrupted import can be repeated. Only resources without an id are then created a second time.
//!
//! A version keeps the `meta.lastUpdated` of its file as source time. A resource of an older file does not
//! replace it, in whatever order files are imported.

mod bundle_requests;
mod files;
mod gzip_members;
mod manifest;
mod options;
mod pending_references;
mod reader;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use store::{StoreError, VersionWrite, Versions as _, WriteEffect};
use tokio::sync::mpsc;

use self::options::ImportWork;
pub use self::options::{ImportFault, ImportOptions, IrregularResources};
pub use self::pending_references::UnresolvedReferences;
use self::pending_references::{KnownMatches, PendingReferences};
use self::reader::LineReader;
use crate::request::transaction::{ImportRules, PlanRules};
use crate::{DeleteResult, EntryResult, ResourceError, ResourceRules, Resources};

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
    /// Number of resources that were already stored with the same content, or already deleted.
    pub same: u64,
    /// Number of resources that were deleted.
    pub deleted: u64,
    /// Number of versions in the files that are older than the stored one, which was kept.
    pub outdated: u64,
}

impl ImportCount {
    /// The sum of the numbers.
    pub fn total(&self) -> u64 {
        self.created + self.replaced + self.same + self.deleted + self.outdated
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
    /// Resources that were imported although they have defects, by file: the first 1,000 files.
    pub irregular: BTreeMap<String, IrregularResources>,
    /// Number of resources that were imported although they have defects.
    pub irregular_total: u64,
    /// Number of imported resources with a number that a 64-bit floating-point number cannot hold.
    pub imprecise_total: u64,
    /// The first of these resources, such as `Observation/o`.
    pub first_imprecise: Option<String>,
    /// Conditional references that were not resolved.
    pub unresolved: UnresolvedReferences,
    /// `true` if the import was stopped before it had read everything.
    pub is_stopped: bool,
}

impl ImportReport {
    /// The number of imported resources, including unchanged ones.
    pub fn total(&self) -> u64 {
        self.resources.values().map(ImportCount::total).sum()
    }
}

impl Resources {
    /// Imports files and folders in the given order. The files of a folder are imported in the order of their
    /// names, but those to whose resources others refer first. If `stop` completes, no more is read;
    /// everything in the report is on the disk.
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
        new_id: impl FnMut() -> String + Clone + Send + 'static,
        mut progress: impl FnMut(ImportProgress),
        now: impl Fn() -> Timestamp,
        stop: impl Future<Output = ()>,
    ) -> Result<ImportReport, StoreError> {
        let (sink, mut source) = mpsc::channel(WAITING);
        let base = self.fhir_base().to_owned();
        let matches = KnownMatches::default();
        let reader = LineReader::new(options, base, new_id.clone(), Arc::clone(&matches), sink);
        // Files are read on a blocking thread. The bounded channel keeps it from running ahead of the writes.
        let reading = tokio::task::spawn_blocking(move || reader.run(&paths));
        let mut run = ImportRun {
            resources: self,
            options,
            new_id,
            references: PendingReferences::new(self, options.rules, matches),
            report: ImportReport::default(),
        };
        let mut stop = std::pin::pin!(stop);
        loop {
            let work = tokio::select! {
                biased;
                () = &mut stop, if !run.report.is_stopped => {
                    run.report.is_stopped = true;
                    // The reader stops at its next message; what it has sent is still written.
                    source.close();
                    continue;
                }
                work = source.recv() => work,
            };
            let Some(work) = work else { break };
            run.perform(work, now()).await?.into_iter().for_each(&mut progress);
        }
        let task_error = |error: tokio::task::JoinError| StoreError::Engine {
            action: "read the files to import",
            reason: error.to_string(),
        };
        reading.await.map_err(task_error)?;
        let ImportRun { references, mut report, .. } = run;
        report.unresolved = references.finish(now).await.map_err(store_error)?;
        Ok(report)
    }
}

/// The errors of the store in an import. Prepared resources have no others.
fn store_error(error: ResourceError) -> StoreError {
    match error {
        ResourceError::Store(error) => error,
        other => StoreError::Engine { action: "write imported resources", reason: other.to_string() },
    }
}

/// An import while its files are read.
struct ImportRun<'a, N> {
    resources: &'a Resources,
    options: ImportOptions,
    new_id: N,
    references: PendingReferences<'a>,
    report: ImportReport,
}

impl<N: FnMut() -> String> ImportRun<'_, N> {
    /// Performs what the reader has sent. Returns the events that are reported.
    async fn perform(&mut self, work: ImportWork, now: Timestamp) -> Result<Vec<ImportProgress>, StoreError> {
        match work {
            ImportWork::File(file) => {
                self.report.files += 1;
                return Ok(vec![ImportProgress::File { file }]);
            }
            ImportWork::Bytes { file, bytes, of } => {
                return Ok(vec![ImportProgress::Bytes { file, bytes, of }]);
            }
            ImportWork::Lines(file, lines) => return Ok(vec![ImportProgress::Lines { file, lines }]),
            ImportWork::FileDone(file) => return Ok(vec![ImportProgress::Done { file }]),
            ImportWork::ImportFault(bad) => return Ok(vec![self.add_fault(bad)]),
            ImportWork::Writes(writes) => self.write(writes, now).await?,
            ImportWork::Irregular(files) => files.into_iter().for_each(|(file, irregular)| {
                self.add_irregular(file, irregular);
            }),
            ImportWork::Requests { file, line, bundle } => {
                let faults = self.apply(&file, line, &bundle, now).await?.into_iter();
                let faults = faults.map(|reason| ImportFault { file: file.clone(), line, reason });
                return Ok(faults.map(|fault| self.add_fault(fault)).collect());
            }
            ImportWork::Imprecise(resources) => {
                self.report.imprecise_total += resources.len() as u64;
                let first = self.report.first_imprecise.take();
                self.report.first_imprecise = first.or(resources.into_iter().next());
            }
            ImportWork::Skipped(skipped) => {
                self.report.skipped_total += 1;
                if self.report.skipped.len() < LISTED {
                    self.report.skipped.push(skipped);
                }
            }
        }
        Ok(Vec::new())
    }

    fn add_fault(&mut self, bad: ImportFault) -> ImportProgress {
        self.report.bad_total += 1;
        if self.report.bad.len() < LISTED {
            self.report.bad.push(bad.clone());
        }
        ImportProgress::ImportFault(bad)
    }

    fn add_irregular(&mut self, file: String, irregular: IrregularResources) {
        self.report.irregular_total += irregular.total;
        let is_listed = self.report.irregular.len() < LISTED || self.report.irregular.contains_key(&file);
        if is_listed && irregular.total > 0 {
            self.report.irregular.entry(file).or_default().extend(irregular);
        }
    }

    async fn write(&mut self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<(), StoreError> {
        let mut resolved = Vec::with_capacity(writes.len());
        for write in writes {
            resolved.push(self.references.resolve(write, now).await.map_err(store_error)?);
        }
        let kinds: Vec<_> = resolved.iter().map(|write| fhir::resource_type(&write.key.kind)).collect();
        let commit = self.resources.store().commit(resolved, now).await?;
        for (kind, written) in kinds.into_iter().zip(commit.written) {
            let kind = kind.expect("only prepared resources, which have a known type, are written");
            self.references.stored(kind);
            let count = self.report.resources.entry(kind).or_default();
            match written.effect {
                WriteEffect::Created => count.created += 1,
                WriteEffect::Replaced => count.replaced += 1,
                WriteEffect::Deleted => count.deleted += 1,
                WriteEffect::Nothing => count.same += 1,
                WriteEffect::Outdated => count.outdated += 1,
            }
        }
        Ok(())
    }

    /// Applies a Bundle whose requests depend on the store. Returns the reasons why requests, or the whole
    /// transaction, were not applied.
    async fn apply(
        &mut self,
        file: &str,
        line: Option<u64>,
        bundle: &[u8],
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let resource = ResourceRules { bytes: self.options.bundle_bytes, ..self.options.rules };
        let rules = PlanRules { resource, import: Some(ImportRules { overwrite: self.options.overwrite }) };
        let plan = match self.resources.plan_by(rules, bundle, &mut self.new_id, now) {
            Ok(plan) => plan,
            Err(error) => return Ok(vec![error.to_string()]),
        };
        let mut irregular = IrregularResources::default();
        plan.irregular().for_each(|prepared| irregular.add(line, prepared));
        self.add_irregular(file.to_owned(), irregular);
        let operations = plan.operations.iter().map(|operation| operation.position);
        let positions = operations.chain(plan.searches.iter().map(|search| search.position));
        let mut faults: Vec<_> = positions
            .map(|entry| format!("Bundle.entry[{entry}]: an import applies only DELETE, POST and PUT"))
            .collect();
        let answers = match self.resources.carry_out(plan, now).await {
            Ok(answers) => answers,
            Err(ResourceError::Store(error)) => return Err(error),
            Err(error) => return Ok(vec![error.to_string()]),
        };
        for result in answers {
            let (kind, count): (_, fn(&mut ImportCount) -> &mut u64) = match result {
                Ok(EntryResult::Created(stored)) => (stored.kind, |count| &mut count.created),
                Ok(EntryResult::Updated(stored)) => (stored.kind, |count| &mut count.replaced),
                Ok(EntryResult::Found(stored)) => (stored.kind, |count| &mut count.same),
                Ok(EntryResult::Outdated(kind)) => (kind, |count| &mut count.outdated),
                Ok(EntryResult::Deleted(DeleteResult::Deleted(gone))) => {
                    (gone.kind, |count| &mut count.deleted)
                }
                // A file that is imported again deletes nothing a second time.
                Ok(EntryResult::Deleted(DeleteResult::WasAbsent)) => continue,
                Ok(EntryResult::Read(_)) => {
                    faults.push("an import applies only DELETE, POST and PUT".to_owned());
                    continue;
                }
                Err(ResourceError::Store(error)) => return Err(error),
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            self.references.stored(kind);
            *count(self.report.resources.entry(kind).or_default()) += 1;
        }
        Ok(faults)
    }
}
