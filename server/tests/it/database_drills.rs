//! Drills of the database: a start before it, a full disk, faults of its statements, a former primary that
//! returns, and a machine that was paused.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_database::{Durability, TestDatabase};
use test_parties::answer_parameter;
use tokio_postgres::{Client, NoTls};

use crate::cluster::{DatabaseLink, LinkState, backend_assertion, post_as_backend, start_nodes};
use crate::full_disk::Small;
use crate::nodes::until;
use crate::sign_in::location;
use crate::support::Server;

/// Opens a connection to a database.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A token that permits to read and write Groups.
pub async fn writer(node: &Server, base: &str) -> String {
    let form = [("grant_type", "client_credentials"), ("scope", "system/Group.cud system/Group.rs")];
    let assertion = backend_assertion(&node.demo_json(), base);
    let response = post_as_backend(node, "/oauth2/token", &assertion, &form).await;
    let response: Value = response.json().await.unwrap();
    response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

pub async fn put_group(node: &Server, token: &str, id: &str, name: &str) -> StatusCode {
    let group = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true, "name": name });
    let request = node.client().put(format!("{}/Group/{id}", node.fhir())).bearer_auth(token);
    request.json(&group).send().await.unwrap().status()
}

pub async fn read_group(node: &Server, token: &str, id: &str) -> StatusCode {
    let url = format!("{}/Group/{id}", node.fhir());
    let response = node.client().get(url).bearer_auth(token).send().await;
    // While the services start again, nothing listens.
    response.map_or(StatusCode::SERVICE_UNAVAILABLE, |response| response.status())
}

/// Readiness of a node. While its services start again, nothing listens, which counts as not ready.
pub async fn readiness(node: &Server) -> StatusCode {
    let response = node.client().get(format!("{}/health/ready", node.base())).send().await;
    response.map_or(StatusCode::SERVICE_UNAVAILABLE, |response| response.status())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_waits_for_its_database() {
    let Some(database) = TestDatabase::shared() else { return };
    let link = DatabaseLink::start(database.port()).await;
    link.set(LinkState::Refused);
    let url = database.create().unwrap().replace(&database.port().to_string(), &link.port.to_string());
    let node = Server::in_fresh_folder().over_plain_http().with_settings("");
    let base = node.base();
    let mut node = node.sharing(&base, &url);
    let log = node.data().join("server.log");
    std::thread::scope(|scope| {
        let started = scope.spawn(|| node.try_start(&[]));
        let is_waiting =
            || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("waiting for the database"));
        while !is_waiting() {
            std::thread::yield_now();
        }
        link.set(LinkState::Open);
        started.join().unwrap().unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_the_database_makes_a_node_not_ready() {
    if TestDatabase::shared().is_none() {
        return;
    }
    let Some(disk) = Small::mount("128m") else { return };
    let database = TestDatabase::start(Durability::Fast).unwrap();
    let url = database.create().unwrap();
    let admin = connect(&url).await;
    let data: String = admin.query_one("SHOW data_directory", &[]).await.unwrap().get(0);
    let space = disk.0.path().join("space");
    std::fs::create_dir(&space).unwrap();
    give_to_owner_of(Path::new(&data), &space);
    admin.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", space.display())).await.unwrap();
    admin.batch_execute("CREATE DATABASE small TABLESPACE small").await.unwrap();
    let url = url.replace("/test0", "/small");
    let node = &start_nodes(&[url], None, None)[0];
    let token = writer(node, &node.base()).await;
    assert_eq!(put_group(node, &token, "small", "x").await, StatusCode::CREATED);
    assert_eq!(readiness(node).await, StatusCode::OK);

    let filler = disk.fill();
    let mut statuses = Vec::new();
    while statuses.last().is_none_or(StatusCode::is_success) {
        let id = format!("large-{}", statuses.len());
        // Random letters, because PostgreSQL compresses repeated ones.
        let name: String = std::iter::repeat_with(fastrand::alphanumeric).take(1_000_000).collect();
        statuses.push(put_group(node, &token, &id, &name).await);
    }
    println!("writes on a full disk of the database: {statuses:?}");
    assert!(statuses.last().is_some_and(StatusCode::is_server_error));
    assert_eq!(readiness(node).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(read_group(node, &token, "small").await, StatusCode::OK);

    std::fs::remove_file(filler).unwrap();
    until("the end of the fault without another write", StatusCode::OK, async || readiness(node).await).await;
    assert_eq!(put_group(node, &token, "after", "x").await, StatusCode::CREATED);
    for (number, status) in statuses.iter().enumerate() {
        let members = read_group(node, &token, &format!("large-{number}")).await;
        assert!(members == StatusCode::OK || !status.is_success(), "an acknowledged write is lost");
    }
}

/// Gives a folder to the owner of another one.
fn give_to_owner_of(other: &Path, folder: &Path) {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let owner = std::fs::metadata(other).unwrap();
    chown(folder, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Ends the connections of a database and forbids new ones.
async fn close_database(admin: &Client, name: &str) {
    admin.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await.unwrap();
    let of_database = format!("FROM pg_stat_activity WHERE datname = '{name}'");
    let end = format!("SELECT pg_terminate_backend(pid) {of_database}");
    let count = format!("SELECT count(*) {of_database}");
    admin.batch_execute(&end).await.unwrap();
    while admin.query_one(&count, &[]).await.unwrap().get::<_, i64>(0) > 0 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_later_writes_is_refused_until_it_is_accepted() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let admin = connect(&url.replace(name, "postgres")).await;
    let nodes = start_nodes(&vec![url.clone(); 2], None, None);
    let base = nodes[0].base();
    let token = writer(&nodes[0], &base).await;
    assert_eq!(put_group(&nodes[0], &token, "kept", "x").await, StatusCode::CREATED);

    // The standby, which has all writes, becomes the primary.
    let rename = async |from: &str, to: &str| {
        let sql = format!("ALTER DATABASE {from} RENAME TO {to}; ALTER DATABASE {to} ALLOW_CONNECTIONS true");
        admin.batch_execute(&sql).await.unwrap();
    };
    let (former, standby) = (format!("{name}_former"), format!("{name}_standby"));
    close_database(&admin, name).await;
    admin.batch_execute(&format!("CREATE DATABASE {standby} TEMPLATE {name}")).await.unwrap();
    rename(name, &former).await;
    rename(&standby, name).await;
    for node in &nodes {
        until("the new primary", StatusCode::OK, async || readiness(node).await).await;
        assert_eq!(read_group(node, &token, "kept").await, StatusCode::OK, "nothing ends");
    }
    let later = writer(&nodes[1], &base).await;
    assert_eq!(put_group(&nodes[1], &later, "later", "x").await, StatusCode::CREATED);
    let client = connect(&url).await;
    let beat = async || client.query_one("SELECT min(beat) FROM node", &[]).await.unwrap().get::<_, i64>(0);
    let last_beat = beat().await;
    while beat().await < last_beat + 2 {}
    drop(client);

    // Another node still uses the former primary, and has written more to it.
    let mut unaware = Server::in_fresh_folder().sharing(&base, &url.replace(name, &former));
    unaware.start();
    let stray = writer(&unaware, &base).await;
    for number in 0..3 {
        let id = format!("stray-{number}");
        assert_eq!(put_group(&unaware, &stray, &id, "x").await, StatusCode::CREATED);
    }
    drop(unaware);
    close_database(&admin, name).await;
    close_database(&admin, &former).await;
    rename(name, &standby).await;
    rename(&former, name).await;
    for node in &nodes {
        until("the refusal", StatusCode::SERVICE_UNAVAILABLE, async || readiness(node).await).await;
        assert_eq!(put_group(node, &token, "refused", "x").await, StatusCode::SERVICE_UNAVAILABLE);
    }
    let acceptance = nodes[0].trefoil(&["store", "accept-restored", "--yes"]);
    assert!(acceptance.status.success(), "{acceptance:?}");
    for node in &nodes {
        until("the accepted database", StatusCode::OK, async || readiness(node).await).await;
        for token in [&token, &later] {
            assert_eq!(read_group(node, token, "kept").await, StatusCode::UNAUTHORIZED);
        }
    }
    let token = writer(&nodes[0], &base).await;
    for node in &nodes {
        for (id, expected) in [("kept", 200), ("stray-2", 200), ("later", 404)] {
            assert_eq!(read_group(node, &token, id).await, expected, "{id}");
        }
    }
}

/// Finds libfaketime, which moves the clock of a process, in the folders of Debian's architectures.
fn faketime() -> Option<String> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|path| path.is_file());
    if library.is_none() {
        println!("left out: libfaketime is not installed (Debian: faketime)");
    }
    Some(library?.to_str()?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_ten_minutes_is_accepted_if_the_database_has_the_same_time() {
    let (Some(_), Some(library)) = (TestDatabase::shared(), faketime()) else { return };
    let folder = TempDir::new().unwrap();
    let clock = folder.path().join("clock");
    std::fs::write(&clock, "-600\n").unwrap();
    open_to_all(folder.path());
    let variables = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let database = TestDatabase::start_with(Durability::Fast, &variables).unwrap();
    let node = Server::in_fresh_folder().over_plain_http().with_settings("").with_variables(&variables);
    let base = node.base();
    let mut node = node.sharing(&base, &database.create().unwrap());
    node.start();
    assert_eq!(readiness(&node).await, StatusCode::OK);
    // Both clocks jump, as after a pause of the machine.
    std::fs::write(&clock, "+0\n").unwrap();
    until("the accepted jump", StatusCode::OK, async || match node.log().contains("was accepted, because") {
        true => readiness(&node).await,
        false => StatusCode::SERVICE_UNAVAILABLE,
    })
    .await;
    let token = writer(&node, &node.base()).await;
    assert_eq!(put_group(&node, &token, "after", "x").await, StatusCode::CREATED);
}

/// Permits all users to read the files of a folder.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A fault of the database within an authorization request is returned to the application: the code tells
/// whether it may try again.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_database_is_an_error_by_redirect() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let admin = connect(&url).await;
    let node = &start_nodes(&[url], None, None)[0];
    let public = &node.demo_json()["public"];
    let text = |member: &Value| member.as_str().unwrap().to_owned();
    let redirect_uri = text(&public["redirect_uris"][0]);
    // A request of this size is stored until the user has signed in.
    let state = "s".repeat(2_000);
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("response_type", "code")
        .append_pair("client_id", &text(&public["client_id"]))
        .append_pair("redirect_uri", &redirect_uri)
        .append_pair("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
        .append_pair("code_challenge_method", "S256")
        .append_pair("state", &state)
        .finish();
    let response = async || {
        let url = format!("{}/oauth2/authorize?{query}", node.base());
        location(&node.client().get(url).send().await.unwrap())
    };
    assert!(response().await.contains("/sign-in?continue="));
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
            RAISE EXCEPTION 'refused' USING ERRCODE = TG_ARGV[0];
        END $$ LANGUAGE plpgsql";
    admin.batch_execute(refuse).await.unwrap();
    for (code, error) in [("42501", "server_error"), ("40001", "temporarily_unavailable")] {
        let trigger =
            format!("CREATE TRIGGER refuse BEFORE INSERT ON ledger EXECUTE FUNCTION refuse('{code}')");
        admin.batch_execute(&trigger).await.unwrap();
        let to = response().await;
        assert!(to.starts_with(&format!("{redirect_uri}?")), "{code}: {to}");
        assert_eq!(answer_parameter(&to, "error").as_deref(), Some(error), "{code}");
        assert_eq!(answer_parameter(&to, "state"), Some(state.clone()), "{code}");
        assert_eq!(answer_parameter(&to, "error_description"), None, "{code}");
        admin.batch_execute("DROP TRIGGER refuse ON ledger").await.unwrap();
    }
    assert!(response().await.contains("/sign-in?continue="));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_because_a_connection_to_the_database_ends() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let nodes = start_nodes(&vec![url.clone(); 2], None, None);
    let token = writer(&nodes[0], &nodes[0].base()).await;
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let admin = connect(&url.replace(name, "postgres")).await;
    let end =
        format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'");
    let is_over = AtomicBool::new(false);
    let terminate = async {
        let start = Instant::now();
        let mut end_count = 0;
        while start.elapsed() < Duration::from_secs(4) {
            end_count += admin.query_one(&end, &[]).await.unwrap().get::<_, i64>(0);
            // As often as a failing pooler, and rarely enough that a connection can be used at all.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(20..200))).await;
        }
        is_over.store(true, Ordering::Release);
        end_count
    };
    let requests = (0..8).map(async |task: usize| {
        let node = &nodes[task % 2];
        let mut statuses = Vec::new();
        for count in 0.. {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            let id = format!("cut-{task}-{count}");
            statuses.push(put_group(node, &token, &id, "x").await);
            statuses.push(read_group(node, &token, &id).await);
        }
        statuses
    });
    let (ended, statuses) = tokio::join!(terminate, join_all(requests));
    let statuses = statuses.concat();
    let failures = statuses.iter().filter(|status| !status.is_success()).count();
    println!("{} requests, {ended} connections ended, {failures} failures", statuses.len());
    assert_eq!(failures, 0);
    // A repeated write would be an update, with 200.
    let created = statuses.iter().filter(|status| **status == StatusCode::CREATED).count();
    assert_eq!(created, statuses.len() / 2, "each write was done once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_password_is_read_for_the_next_connection() {
    if TestDatabase::shared().is_none() {
        return;
    }
    let database = TestDatabase::start(Durability::Fast).unwrap();
    let url = database.create().unwrap();
    let admin = connect(&url).await;
    let rules: String = admin.query_one("SHOW hba_file", &[]).await.unwrap().get(0);
    let sql = format!(
        "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'one'; \
         COPY (VALUES ('host all app 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) TO '{rules}'; \
         SELECT pg_reload_conf()"
    );
    admin.batch_execute(&sql).await.unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "one\n").unwrap();
    let settings = format!("[store]\npassword_file = '{}'\n", file.display());
    let url = url.replace("//trefoil@", "//app@");
    let node = &start_nodes(&[url], None, Some(&settings))[0];
    let token = writer(node, &node.base()).await;
    assert_eq!(put_group(node, &token, "before", "x").await, StatusCode::CREATED);

    let rotate = "ALTER ROLE app PASSWORD 'two'; \
                  SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'";
    admin.batch_execute(rotate).await.unwrap();
    for id in ["first", "second"] {
        assert_eq!(put_group(node, &token, id, "x").await, StatusCode::SERVICE_UNAVAILABLE);
    }
    std::fs::write(&file, "two\n").unwrap();
    until("the new password", StatusCode::CREATED, async || put_group(node, &token, "after", "x").await)
        .await;
}
