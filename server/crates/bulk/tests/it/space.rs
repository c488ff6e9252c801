//! Tests of exports on a nearly full disk, and of the space that removed exports free.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use store::space::{DiskSpace, FreeSpace};
use store::{FileOptions, Store, StoreError};
use tempfile::TempDir;
use trefoil_bulk::{ExportLevel, FileLocation, JobStatus, TypeAccess};

use crate::support::{RETENTION, Setup, finish};

/// Returns a disk of 1 GiB, and its free space as a number that the test can change.
fn disk(dir: &std::path::Path, free: u64) -> (DiskSpace, Arc<AtomicU64>) {
    let free = Arc::new(AtomicU64::new(free));
    let space = Arc::clone(&free);
    let probe =
        move |_: &std::path::Path| Ok(FreeSpace { free: space.load(Ordering::Relaxed), total: 1 << 30 });
    (DiskSpace::with_probe(dir, Arc::new(probe)), free)
}

async fn fill(setup: &Setup) {
    for number in 0..20 {
        setup.put("Patient", &format!("p{number}"), json!({ "language": "x".repeat(2_000) })).await;
    }
}

#[tokio::test]
async fn an_export_that_waits_for_space_removes_its_files() {
    let dir = TempDir::new().unwrap();
    let (disk, free) = disk(dir.path(), 1 << 29);
    let space = Arc::clone(&free);
    // The disk becomes full when the first files have been written.
    let setup = Setup::with(|options| {
        options.file_size = 4_000;
        let FileLocation::Folder { path, disk } = &mut options.files else {
            panic!("the files are in a folder")
        };
        let (exports, is_filled) = (path.clone(), AtomicBool::new(false));
        let probe = move |_: &std::path::Path| {
            let jobs = std::fs::read_dir(&exports).into_iter().flatten().flatten();
            let files = jobs.flat_map(|job| std::fs::read_dir(job.path()).into_iter().flatten());
            if files.count() > 0 && !is_filled.swap(true, Ordering::Relaxed) {
                space.store(60 << 20, Ordering::Relaxed);
            }
            Ok(FreeSpace { free: space.load(Ordering::Relaxed), total: 1 << 30 })
        };
        *disk = DiskSpace::with_probe(dir.path(), Arc::new(probe));
    });
    drop(disk);
    fill(&setup).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    let status = async || setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap();
    while free.load(Ordering::Relaxed) == 1 << 29 || setup.folder_of(&job).exists() {
        assert!(matches!(status().await, JobStatus::InProgress { .. }));
        tokio::task::yield_now().await;
    }
    // The export waits while the disk is full, and has no files.
    for _ in 0..3 {
        setup.pass(Duration::from_secs(61));
        setup.bulk.sweep(setup.now()).await.unwrap();
        assert!(matches!(status().await, JobStatus::InProgress { .. }));
        assert!(!setup.folder_of(&job).exists());
    }
    free.store(1 << 29, Ordering::Relaxed);
    let manifest = loop {
        setup.pass(Duration::from_secs(61));
        setup.bulk.sweep(setup.now()).await.unwrap();
        tokio::task::yield_now().await;
        match status().await {
            JobStatus::Complete { manifest, .. } => break manifest,
            JobStatus::InProgress { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let counts = manifest["output"].as_array().unwrap().iter().map(|file| file["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 20);
}

#[tokio::test]
async fn the_space_of_an_expired_export_is_freed_even_if_the_store_is_read_only() {
    let dir = TempDir::new().unwrap();
    let (disk, free) = disk(dir.path(), 1 << 29);
    let store = {
        let folder = dir.path().join("store");
        Store::open_with(&folder, FileOptions { disk, ..FileOptions::of(&folder) }).unwrap()
    };
    let setup = Setup::on(store, |_| {});
    fill(&setup).await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
        finish(&setup.bulk, &job, setup.now()).await;
        jobs.push(job);
    }
    free.store(0, Ordering::Relaxed);
    // A client's delete also frees the space, and the client may repeat the delete.
    let deleted = setup.bulk.delete(&jobs[0], "client", setup.now()).await;
    assert!(deleted.is_err());
    assert!(!setup.folder_of(&jobs[0]).exists());
    setup.pass(RETENTION);
    assert!(matches!(setup.bulk.sweep(setup.now()).await, Err(StoreError::ReadOnly { .. })));
    assert!(jobs.iter().all(|job| !setup.folder_of(job).exists()));
    free.store(1 << 29, Ordering::Relaxed);
    assert_eq!(setup.bulk.sweep(setup.now()).await.unwrap(), 3);
}

#[tokio::test]
async fn exports_that_cannot_be_resumed_on_a_full_disk_are_resumed_later() {
    let dir = TempDir::new().unwrap();
    let (disk, free) = disk(dir.path(), 1 << 29);
    let store = {
        let folder = dir.path().join("store");
        Store::open_with(&folder, FileOptions { disk, ..FileOptions::of(&folder) }).unwrap()
    };
    let setup = Setup::on(store, |_| {});
    fill(&setup).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    // The first process has not run the export yet and never ends it, because it cannot write.
    free.store(0, Ordering::Relaxed);
    let restarted = setup.reopened();
    assert!(matches!(restarted.resume().await, Err(StoreError::ReadOnly { .. })));
    let status = restarted.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap();
    assert!(matches!(status, JobStatus::InProgress { .. }));
    free.store(1 << 29, Ordering::Relaxed);
    setup.pass(Duration::from_secs(61));
    restarted.sweep(setup.now()).await.unwrap();
    let manifest = finish(&restarted, &job, setup.now()).await;
    assert_eq!(setup.read(&restarted, &manifest).await["Patient"].len(), 20);
}

#[tokio::test]
async fn folders_of_other_stores_are_kept() {
    let setup = Setup::new();
    fill(&setup).await;
    let exports = setup.dir.path().join("exports");
    let unknown = setup.folder_of(&"0".repeat(32));
    let foreign = ["0".repeat(32), format!("{}-{}", "0".repeat(32), "1".repeat(32)), "photos".to_owned()];
    let foreign = foreign.map(|name| exports.join(name));
    for folder in foreign.iter().chain([&unknown]) {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("file"), "text").unwrap();
    }
    let bulk = setup.reopened();
    bulk.resume().await.unwrap();
    bulk.sweep(setup.now()).await.unwrap();
    assert!(!unknown.exists(), "the folder of an unknown job of this store is removed");
    assert!(foreign.iter().all(|folder| folder.join("file").exists()));
}
