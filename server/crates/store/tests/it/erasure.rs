//! Law: what was erased is in no file of a folder once the compaction has ended, and nothing else is lost.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use memchr::memmem;
use trefoil_store::{Compaction, Erasure, PageLimit, ResourceKey, Seq, Store, VersionWrite, Versions as _};

use crate::{StoreEngine, at, draft};

/// A text that occurs once, and that no compression shortens.
fn marker(id: u64, version: u64) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(id * 1_000 + version + 1);
    let mut text = String::new();
    for _ in 0..4 {
        state ^= state >> 31;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// The files below a folder that contain the bytes.
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(files_with(&path, bytes));
            continue;
        }
        match fs::read(&path) {
            Ok(content) if memmem::find(&content, bytes).is_none() => {}
            Ok(_) => names.push(path),
            // The engine removes the files that it has merged at any time.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    names
}

async fn write(store: &Store, id: u64, version: u64) {
    let text = marker(id, version);
    let key = ResourceKey::new("Observation", format!("o{id}"));
    let write = VersionWrite::put(key, draft(&text), vec![format!("Patient/p{}", id % 10)]);
    let write = write.indexed(vec![text.as_bytes().into()]);
    store.commit(vec![write], at(0)).await.unwrap();
}

async fn erase(store: &Store, ids: &[u64], versions: u64) {
    let erasures = ids.iter().map(|&id| Erasure {
        key: ResourceKey::new("Observation", format!("o{id}")),
        newest: versions,
        terms: (1..=versions).map(|version| marker(id, version).as_bytes().into()).collect(),
    });
    store.erase(erasures.collect()).await.unwrap();
}

/// `settles` lets the engine write the versions to its tables first; otherwise they are in the journal.
async fn check(settles: bool) {
    let mut engine = StoreEngine::file();
    let folder = engine.dir.as_ref().unwrap().path().to_owned();
    for version in 1..=3 {
        for id in 0..60 {
            write(&engine.store, id, version).await;
        }
        if settles {
            engine.store.compact().await.unwrap();
        }
    }
    let erased = [3, 13, 23, 7];
    for id in erased {
        assert!(!files_with(&folder, marker(id, 1).as_bytes()).is_empty(), "the search finds what is there");
    }
    // A backup that is being made keeps a snapshot of the engine.
    let moment = engine.store.moment().await.unwrap();
    erase(&engine.store, &erased, 3).await;
    assert_eq!(engine.store.compact().await.unwrap(), Compaction::Complete);
    drop(moment);
    for round in ["before", "after"] {
        for id in erased {
            for version in 1..=3 {
                let names = files_with(&folder, marker(id, version).as_bytes());
                assert!(names.is_empty(), "{names:?}: o{id}, version {version}, {round} a restart");
            }
            let key = ResourceKey::new("Observation", format!("o{id}"));
            assert_eq!(engine.store.read(&key, Seq::LATEST).await.unwrap(), None);
        }
        for id in (0..60).filter(|id| !erased.contains(id)) {
            let key = ResourceKey::new("Observation", format!("o{id}"));
            let history = engine.store.history(&key, Seq::LATEST, PageLimit::default()).await.unwrap();
            assert_eq!(history.len(), 3);
        }
        engine.reopen().await;
    }
    // Later writes have greater numbers.
    write(&engine.store, 3, 9).await;
    assert_eq!(engine.store.last_seq().await.unwrap(), Seq(182));
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_bytes_of_the_journal_are_in_no_file() {
    check(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_bytes_of_the_tables_are_in_no_file() {
    check(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_during_a_compaction() {
    let engine = StoreEngine::file();
    let store = engine.store.clone();
    let writer = tokio::spawn(async move {
        for id in 0..400 {
            write(&store, id, 1).await;
        }
    });
    while !writer.is_finished() {
        engine.store.compact().await.unwrap();
    }
    writer.await.unwrap();
    let mut engine = engine;
    engine.reopen().await;
    for id in 0..400 {
        let key = ResourceKey::new("Observation", format!("o{id}"));
        let version = engine.store.read(&key, Seq::LATEST).await.unwrap().unwrap();
        assert!(version.body.unwrap().ends_with(marker(id, 1).as_bytes()));
    }
}
