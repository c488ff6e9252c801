//! Test of a full disk: writes are rejected with 507, reads continue, and writes resume automatically.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::Server;

/// A small file system that the test mounts.
pub struct Small(pub TempDir);

impl Small {
    /// Mounts a file system. Returns `None` if the test lacks the root permission for this.
    pub fn mount(size: &str) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(dir.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(Self(dir));
        }
        println!("left out: the test of a full disk, because no file system can be mounted here");
        None
    }

    /// Writes a file that fills the file system, and returns its path.
    pub fn fill(&self) -> PathBuf {
        let filler = self.0.path().join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 1 << 16]).is_ok() {}
        filler
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_rejects_writes_until_space_is_free() {
    let Some(disk) = Small::mount("256m") else { return };
    let mut server = Server::in_folder(TempDir::new_in(disk.0.path()).unwrap());
    server.start();
    let token = server.backend_token("system/Group.cud system/Group.rs").await;
    let address = format!("{}/Group/g1", server.fhir());
    let put = async |name: &str| {
        let group =
            json!({ "resourceType": "Group", "id": "g1", "type": "person", "actual": true, "name": name });
        server.client().put(&address).bearer_auth(&token).json(&group).send().await.unwrap()
    };
    let name = async || -> Value {
        let response = server.client().get(&address).bearer_auth(&token).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json::<Value>().await.unwrap()["name"].clone()
    };
    let ready = async || {
        let response = server.client().get(format!("{}/health/ready", server.base())).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(put("first").await.status(), 201);
    let (status, text) = ready().await;
    assert!(status == 200 && text.starts_with("ready\ncertificate valid until "), "{status} {text}");

    let filler = disk.fill();
    let refusal = put("second").await;
    assert_eq!(refusal.status(), 507);
    let outcome: Value = refusal.json().await.unwrap();
    assert_eq!(
        (&outcome["resourceType"], &outcome["issue"][0]["code"]),
        (&json!("OperationOutcome"), &json!("no-store"))
    );
    assert_eq!(name().await, "first");
    assert_eq!(ready().await, (503, "the store cannot be written: disk\n".to_owned()));

    std::fs::remove_file(filler).unwrap();
    assert_eq!(ready().await.0, 200);
    assert_eq!(put("third").await.status(), 200);
    assert_eq!(name().await, "third");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_nothing_to_write_starts_on_a_full_disk() {
    let Some(disk) = Small::mount("256m") else { return };
    let mut server = Server::in_folder(TempDir::new_in(disk.0.path()).unwrap());
    server.start();
    server.kill();
    let filler = disk.fill();
    server.start();
    let get = async |address: String| server.client().get(address).send().await.unwrap().status().as_u16();
    assert_eq!(get(format!("{}/metadata", server.fhir())).await, 200);
    assert_eq!(get(format!("{}/health/ready", server.base())).await, 503);
    std::fs::remove_file(filler).unwrap();
    assert_eq!(get(format!("{}/health/ready", server.base())).await, 200);
}
