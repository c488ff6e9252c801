//! Several servers as nodes on one PostgreSQL database: what one node has decided holds on the others, and a database
//! that is away for some time.

use std::time::Instant;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use test_database::{Durability, TestDatabase};

use crate::cluster::{backend_assertion, post_as_backend, start_nodes};
use crate::support::Server;

const GRANT: [(&str, &str); 2] = [("grant_type", "client_credentials"), ("scope", "system/*.read")];

pub async fn token_from(node: &Server, base: &str) -> String {
    let answer =
        post_as_backend(node, "/oauth2/token", &backend_assertion(&node.demo_json(), base), &GRANT).await;
    let answer: Value = answer.json().await.unwrap();
    answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

async fn read_patient(client: &Client, node: &Server, token: &str) -> StatusCode {
    let url = format!("{}/Patient?_count=1", node.fhir());
    client.get(url).bearer_auth(token).send().await.unwrap().status()
}

/// Repeats a request until its status is the expected one, and returns the time that this took.
pub async fn until(what: &str, expected: StatusCode, mut ask: impl AsyncFnMut() -> StatusCode) {
    let begun = Instant::now();
    loop {
        let status = ask().await;
        if status == expected {
            println!("{what}: known after {} ms", begun.elapsed().as_millis());
            return;
        }
        assert!(begun.elapsed().as_secs() < 30, "{what}: still {status}");
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
async fn a_database_that_is_away_is_reported_and_nothing_is_lost() {
    if TestDatabase::shared().is_none() {
        return;
    }
    let database = TestDatabase::start(Durability::Synced).unwrap();
    let nodes = start_nodes(&[database.create().unwrap()], None, None);
    let (node, base, client) = (&nodes[0], nodes[0].base(), nodes[0].client());
    let mut tokens = vec![token_from(node, &base).await];
    let ready = format!("{base}/health/ready");

    database.crash().unwrap();
    let answer =
        post_as_backend(node, "/oauth2/token", &backend_assertion(&node.demo_json(), &base), &GRANT).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"));
    let answer = client.get(format!("{}/Patient", node.fhir())).bearer_auth(&tokens[0]).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"));
    assert!(answer.text().await.unwrap().contains("OperationOutcome"));
    let answer = client.get(&ready).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.text().await.unwrap(), "the database is unavailable\n");
    assert_eq!(client.get(format!("{base}/health/live")).send().await.unwrap().status(), StatusCode::OK);

    // A request that waits for the database when it returns is answered as usual.
    let waiting = async {
        post_as_backend(node, "/oauth2/token", &backend_assertion(&node.demo_json(), &base), &GRANT).await
    };
    let (answer, restarted) =
        tokio::join!(waiting, async { tokio::task::block_in_place(|| database.restart()) });
    restarted.unwrap();
    if answer.status() == StatusCode::OK {
        tokens.push(answer.json::<Value>().await.unwrap()["access_token"].as_str().unwrap().to_owned());
    }
    until("the return of the database", StatusCode::OK, async || {
        client.get(&ready).send().await.unwrap().status()
    })
    .await;
    tokens.push(token_from(node, &base).await);
    for token in &tokens {
        assert_eq!(read_patient(&client, node, token).await, StatusCode::OK);
    }
}
