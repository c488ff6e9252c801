//! Drills: one request whose answer is thousands of times larger, a small container, and a stranger on a
//! small disk. `TREFOIL_DRILL_SECONDS` sets the duration of the attack of the stranger.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::full_disk::Small;
use crate::support::Server;

const MIB: usize = 1 << 20;

/// Writes a Group whose name has this length, and returns the status.
async fn put_group(client: &Client, server: &Server, token: &str, id: &str, length: usize) -> StatusCode {
    let group = json!({
        "resourceType": "Group", "id": id, "type": "person", "actual": true, "name": "x".repeat(length),
    });
    let request = client.put(format!("{}/Group/{id}", server.fhir())).bearer_auth(token).json(&group);
    let response = request.send().await.unwrap();
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        assert!(response.headers().contains_key("retry-after"));
    }
    response.status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_reads_takes_the_memory_of_one_and_ends_with_its_client() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let (client, token) = (server.client(), server.backend_token("system/Group.cud system/Group.rs").await);
    let other = server.backend_token("system/Group.rs").await;
    assert_eq!(put_group(&client, &server, &token, "big", MIB).await, StatusCode::CREATED);
    let batch = |reads: usize| {
        let entry = json!({ "request": { "method": "GET", "url": "Group/big" } });
        json!({ "resourceType": "Bundle", "type": "batch", "entry": vec![entry; reads] })
    };
    let send = async |reads: usize| {
        let request = client.post(server.fhir()).bearer_auth(&token).json(&batch(reads));
        request.send().await.unwrap()
    };
    let complete: Value = send(20).await.json().await.unwrap();
    let entries = complete["entry"].as_array().unwrap();
    assert_eq!(entries.len(), 20);
    assert!(entries.iter().all(|entry| entry["resource"]["id"] == "big"));
    assert!(entries.iter().all(|entry| entry["response"]["status"] == "200 OK"));

    let before = server.resident_mib();
    for _ in 0..8 {
        let mut response = send(2_500).await;
        assert!(response.chunk().await.unwrap().is_some());
        // Others read while an answer waits for its client.
        let url = format!("{}/Group/big", server.fhir());
        let read = client.get(url).bearer_auth(&other).send().await.unwrap();
        assert_eq!((read.status(), read.bytes().await.unwrap().len() > MIB), (StatusCode::OK, true));
        drop(response);
    }
    let grown = server.resident_mib().saturating_sub(before);
    println!("8 batches of 2,500 reads of 1 MiB: {before} MiB before, {grown} MiB more");
    assert!(grown < 64, "{grown} MiB");
}

/// A control group with a limit of memory.
struct SmallContainer(PathBuf);

impl SmallContainer {
    /// Returns `None` if the test may not create one.
    fn new(bytes: usize) -> Option<Self> {
        let name = format!("trefoil-drill-{}", std::process::id());
        let hierarchies =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (hierarchy, limit) in hierarchies {
            let group = Path::new(hierarchy).join(&name);
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let container = Self(group);
            if std::fs::write(container.0.join(limit), bytes.to_string()).is_ok() {
                return Some(container);
            }
        }
        println!("left out: the drill of a small container, because no control group can be created here");
        None
    }
}

impl Drop for SmallContainer {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_accepted_in_turn_in_a_small_container() {
    let Some(container) = SmallContainer::new(256 * MIB) else { return };
    let mut server = Server::in_fresh_folder().in_control_group(&container.0);
    server.start();
    let (client, token) = (server.client(), server.backend_token("system/Group.cud system/Group.rs").await);
    let ids: Vec<String> = (0..12).map(|number| format!("large-{number}")).collect();
    // The connections are open before the bodies compete for the memory: this is about bodies.
    let openings = (0..60).map(|_| client.get(format!("{}/health/live", server.base())).send());
    assert!(join_all(openings).await.iter().all(Result::is_ok));
    let puts = ids.iter().map(|id| put_group(&client, &server, &token, id, 12 * 1_000_000));
    let statuses = join_all(puts).await;
    println!("12 bodies of 12 MB: {statuses:?}, {} MiB", server.resident_mib());
    let is_answered = |status: &StatusCode| matches!(status.as_u16(), 201 | 503);
    assert!(statuses.iter().all(is_answered) && statuses.contains(&StatusCode::CREATED), "{statuses:?}");
    // Many clients read at the same time what takes more memory than there is.
    let reads = ids.iter().cycle().take(60).map(async |id| {
        let response = client.get(format!("{}/Group/{id}", server.fhir())).bearer_auth(&token).send().await;
        let mut response = response.unwrap();
        while response.chunk().await.unwrap().is_some() {}
        response.status()
    });
    let statuses = join_all(reads).await;
    assert!(statuses.contains(&StatusCode::OK), "{statuses:?}");
    assert_eq!(put_group(&client, &server, &token, "after", 10).await, StatusCode::CREATED);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_does_not_fill_the_disk() {
    let Some(disk) = Small::mount("400m") else { return };
    let seconds = std::env::var("TREFOIL_DRILL_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut server = Server::in_folder(TempDir::new_in(disk.0.path()).unwrap());
    server.start_with(&[]);
    let (begun, requests, is_over) = (Instant::now(), AtomicUsize::new(0), AtomicBool::new(false));
    let attack = async || {
        let client = server.client();
        let form = [("grant_type", "client_credentials"), ("client_id", "nobody")];
        while !is_over.load(Ordering::Relaxed) {
            let url = format!("{}/oauth2/token", server.base());
            let response = client.post(url).form(&form).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
            requests.fetch_add(1, Ordering::Relaxed);
        }
    };
    let sign_ins = async {
        let mut count = 0;
        while begun.elapsed() < Duration::from_secs(seconds) {
            server.backend_token("system/Group.rs").await;
            count += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        count
    };
    let (_, count) = tokio::join!(join_all((0..8).map(|_| attack())), sign_ins);
    server.stop();
    let folder = server.data().join("audit");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rejections: Vec<_> =
        lines.iter().filter(|line| line["subtype"][0]["code"] == "client-authentication").collect();
    let further = |line: &&Value| -> u64 {
        let details = line["entity"][0]["detail"].as_array().cloned().unwrap_or_default();
        let further = details.iter().find(|detail| detail["type"] == "further-events");
        further.map_or(1, |detail| detail["valueString"].as_str().unwrap().parse().unwrap())
    };
    let total: u64 = rejections.iter().map(further).sum();
    println!(
        "{} requests of strangers beside {count} tokens: {} audit lines",
        requests.load(Ordering::Relaxed),
        rejections.len()
    );
    assert_eq!(total, requests.load(Ordering::Relaxed) as u64, "each request is counted");
    assert!(rejections.len() as u64 <= 2 * (seconds / 60 + 2), "{} lines", rejections.len());
}
