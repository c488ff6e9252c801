//! Power cuts: in every state in which a power cut may leave the store and the files of exports, a completed
//! export has its manifest and the bytes of its files, and an accepted export is completed with the bytes of
//! an undisturbed one.
//!
//! The recorded process is this test binary, which runs [`exports_are_recorded`] in several sessions. The
//! second one ends while an export is running.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use store::Store;
use store::space::DiskSpace;
use trefoil_bulk::{Bulk, ContentEncoding, ExportLevel, FileLocation};
use trefoil_power_cut::{
    Exploration, NameRule, Operation, Recording, explore, mark, recorded_folder, recorded_session,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::support::{Setup, bytes_of, finish};

const TEST: &str = "power_cut::exports_are_recorded";
const SESSIONS: usize = 3;
/// Maximum length of an output file in bytes, so that an export has several files.
const FILE_SIZE: u64 = 6_000;
/// Number of states that the ordinary tests check, and for each planted fault.
const STATES: usize = 300;
const STATES_WITH_FAULT: usize = 120;

fn open(root: &Path) -> Setup {
    let store = Store::open(&root.join("store")).unwrap();
    Setup::on(store, |options| {
        options.files = FileLocation::Folder { path: root.join("exports"), disk: DiskSpace::of(root) };
        options.file_size = FILE_SIZE;
    })
}

/// Returns bulk export as of a later process, which generates other ids.
fn bulk_of(setup: &Setup, session: usize) -> Bulk {
    (0..session).for_each(|_| drop(setup.reopened()));
    setup.reopened()
}

/// Returns the output of an export: the manifest and the hash of each file, plain and compressed, without the
/// job's id.
async fn output_of(bulk: &Bulk, setup: &Setup, job: &str) -> String {
    let manifest = finish(bulk, job, setup.now()).await;
    let mut texts = vec![manifest["transactionTime"].to_string()];
    for file in manifest["output"].as_array().unwrap() {
        let name = file["url"].as_str().unwrap().rsplit('/').next().unwrap();
        let file = bulk.file(job, name, "client", setup.now()).await.unwrap();
        for encoding in [ContentEncoding::Identity, ContentEncoding::Gzip] {
            texts.push(format!("{name} {:x}", xxh3_128(&bytes_of(&file, encoding, None).await)));
        }
    }
    texts.push(manifest["output"].to_string().replace(job, "JOB"));
    texts.join("\n")
}

async fn fill(setup: &Setup, from: usize) {
    for number in from..from + 12 {
        let text = "x".repeat(50 + 37 * number);
        setup.put("Patient", &format!("p{number}"), json!({ "name": [{ "text": text }] })).await;
        let subject = json!({ "reference": format!("Patient/p{number}") });
        setup
            .put("Observation", &format!("o{number}"), json!({ "status": "final", "subject": subject }))
            .await;
    }
}

/// Marks an acknowledgement: `accepted JOB`, or `complete JOB` with the output.
fn acknowledge(text: &str, job: &str, output: &str) {
    mark(&json!([text, job, output]).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_are_recorded() {
    let Some(root) = recorded_folder() else { return exports_are_the_same_after_a_restart().await };
    let session = recorded_session();
    let setup = open(&root);
    let bulk = bulk_of(&setup, session);
    // The time of each session is later than that of all before it.
    setup.pass(Duration::from_secs(60 * session as u64));
    bulk.resume().await.unwrap();
    if session < 2 {
        fill(&setup, 12 * session).await;
        let request = setup.request(ExportLevel::System, &[]);
        let job = bulk.kick_off(request, setup.now()).await.unwrap();
        acknowledge("accepted", &job, "");
        if session == 1 {
            // The process ends when some files of the export are written.
            std::thread::sleep(Duration::from_millis(25));
            std::process::exit(0);
        }
        acknowledge("complete", &job, &output_of(&bulk, &setup, &job).await);
    } else {
        let jobs = std::fs::read_to_string(root.with_file_name("marks")).unwrap();
        let jobs = serde_json::Deserializer::from_str(&jobs).into_iter::<Value>();
        for job in jobs.map(Result::unwrap).filter(|mark| mark[0] == "accepted") {
            let job = job[1].as_str().unwrap();
            acknowledge("complete", job, &output_of(&bulk, &setup, job).await);
        }
        drop(bulk);
        drop(setup);
    }
}

/// The export of a store has the same output when another process reads it, so that [`output_of`] can be
/// compared.
async fn exports_are_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = open(dir.path());
    fill(&setup, 0).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    let output = output_of(&setup.bulk, &setup, &job).await;
    assert!(output.lines().count() > 5, "{output}");
    assert_eq!(output_of(&bulk_of(&setup, 1), &setup, &job).await, output);
}

fn recording() -> Option<&'static Recording> {
    static RECORDING: OnceLock<Option<Recording>> = OnceLock::new();
    RECORDING.get_or_init(|| Recording::of_test(TEST, SESSIONS).unwrap()).as_ref()
}

/// Returns the final output of each job in a recording.
fn outputs(recording: &Recording) -> BTreeMap<String, String> {
    let marks = recording.operations.iter().filter_map(|operation| match operation {
        Operation::Mark(text) => Some(serde_json::from_str::<[String; 3]>(text).unwrap()),
        _ => None,
    });
    marks.filter(|[what, ..]| what == "complete").map(|[_, job, output]| (job, output)).collect()
}

/// Opens the store and the exports in a folder after a power cut, and compares the output of each accepted
/// export.
fn check(root: &Path, marks: &[&str], outputs: &BTreeMap<String, String>) -> Result<(), String> {
    if marks.is_empty() {
        return Store::open(&root.join("store")).map(drop).map_err(|error| error.to_string());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let setup = open(root);
        setup.pass(Duration::from_secs(600));
        let bulk = bulk_of(&setup, SESSIONS);
        bulk.resume().await.map_err(|error| error.to_string())?;
        for mark in marks {
            let [what, job, _]: [String; 3] = serde_json::from_str(mark).unwrap();
            let current_output = output_of(&bulk, &setup, &job).await;
            if current_output != outputs[&job] {
                return Err(format!(
                    "{what} {job} has the output\n{current_output}\nexpected\n{}",
                    outputs[&job]
                ));
            }
        }
        Ok(())
    })
}

#[test]
fn completed_and_accepted_exports_survive_a_power_cut() {
    let Some(recording) = recording() else { return };
    let outputs = outputs(recording);
    assert_eq!(outputs.len(), 2);
    let exploration = Exploration::of(NameRule::Strict, STATES);
    let report = explore(recording, exploration, |root, marks| check(root, marks, &outputs));
    report.expect_no_failure(recording, "power_cut::completed");
}

/// Selects fsyncs by the path that is synced.
type PathFilter = fn(&str) -> bool;

#[test]
fn the_check_fails_without_the_fsyncs_of_export_files() {
    let Some(recording) = recording() else { return };
    let outputs = outputs(recording);
    let kinds: [(&str, PathFilter); 3] = [
        ("the folder of exports", |path| path.is_empty() || path == "exports"),
        ("the files of an export", |path| path.starts_with("exports/") && path.matches('/').count() == 2),
        ("the names of the files of an export", |path| {
            path.starts_with("exports/") && path.matches('/').count() == 1
        }),
    ];
    for (what, is_dropped) in kinds {
        let (faulty, dropped) = recording.without_syncs(is_dropped);
        let exploration = Exploration::of_fault(NameRule::Strict, STATES_WITH_FAULT);
        let report = explore(&faulty, exploration, |root, marks| check(root, marks, &outputs));
        println!("without {dropped} fsyncs of {what}: {} failures", report.failures.len());
        assert!(!report.failures.is_empty(), "the check passes without the fsyncs of {what}");
    }
}
