//! Kills a process that writes, and checks that all acknowledged commits are present and that every commit is
//! complete.
//!
//! The killed process is this test binary, which runs [`acknowledged_commits_are_there`] with a folder in an
//! environment variable.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::task::JoinSet;
use trefoil_store::{ResourceKey, ScanOptions, Seq, Store, Versions};

use crate::{at, open, put};

const FOLDER: &str = "STORE_CRASH_FOLDER";
const WRITERS: usize = 4;
/// Resource types in each commit.
const PARTS: [&str; 3] = ["Encounter", "Observation", "Patient"];

/// If the environment names no folder: writes and checks for a short time. If it names one: writes until the
/// process is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_commits_are_there() {
    let (dir, commits) = match std::env::var_os(FOLDER) {
        Some(folder) => (folder.into(), usize::MAX),
        None => (TempDir::new().unwrap().keep(), 5),
    };
    let store = open(&dir);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(store.clone(), writer, commits));
    }
    writers.join_all().await;
    check(&store, &[commits as u64; WRITERS]).await;
    drop(store);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Writes commits of several resources and prints an acknowledgement for each durable commit to stdout.
async fn write(store: Store, writer: usize, commits: usize) {
    let id = format!("w{writer}");
    for _ in 0..commits {
        let writes = PARTS.map(|kind| put(kind, &id, &"x".repeat(300), &["c"])).to_vec();
        let commit = store.commit(writes, at(0)).await.unwrap();
        println!("\nack {writer} {}", commit.written[0].version);
    }
}

/// Checks that each writer has at least as many commits as it acknowledged, and that each commit is complete.
async fn check(store: &Store, acknowledged: &[u64; WRITERS]) {
    assert_eq!(store.last_seq().await.unwrap().0 % PARTS.len() as u64, 0);
    for (writer, &least) in acknowledged.iter().enumerate() {
        let mut versions = Vec::new();
        for kind in PARTS {
            let key = ResourceKey::new(kind, format!("w{writer}"));
            let newest = store.read(&key, Seq::LATEST).await.unwrap();
            versions.push(newest.map_or(0, |version| version.version));
        }
        assert!(versions.iter().all(|version| *version == versions[0]), "an incomplete commit: {versions:?}");
        assert!(versions[0] >= least, "acknowledged {least}, found {}", versions[0]);
    }
    let changes = store.changes(Seq::ZERO, usize::MAX).await.unwrap();
    assert_eq!(changes.len() as u64, store.last_seq().await.unwrap().0, "the change feed has no gaps");
    for kind in PARTS {
        let of_kind = store.scan_kind(kind, ScanOptions::at(Seq::LATEST)).await.unwrap();
        let of_compartment = store.scan_compartment("c", kind, ScanOptions::at(Seq::LATEST)).await.unwrap();
        assert_eq!(of_kind, of_compartment, "the compartment index matches the versions");
    }
}

/// Starts the writing process, kills it after a number of acknowledgements, and returns the last
/// acknowledgement of each writer.
fn run_and_kill(dir: &Path, after: usize) -> [u64; WRITERS] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::acknowledged_commits_are_there", "--nocapture"])
        .env(FOLDER, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = [0; WRITERS];
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let parts: Vec<_> = line.split(' ').collect();
        if let ["ack", writer, version] = parts[..] {
            last[writer.parse::<usize>().unwrap()] = version.parse().unwrap();
            count += 1;
        }
        if count == after {
            child.kill().unwrap();
        }
    }
    assert!(count >= after, "the writing process ended after {count} acknowledgements");
    child.wait().unwrap();
    last
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let dir = TempDir::new().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for after in [1, 17, 60, 5, 150, 33] {
        let acknowledged = run_and_kill(dir.path(), after);
        let store = open(dir.path());
        runtime.block_on(check(&store, &acknowledged));
    }
}
