//! `trefoil purge`: after it, a patient's record is in no answer, no export, no new backup and no file.

use std::fs;
use std::path::{Path, PathBuf};

use memchr::memmem;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_database::TestDatabase;

use crate::support::{Server, manifest_at};

const SCOPES: &str = "system/*.cruds";
/// A text that only the record contains.
const SECRET: &str = "quandary-of-the-seventh-heron";
const SETTINGS: &str = "[audit]\nresources = \"all\"\n";
const PATIENT: &str = "Patient/erase-me";

/// The files below a folder that contain the text.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_with(&path, text));
        } else if fs::read(&path).is_ok_and(|bytes| memmem::find(&bytes, text.as_bytes()).is_some()) {
            files.push(path);
        }
    }
    files
}

/// The resources of the record, and one that belongs to another patient too.
fn record() -> Vec<Value> {
    let subject = json!({ "reference": PATIENT });
    vec![
        json!({ "resourceType": "Patient", "id": "erase-me", "name": [{ "family": SECRET }] }),
        json!({ "resourceType": "Patient", "id": "other", "active": true }),
        json!({ "resourceType": "Observation", "id": "o1", "status": "final", "subject": subject,
            "code": { "text": SECRET } }),
        json!({ "resourceType": "Binary", "id": "note", "contentType": "text/plain", "data": "cXVhbmRhcnk=" }),
        json!({ "resourceType": "DocumentReference", "id": "d1", "status": "current", "subject": subject,
            "description": SECRET, "content": [{ "attachment": { "url": "Binary/note" } }] }),
        json!({ "resourceType": "Communication", "id": "shared", "status": "completed", "subject": subject,
            "recipient": [{ "reference": "Patient/other" }] }),
    ]
}

/// Resources that R4's compartment lacks, and that refer to the patient only.
fn further_record() -> Vec<Value> {
    let patient = json!({ "reference": PATIENT });
    vec![
        json!({ "resourceType": "Device", "id": "pump", "patient": patient, "distinctIdentifier": SECRET }),
        json!({ "resourceType": "Task", "id": "visit", "status": "draft", "intent": "order", "for": patient,
            "description": SECRET }),
        json!({ "resourceType": "Contract", "id": "stay", "subject": [patient], "title": SECRET }),
        json!({ "resourceType": "GuidanceResponse", "id": "advice", "status": "success", "subject": patient,
            "moduleUri": format!("http://example.org/{SECRET}") }),
        json!({ "resourceType": "Linkage", "id": "own", "item": [{ "type": "source", "resource": patient }],
            "author": { "display": SECRET } }),
        json!({ "resourceType": "MessageHeader", "id": "news", "eventUri": format!("http://example.org/{SECRET}"),
            "source": { "endpoint": "http://example.org" }, "focus": [patient] }),
        json!({ "resourceType": "Bundle", "id": "letter", "type": "document",
            "entry": [{ "resource": record().swap_remove(0) }] }),
    ]
}

/// Resources that refer to the patient and are kept.
fn kept_record() -> Vec<Value> {
    let both = [PATIENT, "Patient/other"].map(|reference| json!({ "resource": { "reference": reference } }));
    vec![
        json!({ "resourceType": "Device", "id": "monitor", "type": { "text": "of the ward" } }),
        json!({ "resourceType": "Group", "id": "ward", "type": "person", "actual": true,
            "member": [{ "entity": { "reference": PATIENT } }] }),
        json!({ "resourceType": "Group", "id": "others", "type": "person", "actual": true,
            "member": [{ "entity": { "reference": "Patient/other" } }] }),
        json!({ "resourceType": "Linkage", "id": "twins", "item": both }),
    ]
}

/// A running server, as a client of its records sees it.
struct RecordClient<'a> {
    server: &'a Server,
    token: String,
}

impl RecordClient<'_> {
    async fn get(&self, url: &str) -> (StatusCode, String) {
        let url =
            if url.starts_with("http") { url.to_owned() } else { format!("{}/{url}", self.server.fhir()) };
        let request = self.server.client().get(url).bearer_auth(&self.token);
        let response = request.header("accept", "application/fhir+json").header("prefer", "respond-async");
        let response = response.send().await.unwrap();
        let status = response.status();
        let location = response.headers().get("content-location").cloned();
        let text = response.text().await.unwrap();
        (status, location.map_or(text, |location| location.to_str().unwrap().to_owned()))
    }

    async fn put(&self, resource: &Value) {
        let [kind, id] = ["resourceType", "id"].map(|member| resource[member].as_str().unwrap());
        let url = format!("{}/{kind}/{id}", self.server.fhir());
        let response =
            self.server.client().put(url).bearer_auth(&self.token).json(resource).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.text().await.unwrap());
    }

    /// Completes an export, and returns the address of its status and the manifest.
    async fn export(&self, query: &str) -> (String, Value) {
        self.export_of("", query).await
    }

    async fn export_of(&self, level: &str, query: &str) -> (String, Value) {
        let (status, location) = self.get(&format!("{level}$export?_type=Patient,Observation{query}")).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{location}");
        let manifest = manifest_at(&self.server.client(), &self.token, &location).await;
        (location, manifest)
    }
}

/// The first line of JSON that a command prints.
fn json_of(server: &Server, args: &[&str]) -> Value {
    let output = server.trefoil(args);
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{out}{err}");
    out.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap()
}

async fn check(mut server: Server, owns_files: bool) {
    server.start();
    let demo = server.demo_json();
    let writer = demo["backend"].as_array().unwrap().iter().find(|client| client["alg"] == "ES384").unwrap();
    let change = ["client", "change", writer["client_id"].as_str().unwrap(), "--scope", SCOPES];
    assert!(server.trefoil(&change).status.success());
    let client = RecordClient { token: server.backend_token(SCOPES).await, server: &server };
    let before = client.export("").await.1["transactionTime"].as_str().unwrap().to_owned();
    for resource in record() {
        client.put(&resource).await;
    }
    for resource in further_record().into_iter().chain(kept_record()) {
        client.put(&resource).await;
    }
    let mut second = record().swap_remove(2);
    second["status"] = "amended".into();
    client.put(&second).await;
    assert_eq!(client.get(&format!("Patient?family={SECRET}")).await.0, StatusCode::OK);
    let (complete, manifest) = client.export("").await;
    let (of_ward, _) = client.export_of("Group/ward/", "").await;
    let (of_others, others) = client.export_of("Group/others/", "").await;
    let since = manifest["transactionTime"].as_str().unwrap();
    let file = manifest["output"][0]["url"].as_str().unwrap();
    assert_eq!(client.get(file).await.0, StatusCode::OK);
    let backups = TempDir::new().unwrap();
    let backup = ["backup", "--json", "--to", backups.path().to_str().unwrap()];
    json_of(&server, &backup);
    assert!(json_of(&server, &backup)["follows"].is_string(), "the second backup follows the first");

    let unknown = server.trefoil(&["purge", "Patient/nobody", "--yes"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("Patient/nobody has no version in this store"));
    let live = server.trefoil(&["purge", "Observation/o1", "--yes"]);
    assert!(String::from_utf8_lossy(&live.stderr).contains("Observation/o1 is not deleted; delete it first"));
    let purged = json_of(&server, &["purge", PATIENT, "--yes", "--json"]);
    assert_eq!(purged["shared"], json!(["Communication/shared", "Linkage/twins"]));
    assert_eq!((&purged["erased"]["resources"], &purged["versions"]), (&json!(11), &json!(12)), "{purged}");
    assert_eq!(purged["files_rewritten"], json!(owns_files));
    assert!(purged["ended_exports"].as_u64().unwrap() >= 2);
    assert!(purged["searches"].as_u64().unwrap() >= 1, "{purged}");

    for gone in [PATIENT, "Observation/o1", "Observation/o1/_history", "DocumentReference/d1", "Binary/note"]
    {
        assert_eq!(client.get(gone).await.0, StatusCode::NOT_FOUND, "{gone}");
    }
    for gone in further_record() {
        let path = format!("{}/{}", gone["resourceType"].as_str().unwrap(), gone["id"].as_str().unwrap());
        assert_eq!(client.get(&path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    for other_id in ["Communication/shared", "Patient/other", "Device/monitor", "Group/ward", "Linkage/twins"]
    {
        assert_eq!(client.get(other_id).await.0, StatusCode::OK, "{other_id}");
    }
    let (_, found) = client.get(&format!("Patient?family={SECRET}")).await;
    assert_eq!(serde_json::from_str::<Value>(&found).unwrap()["total"], 0, "{found}");
    for export in [&complete, &of_ward] {
        let (status, reason) = client.get(export).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{reason}");
        assert!(reason.contains("start it again without _since"), "{reason}");
    }
    // The export of others is still there, and so are its files.
    assert_eq!(client.get(&of_others).await.0, StatusCode::OK);
    assert_eq!(client.get(others["output"][0]["url"].as_str().unwrap()).await.0, StatusCode::OK);
    assert_eq!(client.get(file).await.0, StatusCode::NOT_FOUND);
    let (status, reason) = client.get(&format!("$export?_since={since}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reason}");
    assert!(reason.contains("export without _since, and replace all earlier files"), "{reason}");
    // A client that never read the record loses nothing.
    client.export(&format!("&_since={before}")).await;
    let (_, again) = client.export("").await;
    client.export(&format!("&_since={}", again["transactionTime"].as_str().unwrap())).await;
    assert!(json_of(&server, &backup).get("follows").is_none(), "the next backup is a full one");
    if owns_files {
        assert_eq!(files_with(server.data(), SECRET), Vec::<PathBuf>::new());
    }
    let repeated = json_of(&server, &["purge", PATIENT, "--yes", "--json"]);
    assert_eq!(repeated["erased"], purged["erased"], "a repeated command finds the record");

    client.put(&record()[0]).await;
    let (_, history) = client.get(&format!("{PATIENT}/_history")).await;
    let history: Value = serde_json::from_str(&history).unwrap();
    assert_eq!(history["entry"].as_array().unwrap().len(), 1, "{history}");
    let check = server.trefoil(&["check"]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    assert_eq!(server.stop(), Some(0));
    if owns_files {
        let stopped = json_of(&server, &["purge", PATIENT, "--yes", "--json"]);
        assert_eq!(stopped["erased"]["resources"], 1, "without a server");
        assert_eq!(files_with(server.data(), SECRET), Vec::<PathBuf>::new());
    }
}

/// Secrets that were replaced are in no file of the store after a compaction, of a running and of a stopped
/// server.
#[test]
fn replaced_secrets_are_in_no_file_after_a_compaction() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let marker = |number: usize| format!("https://replaced-{number}.example/");
    let store = server.data().join("store");
    let add = ["client", "add", "shop", "--auth-method", "client_secret_basic"];
    assert!(server.trefoil(&[&add[..], &["--redirect-uri", &marker(0)]].concat()).status.success());
    assert_ne!(files_with(&store, &marker(0)), Vec::<PathBuf>::new());
    for number in 1..=2 {
        let change = ["client", "change", "shop", "--redirect-uri", &marker(number)];
        assert!(server.trefoil(&change).status.success());
        assert_eq!(json_of(&server, &["compact", "--json"])["files_rewritten"], true);
        assert_eq!(files_with(&store, &marker(number - 1)), Vec::<PathBuf>::new(), "{number}");
        assert_ne!(files_with(&store, &marker(number)), Vec::<PathBuf>::new(), "{number}");
        if number == 1 {
            assert_eq!(server.stop(), Some(0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_erased_from_a_folder() {
    check(Server::in_fresh_folder().with_settings(SETTINGS), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_erased_from_a_database() {
    let Some(database) = TestDatabase::shared() else { return };
    let server = Server::in_fresh_folder().over_plain_http().with_settings(SETTINGS);
    let base = server.base();
    check(server.sharing(&base, &database.create().unwrap()), false).await;
}
