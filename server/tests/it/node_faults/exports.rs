//! Exports, which are begun, polled and downloaded at different nodes. Each must contain what the store held at its
//! time, and its files must be the same at all nodes, until the end of the run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use node_history::Action;
use serde_json::Value;
use store::{PageLimit, ScanOptions, Store, Versions as _};

use super::world::World;

/// Types that are exported.
const TYPES: [&str; 2] = ["Group", "Observation"];
/// Time after which an export must have ended, although nodes fail.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two requests for the status.
const POLL: Duration = Duration::from_millis(300);

/// The exports of a run.
pub struct Exports {
    /// The store without faults, with which exports are compared.
    store: Store,
    /// Exports that were begun and are not followed yet: path of the status, and the token.
    begun: Mutex<Vec<(String, String)>>,
    complete: Mutex<Vec<CompleteExport>>,
}

/// A completed export, as its client has seen it.
struct CompleteExport {
    status: String,
    manifest: Value,
    /// Content of each file by its path.
    files: BTreeMap<String, String>,
}

impl Exports {
    pub fn new(store: Store) -> Self {
        Self { store, begun: Mutex::default(), complete: Mutex::default() }
    }

    /// Starts an export at a node. Returns the path of its status, and the token.
    pub async fn kick_off(&self, world: &World, node: usize) -> Option<(String, String)> {
        let token = world.token().await;
        let url = world.url(Some(node), &format!("/fhir/R4/$export?_type={}", TYPES.join(",")));
        let request = world.client.get(url).bearer_auth(&token);
        let request = request.header("accept", "application/fhir+json").header("prefer", "respond-async");
        let answer = world.ask(Some(node), Action::Other("kick-off"), &[202], request).await;
        let status = answer.headers.get("content-location")?.to_str().unwrap();
        Some((status.strip_prefix(&world.base).unwrap().to_owned(), token))
    }

    /// Lets the worker follow an export.
    pub fn follow_later(&self, export: Option<(String, String)>) {
        lock(&self.begun).extend(export);
    }

    /// Runs exports one after another, until the run is over.
    pub async fn run(&self, world: &World, mut random: fastrand::Rng) {
        loop {
            let begun = lock(&self.begun).pop();
            let export = match begun {
                Some(begun) => Some(begun),
                None if world.is_over() => break,
                None => self.kick_off(world, random.usize(0..3)).await,
            };
            if let Some((status, token)) = export {
                self.follow(world, &mut random, status, &token).await;
            }
        }
    }

    /// Waits until an export is complete, downloads it at two nodes, and compares it with the store.
    async fn follow(&self, world: &World, random: &mut fastrand::Rng, status: String, token: &str) {
        let begun = world.now();
        let manifest = loop {
            if world.now() - begun > LIMIT {
                return violation(world, format!("export {status} has not ended after {LIMIT:?}"));
            }
            let answer = self.get(world, random.usize(0..3), "status", &status, token).await;
            match answer.status {
                Some(200) => break answer.body,
                None | Some(202 | 503) => {}
                // It is a violation already.
                Some(_) => return,
            }
            tokio::time::sleep(POLL).await;
        };
        let (first, second) = (random.usize(0..3), random.usize(1..3));
        let files = self.download(world, first, &manifest, token).await;
        let (Some(files), Some(others)) =
            (files, self.download(world, (first + second) % 3, &manifest, token).await)
        else {
            return;
        };
        if files != others {
            violation(world, format!("export {status} has other files at another node"));
        }
        self.compare(world, &status, &manifest, &files).await;
        lock(&self.complete).push(CompleteExport { status, manifest, files });
    }

    async fn get(
        &self,
        world: &World,
        node: usize,
        name: &'static str,
        path: &str,
        token: &str,
    ) -> super::world::Answer {
        let request = world.client.get(world.url(Some(node), path)).bearer_auth(token);
        let request = request.header("accept", "*/*");
        world.ask(Some(node), Action::Other(name), &[200, 202], request).await
    }

    /// Downloads the files of a manifest from one node, or from another one while that one fails.
    async fn download(
        &self,
        world: &World,
        node: usize,
        manifest: &Value,
        token: &str,
    ) -> Option<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        for file in manifest["output"].as_array().unwrap() {
            let path = file["url"].as_str().unwrap().strip_prefix(&world.base).unwrap().to_owned();
            let begun = world.now();
            let mut answer = self.get(world, node, "download", &path, token).await;
            for turn in 1.. {
                if answer.is(200) {
                    break;
                }
                let may_return = matches!(answer.status, None | Some(503));
                if !may_return || world.now() - begun > LIMIT {
                    violation(world, format!("{path} could not be downloaded: {:?}", answer.status));
                    return None;
                }
                answer = self.get(world, (node + turn) % 3, "download", &path, token).await;
            }
            files.insert(path, answer.text);
        }
        Some(files)
    }

    /// Compares the lines of an export with the resources in the store at its time.
    async fn compare(&self, world: &World, status: &str, manifest: &Value, files: &BTreeMap<String, String>) {
        let mut exported: Vec<&str> = files.values().flat_map(|text| text.lines()).collect();
        let time: Timestamp = manifest["transactionTime"].as_str().unwrap().parse().unwrap();
        let at = self.store.seq_at(time).await.unwrap();
        let mut stored = Vec::new();
        for kind in TYPES {
            let limit = PageLimit { count: 1_000_000, bytes: usize::MAX };
            let page = self.store.scan_kind(kind, ScanOptions { limit, ..ScanOptions::at(at) }).await;
            let bodies = page.unwrap().versions.into_iter().filter_map(|version| version.body);
            stored.extend(bodies.map(|body| String::from_utf8(body.to_vec()).unwrap()));
        }
        exported.sort_unstable();
        stored.sort_unstable();
        if exported != stored {
            let (found, expected) = (exported.len(), stored.len());
            violation(
                world,
                format!("export {status} of {time} has {found} lines; the store had {expected}"),
            );
        }
    }

    /// Checks that the complete exports have not changed since they were downloaded, and prints figures.
    pub async fn check(&self, world: &World) {
        let token = world.token().await;
        let complete = std::mem::take(&mut *lock(&self.complete));
        let (mut files, mut resumed) = (0, 0);
        for (turn, export) in complete.iter().enumerate() {
            let answer = self.get(world, turn % 3, "status", &export.status, &token).await;
            if answer.body != export.manifest {
                violation(world, format!("the manifest of export {} has changed", export.status));
            }
            if self.download(world, (turn + 1) % 3, &export.manifest, &token).await.as_ref()
                != Some(&export.files)
            {
                violation(world, format!("the files of export {} have changed", export.status));
            }
            files += export.files.len();
            let id = export.status.rsplit('/').next().unwrap();
            resumed += u32::from(self.attempts(id).await > 1);
        }
        println!(
            "{} exports with {files} files equal the store; {resumed} of them were resumed",
            complete.len()
        );
        assert!(!complete.is_empty(), "no export was completed");
    }

    /// Returns the number of workers that an export had.
    async fn attempts(&self, id: &str) -> u32 {
        use store::Ledger as _;
        let record = self.store.get(&format!("bulk/job/{id}"), Timestamp::now()).await.unwrap().unwrap();
        let job: Value = serde_json::from_slice(&record.value).unwrap();
        job["lease"]["attempt"].as_u64().unwrap().try_into().unwrap()
    }
}

fn violation(world: &World, text: String) {
    world.record(|history| history.violations.push(text));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
