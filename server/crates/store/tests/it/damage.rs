//! The files of the store are not what was written: damage is told and names the file, while what a crash leaves at
//! the end of the journal is no damage.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;
use trefoil_store::{ResourceKey, Seq, Store, StoreError, Versions};

use crate::{at, put};

/// Resources in the folder, each written in a commit of its own.
const COMMITS: usize = 8;
const SECTOR: usize = 512;

/// The journal of a folder that was left as a crash leaves it, and the length of what was written of it.
struct Crashed {
    dir: TempDir,
    journal: PathBuf,
    bytes: Vec<u8>,
    used: usize,
    /// Where the last commit begins.
    last: usize,
}

impl Crashed {
    fn new() -> Self {
        let left = TempDir::new().unwrap();
        let dir = TempDir::new().unwrap();
        let store = Store::open(left.path()).unwrap();
        let mut last = 0;
        for number in 0..COMMITS {
            last = used(&fs::read(journal(left.path())).unwrap());
            commit(&store, number);
        }
        // A copy of what is there while the store runs.
        copy(left.path(), dir.path());
        let journal = journal(dir.path());
        let mut bytes = fs::read(&journal).unwrap();
        let used = used(&bytes);
        bytes.truncate(used + (1 << 16));
        Self { dir, journal, bytes, used, last }
    }

    /// How many of the commits, from the first one on, are there with this journal.
    fn with(&self, journal: &[u8]) -> Result<usize, StoreError> {
        let dir = TempDir::new().unwrap();
        copy(self.dir.path(), dir.path());
        fs::write(dir.path().join("db").join(self.journal.file_name().unwrap()), journal).unwrap();
        let store = Store::open(dir.path())?;
        let found: Vec<bool> = (0..COMMITS).map(|number| is_there(&store, number)).collect();
        let first = found.iter().take_while(|&&is_there| is_there).count();
        assert!(found[first..].iter().all(|is_there| !is_there), "{found:?}");
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
fn four_flipped_bytes_of_the_journal_are_told() {
    let crashed = Crashed::new();
    assert_eq!(crashed.with(&crashed.bytes), Ok(COMMITS));
    // The last four bytes say that a commit was written whole.
    let places = (0..crashed.used - 8).step_by(97);
    proptest!(ProptestConfig::with_cases(60), |(at in proptest::sample::select(places.collect::<Vec<_>>()))| {
        let mut bytes = crashed.bytes.clone();
        bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0x55);
        let told = crashed.with(&bytes).expect_err("it is damaged").to_string();
        prop_assert!(told.contains("the store is damaged: the journal /"), "{told}");
        prop_assert!(told.contains(".jnl is not what was written from byte "), "{told}");
        prop_assert!(told.contains("put back a backup"), "{told}");
    });
}

#[test]
fn the_torn_end_of_a_crash_is_no_damage() {
    let crashed = Crashed::new();
    let Crashed { used, last, .. } = crashed;
    proptest!(ProptestConfig::with_cases(40), |(cut in 0..used, is_blank: bool)| {
        let mut bytes = crashed.bytes.clone();
        if is_blank { bytes[cut..].fill(0) } else { bytes.truncate(cut) }
        let there = crashed.with(&bytes);
        prop_assert!(there.as_ref().is_ok_and(|there| *there < COMMITS), "{there:?}");
        prop_assert!(cut < last || there == Ok(COMMITS - 1));
    });
    // A loss of power may leave a hole.
    for hole in (last.next_multiple_of(SECTOR)..used - SECTOR).step_by(SECTOR) {
        let mut bytes = crashed.bytes.clone();
        bytes[hole..hole + SECTOR].fill(0);
        assert_eq!(crashed.with(&bytes), Ok(COMMITS - 1));
    }
}

#[test]
fn any_other_damaged_file_is_told_or_not_needed() {
    let sound = TempDir::new().unwrap();
    let store = Store::open(sound.path()).unwrap();
    let text = "0123456789".repeat(100);
    let writes = (0..400).map(|number| put("Basic", &format!("b{number}"), &text, &["c"]));
    block_on(store.commit(writes.collect(), at(0))).unwrap();
    drop(store);
    let mut files = Vec::new();
    walk(&sound.path().join("db/keyspaces"), &mut files);
    let mut told = 0;
    for file in files {
        let bytes = fs::read(&file).unwrap();
        for share in [0, 1, 2, 3] {
            let at = share * bytes.len().saturating_sub(4) / 3;
            let dir = TempDir::new().unwrap();
            copy(sound.path(), dir.path());
            let mut damaged = bytes.clone();
            damaged[at..].iter_mut().take(4).for_each(|byte| *byte ^= 0x55);
            fs::write(dir.path().join(file.strip_prefix(sound.path()).unwrap()), damaged).unwrap();
            let read = |store: &Store| -> Result<(), StoreError> {
                for number in 0..400 {
                    let key = ResourceKey::new("Basic", format!("b{number}"));
                    let version = block_on(store.read(&key, Seq::LATEST))?;
                    let body = version.and_then(|version| version.body).expect("it is there");
                    assert!(body.ends_with(text.as_bytes()), "{} {at}", file.display());
                }
                Ok(())
            };
            if let Err(error) = Store::open(dir.path()).and_then(|store| read(&store)) {
                told += 1;
                assert!(matches!(error, StoreError::Corrupt { .. }), "{} {at}: {error}", file.display());
                assert!(error.to_string().contains("put back a backup"), "{error}");
            }
        }
    }
    assert!(told > 20, "{told}");
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}
