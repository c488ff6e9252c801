//! Exports whose files are in a bucket of an S3 server: the same bytes as in a folder, faults of the bucket,
//! and deletion.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use serde_json::{Value, json};
use test_object_store::{ACCESS_KEY_ID, BUCKET, Fault, REGION, SECRET_ACCESS_KEY, TestObjectStore};
use trefoil_bulk::{
    Bulk, BulkOptions, ContentEncoding, ExportFile, ExportLevel, FileError, FileLocation, JobStatus,
    ObjectBucket, TypeAccess,
};

use crate::support::{Setup, bytes_of, finish, until};

/// Length of a part of an upload.
const PART: u64 = 8 << 20;

/// Time for which a request is repeated on a machine of any speed.
const PATIENCE: Duration = Duration::from_secs(60);

fn bucket(server: &TestObjectStore, patience: Duration) -> ObjectBucket {
    let builder = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_bucket_name(BUCKET)
        .with_region(REGION)
        .with_access_key_id(ACCESS_KEY_ID)
        .with_secret_access_key(SECRET_ACCESS_KEY)
        .with_allow_http(true);
    ObjectBucket::s3(builder, "one/two".into(), patience, true, Arc::default()).unwrap()
}

fn in_bucket(server: &TestObjectStore, patience: Duration, options: &mut BulkOptions) {
    options.files = FileLocation::Bucket(bucket(server, patience));
}

/// Adds patients with about this many bytes of incompressible text each.
async fn fill(setup: &Setup, count: u32, bytes: usize) {
    for number in 0..count {
        let mut random = fastrand::Rng::with_seed(number.into());
        let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect();
        setup.put("Patient", &format!("p{number:04}"), json!({ "language": noise })).await;
    }
}

async fn start(setup: &Setup, bulk: &Bulk) -> String {
    bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap()
}

/// Returns the files of a manifest with their names.
async fn files(setup: &Setup, bulk: &Bulk, job: &str, manifest: &Value) -> Vec<(String, ExportFile)> {
    let mut names = Vec::new();
    for file in manifest["output"].as_array().unwrap() {
        let name = file["url"].as_str().unwrap().rsplit('/').next().unwrap();
        names.push((name.to_owned(), bulk.file(job, name, "client", setup.now()).await.unwrap()));
    }
    names
}

/// Returns the keys of all objects.
fn keys(server: &TestObjectStore) -> Vec<String> {
    fn collect(folder: &Path, root: &Path, keys: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(&path, root, keys),
                false => keys.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    let (root, mut keys) = (server.objects(), Vec::new());
    collect(&root, &root, &mut keys);
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_contains_the_bytes_of_a_folder() {
    let server = TestObjectStore::start().unwrap();
    let setup = Setup::new();
    fill(&setup, 2_100, 10_000).await;
    let remote = setup.reopened_with(|options| in_bucket(&server, PATIENCE, options));
    let job = start(&setup, &setup.bulk).await;
    let local_files = files(&setup, &setup.bulk, &job, &finish(&setup.bulk, &job, setup.now()).await).await;
    let job = start(&setup, &remote).await;
    let manifest = finish(&remote, &job, setup.now()).await;
    let remote_files = files(&setup, &remote, &job, &manifest).await;
    assert_eq!(remote_files.len(), local_files.len());
    for ((name, file), (local_name, local)) in remote_files.iter().zip(&local_files) {
        assert_eq!(name, local_name);
        let key = format!("one/two/{}/exports/{job}/1.{name}", setup.store.id());
        assert!(keys(&server).contains(&key), "{key}");
        for encoding in [ContentEncoding::Identity, ContentEncoding::Gzip] {
            let whole = bytes_of(local, encoding, None).await;
            assert!(whole.len() as u64 > PART, "several parts: {}", whole.len());
            assert!(bytes_of(file, encoding, None).await == whole, "{name} {encoding:?}");
            assert_eq!(file.etag(encoding), local.etag(encoding));
            let length = whole.len() as u64;
            for range in [0..1, PART - 1..PART + 1, length - 3..length, 5..5] {
                let part = &whole[range.start as usize..range.end as usize];
                assert!(bytes_of(file, encoding, Some(range)).await == part);
            }
            // Without a token, directly from the bucket, with the type and coding of the file.
            let url = file.signed_url(encoding, Duration::from_secs(60)).await.unwrap().unwrap();
            let response = reqwest::get(&url).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()["content-type"], "application/fhir+ndjson");
            let coding = response.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
            assert_eq!(coding, (encoding == ContentEncoding::Gzip).then_some("gzip"));
            assert!(response.bytes().await.unwrap() == whole);
        }
    }
    let uploads = server.take_requests();
    let parts = uploads.iter().filter(|request| request.contains("partNumber=")).count();
    assert_eq!(parts, 5, "three parts of the file and two of its gzip");
    assert_eq!(server.open_uploads().unwrap(), 0);
    // Files of another deployment in the same bucket are neither listed nor removed.
    let foreign = server.objects().join("one/two/other-store/exports/0/1.Patient.0001.ndjson");
    std::fs::create_dir_all(foreign.parent().unwrap()).unwrap();
    std::fs::write(&foreign, "x").unwrap();
    server.take_requests();
    remote.sweep(setup.now()).await.unwrap();
    remote.delete(&job, "client", setup.now()).await.unwrap();
    let own = format!("one/two/{}/exports/", setup.store.id());
    let requests = server.take_requests();
    let lists = requests.iter().filter(|request| request.contains("list-type"));
    for request in lists {
        let prefix = request.replace("%2F", "/");
        assert!(prefix.contains(&format!("prefix={own}")), "{request}");
    }
    let keys = keys(&server);
    assert!(keys.iter().all(|key| !key.starts_with(&own)), "{keys:?}");
    assert!(foreign.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_object_is_not_sent_completely() {
    let server = TestObjectStore::start().unwrap();
    let setup = Setup::with(|options| in_bucket(&server, PATIENCE, options));
    fill(&setup, 300, 10_000).await;
    let job = start(&setup, &setup.bulk).await;
    finish(&setup.bulk, &job, setup.now()).await;
    let (_, file) =
        files(&setup, &setup.bulk, &job, &finish(&setup.bulk, &job, setup.now()).await).await.remove(0);
    let key = keys(&server).into_iter().find(|key| key.ends_with("Patient.0001.ndjson")).unwrap();
    let object = server.objects().join(&key);
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[1_500_000] ^= 1;
    std::fs::write(&object, &bytes).unwrap();
    server.take_requests();
    let body = file.open(ContentEncoding::Identity).await.unwrap();
    // The file was not read before its first byte is sent. The worker may still list the files of other
    // attempts, also with GET, after it has recorded the end of the job.
    let requests = server.take_requests();
    let of_file = |request: &&String| request.contains(&key);
    let reads: Vec<_> = requests.iter().filter(of_file).collect();
    assert!(!reads.is_empty() && reads.iter().all(|request| request.starts_with("HEAD ")), "{requests:?}");
    let length = body.length;
    let mut stream = body.stream(0..length);
    let mut total = 0;
    let error = loop {
        match stream.try_next().await {
            Ok(Some(piece)) => total += piece.len() as u64,
            Ok(None) => panic!("the checksum was not compared"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(total < length);
    assert!(matches!(file.open(ContentEncoding::Gzip).await, Err(FileError::Damaged { .. })));
    bytes.pop();
    std::fs::write(&object, &bytes).unwrap();
    assert!(matches!(file.open(ContentEncoding::Identity).await, Err(FileError::Damaged { .. })));
    std::fs::remove_file(&object).unwrap();
    assert!(matches!(file.open(ContentEncoding::Identity).await, Err(FileError::Damaged { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_survives_short_faults_and_waits_for_the_end_of_long_ones() {
    let server = TestObjectStore::start().unwrap();
    let patient = Setup::with(|options| in_small_files(&server, PATIENCE, options));
    let impatient = Setup::with(|options| in_small_files(&server, Duration::from_millis(300), options));
    for setup in [&patient, &impatient] {
        fill(setup, 100, 10_000).await;
    }
    let expected = complete(&patient).await;
    assert_eq!(expected.len(), 4);
    for fault in [Fault::SlowDown, Fault::InternalError, Fault::Disconnect] {
        // Repeated requests succeed.
        server.fail(fault, 2);
        assert_eq!(complete(&patient).await, expected, "{fault:?}");
        // The bucket is away for a long time.
        let setup = &impatient;
        server.fail(fault, usize::MAX);
        let job = start(setup, &setup.bulk).await;
        until("the worker waits", async || setup.bulk.running_jobs() == 0).await;
        let status = setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap();
        assert!(matches!(status, JobStatus::InProgress { .. }), "{fault:?}: {status:?}");
        server.recover();
        setup.pass(Duration::from_secs(61));
        setup.bulk.take_over_expired(setup.now()).await.unwrap();
        let manifest = finish(&setup.bulk, &job, setup.now()).await;
        assert_eq!(contents(setup, &setup.bulk, &job, &manifest).await, expected, "{fault:?}");
        // Downloads say that they can be repeated.
        let (_, file) = files(setup, &setup.bulk, &job, &manifest).await.remove(0);
        server.fail(fault, usize::MAX);
        assert!(matches!(file.open(ContentEncoding::Identity).await, Err(FileError::Unavailable(_))));
        assert!(matches!(file.open(ContentEncoding::Gzip).await, Err(FileError::Unavailable(_))));
        server.recover();
    }
    // A bucket that denies access does so until an administrator changes it.
    let setup = &patient;
    server.fail(Fault::AccessDenied, usize::MAX);
    let job = start(setup, &setup.bulk).await;
    until("the export fails", async || setup.bulk.running_jobs() == 0).await;
    match setup.bulk.status(&job, 1, "client", &TypeAccess::All, setup.now()).await.unwrap() {
        JobStatus::Failed { by_data: false, reason } => assert!(reason.contains("denied access"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

fn in_small_files(server: &TestObjectStore, patience: Duration, options: &mut BulkOptions) {
    in_bucket(server, patience, options);
    options.file_size = 300_000;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_complete_although_the_answer_was_lost() {
    let server = TestObjectStore::start().unwrap();
    // The request is repeated, and the repeated one does not find the upload. Without patience it is not
    // repeated.
    for (patience, requests) in [(PATIENCE, 2), (Duration::ZERO, 1)] {
        let setup = Setup::with(|options| in_bucket(&server, patience, options));
        fill(&setup, 1_000, 10_000).await;
        server.fail(Fault::LostCompletion, 1);
        server.take_requests();
        let manifest = complete(&setup).await;
        assert_eq!(manifest[0].1.iter().filter(|byte| **byte == b'\n').count(), 1_000);
        // The file was not written again.
        let sent_requests = server.take_requests();
        let count = |query| {
            sent_requests
                .iter()
                .filter(|request| request.starts_with("POST") && request.contains(query))
                .count()
        };
        assert_eq!((count("?uploads"), count("?uploadId=")), (1, requests), "{sent_requests:#?}");
    }
}

/// Runs an export, and returns the contents of its files with their names.
async fn complete(setup: &Setup) -> Vec<(String, Vec<u8>)> {
    let job = start(setup, &setup.bulk).await;
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    contents(setup, &setup.bulk, &job, &manifest).await
}

async fn contents(setup: &Setup, bulk: &Bulk, job: &str, manifest: &Value) -> Vec<(String, Vec<u8>)> {
    let mut contents = Vec::new();
    for (name, file) in files(setup, bulk, job, manifest).await {
        contents.push((name, bytes_of(&file, ContentEncoding::Identity, None).await));
    }
    contents
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_export_and_a_lost_lease_leave_no_upload() {
    let server = TestObjectStore::start().unwrap();
    let setup = Setup::with(|options| in_bucket(&server, PATIENCE, options));
    fill(&setup, 2_000, 10_000).await;
    for is_delete in [true, false] {
        let job = start(&setup, &setup.bulk).await;
        // The upload of the only file has begun.
        until("an upload", async || server.open_uploads().unwrap() > 0 || setup.bulk.running_jobs() == 0)
            .await;
        if is_delete {
            setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
        } else {
            // Another process takes the job, and writes under another attempt.
            let other = setup.reopened();
            other.resume().await.unwrap();
            let manifest = finish(&other, &job, setup.now()).await;
            assert_eq!(manifest["output"][0]["count"], 2_000);
        }
        until("the upload is aborted", async || {
            setup.bulk.running_jobs() == 0 && server.open_uploads().unwrap() == 0
        })
        .await;
        if is_delete {
            assert_eq!(keys(&server), Vec::<String>::new());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_begins_during_a_deletion_is_aborted() {
    let server = TestObjectStore::start().unwrap();
    let setup = Setup::with(|options| in_bucket(&server, PATIENCE, options));
    fill(&setup, 1_000, 10_000).await;
    server.delay_uploads(Duration::from_millis(200));
    let job = start(&setup, &setup.bulk).await;
    let has_sent = |method: &str, query: &str| {
        server.take_requests().iter().any(|request| request.starts_with(method) && request.contains(query))
    };
    until("an upload is requested", async || has_sent("POST", "?uploads")).await;
    setup.bulk.delete(&job, "client", setup.now()).await.unwrap();
    // The worker has stopped before the answer with the id of the upload.
    until("the upload is aborted", async || has_sent("DELETE", "uploadId=")).await;
    until("no upload is left", async || server.open_uploads().unwrap() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_keeps_its_lease() {
    const STEP: Duration = Duration::from_millis(50);
    let server = TestObjectStore::start().unwrap();
    let setup = Setup::with(|options| {
        in_bucket(&server, PATIENCE, options);
        options.lease = jiff::SignedDuration::from_millis(900);
    });
    fill(&setup, 10, 1_000).await;
    server.delay_uploads(Duration::from_secs(3));
    let other = setup.reopened();
    let begin = Instant::now();
    let job = start(&setup, &setup.bulk).await;
    // Another process looks for leases that have expired while the only file is uploaded.
    while setup.bulk.running_jobs() > 0 {
        tokio::time::sleep(STEP).await;
        setup.pass(STEP);
        other.take_over_expired(setup.now()).await.unwrap();
        assert_eq!(other.running_jobs(), 0, "the lease was lost after {:?}", begin.elapsed());
    }
    assert!(begin.elapsed() > Duration::from_secs(3));
    finish(&other, &job, setup.now()).await;
    assert_eq!(keys(&server), [format!("one/two/{}/exports/{job}/1.Patient.0001.ndjson", setup.store.id())]);
}
