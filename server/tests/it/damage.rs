//! Tests of damaged files and of folders without write permission. Each defect must be reported with the file
//! name and the remedy, and damaged content must not be returned. (Saved terminology indexes are tested in
//! `releases`.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::Server;

/// Inverts four bytes of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0x55);
    fs::write(path, bytes).unwrap();
}

/// Returns the files of a folder tree whose names end with `end`.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            paths.extend(files(&path, end));
        } else if path.to_str().unwrap().ends_with(end) {
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

fn outcome_of(text: &str) -> String {
    let outcome: Value = serde_json::from_str(text).unwrap();
    assert_eq!(outcome["resourceType"], "OperationOutcome", "{text}");
    let issue = &outcome["issue"][0];
    [&issue["diagnostics"], &issue["details"]["text"]].iter().filter_map(|text| text.as_str()).collect()
}

/// Exports all resources of a type. Returns the status of the completed job and its response.
async fn export(server: &Server, client: &reqwest::Client, token: &str, kind: &str) -> (u16, String) {
    let request = format!("{}/$export?_type={kind}", server.fhir());
    let response = client.get(request).bearer_auth(token).send().await.unwrap();
    assert_eq!(response.status(), 202);
    let status = response.headers()["content-location"].to_str().unwrap().to_owned();
    loop {
        let response = client.get(&status).bearer_auth(token).send().await.unwrap();
        if response.status() != 202 {
            return (response.status().as_u16(), response.text().await.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_journal_is_reported_at_the_start() {
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    let client = server.client();
    let token = server.backend_token("system/Group.cud system/Group.rs").await;
    let group = |id: &str| format!("{}/Group/{id}", server.fhir());
    for id in ["first", "second", "third"] {
        let body = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true });
        let put = client.put(group(id)).bearer_auth(&token).json(&body).send().await.unwrap();
        assert_eq!(put.status(), 201);
    }
    let third = group("third");
    server.kill();

    let journal = files(&server.data().join("store"), ".jnl").pop().unwrap();
    let sound = fs::read(&journal).unwrap();
    let second = sound.windows(6).rposition(|bytes| bytes == b"second").unwrap();
    flip(&journal, second);
    let output = server.start_in_vain();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(journal.to_str().unwrap()) && stderr.contains("restore a backup"), "{stderr}");
    assert!(output.stdout.is_empty());
    // The refused start must not have modified the journal.
    let damaged = fs::read(&journal).unwrap();
    assert_eq!(damaged.len(), sound.len());

    // The server must start with the restored bytes, and with a journal that ends within a write, as after a
    // crash.
    for journal_bytes in [&sound[..], &sound[..sound.iter().rposition(|&byte| byte != 0).unwrap() - 2]] {
        fs::write(&journal, journal_bytes).unwrap();
        server.start();
        let token = server.backend_token("system/Group.rs").await;
        let is_there = client.get(&third).bearer_auth(&token).send().await.unwrap().status();
        assert_eq!(is_there, if journal_bytes.len() == sound.len() { 200 } else { 404 });
        server.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_table_fails_only_requests_that_read_it() {
    const COUNT: usize = 2_500;
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings("");
    let file = server.data().join("basics.ndjson");
    let line = |number: usize| {
        let text = format!("{number:04}").repeat(900);
        format!("{{\"resourceType\":\"Basic\",\"id\":\"b{number:04}\",\"language\":\"{text}\"}}\n")
    };
    fs::write(&file, (0..COUNT).map(line).collect::<String>()).unwrap();
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    let keyspaces = server.data().join("store/db/keyspaces");
    let tables = files(&keyspaces, "").into_iter().filter(|path| path.parent().unwrap().ends_with("tables"));
    let largest = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let length = usize::try_from(largest.metadata().unwrap().len()).unwrap();
    assert!(length > 1 << 20, "{length}");
    flip(&largest, length / 2);

    server.start();
    let client = server.client();
    let token = server.backend_token("system/*.read").await;
    let (status, said) = export(&server, &client, &token, "Basic").await;
    assert_eq!((status, outcome_of(&said).contains("the stored data is corrupt")), (500, true), "{said}");
    assert_eq!(export(&server, &client, &token, "Patient").await.0, 200);
    let mut failed = 0;
    for number in 0..COUNT {
        let response = client.get(format!("{}/Basic/b{number:04}", server.fhir())).bearer_auth(&token);
        let response = response.send().await.unwrap();
        match response.status().as_u16() {
            200 => assert!(response.text().await.unwrap().contains(&format!("{number:04}").repeat(900))),
            500 => {
                failed += 1;
                let body = response.text().await.unwrap();
                assert!(outcome_of(&body).contains("the stored data is corrupt"), "{body}");
            }
            other => panic!("{other}"),
        }
    }
    assert!((1..100).contains(&failed), "{failed}");
    let log = server.log();
    let folder = largest.parent().unwrap().parent().unwrap().to_str().unwrap().to_owned();
    assert!(log.contains(&folder) && log.contains("restore a backup"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_export_file_is_not_returned() {
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    let client = server.client();
    let token = server.backend_token("system/*.read").await;
    let (status, manifest) = export(&server, &client, &token, "Patient").await;
    assert_eq!(status, 200);
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let url = manifest["output"][0]["url"].as_str().unwrap().to_owned();
    let whole = client.get(&url).bearer_auth(&token).send().await.unwrap().bytes().await.unwrap();
    server.stop();

    let file = files(&server.data().join("exports"), ".ndjson").pop().unwrap();
    assert_eq!(fs::read(&file).unwrap(), whole);
    server.start();
    let token = server.backend_token("system/*.read").await;
    let sound = client.get(&url).bearer_auth(&token).send().await.unwrap();
    assert_eq!((sound.status().as_u16(), sound.bytes().await.unwrap()), (200, whole.clone()));
    server.stop();
    flip(&file, whole.len() / 2);
    server.start();
    let token = server.backend_token("system/*.read").await;
    for (name, value) in
        [("accept-encoding", "identity"), ("accept-encoding", "gzip"), ("range", "bytes=0-9")]
    {
        let response = client.get(&url).bearer_auth(&token).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), 500, "{name}: {value}");
        let body = response.text().await.unwrap();
        assert!(outcome_of(&body).contains("the file is corrupt; delete this export"), "{body}");
    }
}

/// A small file system that is mounted over a folder of the server.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a file system. Returns `None` if the test lacks the root permission for this.
    fn over(folder: PathBuf, options: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(&folder).stderr(std::process::Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        println!("left out: a folder that cannot be written: no file system can be mounted here");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_is_reported() {
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    server.stop();
    {
        let store = server.data().join("store");
        let Some(_mounted) = Mounted::over(store.clone(), "ro,size=1m") else { return };
        let output = server.start_in_vain();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains(store.to_str().unwrap()) && stderr.contains("Read-only file system"),
            "{stderr}"
        );
    }
    let Some(_mounted) = Mounted::over(server.data().join("exports"), "ro,size=1m") else { return };
    server.start();
    let client = server.client();
    let token = server.backend_token("system/*.read").await;
    let (status, said) = export(&server, &client, &token, "Patient").await;
    assert_eq!(
        (status, outcome_of(&said).contains("the folder of the export cannot be written")),
        (500, true),
        "{said}"
    );
}
