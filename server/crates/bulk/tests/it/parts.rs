//! Tests that interrupted exports, with any file size and number of interruptions, have the same bytes as
//! undisturbed ones.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use trefoil_bulk::{Bulk, ExportLevel, GuideVersion, JobRequestError, JobStatus, TypeAccess};

use crate::support::{PATIENCE, Setup, finish};

/// Number of Patients, which is more than one page. Each third one has an Observation.
const PATIENTS: usize = 620;
const FILE_SIZE: u64 = 5_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Stops a process: no task runs past its next await.
fn end(process: tokio::runtime::Runtime) {
    process.shutdown_timeout(Duration::from_secs(60));
}

fn managing(number: usize) -> Value {
    json!({ "reference": format!("Organization/org{}", number % 3) })
}

async fn filled(file_size: u64) -> Setup {
    let setup = Setup::with(|options| {
        options.file_size = file_size;
        options.guide = GuideVersion::V3;
    });
    for number in 0..3 {
        setup.put("Organization", &format!("org{number}"), json!({})).await;
    }
    let mut members = Vec::new();
    for number in 0..PATIENTS {
        let id = format!("p{number:03}");
        // One resource is longer than the maximum length of a file.
        let long = if number == 300 { "x".repeat(6_000) } else { String::new() };
        let patient = json!({ "language": long, "managingOrganization": managing(number) });
        setup.put("Patient", &id, patient).await;
        if number % 3 == 0 {
            let subject = json!({ "reference": format!("Patient/{id}") });
            setup.put("Observation", &format!("o{number}"), json!({ "subject": subject })).await;
            members.push(json!({ "entity": { "reference": format!("Patient/{id}") } }));
        }
    }
    setup.put("Group", "g", json!({ "member": members })).await;
    setup
}

/// Returns the names and contents of the files of a manifest.
async fn files(setup: &Setup, bulk: &Bulk, manifest: &Value) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for list in ["output", "deleted"] {
        for file in manifest[list].as_array().into_iter().flatten() {
            let url = file["url"].as_str().unwrap();
            let name = url.rsplit('/').next().unwrap().to_owned();
            files.push((name, setup.file(bulk, url).await));
        }
    }
    files
}

#[tokio::test]
async fn files_are_divided_by_size_and_complete_together() {
    let (small, large) = (filled(FILE_SIZE).await, filled(1 << 20).await);
    let one = files(&large, &large.bulk, &large.export(ExportLevel::System, &[]).await).await;
    let many = files(&small, &small.bulk, &small.export(ExportLevel::System, &[]).await).await;
    let names: Vec<_> = one.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        ["Group", "Observation", "Organization", "Patient"].map(|kind| format!("{kind}.0001.ndjson"));
    assert_eq!(names, expected);
    for (name, text) in &one {
        let kind = name.split('.').next().unwrap();
        let parts: Vec<_> = many.iter().filter(|(name, _)| name.split('.').next() == Some(kind)).collect();
        assert_eq!(&parts.iter().map(|(_, text)| text.as_str()).collect::<String>(), text);
        for (number, (name, text)) in parts.iter().enumerate() {
            assert_eq!(*name, format!("{kind}.{:04}.ndjson", number + 1));
            assert!(text.len() as u64 <= FILE_SIZE || text.lines().count() == 1, "{name}: {}", text.len());
        }
        // No file had space for the first line of the next file.
        for pair in parts.windows(2) {
            let next = pair[1].1.lines().next().unwrap().len() + 1;
            assert!((pair[0].1.len() + next) as u64 > FILE_SIZE);
        }
    }
}

/// Files of an export: names and contents.
type Files = Vec<(String, String)>;

/// Runs one export undisturbed, and the same export in several processes, each of which stops after a number
/// of scheduler steps. Returns the files of both exports.
fn broken_off(level: &ExportLevel, query: &[(&str, &str)], steps: &[usize]) -> (Files, Files) {
    let first = runtime();
    let setup = first.block_on(filled(FILE_SIZE));
    let since = first.block_on(async {
        let since = setup.store_time().await;
        for number in (0..PATIENTS).step_by(5) {
            setup.delete("Patient", &format!("p{number:03}")).await;
        }
        for number in (0..PATIENTS).step_by(2) {
            setup
                .put(
                    "Patient",
                    &format!("p{number:03}"),
                    json!({ "active": true, "managingOrganization": managing(number) }),
                )
                .await;
        }
        since
    });
    let query: Vec<_> = query.iter().map(|(name, value)| (*name, value.replace("$since", &since))).collect();
    let query: Vec<_> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let undisturbed = first.block_on(async {
        let manifest = setup.export(level.clone(), &query).await;
        files(&setup, &setup.bulk, &manifest).await
    });
    let request = setup.request(level.clone(), &query);
    let job = first.block_on(async { setup.bulk.kick_off(request, setup.now()).await.unwrap() });
    end(first);
    for steps in steps {
        let process = runtime();
        process.block_on(async {
            let bulk = setup.reopened();
            bulk.resume().await.unwrap();
            for _ in 0..*steps {
                tokio::task::yield_now().await;
            }
        });
        end(process);
    }
    let last = runtime();
    let resumed = last.block_on(async {
        let bulk = setup.reopened();
        bulk.resume().await.unwrap();
        let manifest = finish(&bulk, &job, setup.now()).await;
        let files = files(&setup, &bulk, &manifest).await;
        let counts = ["output", "deleted", "error"].map(|list| manifest[list].as_array().map_or(0, Vec::len));
        let folder = setup.folder_of(&job);
        // Unfinished files are removed when the export is complete.
        let count = || std::fs::read_dir(&folder).unwrap().count();
        // A removal waits for the disk, which may be busy for seconds.
        let start = Instant::now();
        while count() > counts.iter().sum::<usize>() && start.elapsed() < PATIENCE {
            tokio::task::yield_now().await;
        }
        assert_eq!(count(), counts.iter().sum::<usize>(), "unfinished files were not removed");
        files
    });
    (undisturbed, resumed)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 30, ..ProptestConfig::with_cases(8) })]

    #[test]
    fn an_interrupted_export_has_the_same_bytes(
        steps in proptest::collection::vec(0_usize..60, 1..12), group: bool, since: bool,
    ) {
        let level = if group { ExportLevel::Group("g".to_owned()) } else { ExportLevel::System };
        let mut query = vec![];
        query.extend(since.then_some(("_since", "$since")));
        let (undisturbed, resumed) = broken_off(&level, &query, &steps);
        prop_assert!(undisturbed.len() > 1);
        prop_assert_eq!(undisturbed, resumed);
    }
}

#[test]
fn leftovers_of_a_stopped_process_are_removed() {
    runtime().block_on(async {
        let setup = filled(FILE_SIZE).await;
        let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
        let manifest = finish(&setup.bulk, &job, setup.now()).await;
        let before = files(&setup, &setup.bulk, &manifest).await;
        let part = setup.folder_of(&job).join("0.Patient.0001.ndjson#1");
        std::fs::write(&part, "unfinished").unwrap();
        let bulk = setup.reopened();
        bulk.resume().await.unwrap();
        assert!(!part.exists());
        assert_eq!(files(&setup, &bulk, &manifest).await, before);
    });
}

/// A client may request a gzip while the worker still cleans up after the export.
#[test]
fn an_unfinished_gzip_is_not_removed() {
    runtime().block_on(async {
        let setup = filled(FILE_SIZE).await;
        let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
        finish(&setup.bulk, &job, setup.now()).await;
        let path = |name: &str| setup.folder_of(&job).join(name);
        let unfinished = ["1.Patient.0001.ndjson.gzip1#1", "1.Patient.0001.ndjson.gzip1.sum#1"].map(path);
        let others = ["0.Patient.0001.ndjson.gzip1#1", "1.Patient.9999.ndjson.gzip1#1"].map(path);
        for file in unfinished.iter().chain(&others) {
            std::fs::write(file, "unfinished").unwrap();
        }
        setup.reopened().resume().await.unwrap();
        assert!(unfinished.iter().all(|file| file.exists()));
        assert!(others.iter().all(|file| !file.exists()), "no manifest lists their files");
    });
}

#[test]
fn a_job_is_resumed_when_its_lease_expires() {
    let first = runtime();
    let setup = first.block_on(filled(FILE_SIZE));
    let job = first.block_on(async {
        setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap()
    });
    end(first);
    runtime().block_on(async {
        let other = setup.reopened();
        setup.pass(Duration::from_secs(59));
        other.sweep(setup.now()).await.unwrap();
        tokio::task::yield_now().await;
        let status = other.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap();
        assert!(matches!(status, JobStatus::InProgress { .. }), "another process has the lease");
        setup.pass(Duration::from_secs(1));
        other.sweep(setup.now()).await.unwrap();
        assert!(finish(&other, &job, setup.now()).await["output"].is_array());
    });
}

#[test]
fn a_worker_without_the_lease_does_not_change_the_export() {
    runtime().block_on(async {
        let setup = filled(FILE_SIZE).await;
        let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
        // Two more processes acquire the lease, one after the other, while the first process still runs.
        let (second, third) = (setup.reopened(), setup.reopened());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        second.resume().await.unwrap();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        third.resume().await.unwrap();
        let manifest = finish(&third, &job, setup.now()).await;
        let undisturbed = setup.export(ExportLevel::System, &[]).await;
        let expected = files(&setup, &setup.bulk, &undisturbed).await;
        for bulk in [&setup.bulk, &second, &third] {
            assert_eq!(files(&setup, bulk, &manifest).await, expected);
        }
        third.delete(&job, "client", setup.now()).await.unwrap();
        let gone = second.status(&job, 1, "client", &TypeAccess::All, setup.now()).await;
        assert!(matches!(gone, Err(JobRequestError::NotFound { .. })));
    });
}

#[test]
fn a_damaged_file_is_written_again() {
    let first = runtime();
    let setup = first.block_on(filled(FILE_SIZE));
    let job = first.block_on(async {
        // If the export is complete after this number of turns, the test tries a smaller number.
        for turns in [200, 100, 50, 25, 12, 6] {
            let job =
                setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            let status = setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap();
            if matches!(status, JobStatus::InProgress { .. }) {
                return job;
            }
        }
        panic!("every export was complete before it could be interrupted");
    });
    end(first);
    for file in std::fs::read_dir(setup.folder_of(&job)).unwrap().flatten() {
        std::fs::write(file.path(), "").unwrap();
    }
    runtime().block_on(async {
        let bulk = setup.reopened();
        bulk.resume().await.unwrap();
        let manifest = finish(&bulk, &job, setup.now()).await;
        let undisturbed = setup.export(ExportLevel::System, &[]).await;
        assert_eq!(files(&setup, &bulk, &manifest).await, files(&setup, &setup.bulk, &undisturbed).await);
    });
}

#[test]
fn an_export_whose_process_always_stops_fails() {
    let first = runtime();
    let setup = first.block_on(filled(FILE_SIZE));
    let job = first.block_on(async {
        setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap()
    });
    end(first);
    for _ in 0..50 {
        let process = runtime();
        process.block_on(async { setup.reopened().resume().await.unwrap() });
        end(process);
    }
    runtime().block_on(async {
        let bulk = setup.reopened();
        bulk.resume().await.unwrap();
        loop {
            match bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap() {
                JobStatus::InProgress { .. } => tokio::task::yield_now().await,
                JobStatus::Failed { by_data, reason } => {
                    assert!(!by_data && reason.contains("started 50 times"), "{reason}");
                    break;
                }
                JobStatus::Complete { .. } | JobStatus::TooSoon { .. } | JobStatus::Forbidden { .. } => {
                    panic!("the job must fail")
                }
            }
        }
    });
}
