//! Exports as operators see them: the log of what clients did.

use serde_json::{Value, json};

use crate::support::{Server, manifest_at};

/// The events of a log.
fn events(server: &Server, folder: &str, job: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(server.data().join(folder).join(format!("log.{job}.ndjson"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_export_log_tells_what_clients_did_and_no_secret() {
    let mut server = Server::in_fresh_folder();
    let folder = server.data().join("log-of-exports");
    let settings = format!("[bulk]\nsigned_url_s = 300\nexport_log = {:?}\n", folder.display().to_string());
    server = server.with_settings(&settings);
    server.start();
    let token = server.backend_token("system/*.read").await;
    let client = server.client();
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "_type", "valueString": "Patient" },
        { "name": "_type", "valueString": "Observation" },
        { "name": "patient", "valueReference": { "reference": "Patient/pat-01" } },
    ] });
    let request = client.post(format!("{}/Patient/$export", server.fhir())).bearer_auth(&token);
    let answer = request.header("content-type", "application/fhir+json").body(body.to_string());
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let status = answer.headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(&client, &token, &status).await;
    let files = manifest["output"].as_array().unwrap();
    let mut bytes = 0;
    for file in files {
        let url = file["url"].as_str().unwrap();
        let begun = client.get(url).header("range", "bytes=0-9").send().await.unwrap();
        assert_eq!(begun.status(), 206);
        drop(begun.bytes().await.unwrap());
        bytes += client.get(url).send().await.unwrap().bytes().await.unwrap().len();
    }
    drop(client);
    assert_eq!(server.stop(), Some(0));

    let job = status.rsplit('/').next().unwrap();
    let events = events(&server, "log-of-exports", job);
    let names: Vec<_> = events.iter().map(|event| event["eventId"].as_str().unwrap()).collect();
    let mut expected = vec!["kickoff", "status_complete", "status_page_complete", "manifest_complete"];
    for _ in files {
        expected.extend(["download_request", "download_request", "download_complete"]);
    }
    expected.push("export_complete");
    let told: Vec<_> = names.iter().copied().filter(|name| *name != "status_progress").collect();
    assert_eq!(told, expected);
    let text = events.iter().map(Value::to_string).collect::<String>();
    for secret in [&*token, "signature", "pat-01"] {
        assert!(!text.contains(secret), "{secret} stands in the log: {text}");
    }
    let detail = |name: &str| &events[names.iter().position(|found| *found == name).unwrap()]["eventDetail"];
    assert_eq!(detail("kickoff")["requestParameters"], json!({ "_type": "Patient,Observation" }));
    assert_eq!(detail("kickoff")["exportUrl"], manifest["request"]);
    assert_eq!(detail("status_complete"), &json!({ "transactionTime": manifest["transactionTime"] }));
    assert_eq!(detail("manifest_complete")["totalOutputFileCount"], files.len());
    assert_eq!(detail("download_request")["resourceType"], files[0]["type"]);
    let end = detail("export_complete");
    let count: u64 = files.iter().map(|file| file["count"].as_u64().unwrap()).sum();
    assert_eq!(
        (&end["files"], &end["resources"], &end["bytes"]),
        (&json!(files.len()), &json!(count), &json!(bytes))
    );
    assert!(events.iter().all(|event| event["exportId"] == job && event["timestamp"].is_string()));
}
