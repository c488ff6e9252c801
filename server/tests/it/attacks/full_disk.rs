//! A client fills the disk with exports. Other users must still be able to sign in, and deleting exports must
//! free the space.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use super::{report, size};
use crate::full_disk::Small;
use crate::support::Server;

/// Length of the text in each resource, in bytes.
const TEXT: usize = 20_000;

fn write_resources(path: &Path, count: usize) {
    let text = "x".repeat(TEXT);
    let line = |number: usize| {
        format!("{{\"resourceType\":\"Basic\",\"id\":\"b{number}\",\"language\":\"{text}\"}}\n")
    };
    std::fs::write(path, (0..count).map(line).collect::<String>()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_leave_enough_space_for_sign_ins() {
    let Some(disk) = Small::mount("160m") else { return };
    let mut server = Server::in_folder(TempDir::new_in(disk.0.path()).unwrap()).with_settings("");
    let source = tempfile::tempdir().unwrap();
    let file = source.path().join("basics.ndjson");
    write_resources(&file, 600);
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    server.start();
    let client = server.client();
    let token = server.backend_token("system/*.read").await;
    let mut jobs = Vec::new();
    for _ in 0..size(12, 45) {
        let kick_off = client.get(format!("{}/$export?_type=Basic", server.fhir())).bearer_auth(&token);
        let kick_off = kick_off.send().await.unwrap();
        assert_eq!(kick_off.status(), 202);
        jobs.push(kick_off.headers()["content-location"].to_str().unwrap().to_owned());
    }
    let status =
        async |job: &String| client.get(job).bearer_auth(&token).send().await.unwrap().status().as_u16();
    while !server.log().contains("an export waits for space") {
        for job in &jobs {
            assert!(matches!(status(job).await, 200 | 202));
        }
    }
    // Tokens and small writes still succeed on the full disk.
    let signed_in = size(20, 400);
    for number in 0..signed_in {
        let token = server.backend_token("system/Group.cud").await;
        let group = json!({ "resourceType": "Group", "id": "g", "type": "person", "actual": true, "name": number.to_string() });
        let put = client.put(format!("{}/Group/g", server.fhir())).bearer_auth(token).json(&group);
        assert!(put.send().await.unwrap().status().is_success());
    }
    let ready = client.get(format!("{}/health/ready", server.base())).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    let space = || {
        let space = rustix::fs::statvfs(disk.0.path()).unwrap();
        space.f_bavail * space.f_frsize
    };
    let before = space();
    let mut deleted = 0;
    for job in &jobs {
        if status(job).await == 200 {
            deleted += 1;
        }
        let gone = client.delete(job).bearer_auth(&token).send().await.unwrap();
        assert_eq!(gone.status(), 202);
    }
    let freed = space() - before;
    assert!(deleted > 0 && freed > deleted * 600 * TEXT as u64 / 2, "{deleted} exports freed {freed} bytes");
    report(
        "exports fill a disk of 160 MiB",
        format!(
            "{signed_in} sign-ins and writes of {signed_in} succeeded; deleting {deleted} exports freed {freed} bytes"
        ),
    );
}
