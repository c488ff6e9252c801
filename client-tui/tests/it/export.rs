//! Exports from servers with faults: lost polls, interrupted downloads, several pages, damaged manifests.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use trefoil_tui::api::{ApiError, Bearer, KickOff};
use trefoil_tui::export::run::delete;
use trefoil_tui::export::{
    ExportError, ExportEvent, ExportFolder, ExportJob, ExportPhase, ExportRegistry, ExportRun, FileProgress,
    FileStatus, FolderError,
};

use crate::faulty_server::{FaultyServer, cut, respond};
use crate::support::{api, now};

const PATIENTS: &str =
    "{\"resourceType\":\"Patient\",\"id\":\"p1\"}\n{\"resourceType\":\"Patient\",\"id\":\"p2\"}\n";

fn accepted() -> Vec<u8> {
    respond(202, "content-location: {base}/status\r\n", "")
}

/// Returns a manifest with one file of patients and further members.
fn manifest(more: &str) -> String {
    format!(
        r#"{{"transactionTime":"2024-05-01T12:00:00Z","request":"r","requiresAccessToken":true,"output":[{{"type":"Patient","url":"{{base}}/p","count":2}}]{more}}}"#
    )
}

fn complete(more: &str) -> Vec<u8> {
    page(&manifest(more))
}

/// Returns a response with this manifest. The length of the body is known only after the base address is
/// inserted.
fn page(manifest: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 x\r\nconnection: close\r\n\r\n{manifest}").into_bytes()
}

type Completed = (ExportJob, Vec<FileProgress>);

/// Starts an export in a new folder and runs it to its end.
async fn start(server: &FaultyServer, folder: &Path) -> Result<Completed, ExportError> {
    let api = api(&server.base_url);
    let job = ExportJob::new(&api.profile().fhir_base, KickOff::default(), now());
    let registry = ExportRegistry::at(&folder.with_file_name("exports"));
    let run = ExportRun::start(&api, given(), job, folder, &registry, |_| {})?;
    run.with_parallel_downloads(1).to_completion().await
}

async fn resume(server: &FaultyServer, folder: &Path) -> Result<Completed, ExportError> {
    ExportRun::resume(&api(&server.base_url), given(), folder, |_| {})?.to_completion().await
}

fn given() -> Bearer {
    Bearer::Given("tok".to_owned())
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[tokio::test]
async fn lost_polls_are_repeated() {
    let transient = r#"{"resourceType":"OperationOutcome","issue":[{"code":"transient"}]}"#;
    let server = FaultyServer::start(&[
        accepted(),
        Vec::new(),
        respond(503, "retry-after: 7\r\n", ""),
        respond(500, "content-type: application/fhir+json\r\n", transient),
        respond(202, "x-progress: 10%\r\n", ""),
        respond(429, "", ""),
        complete(""),
        respond(200, "", PATIENTS),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let (job, files) = start(&server, &out).await.unwrap();
    assert_eq!((job.phase, files[0].resources), (ExportPhase::Complete, 2));
    assert_eq!(read(&out, "Patient.ndjson"), PATIENTS);
}

#[tokio::test]
async fn delays_are_those_that_the_server_requests() {
    let server = FaultyServer::start(&[
        accepted(),
        respond(503, "retry-after: 7\r\n", ""),
        respond(202, "retry-after: 9\r\n", ""),
        complete(""),
        respond(200, "", PATIENTS),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let (times, api) = (Arc::new(Mutex::new(Vec::new())), api(&server.base_url));
    let requests = times.clone();
    let watch = move |event| match event {
        ExportEvent::Polled { next_poll: at, .. } | ExportEvent::Retrying { next_attempt: at, .. } => {
            requests.lock().unwrap().push(at.as_second() - now().as_second());
        }
        _ => {}
    };
    let job = ExportJob::new("https://t.example", KickOff::default(), now());
    let registry = ExportRegistry::at(&folder.path().join("exports"));
    let run = ExportRun::start(&api, given(), job, &folder.path().join("e"), &registry, watch).unwrap();
    run.to_completion().await.unwrap();
    assert_eq!(*times.lock().unwrap(), [7, 9]);
}

#[tokio::test]
async fn an_interrupted_download_continues_at_its_last_byte() {
    let tag = "etag: \"v1\"\r\n";
    let rest = format!("{tag}content-range: bytes 20-{}/{}\r\n", PATIENTS.len() - 1, PATIENTS.len());
    let server = FaultyServer::start(&[
        accepted(),
        complete(""),
        cut(200, tag, PATIENTS, 20),
        respond(206, &rest, &PATIENTS[20..]),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    start(&server, &out).await.unwrap();
    assert_eq!(read(&out, "Patient.ndjson"), PATIENTS);
    let last = server.requests().pop().unwrap();
    assert!(last.contains("range: bytes=20-") && last.contains("if-range: \"v1\""), "{last}");
    assert!(last.contains("authorization: bearer tok"), "{last}");
}

#[tokio::test]
async fn a_server_that_ignores_ranges_sends_the_file_again() {
    let server = FaultyServer::start(&[
        accepted(),
        complete(""),
        cut(200, "", PATIENTS, 50),
        respond(200, "", PATIENTS),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    start(&server, &out).await.unwrap();
    assert_eq!(read(&out, "Patient.ndjson"), PATIENTS);
}

/// Returns many lines of patients that compress to several pieces, and the compressed bytes.
fn compressed() -> (String, Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(7);
    let lines: Vec<_> = (0..1000)
        .map(|_| format!("{{\"resourceType\":\"Patient\",\"id\":\"{:x}\"}}\n", random.u128(..)))
        .collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(lines.concat().as_bytes()).unwrap();
    (lines.concat(), encoder.finish().unwrap())
}

/// Runs an export whose file has 1000 lines, and returns the requests for the file.
async fn download_compressed(responses: &[Vec<u8>]) -> (String, Vec<String>) {
    let manifest = page(&manifest("").replace("\"count\":2", "\"count\":1000"));
    let server = FaultyServer::start(&[&[accepted(), manifest], responses].concat()).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let (_, files) = start(&server, &out).await.unwrap();
    let content = read(&out, "Patient.ndjson");
    assert_eq!((files[0].resources, files[0].bytes), (1000, content.len() as u64));
    (content, server.requests().split_off(2))
}

#[tokio::test]
async fn a_file_that_contains_something_else_is_refused() {
    for (body, line) in [("[{},\n{}]", 1), ("{}\n<html>", 2), ("{}\n\n\"text\"\n", 3)] {
        let manifest = page(&manifest("").replace("\"count\":2", "\"count\":1000"));
        let server = FaultyServer::start(&[accepted(), manifest, respond(200, "", body)]).await;
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("e1");
        let error = start(&server, &out).await.unwrap_err().to_string();
        assert!(error.contains(&format!("line {line} of the file is not a JSON object")), "{error}");
        assert!(!out.join("Patient.ndjson").exists() && !out.join("Patient.ndjson.part").exists());
    }
}

#[tokio::test]
async fn a_compressed_file_is_stored_uncompressed() {
    let (lines, gzip) = compressed();
    let (stored, requests) = download_compressed(&[respond(200, "content-encoding: gzip\r\n", &gzip)]).await;
    assert_eq!(stored, lines);
    assert!(requests[0].contains("accept-encoding: gzip\r\n"), "{requests:?}");
    let (stored, _) = download_compressed(&[respond(200, "", &lines)]).await;
    assert_eq!(stored, lines, "the server may also send the file uncompressed");
}

#[tokio::test]
async fn a_compressed_download_continues_with_its_own_validator() {
    let (lines, gzip) = compressed();
    let head = "content-encoding: gzip\r\netag: \"v1-gzip\"\r\n";
    let range =
        |first: usize| format!("{head}content-range: bytes {first}-{}/{}\r\n", gzip.len() - 1, gzip.len());
    let (stored, requests) = download_compressed(&[
        cut(200, head, &gzip, 9000),
        cut(206, &range(9000), &gzip[9000..], 5000),
        respond(206, &range(14000), &gzip[14000..]),
    ])
    .await;
    assert_eq!(stored, lines);
    for (request, first) in requests[1..].iter().zip([9000, 14000]) {
        assert!(request.contains(&format!("range: bytes={first}-")), "{request}");
        assert!(
            request.contains("if-range: \"v1-gzip\"") && request.contains("accept-encoding: gzip"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_compressed_download_without_a_validator_continues_uncompressed() {
    let (lines, gzip) = compressed();
    for head in ["content-encoding: gzip\r\n", "content-encoding: gzip\r\netag: W/\"v1\"\r\n"] {
        // The number of bytes that were decoded depends on the decoder, so that the server ignores the range.
        let (stored, requests) =
            download_compressed(&[cut(200, head, &gzip, 15000), respond(200, "", &lines)]).await;
        assert_eq!(stored, lines);
        assert!(requests[1].contains("accept-encoding: identity\r\n"), "{requests:?}");
        assert!(requests[1].contains("range: bytes=") && !requests[1].contains("if-range"), "{requests:?}");
    }
}

#[tokio::test]
async fn a_range_of_another_coding_is_not_appended() {
    let (lines, gzip) = compressed();
    let head = "content-encoding: gzip\r\netag: \"v1\"\r\n";
    let plain = format!("content-range: bytes 9000-{}/{}\r\n", lines.len() - 1, lines.len());
    let (stored, requests) = download_compressed(&[
        cut(200, head, &gzip, 9000),
        respond(206, &plain, &lines[9000..]),
        respond(200, head, &gzip),
    ])
    .await;
    assert_eq!(stored, lines);
    assert!(!requests[2].contains("range:"), "{}", requests[2]);
}

#[tokio::test]
async fn a_damaged_compressed_file_is_downloaded_uncompressed() {
    let (lines, gzip) = compressed();
    let head = "content-encoding: gzip\r\n";
    let mut wrong_sum = gzip.clone();
    let sum = wrong_sum.len() - 8;
    wrong_sum[sum] ^= 1;
    for damaged in [&wrong_sum[..], &gzip[..gzip.len() - 20], b"no gzip at all"] {
        let (stored, requests) =
            download_compressed(&[respond(200, head, damaged), respond(200, "", &lines)]).await;
        assert_eq!(stored, lines);
        assert!(requests[1].contains("accept-encoding: identity\r\n"), "{requests:?}");
        assert!(!requests[1].contains("range:"), "{requests:?}");
    }
}

#[tokio::test]
async fn a_coding_that_was_not_requested_is_an_error() {
    let server =
        FaultyServer::start(&[accepted(), complete(""), respond(200, "content-encoding: br\r\n", PATIENTS)])
            .await;
    let folder = tempfile::tempdir().unwrap();
    let error = start(&server, &folder.path().join("e1")).await.unwrap_err().to_string();
    assert!(error.contains("content coding 'br'"), "{error}");
}

#[tokio::test]
async fn a_download_that_never_gets_further_ends() {
    let cuts = (0..60).map(|n| cut(200, "", PATIENTS, 20 + n % 2 * 10));
    let server =
        FaultyServer::start(&[accepted(), complete("")].into_iter().chain(cuts).collect::<Vec<_>>()).await;
    let folder = tempfile::tempdir().unwrap();
    let error = start(&server, &folder.path().join("e1")).await.unwrap_err();
    assert!(matches!(error, ExportError::Files { failed: 1, .. }), "{error}");
    assert!(server.requests().len() < 20, "{}", server.requests().len());
}

#[tokio::test]
async fn a_range_at_another_place_is_not_appended() {
    let wrong = format!("content-range: bytes 10-{}/{}\r\n", PATIENTS.len() - 1, PATIENTS.len());
    let server = FaultyServer::start(&[
        accepted(),
        complete(""),
        cut(200, "", PATIENTS, 20),
        respond(206, &wrong, &PATIENTS[10..]),
        respond(200, "", PATIENTS),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    start(&server, &out).await.unwrap();
    assert_eq!(read(&out, "Patient.ndjson"), PATIENTS);
}

/// The first process ends within a file; a later one continues the same file.
#[tokio::test]
async fn an_export_is_resumed_by_a_later_process() {
    let gone = respond(404, "", "");
    let first = [accepted(), complete(""), cut(200, "", PATIENTS, 30), gone.clone()];
    let server = FaultyServer::start(&first).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let error = start(&server, &out).await.unwrap_err();
    assert!(matches!(error, ExportError::Files { failed: 1, files: 1, .. }), "{error}");
    let rest = format!("content-range: bytes 30-{}/{}\r\n", PATIENTS.len() - 1, PATIENTS.len());
    // The addresses are read again first, because they may have expired.
    let second = FaultyServer::start(&[complete(""), respond(206, &rest, &PATIENTS[30..])]).await;
    let mut job = ExportFolder::read(&out).unwrap();
    assert_eq!(job.phase, ExportPhase::Downloading);
    job.status_url = Some(format!("{}/status", second.base_url));
    // The token of a profile is sent only to its own server.
    assert!(matches!(resume(&second, &out).await, Err(ExportError::OtherServer(_))));
    job.fhir_base = format!("{}/fhir/R4", second.base_url);
    std::fs::write(out.join("job.json"), serde_json::to_vec(&job).unwrap()).unwrap();
    let (job, files) = resume(&second, &out).await.unwrap();
    assert_eq!((job.phase, &files[0].status), (ExportPhase::Complete, &FileStatus::Done));
    assert_eq!(read(&out, "Patient.ndjson"), PATIENTS);
    let last = second.requests().pop().unwrap();
    assert!(last.starts_with("get /p ") && last.contains("range: bytes=30-"), "{last}");
    // A complete export needs no request.
    assert_eq!(resume(&second, &out).await.unwrap().1, files);
    assert_eq!(second.requests().len(), 2);
}

#[tokio::test]
async fn an_export_of_another_program_is_attached() {
    let server = FaultyServer::start(&[complete(""), respond(200, "", PATIENTS)]).await;
    let api = api(&server.base_url);
    let folder = tempfile::tempdir().unwrap();
    let registry = ExportRegistry::at(&folder.path().join("exports"));
    let attach = |status_url: &str, name: &str| {
        let job = ExportJob::started_elsewhere("https://t.example", status_url, now());
        ExportRun::start(&api, given(), job, &folder.path().join(name), &registry, |_| {})
    };
    let run = attach(&format!("{}/status", server.base_url), "e1").unwrap();
    assert_eq!(run.to_completion().await.unwrap().1[0].resources, 2);
    let Err(error) = attach("http://t.example/status", "e2") else {
        panic!("a token would be sent over http")
    };
    assert!(error.to_string().contains("https"), "{error}");
    let folders: Vec<_> = registry.list().into_iter().map(|export| export.folder).collect();
    assert_eq!(folders, [folder.path().join("e1")]);
}

#[tokio::test]
async fn the_manifest_is_kept_and_all_its_lists_and_pages_are_downloaded() {
    let deleted = "{\"resourceType\":\"Bundle\",\"type\":\"transaction\"}\n";
    let outcome = "{\"resourceType\":\"OperationOutcome\"}\n";
    let first = r#", "unknown" : [1,  2],"deleted":[{"type":"Bundle","url":"{base}/d"}],"link":[{"relation":"next","url":"page2"}]"#;
    let second = r#","error":[{"type":"OperationOutcome","url":"{base}/e","count":1}]"#;
    let server = FaultyServer::start(&[
        accepted(),
        complete(first),
        complete(second),
        respond(200, "", PATIENTS),
        respond(200, "", deleted),
        respond(200, "", PATIENTS),
        respond(200, "", outcome),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    start(&server, &out).await.unwrap();
    let body = |more: &str| manifest(more).replace("{base}", &server.base_url);
    assert_eq!(read(&out, "manifest.json"), body(first), "byte for byte");
    assert_eq!(read(&out, "manifest.2.json"), body(second));
    assert_eq!(read(&out, "deleted/Bundle.ndjson"), deleted);
    assert_eq!(read(&out, "error/OperationOutcome.ndjson"), outcome);
    assert_eq!(read(&out, "Patient.2.ndjson"), PATIENTS);
    let log = read(&out, "log.ndjson");
    let events: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let with_name = |name: &str| events.iter().filter(|event| event["eventId"] == name).collect::<Vec<_>>();
    let once = ["kickoff", "status_complete", "manifest_complete", "export_complete"];
    assert!(once.iter().all(|name| with_name(name).len() == 1), "{log}");
    assert_eq!((with_name("download_request").len(), with_name("download_complete").len()), (4, 4), "{log}");
    assert_eq!(with_name("export_complete")[0]["eventDetail"]["resources"], 4);
    assert!(server.requests()[2].starts_with("get /page2 "), "{:?}", server.requests());
}

#[tokio::test]
async fn a_damaged_manifest_is_an_error() {
    #[track_caller]
    fn check(error: &ExportError, says: &str) {
        assert!(error.to_string().contains(says), "{error}");
    }
    let failing = async |responses: &[Vec<u8>]| {
        let server = FaultyServer::start(responses).await;
        let folder = tempfile::tempdir().unwrap();
        start(&server, &folder.path().join("e")).await.unwrap_err()
    };
    let answers = |body: &str| [accepted(), respond(200, "", body)];
    check(&failing(&answers("<html>")).await, "unexpected response");
    check(&failing(&answers(r#"{"transactionTime":"t"}"#)).await, "requiresAccessToken");
    let cycle = r#","link":[{"relation":"next","url":"status"}]"#;
    check(&failing(&[accepted(), complete(cycle), complete(cycle), complete(cycle)]).await, "cycle");
    let too_few = page(&manifest("").replace("\"count\":2", "\"count\":3"));
    let error = failing(&[accepted(), too_few, respond(200, "", PATIENTS)]).await;
    check(&error, "the manifest says 3 resources, the file has 2");
}

#[tokio::test]
async fn one_failed_file_does_not_stop_the_others() {
    let more = r#","error":[{"type":"OperationOutcome","url":"{base}/e"}]"#;
    let server =
        FaultyServer::start(&[accepted(), complete(more), respond(404, "", ""), respond(200, "", "{}\n")])
            .await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let error = start(&server, &out).await.unwrap_err();
    assert!(error.to_string().contains("1 of 2 files"), "{error}");
    assert!(out.join("error/OperationOutcome.ndjson").exists() && !out.join("Patient.ndjson").exists());
}

#[tokio::test]
async fn a_failed_export_says_why() {
    let outcome = r#"{"resourceType":"OperationOutcome","issue":[{"code":"exception","details":{"text":"the disk is full"}}]}"#;
    let server = FaultyServer::start(&[accepted(), respond(500, "", outcome)]).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let error = start(&server, &out).await.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    let ExportPhase::Failed(reason) = ExportFolder::read(&out).unwrap().phase else { panic!("not failed") };
    assert!(reason.contains("the disk is full"), "{reason}");
}

#[tokio::test]
async fn files_without_tokens_get_none() {
    let without =
        page(&manifest("").replace("\"requiresAccessToken\":true", "\"requiresAccessToken\":false"));
    let server = FaultyServer::start(&[accepted(), without, respond(200, "", PATIENTS)]).await;
    let folder = tempfile::tempdir().unwrap();
    start(&server, &folder.path().join("e1")).await.unwrap();
    let last = server.requests().pop().unwrap();
    assert!(!last.contains("authorization"), "{last}");
}

#[tokio::test]
async fn the_folder_is_checked_before_anything_is_sent() {
    let server = FaultyServer::start(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Patient.ndjson"), "old").unwrap();
    let error = start(&server, folder.path()).await.unwrap_err();
    assert!(matches!(error, ExportError::Folder(FolderError::NotEmpty(_))), "{error}");
    let file = folder.path().join("Patient.ndjson");
    let error = start(&server, &file.join("e")).await.unwrap_err();
    assert!(matches!(error, ExportError::Folder(FolderError::Write { .. })), "{error}");
    assert!(server.requests().is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_user_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let more = r#","error":[{"type":"OperationOutcome","url":"{base}/e"}]"#;
    let responses = [accepted(), complete(more), respond(200, "", PATIENTS), respond(200, "", "{}\n")];
    let server = FaultyServer::start(&responses).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    start(&server, &out).await.unwrap();
    let mode = |name: &str| std::fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("error")), (0o700, 0o700));
    for name in ["Patient.ndjson", "error/OperationOutcome.ndjson", "manifest.json", "job.json", "log.ndjson"]
    {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[tokio::test]
async fn two_processes_do_not_use_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let lock = ExportFolder::create(&out).unwrap();
    lock.save(&ExportJob::new("https://t.example", KickOff::default(), now())).unwrap();
    assert!(matches!(ExportFolder::open(&out), Err(FolderError::Locked(_))));
    drop(lock);
    assert!(ExportFolder::open(&out).is_ok());
}

#[tokio::test]
async fn a_cancelled_export_is_not_resumed() {
    let server = FaultyServer::start(&[accepted(), respond(401, "", ""), respond(202, "", "")]).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("e1");
    let error = start(&server, &out).await.unwrap_err();
    assert!(matches!(error, ExportError::Api(ApiError::Refused { .. })), "{error}");
    assert_eq!(ExportFolder::read(&out).unwrap().phase, ExportPhase::Running, "the token is at fault");
    let job = delete(&api(&server.base_url), &given(), &out).await.unwrap();
    assert_eq!(job.phase, ExportPhase::Deleted);
    assert!(server.requests()[2].starts_with("delete /status "));
    assert!(matches!(resume(&server, &out).await, Err(ExportError::Deleted)));
}

#[tokio::test]
async fn a_token_is_not_sent_to_another_host_until_the_user_allows_it() {
    let files = FaultyServer::start(&[respond(200, "", PATIENTS)]).await;
    let elsewhere = page(&manifest("").replace("{base}", &files.base_url));
    let server = FaultyServer::start(&[accepted(), elsewhere.clone(), elsewhere]).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("e1");
    let error = start(&server, &folder).await.unwrap_err();
    let ExportError::Api(ApiError::ForeignHost { host }) = &error else { panic!("{error}") };
    assert_eq!(*host, files.base_url.trim_start_matches("http://"));
    assert!(error.to_string().contains(&format!("--file-host {host}")), "{error}");
    assert_eq!(files.requests(), [] as [String; 0], "nothing was sent there");
    let api = api(&server.base_url);
    api.allow_file_host(host);
    ExportRun::resume(&api, given(), &folder, |_| {}).unwrap().to_completion().await.unwrap();
    assert!(files.requests()[0].contains("authorization: bearer tok"), "{:?}", files.requests());
}

#[tokio::test]
async fn a_status_at_another_host_gets_no_token() {
    let other = FaultyServer::start(&[]).await;
    let location = format!("content-location: {}/status\r\n", other.base_url);
    let server = FaultyServer::start(&[respond(202, &location, "")]).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("e1");
    let error = start(&server, &folder).await.unwrap_err();
    assert!(matches!(error, ExportError::Api(ApiError::ForeignHost { .. })), "{error}");
    assert_eq!(other.requests(), [] as [String; 0]);
    assert!(ExportFolder::read(&folder).unwrap().can_resume(), "the export can be resumed with --file-host");
}
