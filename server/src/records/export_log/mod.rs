//! The export log: the use that clients make of their exports, in the format of bulk data clients
//! (<https://github.com/smart-on-fhir/bulk-data-client/wiki/Bulk-Data-Export-Log-Items>), as seen from the
//! server. It has one JSON line per event, in `log.JOB.ndjson` for each job, in the configured folder.
//!
//! Each line also has the name of the server as `node`. Signatures of URLs and the Patients of a kick-off are
//! left out. A status request is recorded only if its response differs from the previous one. The state of a
//! job is stored only in its log, and a starting server reads it there. A manifest, or the end of a file, is
//! not sent before the log contains it. Therefore `export_complete` is written exactly once, even if the
//! server is killed. Servers on one database decide in the ledger which of them writes it.

mod job_log;
mod shared_progress;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use bulk::job::ManifestSection;
use bulk::{ExportFile, JobStatus};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use store::Store;

use crate::clock::Clock;
use crate::records::append_log::{AppendLog, LogLine};
use job_log::{JobLogState, ManifestPage};

/// The export log of one server.
pub struct ExportLog {
    clock: Clock,
    /// Name of the server among several ones.
    node: String,
    files_base: String,
    /// Retention of jobs, and of their state in this log.
    retention: SignedDuration,
    lines: AppendLog,
    states: Mutex<HashMap<String, JobLogState>>,
    /// The store, if other servers share it.
    shared: Option<Store>,
    /// The jobs of which the record in the shared store is not up to date.
    unshared: Mutex<BTreeSet<String>>,
    /// Name of this log in the shared store.
    id: String,
}

impl ExportLog {
    /// Opens the log in a folder, which is created if it is missing, and reads the state of all jobs from it.
    ///
    /// # Errors
    /// An error if the folder cannot be created, a log not read, or the thread not started.
    pub fn open(
        folder: PathBuf,
        fhir_base: &str,
        node: &str,
        retention: SignedDuration,
        clock: Clock,
        store: &Store,
    ) -> io::Result<Self> {
        let lines = AppendLog::open(folder.clone(), "export log", false, None)?;
        let oldest = clock.now().saturating_sub(retention).unwrap_or(Timestamp::MIN);
        let states = read_logs(&folder, oldest.into())?;
        let files_base = format!("{fhir_base}/bulk");
        // Servers on one machine may have the same name.
        let id = format!("{node} {}", folder.canonicalize()?.display());
        let unfinished = states.iter().filter(|(_, state)| !state.is_over);
        let unfinished: BTreeSet<String> = unfinished.map(|(job, _)| job.clone()).collect();
        let log = Self {
            clock,
            node: node.to_owned(),
            files_base,
            retention,
            lines,
            states: Mutex::new(states),
            shared: store.is_shared().then(|| store.clone()),
            unshared: Mutex::new(unfinished.clone()),
            id,
        };
        for job in unfinished {
            log.record(&job, |_| None);
        }
        Ok(log)
    }

    /// Updates the records in the shared store that could not be updated before.
    pub async fn share_all(&self) {
        let unshared = self.unshared.lock().expect("the lock of the jobs is not poisoned").clone();
        for job in unshared {
            self.share(&job).await;
        }
    }

    /// Writes all queued lines and ends. May block.
    pub fn close(&self) {
        self.lines.close();
    }

    /// Records the event that `event` derives from the state of the job, if any, and the completion of the
    /// export if it is due. Returns whether `event` returned an event.
    fn record(&self, job: &str, event: impl FnOnce(&JobLogState) -> Option<(&'static str, Value)>) -> bool {
        let mut all = self.states.lock().expect("the lock of the jobs is not poisoned");
        let state = all.entry(job.to_owned()).or_default();
        let event = event(state);
        let is_there = event.is_some();
        let now = self.clock.now();
        let add = |state: &mut JobLogState, event: &str, detail: Value| {
            state.apply_event(now, event, &detail);
            let time = fhir::instant::format(now);
            let line = json!({ "exportId": job, "timestamp": time, "eventId": event, "eventDetail": detail, "node": self.node });
            self.lines.add(vec![LogLine { file: log_file_name(job), text: format!("{line}\n") }]);
        };
        if let Some((event, detail)) = event {
            add(state, event, detail);
        }
        if self.shared.is_some() {
            self.unshared.lock().expect("the lock of the jobs is not poisoned").insert(job.to_owned());
        } else if let Some(detail) = state.completion(now) {
            add(state, "export_complete", detail);
        }
        is_there
    }

    /// Adds what this server has sent to the record in the shared store, and logs `export_complete` if the
    /// record names this server. If the database is unavailable, [`ExportLog::share_all`] repeats this.
    async fn share(&self, job: &str) {
        let Some(store) = &self.shared else { return };
        self.unshared.lock().expect("the lock of the jobs is not poisoned").remove(job);
        let (now, sent) = {
            let all = self.states.lock().expect("the lock of the jobs is not poisoned");
            let Some(state) = all.get(job).filter(|state| !state.is_over) else { return };
            (self.clock.now(), state.sent.clone())
        };
        let expires = now.saturating_add(self.retention).unwrap_or(Timestamp::MAX);
        match shared_progress::add_sent(store, job, &self.id, &sent, expires, now).await {
            Ok(Some(all)) => {
                self.record(job, |state| (!state.is_over).then(|| ("export_complete", all.completion(now))));
                self.wait_until_written().await;
            }
            Ok(None) => {}
            Err(error) => {
                self.unshared.lock().expect("the lock of the jobs is not poisoned").insert(job.to_owned());
                tracing::warn!(%error, job, "failed to share the download progress of an export with the other servers");
            }
        }
    }

    /// Waits until all recorded events are written. If the log cannot be written, the response is sent
    /// nevertheless.
    async fn wait_until_written(&self) {
        self.lines.write(Vec::new()).await;
    }

    /// Records the start of an export.
    pub async fn record_kick_off(&self, job: &str, url: &str, parameters: &[(String, String)]) {
        let now = self.clock.now();
        let is_kept = |state: &JobLogState| now.duration_since(state.last_event) < self.retention;
        self.states.lock().expect("the lock of the jobs is not poisoned").retain(|_, state| is_kept(state));
        let mut parameters_sent = Map::new();
        for (name, value) in parameters.iter().filter(|(name, _)| name != "patient") {
            let value = match parameters_sent.get(name).and_then(Value::as_str) {
                Some(before) => format!("{before},{value}"),
                None => value.clone(),
            };
            parameters_sent.insert(name.clone(), value.into());
        }
        let detail = json!({
            "exportUrl": url,
            "errorCode": null,
            "errorBody": null,
            "softwareName": "Trefoil",
            "softwareVersion": env!("CARGO_PKG_VERSION"),
            "softwareReleaseDate": null,
            "fhirVersion": "4.0.1",
            "requestParameters": parameters_sent,
        });
        self.record(job, |_| Some(("kickoff", detail)));
        self.wait_until_written().await;
        self.share(job).await;
    }

    /// Records the response to a status request, with a page of the manifest.
    pub async fn record_status(&self, job: &str, page: usize, status: &JobStatus) {
        let error = |code: u16, message: &str| {
            let detail = json!({ "body": null, "code": code, "message": message });
            self.record(job, |_| Some(("status_error", detail)))
        };
        let is_lasting = match status {
            JobStatus::InProgress { progress, retry_after_s, manifest } => {
                self.record(job, |state| {
                    let retry_after = retry_after_s.to_string();
                    let detail = json!({ "body": null, "xProgress": progress, "retryAfter": retry_after });
                    (state.progress != *progress).then_some(("status_progress", detail))
                });
                manifest.as_ref().is_some_and(|manifest| self.record_page(job, page, &read_page(manifest)))
            }
            JobStatus::Complete { manifest, .. } => self.record_manifest(job, page, &read_page(manifest)),
            JobStatus::Failed { by_data, reason } => error(if *by_data { 422 } else { 500 }, reason),
            JobStatus::TooSoon { .. } => {
                error(429, "too many status requests");
                false
            }
            JobStatus::Forbidden { kind } => {
                error(403, &format!("the token has no scope to read {kind}"));
                false
            }
        };
        if is_lasting {
            self.wait_until_written().await;
        }
        if matches!(status, JobStatus::Complete { .. }) {
            self.share(job).await;
        }
    }

    /// Records a page of the manifest, once and in order.
    fn record_page(&self, job: &str, number: usize, manifest: &Value) -> bool {
        let page = ManifestPage::of(manifest);
        let detail = json!({
            "transactionTime": manifest["transactionTime"],
            "outputFileCount": page.output,
            "deletedFileCount": page.deleted,
            "errorFileCount": page.error,
        });
        self.record(job, |state| {
            (state.pages.len() + 1 == number).then_some(("status_page_complete", detail))
        })
    }

    /// Records a page of the manifest of a complete export; with the last page also the totals.
    fn record_manifest(&self, job: &str, number: usize, manifest: &Value) -> bool {
        let time = &manifest["transactionTime"];
        let is_last = manifest.get("link").is_none();
        let complete = json!({ "transactionTime": time });
        let is_first =
            self.record(job, |state| (!state.is_complete).then_some(("status_complete", complete)));
        let is_new = self.record_page(job, number, manifest);
        if self.shared.is_some() {
            // The other pages may have been sent by other servers.
            let mut all = self.states.lock().expect("the lock of the jobs is not poisoned");
            let sent = &mut all.entry(job.to_owned()).or_default().sent;
            sent.add_page(number, ManifestPage::of(manifest), is_last);
        }
        let is_whole = self.record(job, |state| {
            let ManifestPage { output, deleted, error } = state.total_files();
            let detail = json!({
                "transactionTime": time,
                "totalOutputFileCount": output,
                "totalDeletedFileCount": deleted,
                "totalErrorFileCount": error,
                "totalManifests": state.pages.len(),
            });
            let is_due = is_last && state.pages.len() == number && !state.is_whole;
            is_due.then_some(("manifest_complete", detail))
        });
        is_first || is_new || is_whole
    }

    /// Records the start of a download.
    pub fn record_download_start(&self, job: &str, file: &ExportFile) {
        let listed = file.listed();
        let (item, kind) = match listed.section {
            ManifestSection::Output if file.is_organized() => ("output", None),
            ManifestSection::Output => ("output", Some(&listed.kind)),
            ManifestSection::Deleted => ("deleted", Some(&listed.kind)),
            ManifestSection::Error => ("error", Some(&listed.kind)),
        };
        let detail = json!({ "fileUrl": self.file_url(job, file), "itemType": item, "resourceType": kind });
        self.record(job, |_| Some(("download_request", detail)));
    }

    /// Records a completed download, and returns when the record is written. Must be called before the last
    /// piece is sent.
    pub async fn record_download_end(&self, job: &str, file: &ExportFile) {
        let listed = file.listed();
        let detail = json!({
            "fileUrl": self.file_url(job, file),
            "resourceCount": listed.count,
            "fileSize": listed.bytes,
        });
        self.record(job, |_| Some(("download_complete", detail)));
        self.wait_until_written().await;
        self.share(job).await;
    }

    /// Records a failed download.
    pub fn record_download_error(&self, job: &str, file: &ExportFile, code: u16, message: &str) {
        let url = self.file_url(job, file);
        let detail = json!({ "fileUrl": url, "body": null, "code": code, "message": message });
        self.record(job, |_| Some(("download_error", detail)));
    }

    fn file_url(&self, job: &str, file: &ExportFile) -> String {
        format!("{}/{job}/{}", self.files_base, file.listed().name)
    }
}

/// The file name of the log of a job.
fn log_file_name(job: &str) -> String {
    format!("log.{job}.ndjson")
}

fn read_page(manifest: &[u8]) -> Value {
    serde_json::from_slice(manifest).unwrap_or_default()
}

/// Reads the state of all jobs whose log was changed since `since`; older jobs have expired.
fn read_logs(folder: &Path, since: SystemTime) -> io::Result<HashMap<String, JobLogState>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let job = name.to_str().and_then(|name| name.strip_prefix("log.")?.strip_suffix(".ndjson"));
        let Some(job) = job else { continue };
        if entry.metadata()?.modified()? >= since {
            all.insert(
                job.to_owned(),
                JobLogState::from_log(io::BufReader::new(fs::File::open(entry.path())?))?,
            );
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::shared_memory::{SharedMemory, StoppingLink};

    use super::*;

    fn open(folder: PathBuf, node: &str, retention: SignedDuration, store: &Store) -> ExportLog {
        let fhir_base = "https://s.example/fhir/R4";
        ExportLog::open(folder, fhir_base, node, retention, Clock::system(), store).unwrap()
    }

    /// The events `export_complete` in a log.
    fn completions(folder: &Path) -> Vec<Value> {
        let text = fs::read_to_string(folder.join("log.j.ndjson")).unwrap_or_default();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["eventId"] == "export_complete").collect()
    }

    #[tokio::test]
    async fn one_of_several_servers_records_the_completion() {
        let (shared, day) = (SharedMemory::default(), SignedDuration::from_hours(24));
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        // They are on one machine and have its name.
        let serve = |index: usize| {
            let store = Store::shared_memory(&shared, Arc::<StoppingLink>::default());
            open(folders[index].path().to_owned(), "n", day, &store)
        };
        let servers = [serve(0), serve(1), serve(2)];
        let complete = |manifest: Value| JobStatus::Complete {
            manifest: manifest.to_string().into(),
            expires: Timestamp::MAX,
        };
        let time = "2026-11-21T08:00:00.000Z";
        let first = complete(json!({ "transactionTime": time, "output": [{}, {}], "link": [{}] }));
        let last = complete(json!({ "transactionTime": time, "output": [{}] }));
        servers[0].record_kick_off("j", "https://s.example", &[]).await;
        // Each page of the manifest is sent by another server.
        servers[0].record_status("j", 1, &first).await;
        servers[1].record_status("j", 2, &last).await;
        let sent = async |server: &ExportLog, name: &str| {
            let detail = json!({ "fileUrl": format!("x/bulk/j/{name}"), "resourceCount": 3, "fileSize": 40 });
            server.record("j", |_| Some(("download_complete", detail)));
            server.wait_until_written().await;
            server.share("j").await;
        };
        sent(&servers[1], "a").await;
        sent(&servers[2], "b").await;
        // The server is killed after the ledger has named it, before its line is written.
        let before: Vec<_> = fs::read(folders[2].path().join("log.j.ndjson")).unwrap();
        sent(&servers[2], "c").await;
        let [completion] = &completions(folders[2].path())[..] else {
            panic!("one server has the last file")
        };
        let detail = &completion["eventDetail"];
        assert_eq!(
            (&detail["files"], &detail["resources"], &detail["bytes"]),
            (&json!(3), &json!(9), &json!(120))
        );
        assert!(detail["duration"].is_u64());
        servers[2].close();
        fs::write(folders[2].path().join("log.j.ndjson"), before).unwrap();
        let restarted = serve(2);
        restarted.share_all().await;
        assert_eq!(completions(folders[2].path()).len(), 1);
        for server in [&servers[0], &servers[1], &restarted] {
            server.share("j").await;
            server.record_status("j", 2, &last).await;
        }
        assert_eq!(folders.iter().map(|folder| completions(folder.path()).len()).sum::<usize>(), 1);
    }

    /// The names of the events in a log after these statuses, each with the number of its page.
    async fn event_names(statuses: &[(usize, JobStatus)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (page, status) in statuses {
            // Each status is recorded by another server.
            let (folder, retention) = (dir.path().to_owned(), SignedDuration::MAX);
            let log = open(folder, "n", retention, &Store::memory());
            log.record_status("j", *page, status).await;
        }
        let text = fs::read_to_string(dir.path().join("log.j.ndjson")).unwrap();
        let event =
            |line| serde_json::from_str::<Value>(line).unwrap()["eventId"].as_str().unwrap().to_owned();
        text.lines().map(event).collect()
    }

    #[tokio::test]
    async fn pages_are_recorded_once_in_order() {
        let page = |list: &str, link: Option<&str>| {
            let mut page = json!({ "transactionTime": "2026-11-21T08:00:00.000Z", list: [{}] });
            if let Some(link) = link {
                page["link"] = json!([{ "relation": "next", "url": link }]);
            }
            page.to_string().into()
        };
        let running =
            |manifest| JobStatus::InProgress { progress: "7%".to_owned(), retry_after_s: 1, manifest };
        let complete = |manifest| JobStatus::Complete { manifest, expires: Timestamp::MAX };
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
            event_names(&statuses).await,
            [
                "status_progress",
                "status_page_complete",
                "status_complete",
                "status_page_complete",
                "manifest_complete"
            ]
        );
        let failed = JobStatus::Failed { by_data: true, reason: "no".to_owned() };
        assert_eq!(event_names(&[(1, failed)]).await, ["status_error"]);
    }
}
