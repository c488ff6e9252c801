//! Exports, which are begun, polled and downloaded at different nodes. Each must contain what the store held
//! at its time, and its files must be the same at all nodes, until the end of the run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use store::{Ledger as _, PageLimit, ScanOptions, Store, StoreError, Versions as _};

use crate::history::Action;
use crate::nodes::{Answer, ClientRequest, NODES};
use crate::workload::{Workload, lock};

/// Time after which an export must have ended, although nodes fail.
const LIMIT: Duration = Duration::from_secs(90);

/// The exports of a run.
pub struct Exports {
    /// The store without faults, with which exports are compared.
    store: Store,
    types: &'static [&'static str],
    /// Exports that were begun and are not followed yet.
    begun: Mutex<Vec<BegunExport>>,
    complete: Mutex<Vec<CompleteExport>>,
}

/// An export that was begun.
pub struct BegunExport {
    status: String,
    token: String,
}

/// A completed export, as its client has seen it.
struct CompleteExport {
    status: String,
    manifest: Value,
    files: Files,
}

/// Content of each file by its path.
type Files = BTreeMap<String, Bytes>;

/// Figures of the exports of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportFigures {
    /// Number of completed exports.
    pub exports: usize,
    /// Number of their files.
    pub files: usize,
    /// Number of exports that were resumed by another worker.
    pub resumed: usize,
}

impl Exports {
    /// Prepares exports of these types.
    pub fn new(store: Store, types: &'static [&'static str]) -> Self {
        Self { store, types, begun: Mutex::default(), complete: Mutex::default() }
    }

    /// Starts an export at a node.
    pub async fn kick_off(&self, workload: &Workload, node: usize) -> Option<BegunExport> {
        let token = workload.token().await;
        let request = ClientRequest::get(&format!("/fhir/R4/$export?_type={}", self.types.join(",")));
        let request = request.bearer(&token).header("accept", "application/fhir+json");
        let request = request.header("prefer", "respond-async");
        let response = workload.ask(node, Action::Other("kick-off"), &[202], request).await;
        if !response.is(202) {
            return None;
        }
        let location = response.header("content-location");
        let Some(status) = location.as_deref().and_then(|url| workload.path_of(url)) else {
            workload.violation(format!(
                "the Content-Location of an export is not an address of the server: {location:?}"
            ));
            return None;
        };
        Some(BegunExport { status: status.to_owned(), token })
    }

    /// Lets a worker follow an export.
    pub fn follow_later(&self, export: Option<BegunExport>) {
        lock(&self.begun).extend(export);
    }

    /// Runs exports one after another, until the run is over.
    pub async fn run(&self, workload: &Workload) {
        loop {
            let running = lock(&self.begun).pop();
            let export = match running {
                Some(export) => Some(export),
                None if workload.is_over() => break,
                None => self.kick_off(workload, workload.any_node()).await,
            };
            if let Some(export) = export {
                let _broken = self.follow(workload, export).await;
            }
            workload.rest(1_500).await;
        }
    }

    /// Waits until an export is complete, downloads it at two nodes, and compares it with the store. Returns
    /// `None` if a rule was broken.
    async fn follow(&self, workload: &Workload, export: BegunExport) -> Option<()> {
        let BegunExport { status, token } = export;
        let start = workload.now();
        let manifest = loop {
            if workload.now() - start > LIMIT {
                workload.violation(format!("export {status} has not ended after {LIMIT:?}"));
                return None;
            }
            let response = get(workload, workload.any_node(), "status", &status, &token).await;
            match response.status {
                Some(200) => break response.body,
                None | Some(202 | 429 | 503) => {}
                // It is a violation already.
                Some(_) => return None,
            }
            workload.wait(workload.pace.poll.as_millis().try_into().unwrap_or(u64::MAX)).await;
        };
        let first = workload.any_node();
        let second = (first + workload.draw(|random| random.usize(1..NODES))) % NODES;
        let files = download(workload, first, &manifest, &token).await?;
        if files != download(workload, second, &manifest, &token).await? {
            workload.violation(format!("export {status} has other files at another node"));
        }
        if let Err(error) = self.compare(workload, &status, &manifest, &files).await {
            workload.violation(format!("the store could not be read: {error}"));
        }
        lock(&self.complete).push(CompleteExport { status, manifest, files });
        Some(())
    }

    /// Compares the lines of an export with the resources in the store at its time.
    async fn compare(
        &self,
        workload: &Workload,
        status: &str,
        manifest: &Value,
        files: &Files,
    ) -> Result<(), StoreError> {
        let time = manifest["transactionTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let Some(time) = time else {
            workload.violation(format!("export {status} has no time: {manifest}"));
            return Ok(());
        };
        let seq = self.store.seq_at(time).await?;
        let mut bodies = Vec::new();
        for kind in self.types {
            let limit = PageLimit { count: 1_000_000, bytes: usize::MAX };
            let page = self.store.scan_kind(kind, ScanOptions { limit, ..ScanOptions::at(seq) }).await?;
            bodies.extend(page.versions.into_iter().filter_map(|version| version.body));
        }
        let lines = files.values().flat_map(|file| file.split(|byte| *byte == b'\n'));
        let mut exported: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
        let mut bodies: Vec<&[u8]> = bodies.iter().map(|body| &body[..]).collect();
        exported.sort_unstable();
        bodies.sort_unstable();
        if exported != bodies {
            let other = std::iter::zip(&exported, &bodies).find(|(one, other)| one != other);
            let other = other.map(|(one, other)| [one, other].map(|line| String::from_utf8_lossy(line)));
            workload.violation(format!(
                "export {status} of {time} has {} lines, and the store had {}; the first that differ: {other:?}",
                exported.len(),
                bodies.len()
            ));
        }
        Ok(())
    }

    /// Checks that the complete exports have not changed since they were downloaded. Returns figures.
    pub async fn check(&self, workload: &Workload) -> ExportFigures {
        let token = workload.token().await;
        let complete = std::mem::take(&mut *lock(&self.complete));
        let mut figures = ExportFigures::default();
        for (turn, export) in complete.iter().enumerate() {
            let response = get(workload, turn % NODES, "status", &export.status, &token).await;
            if response.body != export.manifest {
                workload.violation(format!(
                    "the manifest of export {} has changed: {}",
                    export.status, response.body
                ));
            }
            let files = download(workload, (turn + 1) % NODES, &export.manifest, &token).await;
            if files.as_ref() != Some(&export.files) {
                workload.violation(format!("the files of export {} have changed", export.status));
            }
            figures.exports += 1;
            figures.files += export.files.len();
            figures.resumed += usize::from(self.attempts(workload, &export.status).await > Some(1));
        }
        figures
    }

    /// The number of workers that an export had.
    async fn attempts(&self, workload: &Workload, status: &str) -> Option<u64> {
        let id = status.rsplit('/').next()?;
        let record = self.store.get(&format!("bulk/job/{id}"), workload.nodes().time()).await.ok()??;
        let job: Value = serde_json::from_slice(&record.value).ok()?;
        job["lease"]["attempt"].as_u64()
    }
}

async fn get(workload: &Workload, node: usize, name: &'static str, path: &str, token: &str) -> Answer {
    let request = ClientRequest::get(path).bearer(token).header("accept", "*/*");
    workload.ask(node, Action::Other(name), &[200, 202, 429], request).await
}

/// Downloads the files of a manifest from one node, or from another one while that one fails.
async fn download(workload: &Workload, node: usize, manifest: &Value, token: &str) -> Option<Files> {
    let mut files = BTreeMap::new();
    for file in manifest["output"].as_array().into_iter().flatten() {
        let Some(path) = file["url"].as_str().and_then(|url| workload.path_of(url)) else {
            workload.violation(format!("the address of an exported file is not one of the server: {file}"));
            return None;
        };
        let start = workload.now();
        let mut response = get(workload, node, "download", path, token).await;
        for turn in 1.. {
            if response.is(200) {
                break;
            }
            if !response.is_failure() || workload.now() - start > LIMIT {
                workload.violation(format!("{path} could not be downloaded: {:?}", response.status));
                return None;
            }
            workload.rest(500).await;
            response = get(workload, (node + turn) % NODES, "download", path, token).await;
        }
        files.insert(path.to_owned(), response.bytes);
    }
    Some(files)
}
