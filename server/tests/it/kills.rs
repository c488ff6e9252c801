//! Kills the server with `kill -9` at random times while resources are written and exports are running. No
//! acknowledged write may be lost, and each export must have the same bytes as an undisturbed one.
//!
//! The times are derived from a seed. The test kills the server 20 times; `TREFOIL_KILLS` sets another number
//! and `TREFOIL_KILL_SEED` another seed.

use serde_json::{Value, json};

use crate::support::Server;

const PATIENTS: usize = 2_000;
/// Settings with a small maximum file size, so that an export has many files.
const SETTINGS: &str = "[bulk]\nfile_size = 20000\n";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn write_patients(path: &std::path::Path) {
    let line = |number| {
        format!(
            "{{\"resourceType\":\"Patient\",\"id\":\"k{number:05}\"}}\n{{\"resourceType\":\"Observation\",\"id\":\"k{number:05}\",\"status\":\"final\",\"subject\":{{\"reference\":\"Patient/k{number:05}\"}}}}\n"
        )
    };
    std::fs::write(path, (0..PATIENTS).map(line).collect::<String>()).unwrap();
}

async fn kick_off(server: &Server, client: &reqwest::Client, token: &str) -> String {
    let request = format!("{}/$export?_type=Patient,Observation", server.fhir());
    let response = client.get(request).bearer_auth(token).send().await.unwrap();
    assert_eq!(response.status(), 202);
    response.headers()["content-location"].to_str().unwrap().to_owned()
}

/// Polls up to a number of times. Returns the manifest if the export is complete. Checks that the progress
/// does not decrease.
async fn poll(
    client: &reqwest::Client,
    status: &str,
    token: &str,
    times: usize,
    progress: &mut u64,
) -> Option<Value> {
    for _ in 0..times {
        let response = client.get(status).bearer_auth(token).send().await.unwrap();
        match response.status().as_u16() {
            202 => {
                let text = response.headers()["x-progress"].to_str().unwrap();
                let percent: u64 = text.split('%').next().unwrap().parse().unwrap();
                assert!(percent >= *progress && text.len() < 100, "{text} after {progress}%");
                assert!(response.headers().contains_key("retry-after"));
                *progress = percent;
            }
            200 => return Some(response.json().await.unwrap()),
            other => panic!("the export ended with {other}: {}", response.text().await.unwrap()),
        }
    }
    None
}

/// Returns the name, number of lines, ETag and text of each file.
async fn files(
    client: &reqwest::Client,
    token: &str,
    manifest: &Value,
) -> Vec<(String, u64, String, String)> {
    let mut files = Vec::new();
    for file in manifest["output"].as_array().unwrap() {
        let url = file["url"].as_str().unwrap();
        let response = client.get(url).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let etag = response.headers()["etag"].to_str().unwrap().to_owned();
        let text = response.text().await.unwrap();
        assert_eq!(text.lines().count() as u64, file["count"].as_u64().unwrap());
        files.push((url.rsplit('/').next().unwrap().to_owned(), file["count"].as_u64().unwrap(), etag, text));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn after_random_kills_no_write_is_lost_and_exports_have_the_same_bytes() {
    let (kills, seed) = (number("TREFOIL_KILLS", 20), number("TREFOIL_KILL_SEED", 5));
    println!("{kills} kills by seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(SETTINGS);
    let file = server.data().join("patients.ndjson");
    write_patients(&file);
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    server.start();
    let client = server.client();
    let token = server.backend_token("system/*.read").await;
    let status = kick_off(&server, &client, &token).await;
    let manifest = poll(&client, &status, &token, 100_000, &mut 0).await.unwrap();
    let undisturbed = files(&client, &token, &manifest).await;
    assert!(undisturbed.len() > 10, "{}", undisturbed.len());
    let (mut killed, mut round, mut broken_off) = (0, 0, 0);
    while killed < kills {
        round += 1;
        let token = server.backend_token("system/*.read").await;
        let status = kick_off(&server, &client, &token).await;
        let mut progress = 0;
        // One export may be interrupted several times.
        for _ in 0..random.usize(1..4).min(usize::try_from(kills - killed).unwrap()) {
            let token = server.backend_token("system/*.read system/Group.cud").await;
            let (writer, groups) = (client.clone(), format!("{}/Group/", server.fhir()));
            let (begin, bearer) = (format!("g{round}-{killed}-"), token.clone());
            let writing = tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    let id = format!("{begin}{number}");
                    let body = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true });
                    let write_result =
                        writer.put(format!("{groups}{id}")).bearer_auth(&bearer).json(&body).send().await;
                    match write_result {
                        Ok(response) if response.status() == 201 => acknowledged.push(id),
                        Ok(response) => panic!("{}: {}", response.status(), response.text().await.unwrap()),
                        // The server was killed.
                        Err(_) => break,
                    }
                }
                acknowledged
            });
            let outcome = poll(&client, &status, &token, random.usize(0..40), &mut progress).await;
            broken_off += usize::from(outcome.is_none());
            server.kill();
            killed += 1;
            let acknowledged = writing.await.unwrap();
            server.start();
            let token = server.backend_token("system/*.read").await;
            for id in acknowledged {
                let response = client.get(format!("{}/Group/{id}", server.fhir())).bearer_auth(&token);
                assert_eq!(response.send().await.unwrap().status(), 200, "{id} was acknowledged but is lost");
            }
        }
        let token = server.backend_token("system/*.read").await;
        let manifest = poll(&client, &status, &token, 100_000, &mut progress).await.unwrap();
        let resumed = files(&client, &token, &manifest).await;
        assert_eq!(resumed.len(), undisturbed.len());
        for (resumed, undisturbed) in resumed.iter().zip(&undisturbed) {
            assert!(resumed == undisturbed, "{} differs in round {round}", resumed.0);
        }
    }
    println!("{broken_off} of {killed} kills interrupted an export");
    assert!(broken_off > 0, "no kill happened during an export");
}
