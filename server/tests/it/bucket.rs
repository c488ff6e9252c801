//! Servers whose files are in a bucket of an S3 server: exports and releases that several nodes share, the
//! end of a node in the middle of an export, faults of the bucket, and downloads directly from it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use test_database::TestDatabase;
use test_object_store::{ACCESS_KEY_ID, BUCKET, Fault, REGION, SECRET_ACCESS_KEY, TestObjectStore};

use crate::cluster::start_nodes;
use crate::nodes::{token_from, until};
use crate::support::{PATIENCE, Server};

/// Number of imported patients, and the resulting number of files.
const PATIENTS: usize = 3_000;
const FILES: usize = 4;

/// Returns settings for exports in a bucket, with the secret in a file of this folder.
fn settings(bucket: &TestObjectStore, secrets: &Path) -> String {
    format!(
        "[bulk]\nfile_size = 2000000\nlease_s = 20\nsigned_url_s = 600\n{}signed_downloads = true\n",
        bucket_settings(bucket, secrets)
    )
}

/// Returns the section with a bucket, with the secret in a file of this folder.
pub fn bucket_settings(bucket: &TestObjectStore, secrets: &Path) -> String {
    let secret = secrets.join("secret");
    std::fs::write(&secret, format!("{SECRET_ACCESS_KEY}\n")).unwrap();
    format!(
        "[files]\nlocation = \"s3://{BUCKET}/one\"\nendpoint = \"{}\"\nregion = \"{REGION}\"\n\
         access_key_id = \"{ACCESS_KEY_ID}\"\nsecret_access_key_file = {secret:?}\nallow_http = true\n",
        bucket.endpoint()
    )
}

/// Imports the patients into a server.
fn import_patients(server: &Server) {
    let mut text = String::new();
    for number in 0..PATIENTS {
        let name = fastrand::Rng::with_seed(number as u64);
        let name: String = std::iter::repeat_with({
            let mut name = name;
            move || name.alphanumeric()
        })
        .take(2_000)
        .collect();
        let patient =
            json!({ "resourceType": "Patient", "id": format!("p{number:05}"), "name": [{ "text": name }] });
        writeln!(text, "{patient}").unwrap();
    }
    let file = server.data().join("patients.ndjson");
    std::fs::write(&file, text).unwrap();
    import(server, &file);
}

/// Returns the folder of the bucket with the indexes of releases.
fn terminology_objects(bucket: &TestObjectStore) -> PathBuf {
    let [store] = &files_in(&bucket.objects().join("one"))[..] else { panic!("one store has objects") };
    store.join("terminology")
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn import(server: &Server, path: &Path) {
    let imported = server.trefoil(&["import", path.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
}

/// Starts an export of the patients, and returns the path of its status.
async fn kick_off(node: &Server, base: &str, token: &str) -> String {
    let url = format!("{}/$export?_type=Patient", node.fhir());
    let request = node.client().get(url).bearer_auth(token);
    let request = request.header("accept", "application/fhir+json").header("prefer", "respond-async");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let status = response.headers()["content-location"].to_str().unwrap();
    status.strip_prefix(base).unwrap().to_owned()
}

async fn get(client: &Client, node: &Server, path: &str, token: Option<&str>) -> Response {
    let request = client.get(format!("{}{path}", node.base()));
    let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
    request.send().await.unwrap()
}

/// Polls an export at a node until it is complete, and returns the manifest.
async fn manifest(node: &Server, path: &str, token: &str) -> Value {
    let (client, begun) = (node.client(), Instant::now());
    loop {
        let response = get(&client, node, path, Some(token)).await;
        if response.status() == StatusCode::OK {
            return response.json().await.unwrap();
        }
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert!(begun.elapsed() < PATIENCE, "the export does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the paths of the files of a manifest.
fn paths(manifest: &Value, base: &str) -> Vec<String> {
    let files = manifest["output"].as_array().unwrap().iter();
    files.map(|file| file["url"].as_str().unwrap().strip_prefix(base).unwrap().to_owned()).collect()
}

/// Downloads the files of a manifest without a token: from the bucket, to which the node redirects.
async fn files(node: &Server, base: &str, manifest: &Value) -> Vec<Vec<u8>> {
    assert_eq!(manifest["requiresAccessToken"], false);
    let mut files = Vec::new();
    for path in paths(manifest, base) {
        let redirect = get(&node.client(), node, &path, None).await;
        assert_eq!(redirect.status(), StatusCode::TEMPORARY_REDIRECT);
        // The clients of these tests follow no redirects.
        let location = redirect.headers()["location"].to_str().unwrap();
        let response = reqwest::get(location).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        files.push(response.bytes().await.unwrap().to_vec());
    }
    files
}

/// Returns the resources of files without the members that depend on the time of the import.
fn resources(files: &[Vec<u8>]) -> Vec<Value> {
    let lines = files.iter().flat_map(|file| file.split_inclusive(|byte| *byte == b'\n'));
    let resource = |line: &[u8]| {
        let mut resource: Value = serde_json::from_slice(line).unwrap();
        resource.as_object_mut().unwrap().remove("meta");
        resource
    };
    lines.map(resource).collect()
}

/// Returns the export of a server with the file engine and the same patients.
async fn expected() -> Vec<Value> {
    let mut server =
        Server::in_fresh_folder().over_plain_http().with_settings("[bulk]\nfile_size = 2000000\n");
    server.start();
    import_patients(&server);
    let (base, token) = (server.base(), server.backend_token("system/*.read").await);
    let path = kick_off(&server, &base, &token).await;
    let manifest = manifest(&server, &path, &token).await;
    let mut files = Vec::new();
    for path in paths(&manifest, &base) {
        files.push(get(&server.client(), &server, &path, Some(&token)).await.bytes().await.unwrap().to_vec());
    }
    resources(&files)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_exports_and_releases_through_a_bucket() {
    let Some(database) = TestDatabase::shared() else { return };
    let bucket = TestObjectStore::start().unwrap();
    let secrets = tempfile::tempdir().unwrap();
    let settings = settings(&bucket, secrets.path());
    let mut nodes = start_nodes(&vec![database.create().unwrap(); 3], None, Some(&settings));
    let base = nodes[0].base();
    let token = token_from(&nodes[0], &base).await;

    // A release that one node has imported is known to the others.
    let releases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/releases");
    import(&nodes[1], &releases.join("SnomedCT_GardenInternationalRF2_20250101T120000Z"));
    let question =
        "/fhir/R4/CodeSystem/$subsumes?system=http://snomed.info/sct&codeA=700101006&codeB=700112006";
    for node in &nodes {
        let client = node.client();
        until("a release", StatusCode::OK, async || {
            get(&client, node, question, Some(&token)).await.status()
        })
        .await;
    }
    // A release that was imported into a stopped node is known to the others after its start.
    nodes[2].kill();
    import(&nodes[2], &releases.join("plants.csv"));
    // Indexes missing from the bucket are uploaded again. Objects that no record names are removed, unless
    // they are new.
    let objects = terminology_objects(&bucket);
    let [index] = &files_in(&objects)[..] else { panic!("one release is in the bucket") };
    let (bytes, [unused, new]) =
        (std::fs::read(index).unwrap(), ["unused.index", "new.index"].map(|name| objects.join(name)));
    std::fs::remove_file(index).unwrap();
    for file in [&unused, &new] {
        std::fs::write(file, "an index").unwrap();
    }
    let old = std::time::SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    std::fs::File::options().write(true).open(&unused).unwrap().set_modified(old).unwrap();
    nodes[2].start();
    let start = Instant::now();
    while unused.exists() || !std::fs::read(index).is_ok_and(|bytes_on_disk| bytes_on_disk == bytes) {
        assert!(start.elapsed() < PATIENCE, "the bucket has {:?}", files_in(&objects));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(new.exists());
    let local = nodes[0].data().join("terminology/releases");
    let is_complete = |file: &std::fs::DirEntry| file.path().extension().is_none_or(|end| end != "part");
    let shared = || std::fs::read_dir(&local).unwrap().flatten().filter(is_complete).count();
    let await_shared = async || {
        let start = Instant::now();
        while shared() < 6 {
            assert!(start.elapsed() < PATIENCE, "{} files", shared());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    await_shared().await;

    // A release that cannot be fetched does not delay the others, and is fetched once another node has
    // repaired the bucket.
    nodes[0].kill();
    std::fs::remove_dir_all(&local).unwrap();
    std::fs::remove_file(index).unwrap();
    nodes[0].start();
    assert_eq!(shared(), 3);
    nodes[1].kill();
    nodes[1].start();
    await_shared().await;

    // A release that one node removes leaves the others too.
    let list = nodes[1].trefoil(&["release", "list"]).stdout;
    let list = String::from_utf8(list).unwrap();
    let herbs = list.lines().find(|line| line.contains("garden.example/herbs")).unwrap();
    let id = herbs.split_whitespace().next().unwrap();
    assert!(nodes[1].trefoil(&["release", "remove", id]).status.success());
    let start = Instant::now();
    while shared() > 3 {
        assert!(start.elapsed() < PATIENCE, "{} files", shared());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let list = String::from_utf8(nodes[0].trefoil(&["release", "list"]).stdout).unwrap();
    assert!(!list.contains(id), "{list}");

    // An export is started at one node, polled at another, and downloaded from the third.
    import_patients(&nodes[0]);
    let path = kick_off(&nodes[0], &base, &token).await;
    let complete = manifest(&nodes[1], &path, &token).await;
    bucket.take_requests();
    let redirected = files(&nodes[2], &base, &complete).await;
    let direct = bucket.take_requests().iter().filter(|request| request.contains("X-Amz-Signature")).count();
    assert_eq!(direct, redirected.len(), "each file is read from the bucket directly");
    let expected = expected().await;
    assert_eq!((redirected.len(), expected.len()), (FILES, resources(&redirected).len()));
    assert!(resources(&redirected) == expected, "the same resources in the same order");
    // With a token, the server sends the file itself.
    for (at, (path, file)) in paths(&complete, &base).iter().zip(&redirected).enumerate() {
        let node = &nodes[at % 3];
        let response = get(&node.client(), node, path, Some(&token)).await;
        assert!(response.url().as_str().starts_with(&node.base()));
        assert!(response.bytes().await.unwrap() == *file);
        let request = nodes[0].client().get(format!("{}{path}", nodes[0].base())).bearer_auth(&token);
        let response = request.header("range", "bytes=1000-1999").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        assert!(response.bytes().await.unwrap() == file[1000..2000]);
    }
    // While the bucket is away, a file cannot be read now, and the server remains ready.
    bucket.fail(Fault::AccessDenied, usize::MAX);
    let first = &paths(&complete, &base)[0];
    let response = get(&nodes[1].client(), &nodes[1], first, Some(&token)).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    bucket.fail(Fault::SlowDown, usize::MAX);
    let response = get(&nodes[1].client(), &nodes[1], first, Some(&token)).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(get(&nodes[1].client(), &nodes[1], "/health/ready", None).await.status(), StatusCode::OK);
    bucket.recover();
    // A new server secret ends the signed URLs at all nodes; after that, a URL of one node is valid at the
    // others.
    let rotated = nodes[0].trefoil(&["keys", "rotate", "--server-secret"]);
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    for node in &nodes {
        let client = node.client();
        until("a new server secret", StatusCode::FORBIDDEN, async || {
            get(&client, node, first, None).await.status()
        })
        .await;
    }
    let renewed = manifest(&nodes[1], &path, &token).await;
    assert!(files(&nodes[2], &base, &renewed).await == redirected);
    // The export is deleted at another node, with its files.
    let client = nodes[2].client();
    let url = format!("{}{path}", nodes[2].base());
    assert_eq!(client.delete(url).bearer_auth(&token).send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(export_objects(&bucket), Vec::<String>::new());
}

/// Returns the names of the objects of all exports.
fn export_objects(bucket: &TestObjectStore) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![bucket.objects().join("one")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.components().any(|part| part.as_os_str() == "exports") {
                names.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    names
}

/// Waits until the audit log of a node contains events of completed exports, and returns their jobs.
async fn completed_exports(node: &Server) -> Vec<String> {
    let start = Instant::now();
    loop {
        let jobs = logged_exports(node);
        if !jobs.is_empty() {
            return jobs;
        }
        assert!(start.elapsed() < PATIENCE, "no completed export is in the audit log");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the jobs in the events of completed exports in the audit log of a node.
fn logged_exports(node: &Server) -> Vec<String> {
    let files = std::fs::read_dir(node.data().join("audit")).unwrap();
    let text: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let completed = events.filter(|event| event["subtype"][0]["code"] == "export-completed");
    let job = |event: Value| {
        assert!(event["source"]["site"].as_str().is_some_and(|name| !name.is_empty()), "{event}");
        event["entity"][0]["what"]["identifier"]["value"].as_str().unwrap().to_owned()
    };
    completed.map(job).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_completes_the_export_of_a_killed_one() {
    let Some(database) = TestDatabase::shared() else { return };
    let bucket = TestObjectStore::start().unwrap();
    let secrets = tempfile::tempdir().unwrap();
    let settings = settings(&bucket, secrets.path());
    let mut nodes = start_nodes(&vec![database.create().unwrap(); 2], None, Some(&settings));
    let base = nodes[0].base();
    let token = token_from(&nodes[0], &base).await;
    import_patients(&nodes[0]);
    let first = kick_off(&nodes[1], &base, &token).await;
    let undisturbed = manifest(&nodes[0], &first, &token).await;
    let undisturbed = files(&nodes[0], &base, &undisturbed).await;

    let id = |path: &str| vec![path.rsplit('/').next().unwrap().to_owned()];
    assert_eq!(completed_exports(&nodes[1]).await, id(&first));

    bucket.take_requests();
    bucket.delay_uploads(Duration::from_secs(1));
    let path = kick_off(&nodes[1], &base, &token).await;
    // The bucket is away from the first upload on, so that the node is killed in the middle.
    let start = Instant::now();
    while !bucket.take_requests().iter().any(|request| request.starts_with("PUT")) {
        assert!(start.elapsed() < PATIENCE, "nothing is uploaded");
        tokio::task::yield_now().await;
    }
    bucket.fail(Fault::SlowDown, usize::MAX);
    assert_eq!(get(&nodes[0].client(), &nodes[0], &path, Some(&token)).await.status(), StatusCode::ACCEPTED);
    nodes[1].kill();
    bucket.recover();
    bucket.delay_uploads(Duration::ZERO);
    let start = Instant::now();
    let complete = manifest(&nodes[0], &path, &token).await;
    println!("completed by another node after {} ms", start.elapsed().as_millis());
    assert!(files(&nodes[0], &base, &complete).await == undisturbed, "the same bytes");
    // Each export is in the audit log of the node that has completed it, and in no other.
    assert_eq!(completed_exports(&nodes[0]).await, id(&path));
    assert_eq!(logged_exports(&nodes[1]), id(&first));
}
