//! Tests of the engine on a full disk, and of its recovery.

use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

use super::keys::StoreTable;
use super::*;
use crate::Expect;
use crate::space::FreeSpace;

fn clock() -> MonotonicClock {
    Arc::new(|| Duration::ZERO)
}

fn space_of(dir: &Path, free: impl Fn() -> u64 + Send + Sync + 'static) -> space::DiskSpace {
    space::DiskSpace::with_probe(dir, Arc::new(move |_| Ok(FreeSpace { free: free(), total: 1 << 30 })))
}

fn on(dir: &Path, disk: space::DiskSpace) -> FileOptions {
    FileOptions { disk, ..FileOptions::of(dir) }
}

#[tokio::test]
async fn a_full_disk_allows_reads_and_writes_resume_automatically() {
    let dir = tempfile::TempDir::new().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 29));
    let probe = Arc::clone(&free);
    let disk = space_of(dir.path(), move || probe.load(Ordering::Relaxed));
    let store = FileEngine::open_on(dir.path(), on(dir.path(), disk), clock()).unwrap();
    let put = |size| vec![LedgerWrite::put("k", vec![0; size], Expect::Any)];
    let now = Timestamp::UNIX_EPOCH;
    store.write(put(1), now).await.unwrap();

    // Only small writes may use the reserve.
    free.store(20 << 20, Ordering::Relaxed);
    assert!(matches!(store.write(put(1 << 20), now).await, Err(StoreError::ReadOnly { .. })));
    store.write(put(2), now).await.unwrap();

    free.store(4096, Ordering::Relaxed);
    let error = store.write(put(3), now).await.unwrap_err();
    assert!(error.to_string().contains("the disk has 4 KiB left"), "{error}");
    assert!(matches!(store.snapshot(now).await, Err(StoreError::ReadOnly { .. })));
    assert_eq!(store.get("k", now).await.unwrap().unwrap().value.len(), 2);

    free.store(1 << 29, Ordering::Relaxed);
    store.write(put(1 << 20), now).await.unwrap();
    assert_eq!(store.get("k", now).await.unwrap().unwrap().value.len(), 1 << 20);
}

/// A small file system of its own, if the test is allowed to mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::TempDir::new().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(dir.path());
        let mounted = mount.stderr(std::process::Stdio::null()).status().is_ok_and(|s| s.success());
        if !mounted {
            println!("left out: the test of a full disk, because no file system can be mounted here");
        }
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").arg(self.0.path()).status());
    }
}

#[tokio::test]
async fn the_store_reopens_after_a_full_disk() {
    let Some(disk) = SmallDisk::mount("48m") else { return };
    // The store does not know the size of this disk, so writes are not rejected in advance.
    let elapsed = Arc::new(AtomicU64::new(0));
    let seconds = Arc::clone(&elapsed);
    let clock: MonotonicClock = Arc::new(move || Duration::from_secs(seconds.load(Ordering::Relaxed)));
    let dir = disk.0.path().join("store");
    let store = FileEngine::open_on(&dir, on(&dir, space_of(&dir, || u64::MAX)), clock).unwrap();
    let time = |second| Timestamp::from_second(second).unwrap();
    let put = |n: i64, size| vec![LedgerWrite::put(format!("k{n}"), vec![n as u8; size], Expect::Any)];
    store.write(put(0, 100), time(0)).await.unwrap();

    let filler = disk.0.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 1 << 16]).is_ok() {}
    let mut revisions = vec![0];
    let mut second = 1;
    // The journal may still have space, so the test writes until a write fails.
    let error = loop {
        match store.write(put(second, 1 << 20), time(second)).await {
            Ok(_) => revisions.push(second),
            Err(error) => break error,
        }
        second += 1;
        assert!(second < 200, "the disk did not become full");
    };
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    assert!(matches!(store.write(put(999, 1), time(second)).await, Err(StoreError::ReadOnly { .. })));
    assert!(store.get("k0", time(second)).await.unwrap().is_some());

    drop(file);
    fs::remove_file(filler).unwrap();
    // Whatever time the callers pass, the engine is reopened only after [`REOPEN_DELAY`].
    assert!(matches!(store.write(put(999, 1), time(second + 99)).await, Err(StoreError::ReadOnly { .. })));
    elapsed.store(2, Ordering::Relaxed);
    store.write(put(second, 100), time(second + 2)).await.unwrap();
    revisions.push(second);
    for n in revisions {
        let record = store.get(&format!("k{n}"), time(second + 2)).await.unwrap();
        assert!(record.is_some_and(|record| record.value.iter().all(|byte| *byte == n as u8)), "k{n}");
    }
}

#[tokio::test]
async fn an_engine_whose_background_task_failed_is_reopened_by_the_next_write() {
    let Some(small) = SmallDisk::mount("48m") else { return };
    let dir = small.0.path().join("store");
    let store = FileEngine::open_on(&dir, on(&dir, space_of(&dir, || u64::MAX)), clock()).unwrap();
    let now = Timestamp::UNIX_EPOCH;
    let put = |key: &str| vec![LedgerWrite::put(key, vec![1; 100_000], Expect::Any)];
    store.write(put("before"), now).await.unwrap();

    let filler = small.0.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 1 << 12]).is_ok() {}
    // Simulates a background task that runs out of space.
    let disk = &store.shared.disk;
    disk.with(|engine| {
        engine.tables.of(StoreTable::Records).rotate_memtable().unwrap();
        while !engine.is_poisoned() {
            thread::yield_now();
        }
        Ok(())
    })
    .unwrap();
    drop(file);
    fs::remove_file(filler).unwrap();

    store.write(put("after"), now).await.unwrap();
    for key in ["before", "after"] {
        assert!(store.get(key, now).await.unwrap().is_some(), "{key}");
    }
    store.check_writable().await.unwrap();
}

#[tokio::test]
async fn a_check_reports_why_a_write_would_fail() {
    let dir = tempfile::TempDir::new().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 29));
    let probe = Arc::clone(&free);
    let store = FileEngine::open_on(
        dir.path(),
        on(dir.path(), space_of(dir.path(), move || probe.load(Ordering::Relaxed))),
        clock(),
    )
    .unwrap();
    let before = store.heard_seq();
    store.check_writable().await.unwrap();
    free.store(4096, Ordering::Relaxed);
    let error = store.check_writable().await.unwrap_err().to_string();
    assert!(error.contains("the disk has 4 KiB left"), "{error}");
    assert_eq!(store.heard_seq(), before);
}

#[tokio::test]
async fn small_writes_on_a_disk_that_is_nearly_full_start_no_merge() {
    let dir = tempfile::TempDir::new().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 29));
    let probe = Arc::clone(&free);
    let disk = space_of(dir.path(), move || probe.load(Ordering::Relaxed));
    let store = FileEngine::open_on(dir.path(), on(dir.path(), disk), clock()).unwrap();
    let bytes =
        || store.shared.disk.with(|engine| Ok(engine.tables.of(StoreTable::Records).disk_space())).unwrap();
    let write = async |round: usize| {
        for number in 0..40 {
            let put = LedgerWrite::put(format!("{round}/{number}"), vec![0; 60 << 10], Expect::Any);
            store.write(vec![put], Timestamp::UNIX_EPOCH).await.unwrap();
        }
    };
    // Writes more than the memtables hold in memory when there is space.
    free.store(20 << 20, Ordering::Relaxed);
    write(0).await;
    assert_eq!(bytes(), 0);
    free.store(1 << 29, Ordering::Relaxed);
    write(1).await;
    while bytes() == 0 {
        thread::yield_now();
    }
}

#[test]
fn a_store_of_another_format_is_not_called_corrupt() {
    let dir = tempfile::TempDir::new().unwrap();
    drop(FileEngine::open(dir.path()).unwrap());
    let db = fjall::Database::builder(dir.path().join("db")).open().unwrap();
    let [.., meta] = StoreTable::NAMES;
    db.keyspace(meta, fjall::KeyspaceCreateOptions::default).unwrap().insert(keys::FORMAT, "2").unwrap();
    db.persist(fjall::PersistMode::SyncAll).unwrap();
    drop(db);
    let error = FileEngine::open(dir.path()).err().unwrap().to_string();
    assert_eq!(
        error,
        "failed to open the store: the store has format 2, and this program reads format 3; use the program that wrote it, \
         or a new folder"
    );
}

/// The state file says that the store ended as it should only between a departure and the next start.
#[tokio::test]
async fn a_departure_is_a_clean_end() {
    let dir = tempfile::TempDir::new().unwrap();
    let open = || {
        FileEngine::open_on(dir.path(), on(dir.path(), space_of(dir.path(), || 1 << 29)), clock()).unwrap()
    };
    let is_clean = || state::StoreState::read(dir.path()).unwrap().unwrap().is_clean;
    let put = |key: &str| vec![LedgerWrite::put(key, "x", Expect::Any)];
    let now = Timestamp::UNIX_EPOCH;
    let store = open();
    store.write(put("a"), now).await.unwrap();
    assert!(!is_clean());
    // Requests may still hold the store when its process ends.
    let (held, late) = (store.clone(), store.clone());
    let (written, ended) = tokio::join!(store.write(put("b"), now), held.end());
    written.unwrap();
    ended.unwrap();
    assert!(is_clean());
    assert!(matches!(late.write(put("c"), now).await, Err(StoreError::ReadOnly { .. })));
    assert!(late.get("b", now).await.unwrap().is_some());
    drop((store, held, late));
    let store = open();
    assert!(!is_clean(), "a kill after this start is not a clean end");
    assert!(store.get("b", now).await.unwrap().is_some() && store.get("c", now).await.unwrap().is_none());
}
