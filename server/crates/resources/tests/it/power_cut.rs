//! Power cuts during an import: in every state in which a power cut may leave the store, the acknowledged
//! lines are there, a Bundle is there completely or not at all, and the repeated import gives the content of
//! an undisturbed one.
//!
//! The recorded process is this test binary, which runs [`imports_are_recorded`] in several sessions. The
//! last one ends without closing the store.

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::json;
use store::{Seq, Store, Versions as _};
use tempfile::TempDir;
use trefoil_power_cut::{Exploration, NameRule, Recording, explore, mark, recorded_folder, recorded_session};
use trefoil_resources::{ImportOptions, ImportProgress, Resources};

use crate::{new_ids, now};

const TEST: &str = "power_cut::imports_are_recorded";
/// Number of states that the ordinary tests check, and for each planted fault.
const STATES: usize = 250;
const STATES_WITH_FAULT: usize = 100;
/// Number of lines of the NDJSON file, and of lines between two acknowledgements.
const LINES: usize = 120;
const ACKNOWLEDGED: u64 = 10;
/// Number of resources of the Bundle.
const ENTRIES: usize = 30;
/// In the second version of the NDJSON file, every line with this distance is changed.
const CHANGED: usize = 6;

/// The imports of the sessions, one after another.
const IMPORTS: [fn(&Path) -> PathBuf; 3] = [|dir| lines(dir, 1), bundle, |dir| lines(dir, 2)];
/// Number of writes before each import.
const BEFORE: [usize; 3] = [0, LINES, LINES + ENTRIES];

fn lines(dir: &Path, version: usize) -> PathBuf {
    let line = |number: usize| {
        let version = if number.is_multiple_of(CHANGED) { version } else { 1 };
        let text = format!("{version} {}", "x".repeat(100 + 5 * number));
        json!({ "resourceType": "Patient", "id": format!("p{number}"), "name": [{ "text": text }] })
            .to_string()
    };
    let path = dir.join("patients.ndjson");
    fs::write(&path, (0..LINES).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path
}

fn bundle(dir: &Path) -> PathBuf {
    let entry = |number: usize| {
        let text = "y".repeat(300 * (number % 5));
        json!({ "resource": { "resourceType": "Basic", "id": format!("b{number}"), "code": { "text": text } } })
    };
    let entries: Vec<_> = (0..ENTRIES).map(entry).collect();
    let path = dir.join("bundle.json");
    fs::write(&path, json!({ "resourceType": "Bundle", "type": "collection", "entry": entries }).to_string())
        .unwrap();
    path
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn import(store: &Store, number: usize, progress: impl FnMut(ImportProgress)) {
    let dir = TempDir::new().unwrap();
    let options = ImportOptions { lines: ACKNOWLEDGED, ..ImportOptions::default() };
    let paths = vec![IMPORTS[number](dir.path())];
    let report = Resources::new(store.clone())
        .import(paths, options, new_ids(), progress, now, pending())
        .await
        .unwrap();
    assert_eq!(report.bad_total, 0);
}

/// Returns all changes with the content that they wrote, in order.
async fn content(store: &Store) -> Vec<String> {
    let mut texts = Vec::new();
    for change in store.changes(Seq::ZERO, usize::MAX).await.unwrap() {
        let version = store.read(&change.key, change.seq).await.unwrap();
        texts.push(format!("{change:?} {version:?}"));
    }
    texts
}

fn expected() -> &'static Vec<String> {
    static EXPECTED: OnceLock<Vec<String>> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        block_on(async {
            let store = Store::memory();
            for (number, before) in BEFORE.into_iter().enumerate() {
                assert_eq!(store.last_seq().await.unwrap().0, before as u64);
                import(&store, number, |_| {}).await;
            }
            content(&store).await
        })
    })
}

/// If this process is recorded: carries out one import, and marks the acknowledged lines and the end.
/// Otherwise: carries out each import twice, which writes nothing the second time.
#[test]
fn imports_are_recorded() {
    let Some(root) = recorded_folder() else {
        let store = Store::memory();
        let twice = [0, 0, 1, 1, 2, 2];
        twice.into_iter().for_each(|number| block_on(import(&store, number, |_| {})));
        assert_eq!(&block_on(content(&store)), expected());
        return;
    };
    let store = Store::open(&root.join("store")).unwrap();
    let number = recorded_session();
    block_on(import(&store, number, |progress| match progress {
        ImportProgress::Lines { lines, .. } => mark(&format!("{number} {lines}")),
        ImportProgress::Done { .. } => mark(&format!("{} 0", number + 1)),
        _ => {}
    }));
    if number == IMPORTS.len() - 1 {
        std::process::exit(0);
    }
}

/// Opens the store in a folder after a power cut, and repeats the imports that were not acknowledged as a
/// whole.
fn check(root: &Path, marks: &[&str]) -> Result<(), String> {
    let (first, lines) = marks.last().map_or((0, 0), |mark| {
        let (import, lines) = mark.split_once(' ').unwrap();
        (import.parse::<usize>().unwrap(), lines.parse::<usize>().unwrap())
    });
    let least = match first {
        0 => lines,
        2 => BEFORE[2] + lines.div_ceil(CHANGED),
        complete => BEFORE.get(complete).copied().unwrap_or(expected().len()),
    };
    // A runtime must not be started within another one.
    let expected = expected();
    block_on(async {
        let store = Store::open(&root.join("store")).map_err(|error| error.to_string())?;
        let contents = content(&store).await;
        if contents.len() < least || contents[..] != expected[..contents.len()] {
            return Err(format!("{} writes are there, {least} were acknowledged", contents.len()));
        }
        if contents.len() > BEFORE[1] && contents.len() < BEFORE[2] {
            return Err(format!("the Bundle is incomplete: {} writes are there", contents.len()));
        }
        for number in first..IMPORTS.len() {
            import(&store, number, |_| {}).await;
        }
        if content(&store).await != *expected {
            return Err("the repeated import has another result".to_owned());
        }
        Ok(())
    })
}

#[test]
fn acknowledged_lines_survive_a_power_cut() {
    let Some(recording) = Recording::of_test(TEST, IMPORTS.len()).unwrap() else { return };
    let report = explore(&recording, Exploration::of(NameRule::Strict, STATES), check);
    report.expect_no_failure(&recording, "power_cut::acknowledged");

    let (faulty, dropped) = recording.without_syncs(|path| path.ends_with(".jnl"));
    let report = explore(&faulty, Exploration::of_fault(NameRule::Strict, STATES_WITH_FAULT), check);
    assert!(!report.failures.is_empty(), "the check passes without {dropped} fsyncs of journals");
}
