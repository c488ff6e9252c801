//! Tests of exports from the perspective of operators: the export log, and limits on running exports.

use serde_json::{Value, json};

use crate::support::{Server, manifest_at};

/// Returns the events of the export log of a job.
fn events(server: &Server, folder: &str, job: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(server.data().join(folder).join(format!("log.{job}.ndjson"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_export_log_records_requests_without_secrets() {
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
        assert!(!text.contains(secret), "the log contains {secret}: {text}");
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

fn count(events: &[Value], name: &str) -> usize {
    events.iter().filter(|event| event["eventId"] == name).count()
}

/// Starts an export of Patients and Observations and returns its status address.
async fn begin(server: &Server, client: &reqwest::Client, token: &str, query: &str) -> String {
    let request = format!("{}/$export?_type=Observation,Patient{query}", server.fhir());
    let answer = client.get(request).bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    answer.headers()["content-location"].to_str().unwrap().to_owned()
}

async fn download(client: &reqwest::Client, token: &str, file: &Value) -> usize {
    let answer = client.get(file["url"].as_str().unwrap()).bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_export_is_logged_once_despite_kills() {
    let settings = "[bulk]\nfile_size = 20000\nexport_log = \"log\"\n";
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    server.start();
    let token = server.backend_token("system/*.read").await;
    let client = server.client();
    let status = begin(&server, &client, &token, "").await;
    server.kill();
    server.start();
    let manifest = manifest_at(&client, &token, &status).await;
    server.kill();
    let files = manifest["output"].as_array().unwrap();
    assert!(files.len() > 3);
    let mut bytes = 0;
    for file in files {
        server.start();
        bytes += download(&client, &token, file).await;
        // The server is killed as soon as the client has received the last byte.
        server.kill();
    }
    let job = status.rsplit('/').next().unwrap();
    let told = events(&server, "log", job);
    let once = ["kickoff", "status_complete", "manifest_complete"];
    assert!(once.iter().all(|name| count(&told, name) == 1), "{told:?}");
    assert_eq!(count(&told, "download_complete"), files.len());

    // Simulates a server that was killed between the last file and the end of the log.
    let log = server.data().join("log").join(format!("log.{job}.ndjson"));
    let text = std::fs::read_to_string(&log).unwrap();
    let before = text.split_inclusive('\n').filter(|line| !line.contains("\"export_complete\""));
    std::fs::write(&log, format!("{}{{\"exportId\":\"{job}\",\"time", before.collect::<String>())).unwrap();
    for _ in 0..2 {
        server.start();
        download(&client, &token, &files[0]).await;
        server.kill();
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let told: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(told.len() + 1, text.lines().count(), "all lines except the truncated one are JSON");
    let ends: Vec<_> = told.iter().filter(|event| event["eventId"] == "export_complete").collect();
    let [end] = ends[..] else { panic!("{} ends", ends.len()) };
    assert_eq!(
        (&end["eventDetail"]["files"], &end["eventDetail"]["bytes"]),
        (&json!(files.len()), &json!(bytes))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_the_end_counts_pages_read_during_the_export() {
    let settings = "[bulk]\nguide = \"3.0.0\"\nfile_size = 2000\nexport_log = \"log\"\n";
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    server.start();
    let token = server.backend_token("system/*.read").await;
    let client = server.client();
    let status = begin(&server, &client, &token, "&allowPartialManifests=true").await;
    let (mut page, mut pages, mut files) = (status.clone(), 0, 0);
    loop {
        let answer = client.get(&page).bearer_auth(&token).send().await.unwrap();
        let (is_complete, text) = (answer.status() == 200, answer.text().await.unwrap());
        let manifest: Value = serde_json::from_str(&text).unwrap_or_default();
        let next = manifest["link"][0]["url"].as_str();
        if next.is_none() && !is_complete {
            continue;
        }
        pages += 1;
        for file in manifest["output"].as_array().unwrap() {
            download(&client, &token, file).await;
            files += 1;
        }
        match next {
            Some(next) => next.clone_into(&mut page),
            None => break,
        }
    }
    assert!(pages >= 2, "{pages}");
    drop(client);
    assert_eq!(server.stop(), Some(0));
    let told = events(&server, "log", status.rsplit('/').next().unwrap());
    assert_eq!(count(&told, "status_page_complete"), pages);
    let detail = |name: &str| &told.iter().find(|event| event["eventId"] == name).unwrap()["eventDetail"];
    let whole = detail("manifest_complete");
    assert_eq!((&whole["totalManifests"], &whole["totalOutputFileCount"]), (&json!(pages), &json!(files)));
    assert_eq!((&detail("export_complete")["files"], count(&told, "export_complete")), (&json!(files), 1));
}

/// Adds a client and returns an access token for it.
async fn token_of_another_client(server: &Server) -> String {
    let add = ["client", "add", "other", "--auth-method", "client_secret_post", "--scope", "system/*.rs"];
    let added = String::from_utf8(server.trefoil(&add).stdout).unwrap();
    let secret = added.split("client_secret ").nth(1).unwrap().split_whitespace().next().unwrap();
    let form = [("grant_type", "client_credentials"), ("client_id", "other"), ("client_secret", secret)];
    let answer = server.client().post(format!("{}/oauth2/token", server.base())).form(&form).send().await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Returns `true` if a running export has written bytes to its files.
async fn has_bytes_under_way(client: &reqwest::Client, token: &str, status: &str) -> bool {
    loop {
        let answer = client.get(status).bearer_auth(token).send().await.unwrap();
        if answer.status() == 200 {
            return false;
        }
        assert_eq!(answer.status(), 202);
        if !answer.headers()["x-progress"].to_str().unwrap().contains(": 0 resources") {
            return true;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_running_exports_are_limited_per_client_and_in_total() {
    for (setting, is_everybodys, says) in [
        (
            "in_flight_bytes_per_client",
            false,
            "the running exports of this client have together reached the limit of 1000 bytes",
        ),
        (
            "in_flight_bytes",
            true,
            "the running exports of all clients have together reached the limit of 1000 bytes",
        ),
    ] {
        // The export takes long, because it syncs many small files.
        let settings = format!("[bulk]\nfile_size = 1024\n{setting} = 1000\n");
        let mut server = Server::in_fresh_folder().over_plain_http().with_settings(&settings);
        let file = server.data().join("patients.ndjson");
        let line = |number| format!("{{\"resourceType\":\"Patient\",\"id\":\"p{number}\"}}\n");
        std::fs::write(&file, (0..20_000).map(line).collect::<String>()).unwrap();
        assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
        server.start();
        let client = server.client();
        let (own, other) =
            (server.backend_token("system/*.read").await, token_of_another_client(&server).await);
        let kick_off = async |token: &str| {
            let request = client.get(format!("{}/$export?_type=Patient", server.fhir())).bearer_auth(token);
            request.send().await.unwrap()
        };
        let delete = async |token: &str, begun: &reqwest::Response| {
            let status = begun.headers()["content-location"].to_str().unwrap();
            let answer = client.delete(status).bearer_auth(token).send().await.unwrap();
            assert_eq!(answer.status(), 202);
        };
        let second = if is_everybodys { &other } else { &own };
        let mut rounds = 0;
        let (first, refused) = loop {
            rounds += 1;
            assert!(rounds <= 20, "{setting}: no export was rejected while another one was running");
            let first = kick_off(&own).await;
            assert_eq!(first.status(), 202);
            let status = first.headers()["content-location"].to_str().unwrap();
            if has_bytes_under_way(&client, &own, status).await {
                let more = kick_off(second).await;
                if more.status() != 202 {
                    break (first, more);
                }
                // The first export was complete before the second one started; the test tries again.
                delete(second, &more).await;
            }
            delete(&own, &first).await;
        };
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (429, &"10".parse().unwrap())
        );
        let outcome: Value = refused.json().await.unwrap();
        assert_eq!(outcome["issue"][0]["code"], "throttled");
        assert!(outcome.to_string().contains(says), "{outcome}");
        if !is_everybodys {
            let more = kick_off(&other).await;
            assert_eq!(more.status(), 202, "another client has its own limit");
        }
        // Deleted exports do not count towards the limit.
        delete(&own, &first).await;
        assert_eq!(kick_off(second).await.status(), 202);
    }
}
