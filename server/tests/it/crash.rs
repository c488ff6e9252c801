//! Tests with `kill -9` at critical times: no acknowledged write may be lost, and every export must complete.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Server, TREFOIL};

/// Writes a file with Patients, each with one medical record.
fn write_patients(path: &std::path::Path, count: usize) {
    let mut text = String::new();
    for number in 0..count {
        text.push_str(&format!(
            "{{\"resourceType\":\"Patient\",\"id\":\"p{number:06}\",\"birthDate\":\"1980-01-01\"}}\n"
        ));
        text.push_str(&format!(
            "{{\"resourceType\":\"Observation\",\"id\":\"o{number:06}\",\"status\":\"final\",\"subject\":{{\"reference\":\"Patient/p{number:06}\"}}}}\n"
        ));
    }
    std::fs::write(path, text).unwrap();
}

/// Polls until the response is not 202, and returns the manifest.
async fn finish(server: &Server, status: &str, token: &str) -> Value {
    for _ in 0..10_000 {
        let response = server.client().get(status).bearer_auth(token).send().await.unwrap();
        match response.status().as_u16() {
            202 => {
                assert!(
                    response.headers().contains_key("retry-after")
                        && response.headers().contains_key("x-progress")
                );
                tokio::task::yield_now().await;
            }
            200 => return response.json().await.unwrap(),
            other => panic!("the export ended with {other}: {}", response.text().await.unwrap()),
        }
    }
    panic!("the export did not end");
}

async fn kick_off(server: &Server, token: &str) -> String {
    let response =
        server.client().get(format!("{}/$export", server.fhir())).bearer_auth(token).send().await.unwrap();
    assert_eq!(response.status(), 202);
    response.headers()["content-location"].to_str().unwrap().to_owned()
}

fn count(manifest: &Value, kind: &str) -> u64 {
    let output = manifest["output"].as_array().unwrap();
    output.iter().filter(|file| file["type"] == kind).map(|file| file["count"].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_import_keeps_all_acknowledged_lines() {
    const PATIENTS: usize = 10_000;
    let mut server = Server::in_fresh_folder();
    let file = server.data().join("patients.ndjson");
    write_patients(&file, PATIENTS);
    let mut least = 0;
    // Each kill happens after a different number of acknowledgements.
    for acknowledged in [1, 4, 2, 7] {
        let mut import = Command::new(TREFOIL)
            .args(["import", "--data"])
            .arg(server.data())
            .arg(&file)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(import.stderr.take().unwrap()).lines();
        let last = lines.map_while(Result::ok).take(acknowledged).last().unwrap();
        import.kill().unwrap();
        import.wait().unwrap();
        let line = last.rsplit(": ").next().unwrap().split(' ').next().unwrap();
        least = least.max(line.parse::<u64>().unwrap_or_else(|_| panic!("{last}")));
        server.start();
        let token = server.backend_token("system/*.read").await;
        let manifest = finish(&server, &kick_off(&server, &token).await, &token).await;
        let resource_count = count(&manifest, "Observation") + count(&manifest, "Patient");
        assert!(
            resource_count >= least,
            "{least} lines were acknowledged, {resource_count} resources are there"
        );
        server.stop();
    }
    // Repeating the import adds the remaining resources.
    let again = server.trefoil(&["import", file.to_str().unwrap()]);
    assert!(again.status.success());
    server.start();
    let token = server.backend_token("system/Observation.rs").await;
    let manifest = finish(&server, &kick_off(&server, &token).await, &token).await;
    let demo =
        trefoil_fixtures::project().records.iter().filter(|resource| resource.kind == "Observation").count();
    assert_eq!(count(&manifest, "Observation"), (PATIENTS + demo) as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_export_resumes_and_contains_the_snapshot() {
    let mut server = Server::in_fresh_folder();
    let file = server.data().join("patients.ndjson");
    write_patients(&file, 10_000);
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    server.start();
    let token = server.backend_token("system/*.read").await;
    let undisturbed = finish(&server, &kick_off(&server, &token).await, &token).await;
    for polls in 0..6 {
        let token = server.backend_token("system/*.read").await;
        let status = kick_off(&server, &token).await;
        // A write after the kick-off must not be in the export, even after the kill.
        let late = serde_json::json!({ "resourceType": "Patient", "id": format!("late{polls}") });
        let writer = server.backend_token("system/Group.cud").await;
        let late_write =
            server.client().put(format!("{}/Patient/late{polls}", server.fhir())).bearer_auth(writer);
        assert_eq!(
            late_write.json(&late).send().await.unwrap().status(),
            403,
            "the demo back end writes Groups only"
        );
        for _ in 0..polls {
            server.client().get(&status).bearer_auth(&token).send().await.unwrap();
        }
        server.kill();
        server.start();
        let token = server.backend_token("system/*.read").await;
        let manifest = finish(&server, &status, &token).await;
        let counts = |manifest: &Value| -> Vec<(String, u64)> {
            let files = manifest["output"].as_array().unwrap().iter();
            files.map(|f| (f["type"].as_str().unwrap().to_owned(), f["count"].as_u64().unwrap())).collect()
        };
        assert_eq!(counts(&manifest), counts(&undisturbed));
        for file in manifest["output"].as_array().unwrap() {
            let body =
                server.client().get(file["url"].as_str().unwrap()).bearer_auth(&token).send().await.unwrap();
            assert_eq!(body.text().await.unwrap().lines().count() as u64, file["count"].as_u64().unwrap());
        }
    }
}
