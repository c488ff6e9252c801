//! Exports, which are begun, polled and downloaded at different nodes, and compared with the store.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use node_history::Action;
use serde_json::Value;
use store::{PageLimit, ScanOptions, Store, Versions as _};

use crate::world::{ClientRequest, World, elapsed};

/// Types that are exported.
const TYPES: [&str; 2] = ["CodeSystem", "Group"];
/// Time after which an export must have ended, if no node has a fault.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs exports. `store` is a handle without faults, with which they are compared.
pub async fn run_exports(world: &World, store: &Store) {
    let token = world.token().await;
    while !world.is_over() {
        export(world, store, &token).await;
        world.pause(1_500).await;
    }
}

/// Runs one export. Returns `None` if it was not begun or failed with a reason that a fault can have.
async fn export(world: &World, store: &Store, token: &str) -> Option<()> {
    let path = format!("/fhir/R4/$export?_type={}", TYPES.join(","));
    let request = ClientRequest::get(&path)
        .bearer(token)
        .header("accept", "application/fhir+json")
        .header("prefer", "respond-async");
    let answer = world.ask(world.any_node(), Action::Other("kick-off"), &[202], request).await;
    let status = answer.header("content-location")?;
    let begun = elapsed();
    let manifest = loop {
        if elapsed() - begun > LIMIT {
            world.violation(format!("export {status} has not ended after {LIMIT:?}"));
            return None;
        }
        world.pause(1_500).await;
        let request = ClientRequest::get(&status).bearer(token).header("accept", "application/json");
        let answer = world.ask(world.any_node(), Action::Other("status"), &[200, 202, 429], request).await;
        if answer.is(200) {
            break answer.body;
        }
    };
    let mut exported: BTreeMap<String, Vec<String>> = TYPES.map(|kind| (kind.to_owned(), Vec::new())).into();
    for file in manifest["output"].as_array().into_iter().flatten() {
        let (kind, url) = (file["type"].as_str()?, file["url"].as_str()?);
        let text = download(world, token, url).await?;
        exported.entry(kind.to_owned()).or_default().extend(text.lines().map(str::to_owned));
    }
    let time: Timestamp = manifest["transactionTime"].as_str()?.parse().ok()?;
    compare(world, store, &status, time, exported).await;
    Some(())
}

/// Downloads a file, if necessary several times.
async fn download(world: &World, token: &str, url: &str) -> Option<String> {
    for _ in 0..50 {
        let request = ClientRequest::get(url).bearer(token);
        let answer = world.ask(world.any_node(), Action::Other("download"), &[200], request).await;
        if answer.is(200) {
            return Some(match answer.body {
                Value::String(text) => text,
                // A file with one line is one JSON text.
                resource => resource.to_string(),
            });
        }
        world.pause(500).await;
    }
    world.violation(format!("{url} could not be downloaded"));
    None
}

/// Compares an export with the store at its time.
async fn compare(
    world: &World,
    store: &Store,
    status: &str,
    time: Timestamp,
    exported: BTreeMap<String, Vec<String>>,
) {
    let read = async {
        let at = store.seq_at(time).await?;
        let mut stored = BTreeMap::new();
        for kind in TYPES {
            let limit = PageLimit { count: 1_000_000, bytes: usize::MAX };
            let page = store.scan_kind(kind, ScanOptions { limit, ..ScanOptions::at(at) }).await?;
            let bodies = page.versions.into_iter().filter_map(|version| version.body);
            let bodies = bodies.map(|body| String::from_utf8_lossy(&body).into_owned());
            stored.insert(kind.to_owned(), bodies.collect::<Vec<_>>());
        }
        Ok::<_, store::StoreError>(stored)
    };
    match read.await {
        Ok(mut stored) => {
            let mut exported = exported;
            stored.values_mut().chain(exported.values_mut()).for_each(|lines| lines.sort());
            if stored == exported {
                world.exports.fetch_add(1, Ordering::Relaxed);
            } else {
                let counts = |all: &BTreeMap<String, Vec<String>>| all.values().map(Vec::len).sum::<usize>();
                world.violation(format!(
                    "export {status} of {time} differs from the store: {} lines instead of {}: {exported:?} {stored:?}",
                    counts(&exported),
                    counts(&stored)
                ));
            }
        }
        Err(error) => world.violation(format!("the store could not be read: {error}")),
    }
}
