//! The state of a job in the export log. It is derived from the events, both while the server runs and when a
//! starting server reads the log.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Numbers of files on a page of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ManifestPage {
    pub output: usize,
    pub deleted: usize,
    /// The error files, which are listed on every page.
    pub error: usize,
}

impl ManifestPage {
    /// Counts the files of a manifest.
    pub fn of(manifest: &Value) -> Self {
        let count = |list: &str| manifest[list].as_array().map_or(0, Vec::len);
        Self { output: count("output"), deleted: count("deleted"), error: count("error") }
    }
}

/// The files of an export that one or several servers have sent completely.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct SentFiles {
    /// Time of the kick-off, if it is known.
    begun: Option<Timestamp>,
    /// Number of files on each page of the manifest that was sent, without the error files.
    pages: BTreeMap<usize, usize>,
    /// Number of error files, which are listed on every page.
    errors: usize,
    /// Number of the last page, if it was sent.
    last_page: Option<usize>,
    /// Resources and bytes of the completely sent files, by name.
    files: BTreeMap<String, (u64, u64)>,
}

impl SentFiles {
    /// Adds what another server has sent.
    pub fn add(&mut self, other: &Self) {
        self.begun = self.begun.or(other.begun);
        self.pages.extend(&other.pages);
        self.errors = self.errors.max(other.errors);
        self.last_page = self.last_page.or(other.last_page);
        self.files.extend(other.files.iter().map(|(name, file)| (name.clone(), *file)));
    }

    /// Adds a page of the manifest of a complete export.
    pub fn add_page(&mut self, number: usize, page: ManifestPage, is_last: bool) {
        self.pages.insert(number, page.output + page.deleted);
        self.errors = page.error;
        self.last_page = self.last_page.or(is_last.then_some(number));
    }

    /// Returns whether each page of the manifest and each file was sent.
    pub fn is_complete(&self) -> bool {
        self.last_page == Some(self.pages.len())
            && self.pages.values().sum::<usize>() + self.errors == self.files.len()
    }

    /// The details of `export_complete`.
    pub fn completion(&self, now: Timestamp) -> Value {
        let add = |sum: (u64, u64), file: &(u64, u64)| (sum.0 + file.0, sum.1 + file.1);
        let (resources, bytes) = self.files.values().fold((0, 0), add);
        let duration = self.begun.and_then(|begun| u64::try_from(now.duration_since(begun).as_millis()).ok());
        json!({
            "files": self.files.len(),
            "resources": resources,
            "bytes": bytes,
            "attachments": 0,
            "duration": duration,
        })
    }
}

/// The state of a job in the export log.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct JobLogState {
    /// Time of the last event.
    pub last_event: Timestamp,
    /// Progress in the last response.
    pub progress: String,
    pub is_complete: bool,
    /// The recorded pages of the manifest.
    pub pages: Vec<ManifestPage>,
    /// The last page of the manifest was recorded.
    pub is_whole: bool,
    /// The files that this server has sent.
    pub sent: SentFiles,
    pub is_over: bool,
}

impl JobLogState {
    /// Reads a log. A line that cannot be parsed was cut off, so no response was sent after it.
    pub fn from_log(log: impl BufRead) -> io::Result<Self> {
        let mut state = Self::default();
        for line in log.split(b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
            let time = line["timestamp"].as_str().and_then(|time| fhir::instant::parse(time).ok());
            if let (Some(time), Some(event)) = (time, line["eventId"].as_str()) {
                state.apply_event(time, event, &line["eventDetail"]);
            }
        }
        Ok(state)
    }

    /// Updates the state by an event.
    pub fn apply_event(&mut self, time: Timestamp, event: &str, detail: &Value) {
        self.last_event = time;
        let text = |name: &str| detail[name].as_str().unwrap_or_default();
        let number = |name: &str| detail[name].as_u64().unwrap_or_default();
        let files = |name: &str| usize::try_from(number(name)).unwrap_or_default();
        match event {
            "kickoff" => self.sent.begun = Some(time),
            "status_progress" => text("xProgress").clone_into(&mut self.progress),
            "status_complete" => self.is_complete = true,
            "status_page_complete" => {
                let page = ManifestPage {
                    output: files("outputFileCount"),
                    deleted: files("deletedFileCount"),
                    error: files("errorFileCount"),
                };
                self.pages.push(page);
                self.sent.add_page(self.pages.len(), page, false);
            }
            "manifest_complete" => {
                self.is_whole = true;
                self.sent.last_page = Some(self.pages.len());
            }
            "download_complete" => {
                let name = text("fileUrl").rsplit('/').next().unwrap_or_default();
                self.sent.files.insert(name.to_owned(), (number("resourceCount"), number("fileSize")));
            }
            "export_complete" => self.is_over = true,
            _ => {}
        }
    }

    /// The numbers of files over all pages.
    pub fn total_files(&self) -> ManifestPage {
        let add = |sum: ManifestPage, page: &ManifestPage| ManifestPage {
            output: sum.output + page.output,
            deleted: sum.deleted + page.deleted,
            error: page.error,
        };
        self.pages.iter().fold(ManifestPage::default(), add)
    }

    /// The details of `export_complete` when it is due: once, after each file of the manifest was sent.
    pub fn completion(&self, now: Timestamp) -> Option<Value> {
        (!self.is_over && self.sent.is_complete()).then(|| self.sent.completion(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str, event: &str, detail: &Value) -> String {
        let line = json!({ "exportId": "j", "timestamp": time, "eventId": event, "eventDetail": detail });
        format!("{line}\n")
    }

    #[test]
    fn the_completion_is_recorded_once_wherever_the_log_was_cut_off() {
        let time = "2026-11-21T08:00:00.000Z";
        let page = |output: u32, error: u32| json!({ "outputFileCount": output, "deletedFileCount": 0, "errorFileCount": error });
        let sent =
            |name: &str| json!({ "fileUrl": format!("x/bulk/j/{name}"), "resourceCount": 3, "fileSize": 40 });
        let events = [
            line(time, "kickoff", &json!({})),
            line(time, "status_progress", &json!({ "xProgress": "7%" })),
            line(time, "status_page_complete", &page(1, 1)),
            line(time, "download_complete", &sent("error.0001.ndjson")),
            line(time, "download_complete", &sent("Patient.0001.ndjson")),
            line(time, "status_complete", &json!({})),
            line(time, "status_page_complete", &page(1, 1)),
            line(time, "download_complete", &sent("Patient.0002.ndjson")),
            line(time, "download_complete", &sent("Patient.0001.ndjson")),
            line(time, "manifest_complete", &json!({})),
        ];
        let later = "2026-11-21T08:00:01.500Z".parse().unwrap();
        let expected =
            json!({ "files": 3, "resources": 9, "bytes": 120, "attachments": 0, "duration": 1500 });
        for kept in 0..=events.len() {
            let (before, rest) = events.split_at(kept);
            // The line that was being written when the server was killed. The next server ends it.
            let half = rest.first().map_or("", |line| &line[..line.len() / 2]);
            let log = format!("{}{half}\n{}", before.concat(), rest.concat());
            let cut = JobLogState::from_log(format!("{}{half}", before.concat()).as_bytes()).unwrap();
            assert_eq!(cut.completion(later).is_some(), kept == events.len(), "after {kept} events");
            let mut state = JobLogState::from_log(log.as_bytes()).unwrap();
            assert_eq!(state.completion(later), Some(expected.clone()), "with the rest after {kept} events");
            assert_eq!((&*state.progress, state.pages.len(), state.is_complete), ("7%", 2, true));
            state.apply_event(later, "export_complete", &expected);
            assert_eq!(state.completion(later), None);
        }
    }
}
