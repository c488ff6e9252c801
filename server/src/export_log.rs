//! The export log: what clients did with their exports, in the format of bulk-data clients
//! (<https://github.com/smart-on-fhir/bulk-data-client/wiki/Bulk-Data-Export-Log-Items>), as seen from the server: one
//! JSON line an event, in `log.JOB.ndjson` for each job, in the folder that the configuration names.
//!
//! Signatures of addresses and the Patients of a kick-off are left out. Of polls those are told whose answer was another
//! than the last one's. What a client had before a restart is not known behind it, so that `export_complete`, which comes
//! when each file was sent to its end, may be missing then.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use bulk::job::Section;
use bulk::{File, Status};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::line_log::LineLog;

/// What a client was told of a job.
#[derive(Default)]
struct Told {
    since: Timestamp,
    progress: String,
    /// Files in each page of the manifest: output, deleted, error.
    pages: BTreeMap<usize, [usize; 3]>,
    is_whole: bool,
    /// Resources and bytes of the files that were sent to their end.
    sent: BTreeMap<String, (u64, u64)>,
}

/// The export log of one server.
pub struct ExportLog {
    clock: Clock,
    files_base: String,
    /// How long jobs are kept, and what was told of them with them.
    retention: SignedDuration,
    lines: LineLog,
    told: Mutex<HashMap<String, Told>>,
}

impl ExportLog {
    /// Opens the log in a folder, which is made where there is none.
    ///
    /// # Errors
    /// The folder cannot be made, or the thread that writes not started.
    pub fn open(
        folder: PathBuf,
        fhir_base: &str,
        retention: SignedDuration,
        clock: Clock,
    ) -> io::Result<Self> {
        let lines = LineLog::open(folder, "export log")?;
        let files_base = format!("{fhir_base}/bulk");
        Ok(Self { clock, files_base, retention, lines, told: Mutex::default() })
    }

    /// Writes all that waits and ends. May block.
    pub fn close(&self) {
        self.lines.close();
    }

    fn add(&self, job: &str, event: &str, detail: Value) {
        let at = fhir::instant::format(self.clock.now());
        let line = json!({ "exportId": job, "timestamp": at, "eventId": event, "eventDetail": detail });
        self.lines.add(format!("log.{job}.ndjson"), format!("{line}\n"));
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, Told>> {
        self.told.lock().expect("nobody panics while it holds the map")
    }

    /// An export began.
    pub fn kickoff(&self, job: &str, url: &str, parameters: &[(String, String)]) {
        let now = self.clock.now();
        let mut asked = Map::new();
        for (name, value) in parameters.iter().filter(|(name, _)| name != "patient") {
            let value = match asked.get(name).and_then(Value::as_str) {
                Some(before) => format!("{before},{value}"),
                None => value.clone(),
            };
            asked.insert(name.clone(), value.into());
        }
        let mut told = self.told();
        told.retain(|_, told| now.duration_since(told.since) < self.retention);
        told.insert(job.to_owned(), Told { since: now, ..Told::default() });
        let detail = json!({
            "exportUrl": url,
            "errorCode": null,
            "errorBody": null,
            "softwareName": "Trefoil",
            "softwareVersion": env!("CARGO_PKG_VERSION"),
            "softwareReleaseDate": null,
            "fhirVersion": "4.0.1",
            "requestParameters": asked,
        });
        self.add(job, "kickoff", detail);
    }

    /// A client was answered where its job stands, with this page of the manifest.
    pub fn status(&self, job: &str, page: usize, status: &Status) {
        match status {
            Status::InProgress { progress, retry_after_s, .. } => {
                let mut all = self.told();
                let told = all.entry(job.to_owned()).or_default();
                if told.progress != *progress {
                    told.progress.clone_from(progress);
                    let retry_after = retry_after_s.to_string();
                    let detail = json!({ "body": null, "xProgress": progress, "retryAfter": retry_after });
                    self.add(job, "status_progress", detail);
                }
            }
            Status::Complete { manifest, .. } => self.manifest(job, page, manifest),
            Status::Failed { by_data, reason } => {
                let code = if *by_data { 422 } else { 500 };
                self.add(job, "status_error", json!({ "body": null, "code": code, "message": reason }));
            }
            Status::TooSoon { .. } => {
                let message = "the status was asked for too often";
                self.add(job, "status_error", json!({ "body": null, "code": 429, "message": message }));
            }
            Status::Forbidden { kind } => {
                let message = format!("the token has no scope to read {kind}");
                self.add(job, "status_error", json!({ "body": null, "code": 403, "message": message }));
            }
        }
    }

    /// A page of the manifest of a complete export: told once, the last one with the sums of all.
    fn manifest(&self, job: &str, page: usize, manifest: &[u8]) {
        let mut all = self.told();
        let told = all.entry(job.to_owned()).or_default();
        if told.pages.contains_key(&page) {
            return;
        }
        let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
        let [output, deleted, error] =
            ["output", "deleted", "error"].map(|list| manifest[list].as_array().map_or(0, Vec::len));
        let time = &manifest["transactionTime"];
        if told.pages.is_empty() {
            self.add(job, "status_complete", json!({ "transactionTime": time }));
        }
        told.pages.insert(page, [output, deleted, error]);
        let detail = json!({
            "transactionTime": time,
            "outputFileCount": output,
            "deletedFileCount": deleted,
            "errorFileCount": error,
        });
        self.add(job, "status_page_complete", detail);
        if manifest.get("link").is_none() && !told.is_whole {
            told.is_whole = true;
            let [output, deleted, error] = told.sums();
            let detail = json!({
                "transactionTime": time,
                "totalOutputFileCount": output,
                "totalDeletedFileCount": deleted,
                "totalErrorFileCount": error,
                "totalManifests": told.pages.len(),
            });
            self.add(job, "manifest_complete", detail);
            self.end(job, told);
        }
    }

    /// A file is being sent.
    pub fn download_request(&self, job: &str, file: &File) {
        let listed = file.listed();
        let (item, kind) = match listed.section {
            Section::Output if file.is_organized() => ("output", None),
            Section::Output => ("output", Some(&listed.kind)),
            Section::Deleted => ("deleted", Some(&listed.kind)),
            Section::Error => ("error", Some(&listed.kind)),
        };
        let url = self.url(job, file);
        self.add(job, "download_request", json!({ "fileUrl": url, "itemType": item, "resourceType": kind }));
    }

    /// A file was sent to its end.
    pub fn download_complete(&self, job: &str, file: &File) {
        let listed = file.listed();
        let detail = json!({
            "fileUrl": self.url(job, file),
            "resourceCount": listed.count,
            "fileSize": listed.bytes,
        });
        self.add(job, "download_complete", detail);
        let mut all = self.told();
        let told = all.entry(job.to_owned()).or_default();
        let is_new = told.sent.insert(listed.name.clone(), (listed.count, listed.bytes)).is_none();
        if is_new {
            self.end(job, told);
        }
    }

    /// A file could not be sent.
    pub fn download_error(&self, job: &str, file: &File, code: u16, message: &str) {
        let url = self.url(job, file);
        let detail = json!({ "fileUrl": url, "body": null, "code": code, "message": message });
        self.add(job, "download_error", detail);
    }

    fn url(&self, job: &str, file: &File) -> String {
        format!("{}/{job}/{}", self.files_base, file.listed().name)
    }

    /// Tells the end, where each file of the manifest was sent.
    fn end(&self, job: &str, told: &Told) {
        let files: usize = told.sums().iter().sum();
        if !told.is_whole || told.sent.len() != files {
            return;
        }
        let (resources, bytes) =
            told.sent.values().fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1));
        let known = told.since != Timestamp::default();
        let duration = known.then(|| self.clock.now().duration_since(told.since).as_millis());
        let detail = json!({
            "files": files,
            "resources": resources,
            "bytes": bytes,
            "attachments": 0,
            "duration": duration.and_then(|duration| u64::try_from(duration).ok()),
        });
        self.add(job, "export_complete", detail);
    }
}

impl Told {
    /// Files in all pages: those of errors stand on each.
    fn sums(&self) -> [usize; 3] {
        self.pages.values().fold([0; 3], |sum, page| [sum[0] + page[0], sum[1] + page[1], page[2]])
    }
}
