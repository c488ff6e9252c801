//! Drills: a backup under load, the end of the server, a restore elsewhere; and copies from a folder to a
//! database and back. The restored server answers as the first one did at that moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::{DatabaseLimits, DatabaseUrl, Expect, Ledger as _, LedgerWrite, Store};
use tempfile::TempDir;
use test_database::TestDatabase;
use test_object_store::{BUCKET, TestObjectStore};

use crate::bucket::bucket_settings;
use crate::support::{Server, TREFOIL, manifest_at};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that must end with this code, and returns its output.
#[track_caller]
fn trefoil(args: &[&str], code: i32) -> String {
    let output = Command::new(TREFOIL).args(args).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    text(&output)
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const SCOPES: &str = "system/Group.cruds system/Patient.rs system/Group.cud system/*.rs";

/// Writes a Group, and returns the status; 503 if there is no answer.
async fn put_group(server: &Server, token: &str, id: &str, name: &str) -> StatusCode {
    let group = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true, "name": name });
    let url = format!("{}/Group/{id}", server.fhir());
    let response = server.client().put(url).bearer_auth(token).json(&group).send().await;
    response.map_or(StatusCode::SERVICE_UNAVAILABLE, |response| response.status())
}

/// Facts about a server that a client can observe: the histories of Groups, and a completed export with its
/// files.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    histories: BTreeMap<String, Value>,
    manifest: Value,
    files: Vec<Vec<u8>>,
    subsumes: Value,
}

async fn observe(server: &Server, token: &str, groups: &[String], status: &str) -> Observed {
    let client = server.client();
    let get = async |url: String| {
        let response = client.get(&url).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{url}");
        response.bytes().await.unwrap().to_vec()
    };
    let mut histories = BTreeMap::new();
    for id in groups {
        let history: Value =
            serde_json::from_slice(&get(format!("{}/Group/{id}/_history", server.fhir())).await).unwrap();
        histories.insert(id.clone(), history["entry"].clone());
    }
    let manifest = manifest_at(&client, token, status).await;
    let mut files = Vec::new();
    for file in manifest["output"].as_array().unwrap() {
        files.push(get(file["url"].as_str().unwrap().to_owned()).await);
    }
    let question = format!(
        "{}/CodeSystem/$subsumes?system=https://trefoil.example/fhir/CodeSystem/care-aids&codeA=aid&codeB=cane",
        server.fhir()
    );
    let subsumes = serde_json::from_slice(&get(question).await).unwrap();
    Observed { histories, manifest, files, subsumes }
}

/// Completes an export of Patients, and returns the address of its status.
async fn export(server: &Server, token: &str) -> String {
    let request = server.client().get(format!("{}/Patient/$export?_type=Patient", server.fhir()));
    let request = request.bearer_auth(token).header("prefer", "respond-async");
    let response = request.header("accept", "application/fhir+json").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let status = response.headers()["content-location"].to_str().unwrap().to_owned();
    manifest_at(&server.client(), token, &status).await;
    status
}

/// Copies what a backup leaves to the operator: the names and passwords of the demo project.
fn keep_demo_json(from: &Path, to: &Path) {
    std::fs::copy(from.join("demo.json"), to.join("demo.json")).unwrap();
}

/// Backs up a server while it is written to, kills it, restores it with `restore` and starts it again.
async fn drill(mut server: Server, location: &str, options: &[&str], restore_to: &[&str]) {
    server.start();
    let token = server.backend_token(SCOPES).await;
    let status = export(&server, &token).await;
    let groups: Vec<String> = (0..20).map(|number| format!("before-{number}")).collect();
    for (index, id) in groups.iter().enumerate() {
        for version in 0..=index % 3 {
            put_group(&server, &token, id, &format!("version {version}")).await;
        }
    }
    let writes = async {
        let mut count = 0;
        loop {
            assert!(put_group(&server, &token, &format!("during-{count}"), "x").await.is_success());
            count += 1;
        }
    };
    let data = path(server.data()).to_owned();
    let arguments = [&["backup", "--to", location, "--data", &data, "--json"], options].concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let backup = async || {
        let arguments = arguments.clone();
        let run = move || trefoil(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 0);
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    tokio::select! {
        _ = writes => unreachable!("the writes do not end"),
        _ = async {
            backup().await;
            // The second one follows the first.
            let second: Value = backup().await.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap();
            assert!(second["follows"].is_string(), "{second}");
        } => {}
    }
    assert!(put_group(&server, &token, "after", "x").await.is_success());
    let expected = observe(&server, &token, &groups, &status).await;
    server.kill();

    let fresh = TempDir::new().unwrap();
    keep_demo_json(server.data(), fresh.path());
    let old = std::mem::replace(&mut server.dir, fresh);
    if old.path().join("trefoil.toml").exists() {
        std::fs::copy(old.path().join("trefoil.toml"), server.data().join("trefoil.toml")).unwrap();
    }
    let data = path(server.data()).to_owned();
    let verify = [&["restore", "--from", location, "--data", &data, "--verify"], options].concat();
    assert!(trefoil(&verify, 0).contains("is complete"));
    let restore = [&["restore", "--from", location, "--data", &data], options, restore_to].concat();
    assert!(trefoil(&restore, 0).contains("sessions      ended"));
    assert!(trefoil(&restore, 1).contains("the target is not empty"));
    if let [_, url] = restore_to {
        let base = server.base();
        server = server.sharing(&base, url);
    }
    server.start();
    let read = server.client().get(format!("{}/Group/before-1", server.fhir())).bearer_auth(&token).send();
    assert_eq!(read.await.unwrap().status(), StatusCode::UNAUTHORIZED, "a token of before the restore");
    let token = server.backend_token(SCOPES).await;
    assert_eq!(observe(&server, &token, &groups, &status).await, expected);
    let read = server.client().get(format!("{}/Group/after", server.fhir())).bearer_auth(&token).send();
    assert_eq!(read.await.unwrap().status(), StatusCode::NOT_FOUND);
    assert!(put_group(&server, &token, "before-1", "once more").await.is_success());
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_restored_from_a_folder() {
    let (location, settings) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    // Encrypted: without the key nothing can be restored.
    let (key, file) = (settings.path().join("key"), settings.path().join("trefoil.toml"));
    std::fs::write(&key, format!("{}\n", STANDARD.encode([7; 32]))).unwrap();
    let text = format!("[backup]\nkey_file = {key:?}\n");
    std::fs::write(&file, &text).unwrap();
    let options = ["--config", path(&file)];
    drill(Server::in_fresh_folder().with_settings(&text), path(location.path()), &options, &[]).await;
    let data = TempDir::new().unwrap();
    let restore = ["restore", "--from", path(location.path()), "--data", path(data.path())];
    assert!(trefoil(&restore, 1).contains("is encrypted with the key"));
    trefoil(&[&restore[..], &["--key-file", path(&key)]].concat(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_restored_from_a_bucket() {
    let Some(database) = TestDatabase::shared() else { return };
    let (bucket, secrets) = (TestObjectStore::start().unwrap(), TempDir::new().unwrap());
    let settings = TempDir::new().unwrap();
    let file = settings.path().join("trefoil.toml");
    std::fs::write(&file, bucket_settings(&bucket, secrets.path())).unwrap();
    let server =
        Server::in_fresh_folder().over_plain_http().with_settings(&std::fs::read_to_string(&file).unwrap());
    let base = server.base();
    let server = server.sharing(&base, &database.create().unwrap());
    let target = database.create().unwrap();
    drill(server, &format!("s3://{BUCKET}/backups"), &["--config", path(&file)], &["--store", &target]).await;
}

/// The commands of the page "From one machine to several", with these places, without the name of the
/// program.
fn documented_move(data: &str, database: &str, back: &str) -> Vec<String> {
    let page = include_str!("../../docs/backup.md");
    let (_, section) = page.split_once("## From one machine to several").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("trefoil "));
    let placed = lines.map(|line| {
        let line = line.replace("./trefoil-data", data).replace("./one-machine", back);
        line.replace("postgres://trefoil@db.example/trefoil", database)
    });
    placed.collect()
}

/// Writes resources until one is refused, while a command runs. Returns the number of acknowledged ones, and
/// the output of the command.
async fn write_during(server: &Server, token: &str, name: &str, command: &str) -> (u32, String) {
    let writes = async {
        let mut count = 0;
        while put_group(server, token, &format!("{name}-{count}"), "x").await.is_success() {
            count += 1;
        }
        count
    };
    let command = command.to_owned();
    let run = move || trefoil(&command.split_whitespace().collect::<Vec<_>>(), 0);
    let (written, output) = tokio::join!(writes, tokio::task::spawn_blocking(run));
    (written, output.unwrap())
}

async fn check_written(server: &Server, token: &str, name: &str, count: u32) {
    for number in 0..count {
        let url = format!("{}/Group/{name}-{number}", server.fhir());
        let read = server.client().get(url).bearer_auth(token).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK, "Group/{name}-{number} of {count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_moves_from_a_folder_to_a_database_and_back() {
    let Some(database) = TestDatabase::shared() else { return };
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    let token = server.backend_token(SCOPES).await;
    let status = export(&server, &token).await;
    let groups = ["one".to_owned(), "two".to_owned()];
    for id in ["one", "two", "one"] {
        put_group(&server, &token, id, id).await;
    }
    let expected = observe(&server, &token, &groups, &status).await;
    let (data, url) = (path(server.data()).to_owned(), database.create().unwrap());
    let back = TempDir::new().unwrap();
    let [copy, serve, copy_back, serve_back, reuse] = &documented_move(&data, &url, path(back.path()))[..]
    else {
        panic!("the page has another number of commands")
    };
    let copy: Vec<&str> = copy.split_whitespace().collect();
    assert!(serve.starts_with(&format!("serve --data {data} --store {url} --base-url ")), "{serve}");
    // Writes of a running server are refused for the last part only, and none that was acknowledged is lost.
    let (written, copied) = write_during(&server, &token, "during", &copy.join(" ")).await;
    assert!(
        copied.contains("marked as moved") && copied.contains("stops; start it with the new store"),
        "{copied}"
    );
    assert_eq!(server.wait(), Some(0), "the server stops by itself");
    let moved = "the store was moved to postgres://";
    assert!(trefoil(&["user", "list", "--data", &data], 1).contains(moved));
    assert!(trefoil(&copy, 1).contains(moved));
    assert!(server.try_start(&[]).is_err());

    // The token, the histories and the export are those of before.
    let base = server.base();
    let mut server = server.sharing(&base, &url);
    server.start();
    assert_eq!(observe(&server, &token, &groups, &status).await, expected);
    check_written(&server, &token, "during", written).await;
    // A database moves under its nodes in the same way. All of them stop.
    let mut other = Server::in_fresh_folder().sharing(&base, &url);
    other.start();
    let (back_written, copied) = write_during(&other, &token, "back", copy_back).await;
    assert!(copied.contains("marked as moved"), "{copied}");
    assert_eq!((server.wait(), other.wait()), (Some(0), Some(0)), "the nodes stop by themselves");
    assert!(trefoil(&copy_back.split_whitespace().collect::<Vec<_>>(), 1).contains("was moved to file:"));
    assert!(other.try_start(&[]).is_err());
    assert!(
        serve_back.starts_with(&format!("serve --data {} --base-url ", path(back.path()))),
        "{serve_back}"
    );
    keep_demo_json(server.data(), back.path());
    let first = std::mem::replace(&mut server.dir, back);
    let mut server = server.alone();
    server.start();
    assert_eq!(observe(&server, &token, &groups, &status).await, expected);
    check_written(&server, &token, "during", written).await;
    check_written(&server, &token, "back", back_written).await;
    assert_eq!(server.stop(), Some(0));
    // The database can be used again on purpose, and so can the first store.
    other.start_with(&["--use-moved-store"]);
    assert!(put_group(&other, &token, "again", "x").await.is_success());
    assert_eq!(other.stop(), Some(0));
    server.dir = first;
    assert!(
        reuse.starts_with(&format!("serve --data {data} ")) && reuse.ends_with(" --use-moved-store"),
        "{reuse}"
    );
    server.start_with(&["--use-moved-store"]);
    assert_eq!(server.stop(), Some(0));
    server.start();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_cut_off_is_not_used() {
    let location = TempDir::new().unwrap();
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    trefoil(&["backup", "--data", path(server.data()), "--to", path(location.path())], 0);
    assert_eq!(server.stop(), Some(0));
    let backup = std::fs::read_dir(location.path()).unwrap().next().unwrap().unwrap().path();
    let ledger = backup.join("ledger-00001.gz");
    std::fs::write(&ledger, "damage").unwrap();
    let restored = TempDir::new().unwrap();
    let restore = ["restore", "--from", path(location.path()), "--data", path(restored.path())];
    assert!(trefoil(&restore, 1).contains("ledger-00001.gz is damaged"));
    server.dir = restored;
    assert!(server.try_start(&[]).is_err());
    let status = text(&server.trefoil(&["status"]));
    assert!(status.contains("its transfer did not end; remove the store"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_found_by_a_check() {
    let server = Server::demo();
    let token = server.backend_token(SCOPES).await;
    export(&server, &token).await;
    let sound = server.trefoil(&["check"]);
    assert_eq!(sound.status.code(), Some(0), "{}", text(&sound));
    assert!(text(&sound).contains("exports       1 files of complete exports"), "{}", text(&sound));
    let job = std::fs::read_dir(server.data().join("exports")).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::read_dir(job).unwrap().map(|file| file.unwrap().path());
    let file = file.into_iter().find(|file| file.extension().is_some_and(|end| end == "ndjson")).unwrap();
    std::fs::remove_file(file).unwrap();
    let faulty = server.trefoil(&["check"]);
    assert_eq!(faulty.status.code(), Some(1), "{}", text(&faulty));
    assert!(text(&faulty).contains("Patient.0001.ndjson is missing or incomplete"), "{}", text(&faulty));
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_made_by_schedule() {
    let location = TempDir::new().unwrap();
    let settings = format!("[backup]\nto = {:?}\nevery_h = 1\n", location.path());
    let mut server = Server::in_fresh_folder().with_settings(&settings);
    server.start();
    let config = server.data().join("trefoil.toml");
    let list = ["restore", "--list", "--config", path(&config), "--data", path(server.data())];
    // Each look starts a process, so no pause is needed.
    let is_made = (0..500).any(|_| trefoil(&list, 0).contains("full"));
    assert!(is_made, "no backup was made");
    let more = server.trefoil(&["backup"]);
    assert!(text(&more).contains("follows"), "{}", text(&more));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_was_interrupted_is_removed_and_made_again() {
    let location = TempDir::new().unwrap();
    let settings = format!("[backup]\nto = {:?}\nevery_h = 1\n", location.path());
    let mut server = Server::in_fresh_folder().with_settings("");
    server.start();
    server.stop();
    // A server that was killed during its backup leaves its turn and a part of the files.
    let partial = "20260101T000000000Z";
    {
        let store = Store::open(&server.data().join("store")).unwrap();
        let now = Timestamp::now();
        let turn = LedgerWrite::put(
            "backup/turn",
            format!(r#"{{"node":null,"backup":"{partial}"}}"#),
            Expect::Absent,
        );
        store.write(vec![turn.expiring(now + SignedDuration::from_hours(6))], now).await.unwrap();
    }
    std::fs::create_dir(location.path().join(partial)).unwrap();
    std::fs::write(location.path().join(partial).join("ledger-00001.gz"), "a part").unwrap();
    std::fs::write(server.data().join("trefoil.toml"), &settings).unwrap();
    server.start();
    let config = server.data().join("trefoil.toml");
    let list = ["restore", "--list", "--config", path(&config), "--data", path(server.data())];
    // Each look starts a process, so no pause is needed.
    let is_made = (0..500).any(|_| trefoil(&list, 0).contains("full"));
    assert!(is_made, "no backup was made");
    let files = std::fs::read_dir(location.path().join(partial)).into_iter().flatten().count();
    assert_eq!(files, 0, "the interrupted backup is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_takes_the_turn_of_one_that_has_ended() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let location = TempDir::new().unwrap();
    let settings = format!("[backup]\nto = {:?}\nevery_h = 1\n", location.path());
    let mut crashing = Server::in_fresh_folder().over_plain_http().with_settings("");
    let base = crashing.base();
    crashing = crashing.sharing(&base, &url);
    crashing.start();
    let mut other = Server::in_fresh_folder().over_plain_http().with_settings(&settings).sharing(&base, &url);
    let store =
        Store::postgres(&DatabaseUrl::new(url.clone(), None), DatabaseLimits::default()).await.unwrap();
    let node = store.nodes().await.unwrap().into_iter().find(|node| node.is_running).unwrap().id;
    let partial = "20260101T000000000Z";
    let now = Timestamp::now();
    let turn = json!({ "node": node, "backup": partial }).to_string();
    let turn =
        LedgerWrite::put("backup/turn", turn, Expect::Absent).expiring(now + SignedDuration::from_hours(6));
    store.write(vec![turn], now).await.unwrap();
    std::fs::create_dir(location.path().join(partial)).unwrap();
    let part = location.path().join(partial).join("ledger-00001.gz");
    std::fs::write(&part, "a part").unwrap();

    // While the node runs, its backup is its own. When it has ended, another node that starts takes over.
    let list = ["restore", "--from", path(location.path()), "--list"];
    let has_full_backup = || trefoil(&list, 0).contains("full");
    other.start();
    assert!((0..20).all(|_| !has_full_backup()) && part.exists(), "the turn of a running node was taken");
    other.stop();
    crashing.stop();
    other.start();
    assert!((0..500).any(|_| has_full_backup()), "no backup was made");
    assert!(!part.exists(), "the interrupted backup is still there");
}

/// The ids of the stores in a location, and the number of their backups.
fn stores_in(location: &Path) -> BTreeMap<String, usize> {
    let mut stores = BTreeMap::new();
    for line in trefoil(&["restore", "--from", path(location), "--list", "--json"], 0).lines() {
        let backup: Value = serde_json::from_str(line).unwrap();
        *stores.entry(backup["store_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    stores
}

/// Restores the last backup of a location to a new folder with production's settings.
fn restored(location: &Path, settings: &str, options: &[&str]) -> Server {
    let server = Server::in_fresh_folder().with_settings(settings);
    let restore = ["restore", "--from", path(location), "--data", path(server.data())];
    trefoil(&[&restore[..], options].concat(), 0);
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_makes_backups_when_the_operator_has_said_what_it_is_for() {
    let location = TempDir::new().unwrap();
    let settings = format!("[backup]\nto = {:?}\nevery_h = 1\n", location.path());
    let mut production = Server::in_fresh_folder().with_settings(&settings);
    production.start();
    let is_made = || !stores_in(location.path()).is_empty();
    assert!((0..500).any(|_| is_made()), "no backup was made");
    production.stop();
    let production_id = stores_in(location.path()).into_keys().next().unwrap();

    // Without a decision, the store makes none, and says so.
    let mut undecided = restored(location.path(), &settings, &[]);
    undecided.start();
    let config = path(&undecided.data().join("trefoil.toml")).to_owned();
    let status = undecided.trefoil(&["status"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(text(&status).contains("no backups are made by schedule"), "{}", text(&status));
    assert!(undecided.log().contains("trefoil store backups"), "{}", undecided.log());
    assert_eq!(stores_in(location.path()).len(), 1);
    let decided = undecided.trefoil(&["store", "backups", "--drill"]);
    assert!(decided.status.success(), "{}", text(&decided));
    undecided.stop();
    undecided.start();
    let status = undecided.trefoil(&["status"]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status));
    assert_eq!(stores_in(location.path()).len(), 1, "a drill makes no backups");

    // A backup of the drill by hand belongs to its store: neither a restore nor a moment confuses the two.
    let by_hand = undecided.trefoil(&["backup", "--config", &config]);
    assert!(by_hand.status.success(), "{}", text(&by_hand));
    let target = TempDir::new().unwrap();
    let from = ["restore", "--from", path(location.path()), "--data", path(target.path())];
    let message = trefoil(&from, 1);
    assert!(message.contains("backups of several stores") && message.contains(&production_id), "{message}");
    trefoil(&[&from[..], &["--store-id", &production_id, "--verify"]].concat(), 0);
    undecided.stop();

    // The successor continues: the backup of production is its last one, and later only its own count.
    let mut successor = restored(location.path(), &settings, &["--store-id", &production_id, "--continue"]);
    successor.start();
    let status = successor.trefoil(&["status"]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status));
    assert_eq!(stores_in(location.path()).len(), 2, "the next backup is not due");
    let config = path(&successor.data().join("trefoil.toml")).to_owned();
    let next = successor.trefoil(&["backup", "--config", &config]);
    assert!(text(&next).contains("full"), "{}", text(&next));
    for folder in std::fs::read_dir(location.path()).unwrap().flatten() {
        let manifest = folder.path().join("manifest.json");
        let Ok(manifest) = std::fs::read(&manifest) else { continue };
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        if manifest["store_id"] != production_id.as_str() && manifest["continues"].is_null() {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    let verified = trefoil(&[&from[..], &["--verify"]].concat(), 0);
    assert!(verified.contains("is complete"), "{verified}");
}
