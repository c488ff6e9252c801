//! What a client was told of a job and has of it: heard event by event, while a server runs and when the next one reads
//! the log.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use jiff::Timestamp;
use serde_json::{Value, json};

/// Files of a page of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Page {
    pub output: usize,
    pub deleted: usize,
    /// These stand on each page.
    pub error: usize,
}

impl Page {
    /// Counts those of a manifest.
    pub fn of(manifest: &Value) -> Self {
        let count = |list: &str| manifest[list].as_array().map_or(0, Vec::len);
        Self { output: count("output"), deleted: count("deleted"), error: count("error") }
    }
}

/// What was told of a job.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// When it began, where the log says so.
    begun: Option<Timestamp>,
    /// When something was heard last.
    pub heard: Timestamp,
    /// What the last poll was told.
    pub progress: String,
    pub is_complete: bool,
    /// The pages of the manifest.
    pub pages: Vec<Page>,
    /// Has the manifest no more pages?
    pub is_whole: bool,
    /// Resources and bytes of the files that were sent to their end, by name.
    sent: BTreeMap<String, (u64, u64)>,
    is_over: bool,
}

impl Told {
    /// Reads a log. A line that cannot be read was cut off, so nobody was answered by it.
    pub fn read(log: impl BufRead) -> io::Result<Self> {
        let mut told = Self::default();
        for line in log.split(b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
            let at = line["timestamp"].as_str().and_then(|at| fhir::instant::parse(at).ok());
            if let (Some(at), Some(event)) = (at, line["eventId"].as_str()) {
                told.hear(at, event, &line["eventDetail"]);
            }
        }
        Ok(told)
    }

    /// Takes an event into account.
    pub fn hear(&mut self, at: Timestamp, event: &str, detail: &Value) {
        self.heard = at;
        let text = |name: &str| detail[name].as_str().unwrap_or_default();
        let number = |name: &str| detail[name].as_u64().unwrap_or_default();
        let files = |name: &str| usize::try_from(number(name)).unwrap_or_default();
        match event {
            "kickoff" => self.begun = Some(at),
            "status_progress" => text("xProgress").clone_into(&mut self.progress),
            "status_complete" => self.is_complete = true,
            "status_page_complete" => self.pages.push(Page {
                output: files("outputFileCount"),
                deleted: files("deletedFileCount"),
                error: files("errorFileCount"),
            }),
            "manifest_complete" => self.is_whole = true,
            "download_complete" => {
                let name = text("fileUrl").rsplit('/').next().unwrap_or_default();
                self.sent.insert(name.to_owned(), (number("resourceCount"), number("fileSize")));
            }
            "export_complete" => self.is_over = true,
            _ => {}
        }
    }

    /// Files in all pages.
    pub fn sum(&self) -> Page {
        let add = |sum: Page, page: &Page| Page {
            output: sum.output + page.output,
            deleted: sum.deleted + page.deleted,
            error: page.error,
        };
        self.pages.iter().fold(Page::default(), add)
    }

    /// What is to be told at the end: when each file of the manifest was sent, and once.
    pub fn end(&self, now: Timestamp) -> Option<Value> {
        let Page { output, deleted, error } = self.sum();
        let files = output + deleted + error;
        if self.is_over || !self.is_whole || self.sent.len() != files {
            return None;
        }
        let add = |sum: (u64, u64), file: &(u64, u64)| (sum.0 + file.0, sum.1 + file.1);
        let (resources, bytes) = self.sent.values().fold((0, 0), add);
        let duration = self.begun.and_then(|begun| u64::try_from(now.duration_since(begun).as_millis()).ok());
        Some(json!({
            "files": files,
            "resources": resources,
            "bytes": bytes,
            "attachments": 0,
            "duration": duration,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: &str, event: &str, detail: &Value) -> String {
        let line = json!({ "exportId": "j", "timestamp": at, "eventId": event, "eventDetail": detail });
        format!("{line}\n")
    }

    #[test]
    fn the_end_is_told_once_wherever_the_log_was_cut_off() {
        let at = "2026-11-21T08:00:00.000Z";
        let page = |output: u32, error: u32| json!({ "outputFileCount": output, "deletedFileCount": 0, "errorFileCount": error });
        let sent =
            |name: &str| json!({ "fileUrl": format!("x/bulk/j/{name}"), "resourceCount": 3, "fileSize": 40 });
        let events = [
            line(at, "kickoff", &json!({})),
            line(at, "status_progress", &json!({ "xProgress": "7%" })),
            line(at, "status_page_complete", &page(1, 1)),
            line(at, "download_complete", &sent("error.0001.ndjson")),
            line(at, "download_complete", &sent("Patient.0001.ndjson")),
            line(at, "status_complete", &json!({})),
            line(at, "status_page_complete", &page(1, 1)),
            line(at, "download_complete", &sent("Patient.0002.ndjson")),
            line(at, "download_complete", &sent("Patient.0001.ndjson")),
            line(at, "manifest_complete", &json!({})),
        ];
        let later = "2026-11-21T08:00:01.500Z".parse().unwrap();
        let expected =
            json!({ "files": 3, "resources": 9, "bytes": 120, "attachments": 0, "duration": 1500 });
        for kept in 0..=events.len() {
            let (before, rest) = events.split_at(kept);
            // The line that was being written when the server was killed, and that the next one ends.
            let half = rest.first().map_or("", |line| &line[..line.len() / 2]);
            let log = format!("{}{half}\n{}", before.concat(), rest.concat());
            let cut = Told::read(format!("{}{half}", before.concat()).as_bytes()).unwrap();
            assert_eq!(cut.end(later).is_some(), kept == events.len(), "after {kept} events");
            let mut told = Told::read(log.as_bytes()).unwrap();
            assert_eq!(told.end(later), Some(expected.clone()), "with the rest behind {kept} events");
            assert_eq!((&*told.progress, told.pages.len(), told.is_complete), ("7%", 2, true));
            told.hear(later, "export_complete", &expected);
            assert_eq!(told.end(later), None);
        }
    }
}
