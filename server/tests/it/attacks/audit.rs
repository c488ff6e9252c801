//! Kills the server while it grants tokens and writes resources. For every response that a client received,
//! the audit log must contain a line.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{report, size};
use crate::support::Server;

/// Number of clients that send requests concurrently.
const CLIENTS: usize = 4;

/// Returns the events of the audit log by code of the subtype. The next start of the server completes a line
/// that the kill truncated.
fn events(server: &Server) -> BTreeMap<String, Vec<Value>> {
    let mut events = BTreeMap::<_, Vec<Value>>::new();
    for file in std::fs::read_dir(server.data().join("audit")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            events.entry(event["subtype"][0]["code"].as_str().unwrap().to_owned()).or_default().push(event);
        }
    }
    events
}

/// Returns the entities of all events with this code.
fn recorded(events: &BTreeMap<String, Vec<Value>>, code: &str, pointer: &str) -> BTreeSet<String> {
    let events = events.get(code).into_iter().flatten();
    events.filter_map(|event| event.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

/// Returns the id (`jti`) of an access token.
fn jti(token: &str) -> String {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice::<Value>(&claims).unwrap()["jti"].as_str().unwrap().to_owned()
}

/// Tokens and writes that the received responses acknowledged.
#[derive(Default)]
struct Acknowledged {
    tokens: BTreeSet<String>,
    created: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

/// Requests tokens, creates a Group with each one and deletes every third Group, until the server is killed.
async fn work(server: &Server, name: &str, grants: &Semaphore) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let Ok(client) = server.try_client() else { return acknowledged };
    for number in 0.. {
        let Ok(token) = server.try_backend_token("system/Group.cud").await else { break };
        acknowledged.tokens.insert(jti(&token));
        grants.add_permits(1);
        let id = format!("{name}-{number}");
        let address = format!("{}/Group/{id}", server.fhir());
        let body = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true });
        let Ok(put) = client.put(&address).bearer_auth(&token).json(&body).send().await else { break };
        assert_eq!(put.status(), 201);
        acknowledged.created.insert(format!("Group/{id}/_history/1"));
        if number % 3 == 0 {
            let Ok(delete) = client.delete(&address).bearer_auth(&token).send().await else { break };
            assert_eq!(delete.status(), 204);
            acknowledged.deleted.insert(format!("Group/{id}/_history/2"));
        }
    }
    acknowledged
}

/// Repeatedly kills the server under load, and compares the responses with the audit log.
async fn kill_while_it_works(settings: &str, kills: usize) {
    let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
    let mut random = fastrand::Rng::with_seed(14);
    let mut all = Acknowledged::default();
    for kill in 0..kills {
        server.start();
        let grants = Semaphore::new(0);
        let names: Vec<_> = (0..CLIENTS).map(|client| format!("k{kill}-{client}")).collect();
        let clients = futures_util::future::join_all(names.iter().map(|name| work(&server, name, &grants)));
        // The server is killed after a random number of granted tokens.
        let amount = random.u32(1..40);
        let killer = async {
            grants.acquire_many(amount).await.unwrap().forget();
            server.signal("KILL");
        };
        let (received, ()) = tokio::join!(clients, killer);
        server.wait();
        for mut received in received {
            all.tokens.append(&mut received.tokens);
            all.created.append(&mut received.created);
            all.deleted.append(&mut received.deleted);
        }
    }
    server.start();
    server.stop();
    let events = events(&server);
    let what = "/entity/0/what/reference";
    for (code, pointer, received) in [
        ("token", "/entity/0/what/identifier/value", &all.tokens),
        ("create", what, &all.created),
        ("delete", what, &all.deleted),
    ] {
        let recorded = recorded(&events, code, pointer);
        let missing: Vec<_> = received.difference(&recorded).collect();
        assert!(missing.is_empty(), "acknowledged but not recorded ({code}): {missing:?}");
    }
    assert!(all.tokens.len() >= kills && !all.created.is_empty());
    let [tokens, created, deleted] = [&all.tokens, &all.created, &all.deleted].map(BTreeSet::len);
    report(
        "audit log under SIGKILL",
        format!("{kills} kills, {tokens} tokens, {created} creates, {deleted} deletes, all of them recorded"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_an_audit_line_after_a_kill() {
    kill_while_it_works("", size(4, 20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_an_audit_line_after_a_kill_with_synced_lines() {
    kill_while_it_works("[audit]\ndurability = \"synced\"\n", size(2, 10)).await;
}
