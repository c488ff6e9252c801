//! Tests of the life of a job: snapshot, restart, failure, delete, expiry and owner.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use store::shared_memory::{SharedMemory, StopPoint, StoppingLink, StoreStep};
use store::{Expect, Ledger as _, LedgerWrite, Store};
use trefoil_bulk::{ExportLevel, FileError, InFlight, JobRequestError, KickOff, KickOffError, TypeAccess};

use crate::support::{PATIENCE, RETENTION, Setup, finish, until};

async fn filled() -> Setup {
    let setup = Setup::new();
    for number in 0..50 {
        setup.put("Patient", &format!("p{number:02}"), json!({ "birthDate": "1980-01-01" })).await;
        let subject = json!({ "reference": format!("Patient/p{number:02}") });
        setup
            .put("Observation", &format!("o{number:02}"), json!({ "status": "final", "subject": subject }))
            .await;
    }
    setup
}

/// Returns a node on a shared store, and its link, which can stop it.
fn node(shared: &SharedMemory) -> (Setup, Arc<StoppingLink>) {
    let link = Arc::<StoppingLink>::default();
    (Setup::on(Store::shared_memory(shared, Arc::<StoppingLink>::clone(&link)), |_| {}), link)
}

/// Runs work until its node is stopped.
async fn until_stopped(work: impl Future<Output: Debug>, stop: &StopPoint) {
    tokio::select! {
        result = work => panic!("the work ended before its node was stopped: {result:?}"),
        () = stop.reached() => {}
    }
}

fn without_job(manifest: &Value) -> String {
    let job = manifest["output"][0]["url"].as_str().unwrap().rsplit('/').nth(1).unwrap().to_owned();
    manifest["output"].to_string().replace(&job, "JOB")
}

#[tokio::test]
async fn the_manifest_has_the_fields_of_the_specification() {
    let setup = filled().await;
    let manifest = setup.export(ExportLevel::System, &[]).await;
    assert_eq!(manifest["request"], "https://s.example/fhir/R4/$export?the=query");
    assert_eq!(manifest["requiresAccessToken"], true);
    assert_eq!(manifest["error"], json!([]));
    assert_eq!(manifest["transactionTime"].as_str().unwrap().len(), 24);
    let kinds: Vec<_> =
        manifest["output"].as_array().unwrap().iter().map(|file| file["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Observation", "Patient"]);
}

#[tokio::test]
async fn an_export_without_resources_is_empty() {
    let setup = Setup::new();
    setup.put("Group", "empty", json!({ "type": "person", "actual": true })).await;
    let manifest = setup.export(ExportLevel::Group("empty".to_owned()), &[]).await;
    assert_eq!((&manifest["output"], &manifest["error"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn later_writes_are_not_exported_even_after_a_restart() {
    let setup = filled().await;
    let undisturbed = setup.export(ExportLevel::System, &[]).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    setup.put("Patient", "late", json!({})).await;
    setup.put("Patient", "p00", json!({ "birthDate": "1999-09-09" })).await;
    setup.resources.delete("Observation", "o01", None, setup.now()).await.unwrap();
    // A second process resumes the job. The worker of the first process finds the record changed and stops.
    let restarted = setup.reopened();
    assert!(restarted.resume().await.unwrap() <= 1);
    let manifest = finish(&restarted, &job, setup.now()).await;
    assert_eq!(without_job(&manifest), without_job(&undisturbed));
    for (file, same) in
        manifest["output"].as_array().unwrap().iter().zip(undisturbed["output"].as_array().unwrap())
    {
        let text = setup.file(&restarted, file["url"].as_str().unwrap()).await;
        assert_eq!(
            text,
            setup.file(&setup.bulk, same["url"].as_str().unwrap()).await,
            "the resumed export has the same bytes"
        );
    }
}

#[tokio::test]
async fn jobs_and_files_belong_to_their_client_and_end() {
    let setup = filled().await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    let name = manifest["output"][0]["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let now = setup.now();
    assert!(matches!(
        setup.bulk.status(&job, 1, "other", &TypeAccess::All, now).await,
        Err(JobRequestError::NotFound { .. })
    ));
    assert!(matches!(setup.bulk.delete(&job, "other", now).await, Err(JobRequestError::NotFound { .. })));
    assert!(matches!(setup.bulk.file(&job, &name, "other", now).await, Err(FileError::NotFound { .. })));
    for name in ["", ".", "..", "../x", "Patient", "Nonsense.ndjson"] {
        assert!(
            matches!(setup.bulk.file(&job, name, "client", now).await, Err(FileError::NotFound { .. })),
            "{name}"
        );
    }
    let folder = setup.folder_of(&job);
    assert!(folder.exists());
    assert!(setup.bulk.delete(&job, "client", now).await.is_ok());
    assert!(!folder.exists(), "the files are removed");
    assert!(matches!(setup.bulk.delete(&job, "client", now).await, Err(JobRequestError::NotFound { .. })));
    assert!(matches!(
        setup.bulk.status(&job, 1, "client", &TypeAccess::All, now).await,
        Err(JobRequestError::NotFound { .. })
    ));

    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    finish(&setup.bulk, &job, setup.now()).await;
    setup.pass(RETENTION);
    assert!(matches!(
        setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await,
        Err(JobRequestError::NotFound { .. })
    ));
    assert_eq!(setup.bulk.sweep(setup.now()).await.unwrap(), 1);
    assert!(!setup.folder_of(&job).exists());
}

#[tokio::test]
async fn invalid_kick_offs_start_no_job() {
    let setup = filled().await;
    setup.put("Group", "g", json!({})).await;
    let refusal = async |level: ExportLevel, query: &[(&str, &str)], groups: Option<&[&str]>| {
        let mut request = setup.request(level, query);
        request.types = TypeAccess::only(["Patient"]);
        request.groups = groups.map(|groups| groups.iter().map(|g| (*g).to_owned()).collect());
        setup.bulk.kick_off(request, setup.now()).await.err()
    };
    let group = |id: &str| ExportLevel::Group(id.to_owned());
    assert!(matches!(refusal(group("none"), &[], None).await, Some(KickOffError::UnknownGroup { .. })));
    assert!(matches!(
        refusal(group("g"), &[], Some(&["other"])).await,
        Some(KickOffError::UnknownGroup { .. })
    ));
    assert!(refusal(group("g"), &[], Some(&["g"])).await.is_none());
    let type_ = [("_type", "Observation")];
    assert!(matches!(refusal(ExportLevel::System, &type_, None).await, Some(KickOffError::Forbidden { .. })));
    let mut request = setup.request(ExportLevel::System, &[]);
    request.types = TypeAccess::only(["Patient"]);
    let job = setup.bulk.kick_off(request, setup.now()).await.unwrap();
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    assert_eq!(manifest["output"].as_array().unwrap().len(), 1, "types that are not granted are left out");
}

#[tokio::test]
async fn omissions_are_listed_under_error() {
    let setup = filled().await;
    let mut request =
        setup.request(ExportLevel::System, &[("_nonsense", "id"), ("_type", "Patient,Nonsense")]);
    request.lenient = true;
    let job = setup.bulk.kick_off(request, setup.now()).await.unwrap();
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    assert_eq!(manifest["error"][0]["type"], "OperationOutcome");
    let text = setup.file(&setup.bulk, manifest["error"][0]["url"].as_str().unwrap()).await;
    assert_eq!(text.lines().count(), 2);
    assert!(text.contains("_nonsense") && text.contains("Nonsense"), "{text}");
    assert_eq!(manifest["output"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn running_exports_are_limited_in_bytes() {
    for (of_client, of_all, says) in [
        (
            Some(20_000),
            None,
            "the running exports of this client have together reached the limit of 20000 bytes",
        ),
        (
            None,
            Some(20_000),
            "the running exports of all clients have together reached the limit of 20000 bytes",
        ),
    ] {
        let setup = Setup::with(|options| {
            options.in_flight = InFlight { of_client, of_all };
            options.file_size = 4_000;
        });
        for number in 0..3_000 {
            setup.put("Patient", &format!("p{number}"), json!({})).await;
        }
        let begin = async |client: &str| {
            let mut request = setup.request(ExportLevel::System, &[]);
            client.clone_into(&mut request.client_id);
            setup.bulk.kick_off(request, setup.now()).await
        };
        let job = begin("client").await.unwrap();
        let refusal = loop {
            match begin("client").await {
                Ok(more) => setup.bulk.delete(&more, "client", setup.now()).await.unwrap(),
                Err(error) => break error,
            }
            tokio::task::yield_now().await;
        };
        assert!(
            matches!(&refusal, KickOffError::TooManyExports { reason, retry_after_s: 10 } if reason == says),
            "{refusal}"
        );
        // A limit for all clients also rejects another client's export; a limit per client does not.
        assert_eq!(begin("other").await.is_ok(), of_all.is_none());
        // Completed and deleted exports do not count towards the limit.
        setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
        let job = begin("client").await.unwrap();
        crate::support::finish(&setup.bulk, &job, setup.now()).await;
        assert!(begin("client").await.is_ok());
    }
}

#[tokio::test]
async fn exports_that_start_at_the_same_time_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::on(Store::open(dir.path()).unwrap(), |options| options.file_size = 2_000);
    for number in 0..1_000 {
        setup.put("Patient", &format!("p{number}"), json!({})).await;
    }
    let begin = || setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now());
    let results = join_all((0..60).map(|_| begin())).await;
    // Some of them may have ended meanwhile.
    assert!(setup.bulk.running_jobs() <= 50, "{} exports run", setup.bulk.running_jobs());
    assert!(results.iter().filter(|job| job.is_ok()).count() >= 50);
}

#[tokio::test]
async fn exports_that_start_at_the_same_time_at_several_nodes_are_limited() {
    let shared = SharedMemory::default();
    let ((slow, link), (fast, fast_link)) = (node(&shared), node(&shared));
    let begin =
        async |setup: &Setup| setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await;
    // 49 exports of the client run at another node.
    let job = begin(&fast).await.unwrap();
    finish(&fast.bulk, &job, fast.now()).await;
    until("the worker has ended", async || fast.bulk.running_jobs() == 0).await;
    let record = fast.store.get(&format!("bulk/job/{job}"), fast.now()).await.unwrap().unwrap();
    let mut running: Value = serde_json::from_slice(&record.value).unwrap();
    running["state"] = json!("running");
    for number in 0..49 {
        let id = format!("other-{number}");
        running["id"] = json!(id);
        let puts =
            [(format!("bulk/job/{id}"), running.to_string()), (format!("bulk/open/{id}"), "".to_owned())]
                .map(|(key, value)| LedgerWrite::put(key, value, Expect::Absent));
        fast.store.write(puts.into(), fast.now()).await.unwrap();
    }
    // One more may run. The slow node has checked that, and taken its snapshot, when the fast one starts it.
    let stop = link.stop_at(StoreStep::Transaction, 1);
    let mut late = pin!(begin(&slow));
    until_stopped(&mut late, &stop).await;
    // The export stays unfinished: its first write follows those of the snapshot and of the job.
    let unfinished = fast_link.stop_at(StoreStep::Transaction, 2);
    begin(&fast).await.unwrap();
    unfinished.reached().await;
    stop.release();
    let error = late.await.unwrap_err();
    assert!(matches!(error, KickOffError::TooManyExports { .. }), "{error}");
    // A node that was overtaken below the limit checks again and starts its export.
    let stop = link.stop_at(StoreStep::Transaction, 1);
    let other = async |setup: &Setup| {
        let request = KickOff { client_id: "other".to_owned(), ..setup.request(ExportLevel::System, &[]) };
        setup.bulk.kick_off(request, setup.now()).await
    };
    let mut late = pin!(other(&slow));
    until_stopped(&mut late, &stop).await;
    other(&fast).await.unwrap();
    stop.release();
    late.await.unwrap();
    unfinished.release();
}

#[tokio::test]
async fn the_next_process_cleans_up_after_ended_exports() {
    let setup = Setup::with_files_of(300);
    for number in 0..20 {
        setup.put("Patient", &format!("p{number}"), json!({})).await;
    }
    let request = || setup.request(ExportLevel::System, &[]);
    let [complete, damaged, gone] = [
        setup.bulk.kick_off(request(), setup.now()).await.unwrap(),
        setup.bulk.kick_off(request(), setup.now()).await.unwrap(),
        setup.bulk.kick_off(request(), setup.now()).await.unwrap(),
    ];
    for job in [&complete, &damaged, &gone] {
        finish(&setup.bulk, job, setup.now()).await;
    }
    until("the exports are no longer open", async || setup.bulk.running_jobs() == 0).await;
    let keys = async |prefix: &str| -> Vec<String> {
        let records = setup.store.scan(prefix, None, 100, setup.now()).await.unwrap();
        records.into_iter().map(|(key, _)| key).collect()
    };
    assert!(keys("bulk/open/").await.is_empty());
    // The process stopped before it cleaned up. The list of one export is damaged, and one has no record any
    // more.
    let mut writes: Vec<LedgerWrite> = [&complete, &damaged, &gone]
        .map(|job| LedgerWrite::put(format!("bulk/open/{job}"), "", Expect::Any))
        .into();
    let missing = keys(&format!("bulk/file/{damaged}/")).await.remove(0);
    let remaining = keys(&format!("bulk/file/{gone}/")).await;
    assert!(remaining.len() > 1);
    let deletes = [missing, format!("bulk/job/{gone}")].into_iter().chain(remaining);
    writes.extend(deletes.map(|key| LedgerWrite::delete(key, Expect::Any)));
    setup.store.write(writes, setup.now()).await.unwrap();
    let stray = setup.folder_of(&complete).join("2.Patient.0001.ndjson");
    std::fs::write(&stray, "{}\n").unwrap();
    let files = |job: &str| std::fs::read_dir(setup.folder_of(job)).map_or(0, Iterator::count);
    let (of_complete, of_damaged) = (files(&complete), files(&damaged));
    let next = setup.reopened();
    assert_eq!(next.resume().await.unwrap(), 0);
    assert!(!stray.exists());
    assert_eq!((files(&complete), files(&damaged), files(&gone)), (of_complete - 1, of_damaged, 0));
    assert_eq!(next.sweep(setup.now()).await.unwrap(), 0);
    assert_eq!((files(&complete), files(&damaged), files(&gone)), (of_complete - 1, of_damaged, 0));
    assert!(keys("bulk/open/").await.is_empty());
    // A deleted export leaves no records.
    next.delete(&complete, "client", setup.now()).await.unwrap();
    assert!(keys(&format!("bulk/file/{complete}/")).await.is_empty());
}

/// A write of a file continues when its task is aborted. It must not create the folder of the export again.
#[test]
fn a_delete_waits_for_the_writes_of_the_export() {
    let mut was_writing = false;
    for (turns, waits) in (0..60).map(|turns| (turns, false)).chain((0..20).map(|turns| (turns, true))) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (setup, job) = runtime.block_on(async {
            let setup = Setup::with_files_of(300);
            for number in 0..20 {
                setup.put("Patient", &format!("p{number}"), json!({})).await;
            }
            let job =
                setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
            let start = Instant::now();
            while waits && !setup.folder_of(&job).exists() && start.elapsed() < PATIENCE {
                tokio::task::yield_now().await;
            }
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            was_writing |= setup.folder_of(&job).exists() && setup.bulk.running_jobs() > 0;
            setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
            (setup, job)
        });
        // Waits for all writes.
        drop(runtime);
        assert!(!setup.folder_of(&job).exists(), "files remain, deleted after {turns} turns");
    }
    assert!(was_writing, "no export was deleted while it wrote");
}

/// A delete does not wait until many files are removed. A process that stops meanwhile removes the rest
/// later.
#[test]
fn many_files_are_removed_after_the_answer_to_a_delete() {
    for stops in [false, true] {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let (setup, job) = first.block_on(async {
            let setup = Setup::with_files_of(1);
            for number in 0..120 {
                setup.put("Patient", &format!("p{number}"), json!({})).await;
            }
            let job =
                setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
            finish(&setup.bulk, &job, setup.now()).await;
            until("the worker has ended", async || setup.bulk.running_jobs() == 0).await;
            setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
            assert!(setup.folder_of(&job).exists(), "the delete has waited for the files");
            let status = setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await;
            assert!(status.is_err(), "the export exists after its delete");
            if !stops {
                until("the files are removed", async || !setup.folder_of(&job).exists()).await;
                let remaining = async || setup.store.scan("bulk/", None, 100, setup.now()).await.unwrap();
                until("the records are removed", async || remaining().await.is_empty()).await;
            }
            (setup, job)
        });
        drop(first);
        second.block_on(async {
            if stops {
                setup.reopened().resume().await.unwrap();
                setup.reopened().sweep(setup.now()).await.unwrap();
            }
            assert!(!setup.folder_of(&job).exists());
            let remaining = async || setup.store.scan("bulk/", None, 100, setup.now()).await.unwrap();
            until("the records are removed", async || remaining().await.is_empty()).await;
        });
    }
}

#[tokio::test]
async fn an_export_that_is_deleted_during_its_cleaning_stays_open() {
    let shared = SharedMemory::default();
    let ((setup, link), (cleaning, cleaning_link)) = (node(&shared), node(&shared));
    setup.put("Patient", "p", json!({})).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    finish(&setup.bulk, &job, setup.now()).await;
    until("the worker has ended", async || setup.bulk.running_jobs() == 0).await;
    let put = LedgerWrite::put(format!("bulk/open/{job}"), "", Expect::Absent);
    setup.store.write(vec![put], setup.now()).await.unwrap();
    // A node has cleaned up, and is about to remove the export from the list of open ones.
    let stop = cleaning_link.stop_at(StoreStep::Transaction, 0);
    let mut sweep = pin!(cleaning.bulk.sweep(cleaning.now()));
    until_stopped(&mut sweep, &stop).await;
    // Another one deletes the export, and stops before it removes the list of files.
    let crash = link.stop_at(StoreStep::Transaction, 1);
    until_stopped(pin!(setup.bulk.delete(&job, "client", setup.now())), &crash).await;
    stop.release();
    sweep.await.unwrap();
    let keys = async || {
        let records = cleaning.store.scan("bulk/", None, 100, cleaning.now()).await.unwrap();
        records.into_iter().map(|(key, _)| key).filter(|key| key.contains(&job)).collect::<Vec<_>>()
    };
    assert_eq!(keys().await.len(), 2, "the list of files, and the export among the open ones");
    cleaning.bulk.sweep(cleaning.now()).await.unwrap();
    assert_eq!(keys().await, [""; 0]);
}

#[tokio::test]
async fn an_export_that_is_not_listed_as_open_is_resumed() {
    let setup = Setup::new();
    setup.put("Patient", "p", json!({})).await;
    let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
    finish(&setup.bulk, &job, setup.now()).await;
    until("the worker has ended", async || setup.bulk.running_jobs() == 0).await;
    // The record as it was before a process of an earlier version stopped.
    let key = format!("bulk/job/{job}");
    let record = setup.store.get(&key, setup.now()).await.unwrap().unwrap();
    let mut running: Value = serde_json::from_slice(&record.value).unwrap();
    running["state"] = json!("running");
    let put = LedgerWrite::put(key, running.to_string(), Expect::Any);
    setup.store.write(vec![put], setup.now()).await.unwrap();
    let next = setup.reopened();
    assert_eq!(next.resume().await.unwrap(), 0);
    setup.pass(Duration::from_secs(61));
    next.sweep(setup.now()).await.unwrap();
    next.sweep(setup.now()).await.unwrap();
    finish(&next, &job, setup.now()).await;
}
