//! The record of an export, stored as `job.json` in its folder.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{ExportManifest, KickOff};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExportJob {
    /// Base address of FHIR R4 of the server.
    pub fhir_base: String,
    pub request: KickOff,
    pub started_at: Timestamp,
    /// Address of the status; `None` until the server has accepted the request.
    pub status_url: Option<String>,
    pub phase: ExportPhase,
    /// Time of the snapshot, as in the manifest.
    pub transaction_time: Option<String>,
    /// Whether downloads need the access token.
    pub requires_access_token: bool,
    /// Files of all pages of the manifest: output, then deleted, then error, page by page.
    pub files: Vec<ExportFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportPhase {
    /// The kick-off request was not answered.
    Starting,
    /// The server is running the export.
    Running,
    /// The manifest was received; some files are not downloaded.
    Downloading,
    /// All files are downloaded and their counts are those of the manifest.
    Complete,
    /// The server reported a failure; the value is the message.
    Failed(String),
    /// The export was cancelled, or its files were deleted on the server.
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileList {
    Output,
    /// Files with Bundles that name deleted resources.
    Deleted,
    Error,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExportFile {
    pub list: FileList,
    /// Type of the resources in the file.
    #[serde(rename = "type")]
    pub kind: String,
    /// Address of the file. With some servers, it contains a signature.
    pub url: String,
    /// Name in the folder of the export. Files of the lists `deleted` and `error` are in subfolders.
    pub name: String,
    /// Number of resources according to the manifest.
    pub count: Option<u64>,
}

/// Progress of the download of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileProgress {
    /// Bytes on disk.
    pub bytes: u64,
    pub resources: u64,
    pub status: FileStatus,
}

/// Status of the download of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileStatus {
    #[default]
    Waiting,
    Downloading,
    /// An attempt failed for this reason; the download is resumed.
    Retrying(String),
    Done,
    /// The download failed for this reason and is not retried.
    Failed(String),
}

impl ExportJob {
    /// The record of an export that was not started yet.
    pub fn new(fhir_base: &str, request: KickOff, now: Timestamp) -> Self {
        Self {
            fhir_base: fhir_base.to_owned(),
            request,
            started_at: now,
            status_url: None,
            phase: ExportPhase::Starting,
            transaction_time: None,
            requires_access_token: true,
            files: Vec::new(),
        }
    }

    /// The record of an export that another program started.
    pub fn started_elsewhere(fhir_base: &str, status_url: &str, now: Timestamp) -> Self {
        let status_url = Some(status_url.to_owned());
        Self { status_url, phase: ExportPhase::Running, ..Self::new(fhir_base, KickOff::default(), now) }
    }

    /// The name of a new folder for the export, which sorts by time: `20240501T120000Z-Group-g1`.
    pub fn folder_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let scope: String = self.scope().chars().map(plain).take(64).collect();
        format!("{}-{scope}", self.started_at.strftime("%Y%m%dT%H%M%SZ"))
    }

    /// Appends the files of one page of the manifest.
    pub fn add_page(&mut self, manifest: &ExportManifest) {
        let mut names = FileNames::default();
        for file in &self.files {
            names.reserve(file);
        }
        let lists = [
            (FileList::Output, &manifest.output),
            (FileList::Deleted, &manifest.deleted),
            (FileList::Error, &manifest.error),
        ];
        for (list, files) in lists {
            self.files.extend(files.iter().map(|file| ExportFile {
                list,
                kind: file.kind.clone(),
                url: file.url.clone(),
                name: names.next(list, &file.kind),
                count: file.count,
            }));
        }
        self.transaction_time = Some(manifest.transaction_time.clone());
        self.requires_access_token = manifest.requires_access_token;
    }

    /// Returns whether there is something left to do that does not need a new export.
    pub fn can_resume(&self) -> bool {
        !matches!(self.phase, ExportPhase::Complete | ExportPhase::Deleted) && self.status_url.is_some()
    }

    /// A short description of what is exported, such as `Group/g1`.
    pub fn scope(&self) -> String {
        self.request.scope()
    }
}

impl ExportPhase {
    /// The phase in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Downloading => "downloading",
            Self::Complete => "complete",
            Self::Failed(_) => "failed",
            Self::Deleted => "deleted",
        }
    }
}

impl FileList {
    /// The subfolder of the files of this list.
    fn subfolder(self) -> &'static str {
        match self {
            Self::Output => "",
            Self::Deleted => "deleted/",
            Self::Error => "error/",
        }
    }
}

/// Assigns file names: the type, with a number from the second file of a type on. Only letters and digits of
/// the server are used in a name.
#[derive(Default)]
struct FileNames {
    used: BTreeMap<String, usize>,
}

impl FileNames {
    fn reserve(&mut self, file: &ExportFile) {
        *self.used.entry(Self::stem(file.list, &file.kind).to_ascii_lowercase()).or_default() += 1;
    }

    fn next(&mut self, list: FileList, kind: &str) -> String {
        let stem = Self::stem(list, kind);
        // Some file systems ignore case, so that such names would be one file.
        let count = self.used.entry(stem.to_ascii_lowercase()).or_default();
        *count += 1;
        if *count == 1 { format!("{stem}.ndjson") } else { format!("{stem}.{count}.ndjson") }
    }

    fn stem(list: FileList, kind: &str) -> String {
        let kind: String = kind.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        format!("{}{}", list.subfolder(), if kind.is_empty() { "resources" } else { &kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::OutputFile;

    #[test]
    fn names_are_unique_and_stay_in_the_folder() {
        let file = |kind: &str| OutputFile { kind: kind.to_owned(), url: String::new(), count: None };
        let manifest = ExportManifest {
            transaction_time: "2024-05-01T12:00:00Z".to_owned(),
            requires_access_token: true,
            output: vec![file("Patient"), file("patient"), file("../../etc/passwd"), file("")],
            deleted: vec![file("Bundle")],
            error: vec![file("OperationOutcome")],
            link: vec![],
        };
        let mut job = ExportJob::new("https://t.example", KickOff::default(), Timestamp::UNIX_EPOCH);
        job.add_page(&manifest);
        job.add_page(&ExportManifest { output: vec![file("Patient")], ..manifest });
        let names: Vec<_> = job.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "Patient.ndjson",
                "patient.2.ndjson",
                "etcpasswd.ndjson",
                "resources.ndjson",
                "deleted/Bundle.ndjson",
                "error/OperationOutcome.ndjson",
                "Patient.3.ndjson",
                "deleted/Bundle.2.ndjson",
                "error/OperationOutcome.2.ndjson",
            ]
        );
    }
}
