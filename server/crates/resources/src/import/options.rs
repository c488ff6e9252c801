//! The options of an import, its work, and what is reported.

use std::collections::BTreeMap;

use store::VersionWrite;

use crate::{PreparedResource, ResourceRules};

/// Options of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOptions {
    /// Rules for one resource. The default limit is 256 MiB, because terminology resources may be large.
    pub rules: ResourceRules,
    /// Maximum length of a Bundle in bytes. A Bundle is held in memory; the default is 512 MiB.
    pub bundle_bytes: usize,
    /// Maximum length of a line of NDJSON in bytes. A line is held in memory; the default is 64 MiB.
    pub line_bytes: usize,
    /// Number of NDJSON lines between two progress events.
    pub lines: u64,
    /// `true` to store every Bundle as a resource. Otherwise the requests of batch and transaction Bundles
    /// are applied, and the resources of collections and search results are stored.
    pub keep_bundles: bool,
    /// `true` to replace stored versions that have a later source time
    /// ([`store::Version::source_time`]). Otherwise they are kept.
    pub overwrite: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        let rules = ResourceRules { bytes: 256 << 20, ..ResourceRules::default() };
        Self {
            rules,
            bundle_bytes: 512 << 20,
            line_bytes: 64 << 20,
            lines: 1_000,
            keep_bundles: false,
            overwrite: false,
        }
    }
}

/// Resources of a file that were imported although they have defects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IrregularResources {
    /// Number of resources.
    pub total: u64,
    /// The first of them with its line, if the file has lines, and its first defect.
    pub first: String,
}

impl IrregularResources {
    /// Adds a resource, if it has defects.
    pub(super) fn add(&mut self, line: Option<u64>, prepared: &PreparedResource) {
        let Some(first) = prepared.defects.first() else { return };
        self.total += 1;
        if self.total == 1 {
            let line = line.map(|line| format!("line {line}, ")).unwrap_or_default();
            self.first = format!("{line}{}/{}: {first}", prepared.kind, prepared.id);
        }
    }

    /// Adds resources that were read after these.
    pub(super) fn extend(&mut self, later: Self) {
        self.total += later.total;
        if self.first.is_empty() {
            self.first = later.first;
        }
    }
}

/// An input that could not be imported, or was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFault {
    /// Path of the file. Within an archive, `archive:path`.
    pub file: String,
    /// Number of the line, counted from 1, if the file is NDJSON.
    pub line: Option<u64>,
    /// Reason why the input was not imported.
    pub reason: String,
}

/// A message of the reader thread, in the order of the files.
pub(super) enum ImportWork {
    File(String),
    Bytes {
        file: String,
        bytes: u64,
        of: u64,
    },
    /// Writes for one commit.
    Writes(Vec<VersionWrite>),
    /// A Bundle whose requests depend on searches or versions.
    Requests {
        file: String,
        line: Option<u64>,
        bundle: Vec<u8>,
    },
    /// Resources of the next writes with defects, by file.
    Irregular(BTreeMap<String, IrregularResources>),
    /// Resources of the next writes with numbers that most readers round, such as `Observation/o`.
    Imprecise(Vec<String>),
    Lines(String, u64),
    ImportFault(ImportFault),
    Skipped(ImportFault),
    FileDone(String),
}
