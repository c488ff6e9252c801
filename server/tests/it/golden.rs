//! Data folders, backups and databases of earlier versions. `fixtures/golden/VERSION.tar.gz` contains a data
//! folder and a backup as that version wrote them, `VERSION-database.tar.gz` the dump of a database, and the
//! JSON files facts about them. Each must be read by this version.
//!
//! `TREFOIL_WRITE_GOLDEN=NAME cargo test -p trefoil-server --test it golden` writes those of this version,
//! for its release or before a change of what is stored. They never change afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_database::TestDatabase;

use crate::patient_references::token_of;
use crate::support::{Server, TREFOIL, fresh_id, manifest_at};

const SCOPES: &str = "system/Group.cud system/Group.rs system/*.rs";
/// End of the names of the archives with the dump of a database.
const DATABASE: &str = "-database.tar.gz";
const GROUPS: [&str; 3] = ["kept", "changed", "deleted"];
/// Resources that refer to a Patient, but do not belong to a compartment in the definition of R4.
const RECORDS: [&str; 4] = ["Device", "Task", "Contract", "GuidanceResponse"];
/// The ids of each of these types, and the Patients to whom their versions refer: `-` is none, `x` a delete.
const RECORD_VERSIONS: [(&str, &[&str]); 8] = [
    ("in", &["in"]),
    ("out", &["out"]),
    ("house", &["-"]),
    ("several", &["in", "in", "in"]),
    ("arrived", &["out", "in"]),
    ("departed", &["in", "out"]),
    ("ended", &["in", "x"]),
    ("again", &["out", "x", "in"]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden")
}

#[track_caller]
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The histories of the [`RECORDS`], which the earliest data lack.
async fn record_facts(server: &Server) -> Value {
    let (client, token) = (server.client(), server.backend_token(SCOPES).await);
    let mut histories = serde_json::Map::new();
    for kind in RECORDS {
        for (id, _) in RECORD_VERSIONS {
            let url = format!("{}/{kind}/{id}/_history", server.fhir());
            let history: Value =
                client.get(url).bearer_auth(&token).send().await.unwrap().json().await.unwrap();
            let versions =
                history["entry"].as_array().unwrap().iter().map(|entry| match &entry["resource"] {
                    Value::Null => entry["request"]["method"].clone(),
                    resource => resource.clone(),
                });
            histories.insert(format!("{kind}/{id}"), versions.collect());
        }
    }
    histories.into()
}

/// A resource of one of the [`RECORDS`] that refers to a Patient, or to none.
fn record(kind: &str, id: &str, version: usize, patient: &str) -> Value {
    let mut resource = json!({ "resourceType": kind, "id": id });
    let (member, rest) = match kind {
        "Device" => ("patient", json!({ "lotNumber": format!("lot {version}") })),
        "Task" => {
            ("for", json!({ "status": "requested", "intent": "order", "description": format!("{version}") }))
        }
        "Contract" => ("subject", json!({ "title": format!("version {version}") })),
        _ => {
            let uri = format!("http://example.org/{version}");
            ("subject", json!({ "moduleUri": uri, "status": "success" }))
        }
    };
    let members = resource.as_object_mut().unwrap();
    members.extend(rest.as_object().unwrap().clone());
    if patient != "-" {
        let reference = json!({ "reference": format!("Patient/{patient}") });
        let value = if kind == "Contract" { json!([reference]) } else { reference };
        members.insert(member.to_owned(), value);
    }
    resource
}

/// Imports the versions of the [`RECORDS`], with what refers to those that have no Patient.
fn import_records(server: &Server) {
    let import = |name: &str, content: String| {
        let file = server.data().join(name);
        std::fs::write(&file, content).unwrap();
        assert!(server.trefoil(&["import", path(&file)]).status.success());
    };
    let context: Vec<Value> = vec![
        json!({ "resourceType": "Patient", "id": "in" }),
        json!({ "resourceType": "Patient", "id": "out" }),
        json!({ "resourceType": "Group", "id": "of-in", "type": "person", "actual": true,
            "member": [{ "entity": { "reference": "Patient/in" } }] }),
        json!({ "resourceType": "Observation", "id": "reading", "status": "final", "code": { "text": "reading" },
            "subject": { "reference": "Patient/in" }, "device": { "reference": "Device/house" } }),
        json!({ "resourceType": "Linkage", "id": "of-in",
            "item": [{ "type": "source", "resource": { "reference": "Patient/in" } }] }),
        json!({ "resourceType": "Binary", "id": "scan", "contentType": "text/plain", "data": "c2Nhbg==" }),
        json!({ "resourceType": "DocumentReference", "id": "scan", "status": "current",
            "subject": { "reference": "Patient/in" }, "content": [{ "attachment": { "url": "Binary/scan" } }] }),
        json!({ "resourceType": "Bundle", "id": "document", "type": "document",
            "entry": [{ "resource": { "resourceType": "Patient", "id": "in" } }] }),
    ];
    import("context.ndjson", context.iter().map(|resource| format!("{resource}\n")).collect());
    let rounds = RECORD_VERSIONS.iter().map(|(_, versions)| versions.len()).max().unwrap();
    for round in 0..rounds {
        let (mut puts, mut deletes) = (String::new(), Vec::new());
        for kind in RECORDS {
            for (id, versions) in RECORD_VERSIONS {
                match versions.get(round) {
                    Some(&"x") => deletes
                        .push(json!({ "request": { "method": "DELETE", "url": format!("{kind}/{id}") } })),
                    Some(patient) => puts += &format!("{}\n", record(kind, id, round, patient)),
                    None => {}
                }
            }
        }
        import(&format!("records-{round}.ndjson"), puts);
        let bundle = json!({ "resourceType": "Bundle", "type": "transaction", "entry": deletes });
        if !deletes.is_empty() {
            import(&format!("deletes-{round}.json"), bundle.to_string());
        }
    }
}

/// Compares a server with the facts of the data that it reads.
async fn check_facts(server: &Server, expected: &Value, data: &str) {
    assert_eq!(facts(server).await, expected["facts"], "{data}");
    if !expected["records"].is_null() {
        assert_eq!(record_facts(server).await, expected["records"], "{data}");
        check_assignment(server, data).await;
    }
}

/// Checks that the [`RECORDS`] of an earlier version belong to their Patients: for a client that is limited
/// to one of them, in its exports, and in an increment since a time before the upgrade.
async fn check_assignment(server: &Server, data: &str) {
    let token = token_of(server, &format!("limited-{}", fresh_id()), &["--group", "of-in"]).await;
    let client = server.client();
    let get = async |path: &str| {
        let url = if path.contains("://") { path.to_owned() } else { format!("{}/{path}", server.fhir()) };
        client.get(url).bearer_auth(&token).send().await.unwrap()
    };
    // The statuses of the resource, and of its versions.
    let expected: [(&str, u16, &[u16]); 8] = [
        ("in", 200, &[200]),
        ("out", 404, &[404]),
        ("house", 404, &[404]),
        ("several", 200, &[200, 200, 200]),
        ("arrived", 200, &[404, 200]),
        ("departed", 404, &[200, 404]),
        ("ended", 410, &[200, 410]),
        ("again", 200, &[404, 404, 200]),
    ];
    for kind in RECORDS {
        for (id, newest, versions) in expected {
            // An Observation of the Patient refers to this Device.
            let is_referred_to = (kind, id) == ("Device", "house");
            let status = |status: u16| if is_referred_to { 200 } else { status };
            assert_eq!(get(&format!("{kind}/{id}")).await.status(), status(newest), "{data}: {kind}/{id}");
            for (index, version) in versions.iter().enumerate() {
                let path = format!("{kind}/{id}/_history/{}", index + 1);
                assert_eq!(get(&path).await.status(), status(*version), "{data}: {path}");
            }
        }
    }
    for path in ["Linkage/of-in", "Binary/scan", "Bundle/document"] {
        assert_eq!(get(path).await.status(), 200, "{data}: {path}");
    }
    let types = RECORDS.join(",");
    // The resources are older than this time, and an export of that time did not contain them. The backup is
    // later.
    let since = "2026-11-28T13:10:51Z";
    for query in [String::new(), format!("&_since={since}")] {
        let kick_off = get(&format!("Group/of-in/$export?_type={types}{query}")).await;
        assert_eq!(kick_off.status(), StatusCode::ACCEPTED, "{data}");
        let status = kick_off.headers()["content-location"].to_str().unwrap().to_owned();
        let manifest = manifest_at(&client, &token, &status).await;
        let mut exported = Vec::new();
        for file in manifest["output"].as_array().unwrap() {
            let text = get(file["url"].as_str().unwrap()).await.text().await.unwrap();
            exported.extend(text.lines().map(|line| {
                let resource: Value = serde_json::from_str(line).unwrap();
                format!("{}/{}", resource["resourceType"], resource["id"]).replace('"', "")
            }));
        }
        exported.sort_unstable();
        let ids = ["again", "arrived", "in", "several"];
        let mut members: Vec<String> =
            RECORDS.iter().flat_map(|kind| ids.map(|id| format!("{kind}/{id}"))).collect();
        members.sort_unstable();
        assert_eq!(exported, members, "{data}{query}");
    }
}

/// Facts about a server that must stay the same.
async fn facts(server: &Server) -> Value {
    let (client, token) = (server.client(), server.backend_token(SCOPES).await);
    let get = async |path: &str| -> Value {
        let response =
            client.get(format!("{}/{path}", server.fhir())).bearer_auth(&token).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.unwrap()
    };
    let mut histories = serde_json::Map::new();
    for id in GROUPS {
        let history = get(&format!("Group/{id}/_history")).await;
        let versions = history["entry"].as_array().unwrap().iter().map(|entry| match &entry["resource"] {
            Value::Null => entry["request"]["method"].clone(),
            resource => resource.clone(),
        });
        histories.insert(id.to_owned(), versions.collect());
    }
    let patients = get("Patient?_summary=count").await["total"].clone();
    let system = "system=https://trefoil.example/fhir/CodeSystem/care-aids";
    let subsumes = get(&format!("CodeSystem/$subsumes?{system}&codeA=aid&codeB=cane")).await;
    let release = get("CodeSystem/$lookup?system=http://example.org/golden&code=b").await;
    let display = release["parameter"].as_array().unwrap().iter().find(|part| part["name"] == "display");
    json!({
        "histories": histories, "patients": patients, "subsumes": subsumes["parameter"][0]["valueCode"],
        "display": display.unwrap()["valueString"],
    })
}

/// Returns whether the secret of the client is accepted.
async fn is_secret_accepted(server: &Server, secret: &str) -> bool {
    let form = [("grant_type", "client_credentials"), ("client_id", "golden"), ("client_secret", secret)];
    let response = server.client().post(format!("{}/oauth2/token", server.base())).form(&form).send().await;
    response.unwrap().status() == StatusCode::OK
}

/// Fills a new server, and returns the secret of its client.
async fn fill(server: &Server) -> String {
    assert!(server.add_user(&["golden"], "a long password").status.success());
    let add = ["client", "add", "golden", "--auth-method", "client_secret_post", "--scope", "trefoil/admin"];
    let added = server.trefoil(&[&add[..], &["--grant-type", "client_credentials", "--json"]].concat());
    let added = String::from_utf8(added.stdout).unwrap();
    let secret = added.lines().find_map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["client_secret"].as_str().map(str::to_owned)
    });
    let csv = server.data().join("golden.csv");
    let text =
        "# url: http://example.org/golden\n# version: 1\ncode,display,parent\na,A thing,\nb,A part of it,a\n";
    std::fs::write(&csv, text).unwrap();
    assert!(server.trefoil(&["import", path(&csv)]).status.success());
    let token = server.backend_token(SCOPES).await;
    for (id, name) in [("kept", "first"), ("changed", "first"), ("changed", "second"), ("deleted", "first")] {
        let group =
            json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true, "name": name });
        let put =
            server.client().put(format!("{}/Group/{id}", server.fhir())).bearer_auth(&token).json(&group);
        assert!(put.send().await.unwrap().status().is_success());
    }
    let delete = server.client().delete(format!("{}/Group/deleted", server.fhir())).bearer_auth(&token);
    assert!(delete.send().await.unwrap().status().is_success());
    import_records(server);
    secret.unwrap()
}

/// Writes the dump of a database and its facts, with `demo.json`, which has the keys of the clients, and the
/// release, which is in the folder of a node.
async fn write_golden_database(version: &str) {
    let url = TestDatabase::shared().expect("PostgreSQL is installed").create().unwrap();
    let server = Server::in_fresh_folder().over_plain_http();
    let base = server.base();
    let mut server = server.sharing(&base, &url);
    server.start();
    let secret = fill(&server).await;
    let facts = facts_file(&server, &secret).await;
    assert_eq!(server.stop(), Some(0));
    let dump = run("pg_dump", &["--no-owner", "--no-privileges", &url]);
    std::fs::write(server.data().join("database.sql"), dump).unwrap();
    write_archive(
        &format!("{version}-database"),
        &server,
        &["database.sql", "terminology", "demo.json"],
        &facts,
    );
}

/// The content of the file with the facts.
async fn facts_file(server: &Server, secret: &str) -> Value {
    json!({ "facts": facts(server).await, "records": record_facts(server).await, "secret": secret })
}

/// Writes the archive of a data folder, and its facts.
fn write_archive(name: &str, server: &Server, parts: &[&str], facts: &Value) {
    std::fs::create_dir_all(folder()).unwrap();
    let archive = folder().join(format!("{name}.tar.gz"));
    run("tar", &[&["-czf", path(&archive), "-C", path(server.data())], parts].concat());
    let text = serde_json::to_string_pretty(facts).unwrap();
    std::fs::write(folder().join(format!("{name}.json")), text + "\n").unwrap();
}

/// Writes the archive of a folder and its facts.
async fn write_golden(version: &str) {
    let mut server = Server::in_fresh_folder();
    server.start();
    let secret = fill(&server).await;
    let facts = facts_file(&server, &secret).await;
    run(
        TREFOIL,
        &["backup", "--data", path(server.data()), "--to", path(&server.data().join("backups")), "--quiet"],
    );
    assert_eq!(server.stop(), Some(0));
    write_archive(version, &server, &["store", "terminology", "demo.json", "backups"], &facts);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_each_release_is_read() {
    if let Ok(name) = std::env::var("TREFOIL_WRITE_GOLDEN") {
        write_golden(&name).await;
        write_golden_database(&name).await;
    }
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let archive = entry.unwrap().path();
        if !path(&archive).ends_with(".tar.gz") || path(&archive).ends_with(DATABASE) {
            continue;
        }
        count += 1;
        let facts_file = archive.with_extension("").with_extension("json");
        let expected: Value = serde_json::from_slice(&std::fs::read(facts_file).unwrap()).unwrap();
        let secret = expected["secret"].as_str().unwrap();
        let unpack = || {
            let folder = TempDir::new().unwrap();
            run("tar", &["-xzf", path(&archive), "-C", path(folder.path())]);
            folder
        };
        let mut server = Server::in_folder(unpack());
        let report = run(TREFOIL, &["upgrade-check", "--data", path(server.data())]);
        assert!(report.contains("store         has format ") && report.contains("indexes have"), "{report}");
        server.start();
        check_facts(&server, &expected, path(&archive)).await;
        assert!(is_secret_accepted(&server, secret).await && !is_secret_accepted(&server, "another").await);
        assert!(
            String::from_utf8(server.trefoil(&["user", "show", "golden"]).stdout).unwrap().contains("golden")
        );
        assert_eq!(server.trefoil(&["check"]).status.code(), Some(0));

        // The backup is restored into a folder and into a database.
        let unpacked = unpack();
        let backups = unpacked.path().join("backups");
        let database = TestDatabase::shared().map(|database| database.create().unwrap());
        for store in [None, database].into_iter().take(1 + usize::from(TestDatabase::shared().is_some())) {
            let restored = TempDir::new().unwrap();
            let to = store.as_deref().unwrap_or("file");
            let into = ["--data", path(restored.path()), "--store", to, "--quiet"];
            run(TREFOIL, &[&["restore", "--from", path(&backups)], &into[..]].concat());
            std::fs::copy(unpacked.path().join("demo.json"), restored.path().join("demo.json")).unwrap();
            let mut server = Server::in_folder(restored).over_plain_http();
            if let Some(url) = &store {
                let base = server.base();
                server = server.sharing(&base, url);
            }
            server.start();
            check_facts(&server, &expected, &format!("{}: backup", archive.display())).await;
            assert!(is_secret_accepted(&server, secret).await);
        }
    }
    assert!(count > 0, "there is no data of a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_each_release_are_read_by_several_nodes() {
    let Some(database) = TestDatabase::shared() else { return };
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let archive = entry.unwrap().path();
        if !path(&archive).ends_with(DATABASE) {
            continue;
        }
        count += 1;
        let facts_file = archive.with_extension("").with_extension("json");
        let expected: Value = serde_json::from_slice(&std::fs::read(facts_file).unwrap()).unwrap();
        let url = database.create().unwrap();
        let nodes = [(); 2].map(|()| TempDir::new().unwrap());
        for node in &nodes {
            run("tar", &["-xzf", path(&archive), "-C", path(node.path())]);
        }
        run(
            "psql",
            &["-q", "-v", "ON_ERROR_STOP=1", "-f", path(&nodes[0].path().join("database.sql")), &url],
        );
        let report = run(TREFOIL, &["upgrade-check", "--store", &url, "--data", path(nodes[0].path())]);
        assert!(report.contains("has tables of version"), "{report}");
        let mut base = None;
        let mut servers = nodes.map(|node| {
            let server = Server::in_folder(node).over_plain_http();
            let base = base.get_or_insert_with(|| server.base()).clone();
            server.sharing(&base, &url)
        });
        for server in &mut servers {
            server.start();
            assert!(is_secret_accepted(server, expected["secret"].as_str().unwrap()).await);
        }
        // The base URL of the nodes is that of the first one.
        check_facts(&servers[0], &expected, path(&archive)).await;
    }
    assert!(count > 0, "there is no database of a release");
}

#[test]
fn an_upgrade_that_is_not_possible_is_told_before() {
    let server = Server::in_fresh_folder();
    let store = server.data().join("store");
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(store.join("state"), "{\"format\":99}\n0\n").unwrap();
    let index = server.data().join("terminology/releases/one.index");
    std::fs::create_dir_all(index.parent().unwrap()).unwrap();
    std::fs::write(&index, "something else than an index").unwrap();
    let output = server.trefoil(&["upgrade-check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let parts: Vec<Value> = output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let names: Vec<_> = parts
        .iter()
        .filter(|part| part["is_readable"] == false)
        .map(|part| part["part"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["store", "terminology"], "{parts:?}");
    assert!(parts[1]["result"].as_str().unwrap().contains("has format 99"), "{parts:?}");
}

#[test]
fn the_migrations_of_a_database_are_told_before() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let check = || run(TREFOIL, &["upgrade-check", "--store", &url, "--data", "/nonexistent"]);
    let new = check();
    assert!(
        new.contains("has tables of version 0") && new.contains("migration 1  creates all tables"),
        "{new}"
    );
    run(TREFOIL, &["migrate", "--store", &url]);
    assert!(check().contains("nothing is migrated"));
}
