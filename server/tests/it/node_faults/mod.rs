//! Three nodes on one PostgreSQL database behind a balancer. Clients use all of them while nodes are killed, paused and
//! cut off from the database. The history of all requests must satisfy the rules of [`node_history`].
//!
//! The faults are derived from a seed. `TREFOIL_NODE_FAULTS` sets the number of rounds and `TREFOIL_NODE_FAULT_SEED` the
//! seed.

mod adversary;
mod exports;
mod outage;
mod workers;
mod world;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;
use store::{DatabaseLimits, DatabaseUrl, Store};
use test_database::TestDatabase;
use test_object_store::TestObjectStore;
use tokio::task::JoinSet;

use crate::bucket::bucket_settings;
use crate::cluster::{DatabaseLink, start_balancer, start_nodes};
use crate::sign_in::Browser;
use crate::support::Server;
use adversary::FaultyNode;
use exports::Exports;
use node_history::{Action, History};
use world::World;

/// Settings of the exports: many small files, and leases that are shorter than the pauses of nodes.
const EXPORTS: &str = "[bulk]\nfile_size = 20000\nlease_s = 2\n";
/// Time that the bucket needs for each upload, so that faults occur during exports.
const UPLOAD: Duration = Duration::from_millis(100);
/// Time after the last fault in which all nodes must serve requests again.
const RETURN: Duration = Duration::from_secs(5);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_accepted_twice_or_lost_while_nodes_fail() {
    let Some(database) = TestDatabase::shared() else { return };
    let (rounds, seed) = (number("TREFOIL_NODE_FAULTS", 8), number("TREFOIL_NODE_FAULT_SEED", 1));
    println!("{rounds} rounds of faults by seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);

    let url = database.create().unwrap();
    let (mut links, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let link = DatabaseLink::start(database.port()).await;
        urls.push(url.replace(&format!(":{}/", database.port()), &format!(":{}/", link.port)));
        links.push(link);
    }
    let balancer = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://localhost:{}", balancer.local_addr().unwrap().port());
    let (bucket, secrets) = (TestObjectStore::start().unwrap(), tempfile::tempdir().unwrap());
    bucket.delay_uploads(UPLOAD);
    let settings = format!("{EXPORTS}{}", bucket_settings(&bucket, secrets.path()));
    let servers = tokio::task::block_in_place(|| start_nodes(&urls, Some(&base), Some(&settings)));
    start_balancer(balancer, servers.iter().map(Server::address).collect()).await;
    let (world, cookies) = open_world(&servers, base).await;
    let mut nodes: Vec<_> = std::iter::zip(servers, links)
        .enumerate()
        .map(|(number, (server, link))| FaultyNode { number, server, link })
        .collect();

    let mut workers = JoinSet::new();
    workers.spawn(workers::use_assertions(world, random.fork()));
    workers.spawn(workers::use_proofs(world, random.fork()));
    workers.spawn(workers::revoke_tokens(world, random.fork()));
    for _ in 0..2 {
        workers.spawn(workers::refresh_tokens(world, random.fork(), cookies.clone()));
    }
    for worker in 0..2 {
        workers.spawn(workers::write_resource(world, random.fork(), format!("own-{worker}")));
        workers.spawn(workers::write_contested(world, random.fork(), worker));
    }
    workers.spawn(workers::create_once(world, random.fork()));
    let store = Store::postgres(&DatabaseUrl::new(url, None), DatabaseLimits::default()).await.unwrap();
    let exports: &Exports = Box::leak(Box::new(Exports::new(store)));
    for _ in 0..2 {
        workers.spawn(exports.run(world, random.fork()));
    }
    adversary::attack(world, exports, &mut nodes, &mut random, rounds).await;
    await_return(world, RETURN).await;
    world.end();
    workers.join_all().await;

    exports.check(world).await;
    let history = read_history(world).await;
    for action in ["assertion", "proof", "code", "refresh"] {
        let is_used =
            |action_of: &Action| matches!(action_of, Action::UseOnce(key) if key.starts_with(action));
        assert!(
            history.events.iter().any(|event| is_used(&event.action) && event.is_accepted()),
            "no {action}"
        );
    }
    history.check();
}

/// Prepares the data that the clients of a run use. Returns the nodes as their clients reach them, and the cookies of a
/// browser with a session.
async fn open_world(servers: &[Server], base: String) -> (&'static World, String) {
    let demo = servers[0].demo_json();
    let mut browser = Browser::new(&servers[0]);
    crate::sign_in::tokens(&servers[0], &mut browser, &demo["user"]).await;
    let cookies: Vec<_> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let system = json!({
        "resourceType": "CodeSystem", "id": "faults", "url": "http://faults.example", "status": "active",
        "content": "complete", "hierarchyMeaning": "is-a",
        "concept": [{ "code": "a", "concept": [{ "code": "b" }] }],
    });
    let file = servers[0].data().join("faults.ndjson");
    std::fs::write(&file, format!("{system}\n")).unwrap();
    let imported = servers[0].trefoil(&["import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let world: &World = Box::leak(Box::new(World::new(base, &addresses, demo)));
    // A terminology resource is known to all nodes within 2 s.
    await_return(world, Duration::from_secs(2)).await;
    (world, cookies.join("; "))
}

/// Returns the history of a run, with what is stored after it.
async fn read_history(world: &World) -> History {
    replay_credentials(world).await;
    read_resources(world).await;
    world.record(std::mem::take)
}

/// Waits until all nodes issue tokens and answer terminology operations.
async fn await_return(world: &World, limit: Duration) {
    let begun = Instant::now();
    for node in 0..3 {
        loop {
            let answer =
                world.request_token(Some(node), Action::Other("new token"), &world.assertion(), None).await;
            let elapsed = begun.elapsed();
            if let Some(token) = answer.text("access_token") {
                let path = "/fhir/R4/CodeSystem/$validate-code?url=http://faults.example&code=b";
                let request = world.client.get(world.url(Some(node), path)).bearer_auth(&token);
                let answer = world.ask(Some(node), Action::Other("return"), &[200], request).await;
                let result = answer.body["parameter"].as_array().and_then(|all| all.first()).cloned();
                if result.is_some_and(|result| result["valueBoolean"] == true) {
                    println!("node {node} serves after {} ms", elapsed.as_millis());
                    break;
                }
            }
            assert!(elapsed < limit, "node {node} does not serve: {:?} {}", answer.status, answer.body);
        }
    }
}

/// Uses the spent refresh tokens and codes of the run again, at all nodes.
async fn replay_credentials(world: &World) {
    let accepted: Vec<Action> = world.record(|history| {
        let accepted = history.events.iter().filter(|event| event.is_accepted());
        accepted.map(|event| event.action.clone()).collect()
    });
    let client = &world.demo["confidential"];
    let (id, redirect_uri) =
        (client["client_id"].as_str().unwrap(), client["redirect_uris"][0].as_str().unwrap());
    for action in accepted {
        let Action::UseOnce(key) = &action else { continue };
        let form = match key.split_once(' ') {
            Some(("refresh", token)) => vec![("grant_type", "refresh_token"), ("refresh_token", token)],
            Some(("code", code)) => {
                vec![("grant_type", "authorization_code"), ("code", code), ("redirect_uri", redirect_uri)]
            }
            _ => continue,
        };
        for node in 0..3 {
            let request = world.client.post(world.url(Some(node), "/oauth2/token")).form(&form);
            let request = request.basic_auth(id, client["client_secret"].as_str());
            world.ask(Some(node), action.clone(), &[200, 400], request).await;
        }
    }
}

/// Reads all versions of the written resources, and their newest version at all nodes.
async fn read_resources(world: &World) {
    let token = world.token().await;
    let get = async |node, path: String, action| {
        let request = world.client.get(world.url(Some(node), &path)).bearer_auth(&token);
        world.ask(Some(node), action, &[200, 404], request).await
    };
    for id in ["own-0", "own-1", "contested"] {
        let mut newest = 0;
        for node in 0..3 {
            let answer = get(node, format!("/fhir/R4/Group/{id}"), Action::Read(id.to_owned())).await;
            newest = answer.body["meta"]["versionId"].as_str().unwrap().parse().unwrap();
        }
        for version in 1..=newest {
            let path = format!("/fhir/R4/Group/{id}/_history/{version}");
            let answer = get((version % 3) as usize, path, Action::Other("version")).await;
            let name = answer.text("name").unwrap_or_else(|| format!("missing {version}"));
            world.record(|history| history.versions.entry(id.to_owned()).or_default().push((version, name)));
        }
    }
    let created = world.record(|history| {
        let mut created = std::collections::BTreeMap::new();
        for event in &history.events {
            if let Action::CreateOnce(identifier) = &event.action {
                *created.entry(identifier.clone()).or_insert(false) |= event.is_accepted();
            }
        }
        created
    });
    for (turn, (identifier, is_acknowledged)) in created.into_iter().enumerate() {
        let path = format!("/fhir/R4/Group?identifier=urn:faults|{identifier}");
        let answer = get(turn % 3, path, Action::Other("search")).await;
        let total = answer.body["total"].as_u64();
        if total > Some(1) || (is_acknowledged && total != Some(1)) {
            world.record(|history| history.violations.push(format!("{identifier}: {total:?} resources")));
        }
    }
}
