//! The export log: what clients did with their exports, in the format of bulk-data clients
//! (<https://github.com/smart-on-fhir/bulk-data-client/wiki/Bulk-Data-Export-Log-Items>), as seen from the server: one
//! JSON line an event, in `log.JOB.ndjson` for each job, in the folder that the configuration names.
//!
//! Signatures of addresses and the Patients of a kick-off are left out. Of polls those are told whose answer was another
//! than the last one's. What a client was told and has stands in the log alone: a server that starts reads it there, and
//! nobody is answered a manifest, or sent the end of a file, before the log holds it. So `export_complete` comes once,
//! whenever the server was killed.

mod told;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use bulk::job::Section;
use bulk::{File, Status};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::line_log::{Line, LineLog};
use told::{Page, Told};

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
    /// Opens the log in a folder, which is made where there is none, and goes on where it ends.
    ///
    /// # Errors
    /// The folder cannot be made, a log in it not read, or the thread that writes not started.
    pub fn open(
        folder: PathBuf,
        fhir_base: &str,
        retention: SignedDuration,
        clock: Clock,
    ) -> io::Result<Self> {
        let lines = LineLog::open(folder.clone(), "export log", false)?;
        let oldest = clock.now().saturating_sub(retention).unwrap_or(Timestamp::MIN);
        let told = read(&folder, oldest.into())?;
        let jobs: Vec<String> = told.keys().cloned().collect();
        let files_base = format!("{fhir_base}/bulk");
        let log = Self { clock, files_base, retention, lines, told: Mutex::new(told) };
        for job in jobs {
            log.tell(&job, |_| None);
        }
        Ok(log)
    }

    /// Writes all that waits and ends. May block.
    pub fn close(&self) {
        self.lines.close();
    }

    /// Adds the event that follows from what was told before, if any, and the end of the export where that is due then;
    /// says whether there was one.
    fn tell(&self, job: &str, event: impl FnOnce(&Told) -> Option<(&'static str, Value)>) -> bool {
        let mut all = self.told.lock().expect("nobody panics while it holds the map");
        let told = all.entry(job.to_owned()).or_default();
        let event = event(told);
        let is_there = event.is_some();
        let now = self.clock.now();
        let add = |told: &mut Told, event: &str, detail: Value| {
            told.hear(now, event, &detail);
            let at = fhir::instant::format(now);
            let line = json!({ "exportId": job, "timestamp": at, "eventId": event, "eventDetail": detail });
            self.lines.add(vec![Line { file: file_of(job), text: format!("{line}\n") }]);
        };
        if let Some((event, detail)) = event {
            add(told, event, detail);
        }
        if let Some(detail) = told.end(now) {
            add(told, "export_complete", detail);
        }
        is_there
    }

    /// Waits until the log holds what was told. If it cannot be written, the answer is given nevertheless.
    async fn written(&self) {
        self.lines.write(Vec::new()).await;
    }

    /// An export began.
    pub async fn kickoff(&self, job: &str, url: &str, parameters: &[(String, String)]) {
        let now = self.clock.now();
        let is_kept = |told: &Told| now.duration_since(told.heard) < self.retention;
        self.told.lock().expect("nobody panics while it holds the map").retain(|_, told| is_kept(told));
        let mut asked = Map::new();
        for (name, value) in parameters.iter().filter(|(name, _)| name != "patient") {
            let value = match asked.get(name).and_then(Value::as_str) {
                Some(before) => format!("{before},{value}"),
                None => value.clone(),
            };
            asked.insert(name.clone(), value.into());
        }
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
        self.tell(job, |_| Some(("kickoff", detail)));
        self.written().await;
    }

    /// A client is about to be answered where its job stands, with this page of the manifest.
    pub async fn status(&self, job: &str, page: usize, status: &Status) {
        let error = |code: u16, message: &str| {
            let detail = json!({ "body": null, "code": code, "message": message });
            self.tell(job, |_| Some(("status_error", detail)))
        };
        let is_lasting = match status {
            Status::InProgress { progress, retry_after_s, manifest } => {
                self.tell(job, |told| {
                    let retry_after = retry_after_s.to_string();
                    let detail = json!({ "body": null, "xProgress": progress, "retryAfter": retry_after });
                    (told.progress != *progress).then_some(("status_progress", detail))
                });
                manifest.as_ref().is_some_and(|manifest| self.page(job, page, &read_page(manifest)))
            }
            Status::Complete { manifest, .. } => self.manifest(job, page, &read_page(manifest)),
            Status::Failed { by_data, reason } => error(if *by_data { 422 } else { 500 }, reason),
            Status::TooSoon { .. } => {
                error(429, "the status was asked for too often");
                false
            }
            Status::Forbidden { kind } => {
                error(403, &format!("the token has no scope to read {kind}"));
                false
            }
        };
        if is_lasting {
            self.written().await;
        }
    }

    /// A page of the manifest: told once, in their order.
    fn page(&self, job: &str, number: usize, manifest: &Value) -> bool {
        let page = Page::of(manifest);
        let detail = json!({
            "transactionTime": manifest["transactionTime"],
            "outputFileCount": page.output,
            "deletedFileCount": page.deleted,
            "errorFileCount": page.error,
        });
        self.tell(job, |told| (told.pages.len() + 1 == number).then_some(("status_page_complete", detail)))
    }

    /// A page of the manifest of a complete export; with the last one come the sums of all.
    fn manifest(&self, job: &str, number: usize, manifest: &Value) -> bool {
        let time = &manifest["transactionTime"];
        let is_last = manifest.get("link").is_none();
        let complete = json!({ "transactionTime": time });
        let is_first = self.tell(job, |told| (!told.is_complete).then_some(("status_complete", complete)));
        let is_new = self.page(job, number, manifest);
        let is_whole = self.tell(job, |told| {
            let Page { output, deleted, error } = told.sum();
            let detail = json!({
                "transactionTime": time,
                "totalOutputFileCount": output,
                "totalDeletedFileCount": deleted,
                "totalErrorFileCount": error,
                "totalManifests": told.pages.len(),
            });
            let is_due = is_last && told.pages.len() == number && !told.is_whole;
            is_due.then_some(("manifest_complete", detail))
        });
        is_first || is_new || is_whole
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
        let detail = json!({ "fileUrl": self.url(job, file), "itemType": item, "resourceType": kind });
        self.tell(job, |_| Some(("download_request", detail)));
    }

    /// A file is sent to its end as soon as this returns.
    pub async fn download_complete(&self, job: &str, file: &File) {
        let listed = file.listed();
        let detail = json!({
            "fileUrl": self.url(job, file),
            "resourceCount": listed.count,
            "fileSize": listed.bytes,
        });
        self.tell(job, |_| Some(("download_complete", detail)));
        self.written().await;
    }

    /// A file could not be sent.
    pub fn download_error(&self, job: &str, file: &File, code: u16, message: &str) {
        let url = self.url(job, file);
        let detail = json!({ "fileUrl": url, "body": null, "code": code, "message": message });
        self.tell(job, |_| Some(("download_error", detail)));
    }

    fn url(&self, job: &str, file: &File) -> String {
        format!("{}/{job}/{}", self.files_base, file.listed().name)
    }
}

/// The name of the log of a job.
fn file_of(job: &str) -> String {
    format!("log.{job}.ndjson")
}

fn read_page(manifest: &[u8]) -> Value {
    serde_json::from_slice(manifest).unwrap_or_default()
}

/// What the logs in a folder tell that were written to since then: older jobs are gone.
fn read(folder: &Path, since: SystemTime) -> io::Result<HashMap<String, Told>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let job = name.to_str().and_then(|name| name.strip_prefix("log.")?.strip_suffix(".ndjson"));
        let Some(job) = job else { continue };
        if entry.metadata()?.modified()? >= since {
            all.insert(job.to_owned(), Told::read(io::BufReader::new(fs::File::open(entry.path())?))?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the events that a log holds once these statuses were told, each with its page.
    async fn told(statuses: &[(usize, Status)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (page, status) in statuses {
            // Each by a server of its own.
            let (folder, retention) = (dir.path().to_owned(), SignedDuration::MAX);
            let log =
                ExportLog::open(folder, "https://s.example/fhir/R4", retention, Clock::system()).unwrap();
            log.status("j", *page, status).await;
        }
        let text = fs::read_to_string(dir.path().join("log.j.ndjson")).unwrap();
        let event =
            |line| serde_json::from_str::<Value>(line).unwrap()["eventId"].as_str().unwrap().to_owned();
        text.lines().map(event).collect()
    }

    #[tokio::test]
    async fn pages_are_told_once_in_their_order() {
        let page = |list: &str, link: Option<&str>| {
            let mut page = json!({ "transactionTime": "2026-11-21T08:00:00.000Z", list: [{}] });
            if let Some(link) = link {
                page["link"] = json!([{ "relation": "next", "url": link }]);
            }
            page.to_string().into()
        };
        let running = |manifest| Status::InProgress { progress: "7%".to_owned(), retry_after_s: 1, manifest };
        let complete = |manifest| Status::Complete { manifest, expires: Timestamp::MAX };
        let (first, last) = (page("output", Some("x?page=2")), page("deleted", None));
        let statuses = [
            (1, running(None)),
            (1, running(Some(page("output", None)))),
            (1, running(Some(first.clone()))),
            (2, complete(last.clone())),
            (1, complete(first)),
            (2, complete(last)),
        ];
        assert_eq!(
            told(&statuses).await,
            [
                "status_progress",
                "status_page_complete",
                "status_complete",
                "status_page_complete",
                "manifest_complete"
            ]
        );
        let failed = Status::Failed { by_data: true, reason: "no".to_owned() };
        assert_eq!(told(&[(1, failed)]).await, ["status_error"]);
    }
}
