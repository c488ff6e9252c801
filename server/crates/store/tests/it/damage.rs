//! Tests that damaged files of the store are reported by name, and that an incomplete journal end after a
//! crash is accepted.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;
use trefoil_store::{
    Expect, FileOptions, Ledger, LedgerWrite, PageLimit, ResourceKey, ScanOptions, Seq, Store, StoreError,
    VersionWrite, Versions,
};

use crate::{at, put};

/// Number of resources in the folder, each written in a separate commit.
const COMMITS: usize = 8;
const SECTOR: usize = 512;

/// The folder of a store and its journal, in the state that a crash leaves.
struct Crashed {
    dir: TempDir,
    journal: PathBuf,
    bytes: Vec<u8>,
    used: usize,
    /// Offset of the last commit in the journal.
    last: usize,
    /// Length of the journal at the last checkpoint.
    checkpoint: usize,
}

impl Crashed {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let dir = TempDir::new().unwrap();
        // The store must not become idle during the test, so that it takes no checkpoint.
        let idle_after = Duration::from_secs(3600);
        let store =
            Store::open_with(folder.path(), FileOptions { idle_after, ..FileOptions::of(folder.path()) })
                .unwrap();
        let mut last = 0;
        for number in 0..COMMITS {
            last = used(&fs::read(journal(folder.path())).unwrap());
            commit(&store, number);
        }
        // Copies the folder while the store is running.
        copy(folder.path(), dir.path());
        let journal = journal(dir.path());
        let mut bytes = fs::read(&journal).unwrap();
        let used = used(&bytes);
        bytes.truncate(used + (1 << 16));
        let state = fs::read_to_string(dir.path().join("state")).unwrap();
        let length = state.split("\"length\":").nth(1).unwrap().split(',').next().unwrap();
        let checkpoint = length.parse().unwrap();
        assert!(checkpoint <= last);
        Self { dir, journal, bytes, used, last, checkpoint }
    }

    /// Returns how many consecutive commits are present if the folder has this journal.
    fn with(&self, journal: &[u8]) -> Result<usize, StoreError> {
        let dir = TempDir::new().unwrap();
        copy(self.dir.path(), dir.path());
        fs::write(dir.path().join("db").join(self.journal.file_name().unwrap()), journal).unwrap();
        let store = Store::open(dir.path())?;
        let presence: Vec<bool> = (0..COMMITS).map(|number| is_there(&store, number)).collect();
        let first = presence.iter().take_while(|&&is_there| is_there).count();
        assert!(presence[first..].iter().all(|is_there| !is_there), "{presence:?}");
        Ok(first)
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn commit(store: &Store, number: usize) {
    let text = format!("{number}").repeat(700 * (1 + number % 3));
    block_on(store.commit(vec![put("Basic", &format!("b{number}"), &text, &["c"])], at(0))).unwrap();
}

fn is_there(store: &Store, number: usize) -> bool {
    block_on(store.read(&ResourceKey::new("Basic", format!("b{number}")), Seq::LATEST)).unwrap().is_some()
}

fn journal(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("db")).unwrap().map(|file| file.unwrap().path());
    let mut journals: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "jnl")).collect();
    journals.sort();
    journals.pop().unwrap()
}

fn used(journal: &[u8]) -> usize {
    journal.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn four_flipped_bytes_of_the_journal_are_detected() {
    let crashed = Crashed::new();
    assert_eq!(crashed.with(&crashed.bytes), Ok(COMMITS));
    // The last four bytes mark a complete commit.
    let places = (0..crashed.used - 8).step_by(97);
    proptest!(ProptestConfig::with_cases(60), |(at in proptest::sample::select(places.collect::<Vec<_>>()))| {
        let mut bytes = crashed.bytes.clone();
        bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0x55);
        let error = crashed.with(&bytes).expect_err("the journal is damaged").to_string();
        prop_assert!(error.contains("the store is corrupt: the journal /"), "{error}");
        prop_assert!(error.contains(".jnl is corrupt from byte "), "{error}");
        prop_assert!(error.contains("restore a backup"), "{error}");
    });
}

#[test]
fn an_incomplete_end_after_a_crash_is_accepted() {
    let crashed = Crashed::new();
    let Crashed { used, last, checkpoint, .. } = crashed;
    proptest!(ProptestConfig::with_cases(40), |(cut in checkpoint..used, is_blank: bool)| {
        let mut bytes = crashed.bytes.clone();
        if is_blank { bytes[cut..].fill(0) } else { bytes.truncate(cut) }
        let there = crashed.with(&bytes);
        prop_assert!(there.as_ref().is_ok_and(|there| *there < COMMITS), "{there:?}");
        prop_assert!(cut < last || there == Ok(COMMITS - 1));
    });
    // All data up to the last checkpoint were on the disk.
    for cut in [0, 1, checkpoint / 2, checkpoint - 1] {
        let error = crashed.with(&crashed.bytes[..cut]).expect_err("the journal is too short").to_string();
        assert!(error.contains(crashed.journal.file_name().unwrap().to_str().unwrap()), "{error}");
        assert!(error.contains("restore a backup"), "{error}");
    }
    // A loss of power can leave sectors that were not written.
    for hole in (last.next_multiple_of(SECTOR)..used - SECTOR).step_by(SECTOR) {
        let mut bytes = crashed.bytes.clone();
        bytes[hole..hole + SECTOR].fill(0);
        assert_eq!(crashed.with(&bytes), Ok(COMMITS - 1));
    }
    // The sector of the last commit's start was on the disk with the end of the commit before it.
    let mut bytes = crashed.bytes.clone();
    bytes[last..last.next_multiple_of(SECTOR)].fill(0);
    assert_eq!(crashed.with(&bytes), Ok(COMMITS - 1));
}

/// Returns everything that a store returns for all reads.
fn dump(store: &Store) -> Result<Vec<String>, StoreError> {
    let mut lines = vec![format!("last {:?}", store.heard_seq())];
    block_on(async {
        let kinds = store.kinds(Seq::LATEST).await?;
        for kind in &kinds {
            let page = store.scan_kind(kind, ScanOptions::at(Seq::LATEST)).await?;
            for version in &page.versions {
                lines.push(format!("{:?}", store.read(&version.key, Seq::LATEST).await?));
                lines.push(format!(
                    "{:?}",
                    store.history(&version.key, Seq::LATEST, PageLimit::default()).await?
                ));
            }
            for compartment in ["c", "d"] {
                lines.push(format!(
                    "{:?}",
                    store.scan_compartment(compartment, kind, ScanOptions::at(Seq::LATEST)).await?
                ));
            }
            lines.push(format!("{page:?}"));
        }
        lines.push(format!("{:?}", store.changes(Seq::ZERO, usize::MAX).await?));
        lines.push(format!("{:?}", store.scan("", None, usize::MAX, at(0)).await?));
        Ok(lines)
    })
}

/// Fills a store with files in every table, and with writes that are only in the journal.
fn fill(store: &Store) {
    let text = "0123456789".repeat(100);
    for round in 0..4 {
        let puts = (0..100).map(|number| {
            let (kind, compartment) = if number % 3 == 0 { ("Patient", "d") } else { ("Basic", "c") };
            put(kind, &format!("b{number}"), &format!("{text} {round}"), &[compartment])
        });
        block_on(store.commit(puts.collect(), at(round))).unwrap();
        let records = (0..300).map(|number| LedgerWrite::Put {
            key: format!("k/{round}/{number}"),
            value: text.clone().into(),
            expires: Some(at(1_000_000 + number)),
            expect: Expect::Any,
        });
        block_on(store.write(records.collect(), at(round))).unwrap();
    }
    let gone = VersionWrite::delete(ResourceKey::new("Basic", "b1"));
    block_on(store.commit(vec![gone, put("Basic", "late", "late", &["c", "d"])], at(9))).unwrap();
    block_on(store.snapshot(at(10))).unwrap();
}

/// A kind of damage to one file.
#[derive(Debug, Clone)]
enum Damage {
    Cut(usize),
    Emptied,
    Deleted,
    Flipped { at: usize, bit: u8 },
    SwappedWith(PathBuf),
}

impl Damage {
    fn apply(&self, path: &Path, root: &Path) {
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = fs::read(path).unwrap();
            change(&mut bytes);
            fs::write(path, bytes).unwrap();
        };
        match self {
            Self::Cut(length) => change(&|bytes| bytes.truncate(*length)),
            Self::Emptied => change(&|bytes| bytes.clear()),
            Self::Deleted => fs::remove_file(path).unwrap(),
            Self::Flipped { at, bit } => change(&|bytes| bytes[*at] ^= 1 << bit),
            Self::SwappedWith(other) => {
                let (other, part) = (root.join(other), root.join("part"));
                fs::rename(path, &part).unwrap();
                fs::rename(&other, path).unwrap();
                fs::rename(part, other).unwrap();
            }
        }
    }
}

/// Pseudo-random numbers that are the same in each run (a linear congruential generator).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }
}

/// Returns all damages of all files of a store, with several flipped bits for each file.
fn damages(root: &Path) -> Vec<(PathBuf, Damage)> {
    let mut files = Vec::new();
    walk(root, &mut files);
    files.sort();
    let relative: Vec<PathBuf> =
        files.iter().map(|file| file.strip_prefix(root).unwrap().to_owned()).collect();
    let (mut seeded, mut all) = (Seeded(14), Vec::new());
    for file in &relative {
        let bytes = fs::read(root.join(file)).unwrap();
        // The rest of the journal consists of zeros.
        let length = used(&bytes);
        let mut of_file = vec![Damage::Emptied, Damage::Deleted];
        for part in [1, 2, 3] {
            of_file.push(Damage::Cut(length * part / 4));
        }
        of_file.push(Damage::Cut(length.saturating_sub(1)));
        for _ in 0..8_usize.min(length) {
            of_file.push(Damage::Flipped {
                at: seeded.below(length),
                bit: u8::try_from(seeded.below(8)).unwrap(),
            });
        }
        for _ in 0..3 {
            let other = &relative[seeded.below(relative.len())];
            if other != file {
                of_file.push(Damage::SwappedWith(other.clone()));
            }
        }
        all.extend(of_file.into_iter().map(|damage| (file.clone(), damage)));
    }
    all
}

/// Opens a damaged copy and reads all data. Returns the outcome. Panics if data are wrong or missing without
/// an error.
fn result_of(root: &Path, file: &Path, damage: &Damage, sound: &[String]) -> &'static str {
    let dir = TempDir::new().unwrap();
    copy(root, dir.path());
    damage.apply(&dir.path().join(file), dir.path());
    let outcome = match Store::open(dir.path()) {
        Err(error) => ("refused", error),
        // A panic during a read fails only the request, and the log contains the panic.
        Ok(store) => match catch_unwind(AssertUnwindSafe(|| dump(&store))) {
            Ok(Ok(lines)) => {
                assert!(lines == sound, "{} {damage:?} was not detected", file.display());
                return "harmless";
            }
            Ok(Err(error)) => ("reported", error),
            Err(_) => return "reported",
        },
    };
    let (result, error) = outcome;
    assert!(
        matches!(error, StoreError::Corrupt { .. } | StoreError::Engine { .. }),
        "{} {damage:?}: {error}",
        file.display()
    );
    result
}

/// Applies every n-th damage, and counts the outcomes.
fn try_damages(root: &Path, sound: &[String], step: usize) -> BTreeMap<&'static str, usize> {
    let mut results = BTreeMap::new();
    for (file, damage) in damages(root).into_iter().step_by(step) {
        *results.entry(result_of(root, &file, &damage, sound)).or_default() += 1;
    }
    results
}

/// Truncates the zeros at the end of the journal, which the engine has reserved.
fn trim_journal(root: &Path) {
    let journal = journal(root);
    let length = used(&fs::read(&journal).unwrap()) + (1 << 16);
    fs::File::options().write(true).open(journal).unwrap().set_len(length as u64).unwrap();
}

/// Returns 1 if `TREFOIL_ATTACKS=full` is set, and otherwise `of_sample`.
fn step(of_sample: usize) -> usize {
    if std::env::var_os("TREFOIL_ATTACKS").is_some_and(|value| value == "full") { 1 } else { of_sample }
}

#[test]
fn all_damage_after_a_clean_stop_is_detected() {
    let root = TempDir::new().unwrap();
    let store = Store::open(root.path()).unwrap();
    fill(&store);
    let sound = dump(&store).unwrap();
    drop(store);
    trim_journal(root.path());
    let results = try_damages(root.path(), &sound, step(5));
    println!("damages after a clean stop: {results:?}");
    assert!(results["refused"] > 20, "{results:?}");
}

#[test]
fn all_damage_after_a_kill_is_detected() {
    let (running, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    // Opening the store a second time has taken a checkpoint of all writes.
    let store = Store::open(running.path()).unwrap();
    fill(&store);
    drop(store);
    let store = Store::open(running.path()).unwrap();
    let sound = dump(&store).unwrap();
    copy(running.path(), root.path());
    trim_journal(root.path());
    let results = try_damages(root.path(), &sound, step(9));
    println!("damages after a kill: {results:?}");
    assert!(results["refused"] > 10, "{results:?}");
}

#[test]
fn damage_can_be_accepted() {
    let root = TempDir::new().unwrap();
    let store = Store::open(root.path()).unwrap();
    fill(&store);
    drop(store);
    fs::remove_file(journal(root.path())).unwrap();
    let error = Store::open(root.path()).map(|_| ()).unwrap_err().to_string();
    let accept = root.path().join("accept-damage");
    assert!(error.contains(accept.to_str().unwrap()), "{error}");
    fs::write(&accept, "").unwrap();
    drop(Store::open(root.path()).unwrap());
    assert!(!accept.exists());
    // After the damage was accepted, the store works normally.
    let store = Store::open(root.path()).unwrap();
    commit(&store, 7);
    assert!(is_there(&store, 7));
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}
