//! A journey of the client against SMART's Bulk Data server
//! (<https://github.com/smart-on-fhir/bulk-data-server>), which is not published as a package. The variable
//! `TREFOIL_BULK_DATA_SERVER` is the address of a running server, or names a checkout with its dependencies
//! and data installed (`npm install`, and the import of its data). The client registers a key, and exports
//! all patients, with and without a token. The same journey runs against a server that behaves like SMART's,
//! and against the server of this project.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::headless::{program, result};
use crate::server::Server;
use crate::smart_bulk_server;
use crate::support::JWKS;

/// Path of the private keys of these tests.
const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/keys/jwks.json");

/// SMART's server.
struct BulkDataServer {
    address: String,
    /// The server, if this test has started it.
    child: Option<Child>,
}

impl BulkDataServer {
    /// Returns `None` if the variable is not set.
    fn find() -> Option<Self> {
        let Ok(place) = std::env::var("TREFOIL_BULK_DATA_SERVER") else {
            println!(
                "left out: bulk-data-server: TREFOIL_BULK_DATA_SERVER names neither an address nor a checkout"
            );
            return None;
        };
        if place.starts_with("http://") || place.starts_with("https://") {
            return Some(Self { address: place.trim_end_matches('/').to_owned(), child: None });
        }
        Some(Self::start(Path::new(&place)))
    }

    fn start(checkout: &Path) -> Self {
        // Finds a free port, which is closed again for the server.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("http://localhost:{port}");
        let mut command = Command::new("npm");
        command.args(["start", "--silent"]).current_dir(checkout).env("PORT", port.to_string());
        command.env("BASE_URL", &address).env("SECRET", "a secret of this test");
        // The server is a grandchild, which is ended with its group.
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.into_iter().any(|line| line.contains("Server listening"));
        let server = Self { address, child: Some(child) };
        assert!(ready, "the server did not start");
        server
    }

    /// Registers the keys of these tests, and returns the client_id.
    async fn register(&self) -> String {
        let mut keys: Value = serde_json::from_str(JWKS).unwrap();
        for key in keys["keys"].as_array_mut().unwrap() {
            let key = key.as_object_mut().unwrap();
            key.retain(|name, _| !["d", "p", "q", "dp", "dq", "qi"].contains(&name.as_str()));
        }
        let request = reqwest::Client::new().post(format!("{}/auth/register", self.address));
        let response = request.form(&[("jwks", keys.to_string())]).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        response.text().await.unwrap()
    }
}

impl Drop for BulkDataServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that the server has already ended.
            let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Exports all patients with these options of the profile, and compares manifest, files, summary and log.
fn check_export(profile: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("export");
    let mut command = program();
    command.env("XDG_STATE_HOME", folder.path().join("state"));
    command.args(["export", "--patients", "--delete", "--json", "--out"]).arg(&out).args(profile);
    let summary = result(&command.output().unwrap());
    assert_eq!(summary["deleted"], true, "{summary}");

    let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(summary["transactionTime"], manifest["transactionTime"]);
    let output = manifest["output"].as_array().unwrap();
    let files = summary["files"].as_array().unwrap();
    let files: Vec<_> = files.iter().filter(|file| file["list"] == "output").collect();
    assert_eq!(files.len(), output.len());
    let (mut names, mut total) = (BTreeSet::new(), 0);
    for (file, listed) in files.into_iter().zip(output) {
        let resources = lines(&out.join(file["name"].as_str().unwrap()).with_extension("ndjson"));
        assert_eq!((&file["type"], &file["resources"]), (&listed["type"], &json!(resources.len())));
        assert!(listed["count"].is_null() || listed["count"] == file["resources"], "{listed}");
        total += resources.len();
        for resource in resources {
            assert_eq!(resource["resourceType"], listed["type"]);
            let name = format!("{}/{}", resource["resourceType"], resource["id"]);
            assert!(names.insert(name), "a resource was exported twice");
        }
    }
    assert!(names.iter().any(|name| name.starts_with("\"Patient\"/")), "{summary}");
    assert_eq!(summary["resources"], total);

    let log = lines(&out.join("log.ndjson"));
    let count = |event: &str| log.iter().filter(|line| line["eventId"] == event).count();
    assert_eq!(
        [count("kickoff"), count("status_complete"), count("download_error"), count("export_complete")],
        [1, 1, 0, 1]
    );
    assert!(count("download_complete") >= output.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn patients_of_smarts_server_are_exported() {
    trefoil_tui::install_crypto();
    let Some(server) = BulkDataServer::find() else { return };
    let fhir_base = format!("{}/fhir", server.address);
    let client_id = server.register().await;
    let anonymous = ["--base-url", server.address.as_str(), "--fhir-base", fhir_base.as_str()];
    let registered = ["--backend-client", client_id.as_str(), "--backend-key", KEYS];
    tokio::task::block_in_place(|| {
        check_export(&[&anonymous[..], &registered].concat());
        check_export(&anonymous);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn patients_of_a_server_like_smarts_are_exported() {
    let (server, fhir_base) = smart_bulk_server::start().await;
    let address = server.uri();
    tokio::task::block_in_place(|| check_export(&["--base-url", &address, "--fhir-base", &fhir_base]));
}

#[test]
fn patients_of_this_server_are_exported() {
    let server = Server::start();
    check_export(&["--demo", server.data.path().to_str().unwrap()]);
}
