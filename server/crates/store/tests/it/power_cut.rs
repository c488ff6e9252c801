//! Power cuts: in every state in which a power cut may leave the folder of a store, the store opens and
//! contains exactly the acknowledged requests, and possibly the first of those that were not acknowledged.
//!
//! The recorded process is this test binary, which runs [`requests_are_recorded`] in several sessions; every
//! second one ends without closing the store. The requests and their order are fixed. A store in memory gives
//! the expected content after each of them.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use trefoil_power_cut::{
    Exploration, NameRule, Operation, Recording, explore, mark, record_recovery, recorded_folder,
    recorded_session,
};
use trefoil_store::{
    Erasure, Expect, ExpectVersion, FileOptions, IndexCondition, IndexLookup, IndexRange, Ledger,
    LedgerWrite, PageLimit, ResourceKey, ScanOptions, Seq, Store, StoreError, Version, VersionWrite,
    Versions,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{at, open, put};

const TEST: &str = "power_cut::requests_are_recorded";
/// Arguments that select the test of a saved recording.
const CHECK: &str = "--exact power_cut::nothing_acknowledged_is_lost_by_a_power_cut";
const SESSIONS: usize = 4;
/// Number of requests in each session.
const REQUESTS: usize = 60;
/// Number of requests that are sent together. The writer takes them in their order, in one round or several.
const BURST: usize = 4;
/// Number of states that the ordinary tests check.
const STATES: usize = 1_500;
/// Number of the session after a power cut, and number of its requests.
const RECOVERY: usize = SESSIONS + 1;
const RECOVERY_REQUESTS: usize = 12;
/// Number of recoveries from a power cut that are recorded, and of states for each of them.
const RECOVERIES: u64 = 4;
const STATES_OF_RECOVERY: usize = 150;
/// Number of states from which on there is one more recovery.
const STATES_OF_RECOVERIES: u64 = 10_000;
/// Number of states that they check for each planted fault.
const STATES_WITH_FAULT: usize = 300;

enum Request {
    Write(Vec<LedgerWrite>),
    Commit(Vec<VersionWrite>),
    Snapshot,
    Sweep,
    /// Erases a resource that has one version.
    Erase(ResourceKey),
    Compact,
}

/// Time of a request. The clock sometimes goes back.
fn time(number: usize) -> Timestamp {
    let number = i64::try_from(number).unwrap();
    at(10 * number - if number % 9 == 0 { 500 } else { 0 })
}

/// Returns the request with this number. Some of them are rejected, because their conditions do not hold.
fn request(number: usize) -> Request {
    let body = |length: usize| format!("{number:04}").repeat(length / 4);
    let id = format!("r{}", number % 7);
    match number % 10 {
        0 | 5 => Request::Write(vec![
            LedgerWrite::put(format!("key/{}", number % 13), body(300), Expect::Any),
            LedgerWrite::put(format!("once/{}", number / 20), body(20), Expect::Absent),
        ]),
        1 => Request::Write(vec![
            LedgerWrite::put(format!("short/{number}"), body(40), Expect::Any).expiring(time(number + 15)),
            LedgerWrite::delete(format!("key/{}", number % 5), Expect::Any),
        ]),
        // Large records fill the memtables, so that the engine writes and merges files of tables.
        2 => {
            Request::Write(vec![LedgerWrite::put(format!("large/{}", number % 3), body(50_000), Expect::Any)])
        }
        3 | 6 => Request::Commit(vec![
            put("Patient", &id, &body(700), &["c"])
                .indexed(vec![format!("p{}", number % 4).into_bytes().into()]),
            put("Observation", &id, &body(1_500), &["c", "d"]),
            put("Encounter", &format!("e{number}"), &body(100), &[]),
        ]),
        4 => Request::Commit(vec![VersionWrite::delete(ResourceKey::new("Observation", id))]),
        7 => {
            let term = format!("once{}", number / 20).into_bytes();
            let condition =
                IndexCondition { ranges: vec![IndexRange::Term(term.clone().into())], since: Seq::ZERO };
            let create = put("Device", &format!("d{number}"), &body(60), &["c"])
                .expecting(ExpectVersion::Absent)
                .indexed(vec![term.into()])
                .unless_indexed(Some(condition));
            Request::Commit(vec![create])
        }
        8 if number % 20 == 8 => Request::Sweep,
        8 if number % 60 == 38 => Request::Compact,
        8 if number % 60 == 18 => Request::Erase(ResourceKey::new("Encounter", format!("e{}", number - 5))),
        8 => Request::Commit(vec![put("Binary", "large", &body(40_000), &[])]),
        _ => Request::Snapshot,
    }
}

/// Sends a request, and returns the answer as text.
async fn send(store: &Store, number: usize) -> String {
    let now = time(number);
    let is_refusal = |error: StoreError| {
        let is_condition = matches!(error, StoreError::Conflict { .. } | StoreError::IndexChanged { .. });
        assert!(is_condition, "request {number}: {error}");
        error.to_string()
    };
    match request(number) {
        Request::Write(writes) => {
            store.write(writes, now).await.map_or_else(is_refusal, |revisions| format!("{revisions:?}"))
        }
        Request::Commit(writes) => {
            store.commit(writes, now).await.map_or_else(is_refusal, |commit| format!("{commit:?}"))
        }
        Request::Snapshot => format!("{:?}", store.snapshot(now).await.unwrap()),
        Request::Sweep => format!("{:?}", store.sweep(now, 100).await.unwrap()),
        Request::Erase(key) => {
            let erasure = Erasure { key, newest: 1, terms: Vec::new() };
            store.erase(vec![erasure]).await.map_or_else(is_refusal, |seq| format!("{seq:?}"))
        }
        Request::Compact => format!("{:?}", store.compact().await.unwrap()),
    }
}

/// Returns a digest of everything that a store returns for all reads. The order of a scan depends on the
/// engine.
async fn digest(store: &Store) -> Result<u128, StoreError> {
    let mut lines = vec![format!("{:?}", store.last_seq().await?)];
    let kinds = store.kinds(Seq::LATEST).await?;
    for kind in &kinds {
        let all = ScanOptions::at(Seq::LATEST).with_deleted();
        for compartment in ["c", "d"] {
            let page = store.scan_compartment(compartment, kind, all).await?;
            lines.extend(page.versions.iter().map(|version| format!("{compartment} {:?}", version.key)));
        }
        for version in store.scan_kind(kind, all).await?.versions {
            assert_eq!(store.read(&version.key, Seq::LATEST).await?.as_ref(), Some(&version));
            let history = store.history(&version.key, Seq::LATEST, PageLimit::default()).await?;
            lines.extend(history.iter().map(|version| {
                let Version { key, version, seq, updated, compartments, source_time, body } = version;
                let body = body.as_ref().map(|body| xxh3_128(body));
                format!("{key} {version} {seq} {updated} {compartments:?} {source_time:?} {body:?}")
            }));
        }
    }
    let changes = store.changes(Seq::ZERO, usize::MAX).await?;
    lines.extend(changes.iter().map(|change| format!("{change:?}")));
    let range = IndexRange::Between(vec![b'a'].into(), vec![b'z'].into());
    let entries = store.index_entries(vec![IndexLookup::first(range, 1_000)]).await?;
    lines.extend(entries.iter().flatten().map(|entry| format!("{entry:?}")));
    // A record that has expired remains until it is swept.
    let records = store.scan("", None, usize::MAX, at(i64::from(i32::MIN))).await?;
    lines.extend(
        records
            .iter()
            .map(|(key, record)| format!("{key} {} {:x}", record.revision, xxh3_128(&record.value))),
    );
    lines.sort_unstable();
    let mut hasher = Xxh3::new();
    lines.iter().for_each(|line| hasher.update(line.as_bytes()));
    Ok(hasher.digest128())
}

/// The expected content after each request.
struct Expected {
    answers: Vec<String>,
    /// The digest after each number of requests.
    digests: Vec<u128>,
}

/// The answers to a commit and a ledger write that follow, at a time before all others.
struct NextAnswers {
    /// `lastUpdated` of the commit: the earliest that is permitted.
    updated: Timestamp,
    /// Sequence number of the commit, version of its resource, and revision of the record.
    numbers: (Seq, u64, Vec<u64>),
}

async fn probe(store: &Store) -> NextAnswers {
    let commit = store.commit(vec![put("Basic", "probe", "probe", &[])], at(0)).await.unwrap();
    let revisions = store.write(vec![LedgerWrite::put("probe", "", Expect::Any)], at(0)).await.unwrap();
    let result = commit.written[0];
    NextAnswers { updated: result.updated, numbers: (commit.seq, result.version, revisions) }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn expected() -> &'static Expected {
    static EXPECTED: OnceLock<Expected> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        block_on(async {
            let store = Store::memory();
            let (mut answers, mut digests) = (Vec::new(), vec![digest(&store).await.unwrap()]);
            for number in 0..SESSIONS * REQUESTS {
                answers.push(send(&store, number).await);
                digests.push(digest(&store).await.unwrap());
            }
            Expected { answers, digests }
        })
    })
}

/// Returns, for each number of requests, the answers to the requests of [`probe`] that follow.
fn expected_probes() -> &'static Vec<NextAnswers> {
    static PROBES: OnceLock<Vec<NextAnswers>> = OnceLock::new();
    PROBES.get_or_init(|| {
        block_on(async {
            let mut probes = Vec::new();
            for requests in 0..=SESSIONS * REQUESTS {
                // The probe changes its store, so each has one of its own.
                let store = Store::memory();
                for number in 0..requests {
                    send(&store, number).await;
                }
                probes.push(probe(&store).await);
            }
            probes
        })
    })
}

/// If this process is recorded: sends the requests of one session and marks each answer. Otherwise: does so
/// in one folder without a recording, and checks the answers.
#[test]
fn requests_are_recorded() {
    let Some(root) = recorded_folder() else {
        let dir = tempfile::TempDir::new().unwrap();
        for session in 0..2 {
            let requests = session * REQUESTS..(session + 1) * REQUESTS;
            let answered = block_on(send_all(dir.path(), requests.clone(), |_| {}));
            assert_eq!(answered.0, expected().answers[requests]);
        }
        return;
    };
    let session = recorded_session();
    let requests = match session {
        RECOVERY => {
            let store = open(&root.join("store"));
            let current = block_on(digest(&store)).unwrap();
            // A snapshot changes only the time from which the next write counts.
            let time = block_on(store.last_time()).unwrap().unwrap_or(at(0));
            let is_reached = |number: &usize| {
                expected().digests[*number] == current && expected_probes()[*number].updated == time
            };
            let first = (0..expected().digests.len()).find(is_reached).unwrap();
            if let Some(last) = first.checked_sub(1) {
                // A request that was found after a power cut must not be lost by the next one.
                mark(&last.to_string());
            }
            first..expected().answers.len().min(first + RECOVERY_REQUESTS)
        }
        _ => session * REQUESTS..(session + 1) * REQUESTS,
    };
    let (_, store) = block_on(send_all(&root, requests, |number| mark(&number.to_string())));
    if session % 2 == 1 {
        // The process ends while the store is open, as if it was killed.
        std::process::exit(0);
    }
    drop(store);
}

/// Sends requests, and returns the answers and the open store.
async fn send_all(root: &Path, requests: Range<usize>, acknowledged: impl Fn(usize)) -> (Vec<String>, Store) {
    let dir = root.join("store");
    let options = FileOptions { idle_after: Duration::from_millis(10), ..FileOptions::of(&dir) };
    let store = Store::open_with(&dir, options).unwrap();
    let mut answers = Vec::new();
    for first in requests.clone().step_by(BURST) {
        let burst = (first..requests.end.min(first + BURST)).map(async |number| {
            let result = send(&store, number).await;
            acknowledged(number);
            result
        });
        answers.extend(join_all(burst).await);
        if first % 5 == 0 {
            // The store becomes idle and takes a checkpoint.
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }
    (answers, store)
}

/// Opens the store in a folder after a power cut, and compares its content.
fn check(root: &Path, marks: &[&str]) -> Result<(), String> {
    let (expected, probes) = (expected(), expected_probes());
    let acknowledged = marks.iter().map(|mark| mark.parse::<usize>().unwrap() + 1).max().unwrap_or(0);
    let dir = root.join("store");
    block_on(async {
        let store = Store::open(&dir).map_err(|error| format!("{acknowledged} acknowledged, {error}"))?;
        let current = digest(&store).await.map_err(|error| error.to_string())?;
        // Requests after the acknowledged ones may be present if the process had sent them.
        let reached = (acknowledged..expected.digests.len().min(acknowledged + BURST + 1))
            .find(|number| expected.digests[*number] == current);
        let Some(reached) = reached else {
            return Err(match expected.digests.iter().position(|digest| *digest == current) {
                Some(number) => {
                    format!("{acknowledged} requests were acknowledged, and {number} are present")
                }
                None => {
                    format!(
                        "{acknowledged} requests were acknowledged; the content is not that after any request"
                    )
                }
            });
        };
        // A snapshot that is repeated after a power cut moves the time, which must not go back.
        let NextAnswers { updated, numbers } = probe(&store).await;
        let (earliest, possible) = (probes[acknowledged].updated, &probes[reached..]);
        if updated < earliest || possible.iter().take(BURST).all(|expected| expected.numbers != numbers) {
            let expected = &possible[0].numbers;
            return Err(format!(
                "after {reached} requests, the next answers are {numbers:?} at {updated}, expected {expected:?} at \
                 {earliest} or later"
            ));
        }
        Ok(())
    })
}

fn recording() -> Option<&'static Recording> {
    static RECORDING: OnceLock<Option<Recording>> = OnceLock::new();
    RECORDING.get_or_init(|| Recording::of_test(TEST, SESSIONS).unwrap()).as_ref()
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut() {
    let Some(recording) = recording() else { return };
    let report = explore(recording, Exploration::of(NameRule::Strict, STATES), check);
    report.expect_no_failure(recording, CHECK);
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut_during_recovery() {
    let Some(recording) = recording() else { return };
    let exploration = Exploration::of(NameRule::Strict, STATES);
    // A soak checks more states, and therefore more recoveries.
    let recoveries = RECOVERIES + exploration.states as u64 / STATES_OF_RECOVERIES;
    for seed in exploration.seed..exploration.seed + recoveries {
        let first = Exploration { seed, ..exploration };
        let Some(recovery) = record_recovery(recording, first, TEST, RECOVERY).unwrap() else { return };
        let report = explore(&recovery, Exploration { states: STATES_OF_RECOVERY, ..first }, check);
        report.expect_no_failure(&recovery, CHECK);
    }
}

/// Returns `true` if the last part of a path is a number.
fn is_numbered(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Selects fsyncs by the path that is synced.
type PathFilter = fn(&str) -> bool;

/// The fsyncs of a store, by what they make durable.
const SYNCS: [(&str, PathFilter); 11] = [
    ("the name of the store's folder", str::is_empty),
    ("the names of the state file and of the engine's folder", |path| path == "store"),
    ("the state file", |path| path == "store/state.part"),
    ("the names of journals", |path| path == "store/db"),
    ("journals", |path| path.ends_with(".jnl")),
    ("the names of tables", |path| path == "store/db/keyspaces"),
    ("files of tables", |path| path.contains("/tables/")),
    ("the names of files of tables", |path| path.ends_with("/tables")),
    ("versions of tables", |path| path.contains("/keyspaces/") && path.contains("/v")),
    ("the current version of tables", |path| path.contains("/.tmp") || path.ends_with("/current")),
    ("the names of versions of tables", |path| {
        path.contains("/keyspaces/") && !path.contains("/tables/") && is_numbered(path)
    }),
];

#[test]
fn the_check_fails_without_the_fsyncs_of_a_kind() {
    let Some(recording) = recording() else { return };
    for (what, is_dropped) in SYNCS {
        let (faulty, dropped) = recording.without_syncs(is_dropped);
        let report = explore(&faulty, Exploration::of_fault(NameRule::Strict, STATES_WITH_FAULT), check);
        println!("without {dropped} fsyncs of {what}: {} failures", report.failures.len());
        assert!(!report.failures.is_empty(), "the check passes without the fsyncs of {what}");
    }
}

#[test]
fn the_check_fails_without_one_fsync_of_the_journal() {
    let Some(recording) = recording() else { return };
    let operations = &recording.operations;
    let next_sync = |number: usize, inode| {
        let later = operations.iter().enumerate().skip(number + 1);
        let mut syncs = later.filter(
            |(_, operation)| matches!(operation, Operation::Sync { inode: other, .. } if *other == inode),
        );
        syncs.next().map_or(operations.len(), |(next, _)| next)
    };
    // If all answers to a burst arrive between two fsyncs, the first one is the only one that makes its last
    // request durable. A compaction has syncs of its own, which no request waits for.
    let is_acknowledged = |number: usize| {
        let Operation::Sync { inode, path, .. } = &operations[number] else { return false };
        let before = number.checked_sub(1).map(|before| &operations[before]);
        let has_written = matches!(before, Some(Operation::Write { file, .. }) if file == inode);
        let answers = operations[number + 1..next_sync(number, *inode)].iter().filter_map(|operation| {
            let Operation::Mark(mark) = operation else { return None };
            mark.parse::<usize>().ok()
        });
        let answered: Vec<usize> = answers.collect();
        let Some(first) = answered.first().map(|number| number / BURST * BURST) else { return false };
        let is_burst = (first..first + BURST).all(|number| answered.contains(&number));
        let compacts = (first..first + BURST).any(|number| matches!(request(number), Request::Compact));
        path.ends_with(".jnl") && has_written && is_burst && !compacts
    };
    let syncs: Vec<usize> = (0..operations.len()).filter(|number| is_acknowledged(*number)).collect();
    assert!(syncs.len() >= 8, "only {} bursts wait for one fsync", syncs.len());
    for number in syncs.iter().step_by(syncs.len().div_ceil(8)) {
        let faulty = recording.without_sync(*number);
        // The write is lost from its acknowledgement on, until the next fsync of the file.
        let Operation::Sync { inode, .. } = operations[*number] else { unreachable!("it is a sync") };
        let window = (number + 2, next_sync(*number, inode));
        let states = Exploration::within_fault(NameRule::Strict, 60, window);
        let report = explore(&faulty, states, check);
        assert!(!report.failures.is_empty(), "the check passes without the fsync in operation {number}");
    }
}
