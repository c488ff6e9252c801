//! Tests of the audit log of reads and changes of FHIR resources, with each setting.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Server, manifest_at};

/// Returns one event as text: action, interaction, reference, and number of Patients.
fn told(event: &Value) -> String {
    let entities = event["entity"].as_array().unwrap();
    let what = entities[0]["what"]["reference"].as_str().unwrap_or("-");
    let patients = entities.iter().filter(|entity| entity["role"]["code"] == "1").count();
    let (action, subtype) =
        (event["action"].as_str().unwrap(), event["subtype"][0]["code"].as_str().unwrap());
    format!("{action} {subtype} {what} {patients}")
}

/// Returns the events about resources and exports in order.
fn events(server: &Server) -> Vec<Value> {
    let mut files: Vec<_> = std::fs::read_dir(server.data().join("audit")).unwrap().collect();
    files.sort_by_key(|file| file.as_ref().unwrap().path());
    let text = files.into_iter().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let text: String = text.collect();
    // The last line may be incomplete.
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // The completion of an export belongs to no request, so its place varies. Another test covers it.
    let is_of_request = |event: &Value| {
        matches!(event["type"]["code"].as_str(), Some("rest" | "110106"))
            && event["subtype"][0]["code"] != "export-completed"
    };
    events.filter(is_of_request).collect()
}

/// Sends one request of each kind. Returns one line for each event about a resource or an export, and all
/// events of the log as JSON.
async fn journey(settings: &str) -> (Vec<String>, Vec<Value>) {
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    server.start();
    let (client, fhir) = (server.client(), server.fhir());
    let token = server.backend_token("system/*.read system/Group.cud").await;
    let send = async |method: Method, path: &str, body: Option<Value>| {
        let mut request = client.request(method, format!("{fhir}{path}")).bearer_auth(&token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {text}");
        status.as_u16()
    };
    let group = |id: &str, name: &str| json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true, "name": name });
    assert_eq!(send(Method::PUT, "/Group/g", Some(group("g", "a"))).await, 201);
    assert_eq!(send(Method::PUT, "/Group/g", Some(group("g", "b"))).await, 200);
    assert_eq!(send(Method::PUT, "/Group?_id=g", Some(group("g", "c"))).await, 200);
    send(Method::GET, "/Group/g", None).await;
    send(Method::GET, "/Group/g/_history/1", None).await;
    send(Method::GET, "/Group/g/_history", None).await;
    send(Method::GET, "/Observation?_count=1", None).await;
    let request = |method: &str, url: &str| json!({ "method": method, "url": url });
    let entries = json!([
        { "request": request("PUT", "Group/h"), "resource": group("h", "a") },
        { "request": request("GET", "Group/g") },
        { "request": request("DELETE", "Group/g") },
        { "request": request("DELETE", "Group/none") },
    ]);
    let bundle = json!({ "resourceType": "Bundle", "type": "batch", "entry": entries });
    send(Method::POST, "", Some(bundle)).await;
    assert_eq!(send(Method::DELETE, "/Group?_id=h", None).await, 204);
    assert_eq!(send(Method::DELETE, "/Group/h", None).await, 204);
    let kick_off = client.get(format!("{fhir}/Group/$export")).bearer_auth(&token).send().await.unwrap();
    assert_eq!(kick_off.status(), 404, "the export does not exist");
    let kick_off =
        client.get(format!("{fhir}/$export?_type=Patient")).bearer_auth(&token).send().await.unwrap();
    let status = kick_off.headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(&client, &token, &status).await;
    let file = manifest["output"][0]["url"].as_str().unwrap();
    assert_eq!(client.get(file).bearer_auth(&token).send().await.unwrap().status(), 200);
    // The server is still running: the lines of an answered request must already be in the file.
    let events = events(&server);
    let text = serde_json::to_string(&events).unwrap();
    assert!(!text.contains(&token), "the log contains the token");
    (events.iter().map(told).collect(), events)
}

const CHANGES: [&str; 6] = [
    "C create Group/g/_history/1 0",
    "U update Group/g/_history/2 0",
    "U update Group/g/_history/3 0",
    "C create Group/h/_history/1 0",
    "D delete Group/g/_history/4 0",
    "D delete Group/h/_history/2 0",
];

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_recorded_by_default_and_none_if_it_is_off() {
    let (told, events) = journey("").await;
    assert_eq!(told[..6], CHANGES);
    assert_eq!(told[6..], ["R export - 0"]);
    let agents: Vec<_> =
        events[0]["agent"].as_array().unwrap().iter().map(|agent| &agent["network"]).collect();
    assert_eq!(agents.len(), 2, "{agents:?}");
    assert_eq!(agents[0]["address"], "127.0.0.1");
    let (told, _) = journey("[audit]\nresources = \"off\"\n").await;
    assert_eq!(told, ["R export - 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_searches_and_downloads_are_recorded_if_configured() {
    let (told, _) = journey("[audit]\nresources = \"all\"\ndurability = \"queued\"\n").await;
    // With the durability `queued`, the last lines may not be in the file yet.
    let expected = [
        CHANGES[0],
        CHANGES[1],
        CHANGES[2],
        "R read Group/g/_history/3 0",
        "R vread Group/g/_history/1 0",
        "R history-instance Group/g 0",
        "E search-type - 1",
        CHANGES[3],
        CHANGES[4],
        // The reads of a Bundle follow its writes: they are done while the response is sent.
        "R read Group/g/_history/3 0",
        CHANGES[5],
        "R export - 0",
        "R export-file - 0",
    ];
    assert_eq!(told[..], expected[..told.len()]);
    let (told, _) = journey("[audit]\nresources = \"all\"\ndurability = \"synced\"\n").await;
    assert_eq!(told, expected);
}

/// Starts a server whose audit log cannot be written: folders have the names of today's and tomorrow's files.
fn with_blocked_log(settings: &str) -> (Server, [std::path::PathBuf; 2]) {
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    server.start();
    server.stop();
    let folder = server.data().join("audit");
    std::fs::rename(&folder, server.data().join("audit-before")).unwrap();
    let today = jiff::Timestamp::now();
    let files = [0, 24].map(|hours| {
        let day = (today + jiff::SignedDuration::from_hours(hours)).to_string();
        folder.join(format!("audit-{}.ndjson", &day[..10]))
    });
    files.iter().for_each(|file| std::fs::create_dir_all(file).unwrap());
    server.start();
    (server, files)
}

async fn readiness(server: &Server) -> (u16, String) {
    let response = server.client().get(format!("{}/health/ready", server.base())).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_fails_only_requests_that_must_be_recorded() {
    let (server, _) = with_blocked_log("");
    server.backend_token("system/*.read").await;
    let (status, text) = readiness(&server).await;
    assert!(status == 503 && text.contains("the audit log cannot be written"), "{status} {text}");
    server.backend_token("system/*.read").await;

    let (server, files) = with_blocked_log("[audit]\ndurability = \"synced\"\n");
    let error = server.try_backend_token("system/*.read").await.unwrap_err();
    assert!(error.contains("requires it for every response"), "{error}");
    // From now on, changes that cannot be recorded are rejected.
    let error = server.try_backend_token("system/*.read").await.unwrap_err();
    assert!(error.contains("the server cannot store data at the moment; try again later"), "{error}");
    let (status, text) = readiness(&server).await;
    assert!(status == 503 && text.contains("audit log"), "{status} {text}");
    files.iter().for_each(|file| std::fs::remove_dir(file).unwrap());
    while readiness(&server).await.0 != 200 {
        tokio::task::yield_now().await;
    }
    server.backend_token("system/*.read").await;
    let lines =
        std::fs::read_to_string(&files[0]).unwrap() + &std::fs::read_to_string(&files[1]).unwrap_or_default();
    assert_eq!(
        lines.matches("Access token issued").count(),
        2,
        "two tokens were issued, of which only the second was sent"
    );
}
