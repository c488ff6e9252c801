//! The assignment of an earlier program's resources to Patients, on a store that is too large for the
//! start of the server: what limited clients see until it is complete, and a kill meanwhile.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};
use store::{
    Expect, ExpectVersion, Ledger as _, LedgerWrite, ResourceDraft, ResourceKey, Store, VersionWrite,
    Versions as _,
};
use tempfile::TempDir;

use crate::full_disk::Small;
use crate::patient_references::{register, token_for};
use crate::support::{Server, manifest_at};

/// Number of Devices of each Patient. The server assigns 20,000 resources before it answers requests.
const DEVICES: usize = 15_000;
const AT_ONCE: usize = 1_000;

/// Writes resources as a program does that assigns no Device to a Patient, and knows nothing of the record.
async fn write_earlier_devices(folder: &Path) {
    let store = Store::open(&folder.join("store")).unwrap();
    let record = LedgerWrite::delete("patient-assignment", Expect::Any);
    store.write(vec![record], Timestamp::now()).await.unwrap();
    let now = Timestamp::now();
    let device = |patient: &str, number: usize| {
        let id = format!("{patient}-{number}");
        let start = format!(r#"{{"resourceType":"Device","id":"{id}","meta":{{"versionId":""#);
        let middle = r#"","lastUpdated":""#;
        let end = format!(r#""}},"patient":{{"reference":"Patient/{patient}"}}}}"#);
        let (version_at, updated_at) = (start.len(), start.len() + middle.len());
        let draft =
            ResourceDraft { bytes: format!("{start}{middle}{end}").into_bytes(), version_at, updated_at };
        VersionWrite {
            key: ResourceKey::new("Device", &id),
            expect: ExpectVersion::Absent,
            body: Some(draft),
            compartments: Vec::new(),
            unless_same: false,
            terms: Vec::new(),
            unless_indexed: None,
            is_check: false,
            source_time: None,
            unless_outdated: false,
        }
    };
    for patient in ["in", "out"] {
        for first in (0..DEVICES).step_by(AT_ONCE) {
            let writes = (first..first + AT_ONCE).map(|number| device(patient, number)).collect();
            store.commit(writes, now).await.unwrap();
        }
    }
}

/// The statuses of a Device of the permitted Patient, of one of another, and of an export of the Group.
async fn statuses(server: &Server, token: &str) -> [u16; 3] {
    let mut statuses = [0; 3];
    let paths = ["Device/in-14999", "Device/out-14999", "Group/of-in/$export?_type=Device"];
    for (status, path) in statuses.iter_mut().zip(paths) {
        let url = format!("{}/{path}", server.fhir());
        let response = server.client().get(url).bearer_auth(token).send().await.unwrap();
        if response.status() == 503 {
            assert_eq!(response.headers()["retry-after"], "60", "{path}");
        }
        *status = response.status().as_u16();
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_clients_wait_for_the_assignment_which_survives_a_kill() {
    let Some(disk) = Small::mount("512m") else { return };
    let mut server = Server::in_folder(TempDir::new_in(disk.0.path()).unwrap());
    server.start();
    let context = [
        json!({ "resourceType": "Patient", "id": "in" }),
        json!({ "resourceType": "Group", "id": "of-in", "type": "person", "actual": true,
            "member": [{ "entity": { "reference": "Patient/in" } }] }),
    ];
    let file = server.data().join("context.ndjson");
    std::fs::write(&file, context.iter().map(|resource| format!("{resource}\n")).collect::<String>())
        .unwrap();
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    let secret = register(&server, "limited", &["--group", "of-in"]);
    assert_eq!(server.stop(), Some(0));
    write_earlier_devices(server.data()).await;

    // Nothing can be assigned on a full disk, and limited clients are told to wait.
    let filler = disk.fill();
    server.start();
    let token = token_for(&server, "limited", &secret).await;
    assert_eq!(statuses(&server, &token).await, [503, 503, 503]);
    let status = String::from_utf8(server.trefoil(&["status"]).stdout).unwrap();
    assert!(status.contains("are being assigned to their patients, 0 so far"), "{status}");
    server.kill();
    std::fs::remove_file(filler).unwrap();

    // After the first pages, the others are assigned while the server answers. A kill repeats nothing wrong.
    server.start();
    server.kill();
    server.start();
    let token = token_for(&server, "limited", &secret).await;
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(100));
    let last_statuses = loop {
        tick.tick().await;
        let current = statuses(&server, &token).await;
        if current[0] != 503 {
            break current;
        }
    };
    assert_eq!(last_statuses, [200, 404, 202]);
    let client = server.client();
    let url = format!("{}/Group/of-in/$export?_type=Device", server.fhir());
    let kick_off = client.get(url).bearer_auth(&token).send().await.unwrap();
    let status = kick_off.headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(&client, &token, &status).await;
    let count: u64 = manifest["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file: &Value| file["count"].as_u64().unwrap())
        .sum();
    assert_eq!(count, DEVICES as u64, "{manifest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_creates_a_store_leaves_nothing_to_assign() {
    let server = Server::in_fresh_folder();
    let file = server.data().join("device.ndjson");
    std::fs::write(&file, r#"{"resourceType":"Device","id":"new","patient":{"reference":"Patient/in"}}"#)
        .unwrap();
    let is_upgraded = || {
        assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
        let status = String::from_utf8(server.trefoil(&["status"]).stdout).unwrap();
        !status.contains("upgrade ")
    };
    assert!(is_upgraded());
    // A command assigns no resources of an earlier program. The server does this.
    write_earlier_devices(server.data()).await;
    assert!(!is_upgraded());
}
