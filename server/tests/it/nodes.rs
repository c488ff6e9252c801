//! Several servers as nodes on one PostgreSQL database: what one node has decided holds on the others, and a
//! link to the database that stalls.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use test_database::TestDatabase;

use crate::cluster::{DatabaseLink, LinkState, backend_assertion, post_as_backend, start_nodes};
use crate::support::{Server, TREFOIL};

const GRANT: [(&str, &str); 2] = [("grant_type", "client_credentials"), ("scope", "system/*.read")];

/// Time in which each request must be answered while the link to the database is stalled.
const STALL_BOUND: Duration = Duration::from_secs(9);

pub async fn token_from(node: &Server, base: &str) -> String {
    let response =
        post_as_backend(node, "/oauth2/token", &backend_assertion(&node.demo_json(), base), &GRANT).await;
    let response: Value = response.json().await.unwrap();
    response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

async fn read_patient(client: &Client, node: &Server, token: &str) -> StatusCode {
    let url = format!("{}/Patient?_count=1", node.fhir());
    client.get(url).bearer_auth(token).send().await.unwrap().status()
}

/// Repeats a request until its status is the expected one, and returns the time that this took.
pub async fn until(what: &str, expected: StatusCode, mut ask: impl AsyncFnMut() -> StatusCode) {
    let start = Instant::now();
    loop {
        let status = ask().await;
        if status == expected {
            println!("{what}: known after {} ms", start.elapsed().as_millis());
            return;
        }
        assert!(start.elapsed().as_secs() < 30, "{what}: still {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_has_decided_holds_on_the_others() {
    let Some(database) = TestDatabase::shared() else { return };
    let nodes = start_nodes(&vec![database.create().unwrap(); 3], None, None);
    let base = nodes[0].base();
    let client = nodes[0].client();

    // An assertion is used once in all.
    let once = backend_assertion(&nodes[0].demo_json(), &base);
    assert_eq!(post_as_backend(&nodes[0], "/oauth2/token", &once, &GRANT).await.status(), StatusCode::OK);
    for node in &nodes {
        let again = post_as_backend(node, "/oauth2/token", &once, &GRANT).await;
        assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    }

    // A token of one node is valid on all, until one of them revokes it.
    let token = token_from(&nodes[1], &base).await;
    for node in &nodes {
        assert_eq!(read_patient(&client, node, &token).await, StatusCode::OK);
    }
    let form = [("token", token.as_str())];
    let revoked =
        post_as_backend(&nodes[2], "/oauth2/revoke", &backend_assertion(&nodes[2].demo_json(), &base), &form)
            .await;
    assert_eq!(revoked.status(), StatusCode::OK);
    assert_eq!(read_patient(&client, &nodes[2], &token).await, StatusCode::UNAUTHORIZED);
    for node in &nodes {
        until("a revocation", StatusCode::UNAUTHORIZED, async || read_patient(&client, node, &token).await)
            .await;
    }

    // Keys that an administrator replaces sign and verify everywhere.
    let rotated = nodes[0].trefoil(&["keys", "rotate", "--now"]);
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    let token = token_from(&nodes[0], &base).await;
    for node in &nodes {
        until("a new key", StatusCode::OK, async || read_patient(&client, node, &token).await).await;
    }

    // A resource is readable at once, and a code system can be asked about.
    let system = json!({
        "resourceType": "CodeSystem", "id": "shared", "url": "http://shared.example", "status": "active",
        "content": "complete", "concept": [{ "code": "a" }, { "code": "b" }],
    });
    let file = nodes[1].data().join("shared.ndjson");
    std::fs::write(&file, format!("{system}\n")).unwrap();
    let imported = nodes[1].trefoil(&["import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    for node in &nodes {
        let url = format!("{}/CodeSystem/shared", node.fhir());
        let read = client.get(url).bearer_auth(&token).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK);
        until("a code system", StatusCode::OK, async || {
            let url =
                format!("{}/CodeSystem/$subsumes?system=http://shared.example&codeA=a&codeB=b", node.fhir());
            client.get(url).bearer_auth(&token).send().await.unwrap().status()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_nested_group_holds_on_all_nodes() {
    let Some(database) = TestDatabase::shared() else { return };
    let settings = "[bulk]\nnested_groups = true\n";
    let nodes = start_nodes(&vec![database.create().unwrap(); 2], None, Some(settings));
    let member = |kind: &str, id: &str| json!({ "entity": { "reference": format!("{kind}/{id}") } });
    let group = |id: &str, members: &[Value]| json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true, "member": members });
    let import = |node: &Server, resources: &[Value]| {
        let lines: String = resources.iter().map(|resource| format!("{resource}\n")).collect();
        let file = node.data().join("groups.ndjson");
        std::fs::write(&file, lines).unwrap();
        let imported = node.trefoil(&["import", file.to_str().unwrap()]);
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    };
    let patients = ["n1", "n2", "n3"].map(|id| json!({ "resourceType": "Patient", "id": id }));
    import(&nodes[0], &patients);
    let inner =
        |ids: &[&str]| group("inner", &ids.iter().map(|id| member("Patient", id)).collect::<Vec<Value>>());
    import(&nodes[0], &[group("outer", &[member("Group", "inner")]), inner(&["n1"])]);
    let added = nodes[0].trefoil(&[
        "client",
        "add",
        "limited",
        "--auth-method",
        "client_secret_post",
        "--scope",
        "system/*.rs",
        "--group",
        "outer",
    ]);
    let added = String::from_utf8_lossy(&added.stdout).into_owned();
    let secret = added.split("client_secret ").nth(1).unwrap().split_whitespace().next().unwrap();
    let client = nodes[0].client();
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "limited"),
        ("client_secret", secret),
        ("scope", "system/*.rs"),
    ];
    let token = client.post(format!("{}/oauth2/token", nodes[0].base())).form(&form).send().await.unwrap();
    let token: Value = token.json().await.unwrap();
    let visible = async |node: &Server| -> Vec<String> {
        let url = format!("{}/Patient?_count=100", node.fhir());
        let request = client.get(url).bearer_auth(token["access_token"].as_str().unwrap());
        let resource: Value = request.send().await.unwrap().json().await.unwrap();
        let entries = resource["entry"].as_array().cloned().unwrap_or_default();
        let mut ids: Vec<String> =
            entries.iter().map(|entry| entry["resource"]["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    for ids in [&["n1"][..], &["n1", "n2", "n3"], &["n3"], &[]] {
        import(&nodes[1], &[inner(ids)]);
        for node in &nodes {
            assert_eq!(visible(node).await, ids);
        }
    }
    // The Group is no longer nested.
    import(&nodes[0], &[inner(&["n2"]), group("outer", &[])]);
    assert_eq!(visible(&nodes[1]).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_the_database_that_stalls_delays_requests_for_seconds_only() {
    let Some(database) = TestDatabase::shared() else { return };
    let link = DatabaseLink::start(database.port()).await;
    let url = database.create().unwrap();
    let url = url.replace(&format!(":{}/", database.port()), &format!(":{}/", link.port));
    let nodes = tokio::task::block_in_place(|| start_nodes(&[url], None, None));
    let (node, base, client) = (&nodes[0], nodes[0].base(), nodes[0].client());
    let token = token_from(node, &base).await;
    assert_eq!(read_patient(&client, node, &token).await, StatusCode::OK);

    link.set(LinkState::Stalled);
    let patient = format!("{}/Patient", node.fhir());
    let ask = async |name: &str| {
        let assertion = backend_assertion(&node.demo_json(), &base);
        let start = Instant::now();
        let response = match name {
            "ready" => client.get(format!("{base}/health/ready")).send().await.unwrap(),
            "token" => post_as_backend(node, "/oauth2/token", &assertion, &GRANT).await,
            "revocation" => post_as_backend(node, "/oauth2/revoke", &assertion, &[("token", &token)]).await,
            "export" => {
                client.get(format!("{}/$export", node.fhir())).bearer_auth(&token).send().await.unwrap()
            }
            path => client.get(format!("{patient}{path}")).bearer_auth(&token).send().await.unwrap(),
        };
        let time = start.elapsed();
        println!("{name}: {} after {} ms", response.status(), time.as_millis());
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{name}");
        assert!(name == "ready" || response.headers().contains_key("retry-after"), "{name}");
        assert!(time < STALL_BOUND, "{name}: answered after {time:?}");
    };
    // The second round of requests finds no connection that was open before.
    for _ in 0..2 {
        join_all(["ready", "token", "revocation", "export", "/p1", "?name=x", "/p1/_history"].map(&ask))
            .await;
    }
    link.set(LinkState::Open);
    until("the end of the stall", StatusCode::OK, async || {
        client.get(format!("{base}/health/ready")).send().await.unwrap().status()
    })
    .await;
    assert_eq!(read_patient(&client, node, &token_from(node, &base).await).await, StatusCode::OK);
}

/// Saves or restores all tables of a database.
async fn run_sql(url: &str, sql: impl Fn(&str) -> String) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
    let tables = client.query(tables, &[]).await.unwrap();
    let all: String = tables.iter().map(|row| sql(row.get(0))).collect();
    client.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS saved; BEGIN; {all} COMMIT")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_that_is_accepted_ends_what_was_issued_before() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let nodes = start_nodes(&vec![url.clone(); 2], None, None);
    let (base, client) = (nodes[0].base(), nodes[0].client());
    let [before, revoked] = [token_from(&nodes[0], &base).await, token_from(&nodes[0], &base).await];
    let put = async |token: &str, id: &str| {
        let body = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true }).to_string();
        let request = client.put(format!("{}/Group/{id}", nodes[1].fhir())).bearer_auth(token);
        request.header("content-type", "application/fhir+json").body(body).send().await.unwrap().status()
    };
    let writer = async || {
        let form = [("grant_type", "client_credentials"), ("scope", "system/Group.cud system/*.read")];
        let assertion = backend_assertion(&nodes[0].demo_json(), &base);
        let response = post_as_backend(&nodes[0], "/oauth2/token", &assertion, &form).await;
        response.json::<Value>().await.unwrap()["access_token"].as_str().unwrap().to_owned()
    };
    let token = writer().await;
    assert_eq!(put(&token, "kept").await, StatusCode::CREATED);
    run_sql(&url, |table| format!("CREATE TABLE saved.{table} AS TABLE public.{table};")).await;
    assert_eq!(put(&token, "lost").await, StatusCode::CREATED);
    let lost_at = Timestamp::now();
    let assertion = backend_assertion(&nodes[0].demo_json(), &base);
    post_as_backend(&nodes[0], "/oauth2/revoke", &assertion, &[("token", &revoked)]).await;
    assert_eq!(read_patient(&client, &nodes[1], &revoked).await, StatusCode::UNAUTHORIZED);
    // At least one number of each node is lost with the rest.
    let beat = async || {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.query_one("SELECT min(beat) FROM node", &[]).await.unwrap().get::<_, i64>(0)
    };
    let last_beat = beat().await;
    while beat().await < last_beat + 2 {}
    run_sql(&url, |table| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM saved.{table};"))
        .await;
    until("the refusal", StatusCode::SERVICE_UNAVAILABLE, async || {
        let response = client.get(format!("{}/health/ready", nodes[0].base())).send().await;
        response.map_or(StatusCode::OK, |response| response.status())
    })
    .await;
    let acceptance = nodes[1].trefoil(&["store", "accept-restored", "--yes"]);
    assert!(acceptance.status.success(), "{acceptance:?}");
    for node in &nodes {
        until("a token of before the restore", StatusCode::UNAUTHORIZED, async || {
            let url = format!("{}/Patient?_count=1", node.fhir());
            // While the services start again, nothing listens.
            let response = client.get(url).bearer_auth(&before).send().await;
            response.map_or(StatusCode::SERVICE_UNAVAILABLE, |response| response.status())
        })
        .await;
    }
    let token = writer().await;
    for node in &nodes {
        assert_eq!(read_patient(&client, node, &revoked).await, StatusCode::UNAUTHORIZED);
        let read = async |id: &str| {
            let url = format!("{}/Group/{id}", node.fhir());
            client.get(url).bearer_auth(&token).send().await.unwrap().status()
        };
        assert_eq!((read("kept").await, read("lost").await), (StatusCode::OK, StatusCode::NOT_FOUND));
    }
    assert_eq!(put(&token, "lost").await, StatusCode::CREATED);
    // An increment from the time of a lost write would miss that it was lost.
    for (since, expected) in [(lost_at, StatusCode::BAD_REQUEST), (Timestamp::now(), StatusCode::ACCEPTED)] {
        let request = client.get(format!("{}/$export?_type=Group&_since={since}", nodes[0].fhir()));
        let request = request.header("prefer", "respond-async").bearer_auth(&token);
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, expected, "{text}");
        assert!(status == StatusCode::ACCEPTED || text.contains("was restored to its state of"), "{text}");
    }
}

#[test]
fn a_server_without_the_right_to_change_tables_needs_a_migration() {
    let Some(database) = TestDatabase::shared() else { return };
    let owner = database.create().unwrap();
    let user = database.add_user(&owner, "server").unwrap();
    let migrate = || Command::new(TREFOIL).args(["migrate", "--store", &owner]).output().unwrap();
    let settings = "[store]\nmigrate = false\n";
    let mut node = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    let base = node.base();
    node = node.sharing(&base, &user);
    node.try_start(&[]).unwrap_err();
    assert!(node.log().contains("the database has tables of version 0"), "{}", node.log());
    assert!(node.log().contains("run `trefoil migrate`"), "{}", node.log());
    for says in ["4 migrations of", "are up to date"] {
        let output = migrate();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(says), "{output:?}");
    }
    node.start();
    assert!(node.trefoil(&["user", "list"]).status.success());
    // With the default settings, the same server fails.
    let mut other = Server::in_fresh_folder().over_plain_http().with_settings("");
    let base = other.base();
    other = other.sharing(&base, &user);
    other.try_start(&[]).unwrap_err();
    assert!(other.log().contains("permission denied"), "{}", other.log());
    let file = Command::new(TREFOIL).args(["migrate", "--store", "file"]).output().unwrap();
    assert!(String::from_utf8_lossy(&file.stderr).contains("only a database has tables"), "{file:?}");
}
