//! Failovers of a database with two hosts: a primary with a synchronous standby, which is promoted when the
//! primary fails, and a former primary that returns without a fence. `TREFOIL_FAILOVERS` sets their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;
use test_database::{Durability, Shutdown, TestDatabase};
use tokio::task::JoinSet;

use crate::cluster::start_nodes;
use crate::database_drills::{connect, put_group, read_group, readiness, writer};
use crate::nodes::until;
use crate::support::Server;

/// A primary with a synchronous standby.
struct Pair {
    primary: TestDatabase,
    standby: TestDatabase,
    url: String,
}

impl Pair {
    /// `None` if PostgreSQL is not installed.
    async fn start() -> Option<Self> {
        TestDatabase::shared()?;
        let primary = TestDatabase::start(Durability::Fast).unwrap();
        let url = primary.create().unwrap();
        let standby = TestDatabase::standby_of(&primary).unwrap();
        let client = connect(&url).await;
        client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while client.query_one(state, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        let (first, second) = (primary.port().to_string(), standby.port().to_string());
        let url = url.replace(&format!(":{first}/"), &format!(":{first},127.0.0.1:{second}/"));
        Some(Self { primary, standby, url })
    }

    /// The primary ends, and the standby takes its place.
    fn fail_over(&self) {
        self.primary.stop(Shutdown::Immediate).unwrap();
        self.standby.set("synchronous_standby_names = ''").unwrap();
        self.standby.promote().unwrap();
    }

    /// The former primary accepts writes again, without a standby.
    fn primary_returns(&self) {
        self.primary.set("synchronous_standby_names = ''").unwrap();
        self.primary.restart().unwrap();
    }
}

/// Readiness of a node, with its text.
async fn readiness_text(node: &Server) -> (StatusCode, String) {
    match node.client().get(format!("{}/health/ready", node.base())).send().await {
        Ok(response) => (response.status(), response.text().await.unwrap()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

/// Waits until `ready` is refused with a text that has these parts.
async fn until_refused(node: &Server, parts: &[&str]) {
    until("the refusal", StatusCode::SERVICE_UNAVAILABLE, async || match readiness_text(node).await {
        (StatusCode::SERVICE_UNAVAILABLE, text) if parts.iter().all(|part| text.contains(part)) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::OK,
    })
    .await;
}

/// Writes Groups through a node until the flag is set, and returns the ids of the acknowledged ones.
async fn write_until(
    address: String,
    client: reqwest::Client,
    token: String,
    name: String,
    is_over: Arc<AtomicBool>,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for count in 0.. {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let id = format!("{name}-{count}");
        let group = json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true });
        let request = client.put(format!("{address}/Group/{id}")).bearer_auth(&token).json(&group);
        if request.send().await.is_ok_and(|response| response.status().is_success()) {
            acknowledged.push(id);
        }
    }
    acknowledged
}

/// One failover: the former primary returns after `pause`. In half of them a node is started again, or one
/// with an empty folder, while both accept writes. Returns the number of acknowledged writes.
async fn fail_over_once(round: u64, pause: Duration) -> Option<usize> {
    let pair = Pair::start().await?;
    let mut nodes = start_nodes(&vec![pair.url.clone(); 2], None, None);
    let base = nodes[0].base();
    let token = writer(&nodes[0], &base).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for (number, node) in nodes.iter().enumerate() {
        for task in 0..2 {
            let name = format!("{round}-{number}-{task}");
            let flag = Arc::clone(&is_over);
            writers.spawn(write_until(node.fhir(), node.client(), token.clone(), name, flag));
        }
    }
    let new_node = Server::in_fresh_folder().sharing(&base, &pair.url);
    tokio::time::sleep(pause).await;
    pair.fail_over();
    tokio::time::sleep(pause).await;
    pair.primary_returns();
    let mut new_node = match round % 4 {
        1 => {
            nodes[1].kill();
            nodes[1].start();
            None
        }
        3 => Some(new_node),
        _ => None,
    };
    if let Some(node) = &mut new_node {
        node.start();
        until("the new node", StatusCode::OK, async || readiness(node).await).await;
        let flag = Arc::clone(&is_over);
        writers.spawn(write_until(node.fhir(), node.client(), token.clone(), format!("{round}-new"), flag));
    }
    for node in &nodes {
        until("the promoted standby", StatusCode::OK, async || readiness(node).await).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    is_over.store(true, Ordering::Release);
    let acknowledged: Vec<String> = writers.join_all().await.concat();
    assert!(!acknowledged.is_empty());
    for node in nodes.iter().chain(&new_node) {
        for id in &acknowledged {
            assert_eq!(read_group(node, &token, id).await, StatusCode::OK, "round {round}: {id}");
        }
    }
    // The former primary has none of the later writes.
    for node in &mut nodes {
        node.stop();
    }
    let late = acknowledged.last().unwrap();
    let url = pair.url.replace(&format!(",127.0.0.1:{}", pair.standby.port()), "");
    let former = connect(&url).await;
    let query = "SELECT count(*) FROM current WHERE id = $1";
    let count = former.query_one(query, &[&late.as_bytes()]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count, 0, "{late} was written to the former primary");
    Some(acknowledged.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_that_returns_is_not_used() {
    let count = std::env::var("TREFOIL_FAILOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for round in 0..count {
        // The last kind of round by itself has a new node.
        let round = if count == 1 { 3 } else { round };
        let pause = Duration::from_millis(200 + fastrand::u64(0..1_500));
        let Some(acknowledged) = fail_over_once(round, pause).await else { return };
        println!("failover {round}: {acknowledged} acknowledged writes, all readable on all nodes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_former_primary_is_refused_until_the_operator_accepts_it() {
    let Some(pair) = Pair::start().await else { return };
    let nodes = start_nodes(&vec![pair.url.clone(); 2], None, None);
    let base = nodes[0].base();
    let token = writer(&nodes[0], &base).await;
    assert_eq!(put_group(&nodes[0], &token, "kept", "x").await, StatusCode::CREATED);
    pair.fail_over();
    for node in &nodes {
        until("the promoted standby", StatusCode::OK, async || readiness(node).await).await;
    }
    until("a write", StatusCode::CREATED, async || put_group(&nodes[1], &token, "later", "x").await).await;
    let later = writer(&nodes[1], &base).await;

    // Only the former primary is left.
    pair.standby.stop(Shutdown::Immediate).unwrap();
    pair.primary_returns();
    let host = format!("127.0.0.1:{}", pair.primary.port());
    for node in &nodes {
        until_refused(node, &[&host, "timeline 1, and this node knows 2", "accept-restored"]).await;
        assert_eq!(put_group(node, &later, "refused", "x").await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(read_group(node, &later, "kept").await, StatusCode::SERVICE_UNAVAILABLE);
    }
    let status = nodes[0].trefoil(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&status.stderr).contains(&host), "{status:?}");

    let acceptance = nodes[1].trefoil(&["store", "accept-restored", "--yes"]);
    let text = String::from_utf8_lossy(&acceptance.stdout);
    assert!(acceptance.status.success(), "{acceptance:?}");
    assert!(
        text.contains("accepted: the database with the writes up to") && text.contains("Repeat"),
        "{text}"
    );
    for node in &nodes {
        until("the accepted database", StatusCode::OK, async || readiness(node).await).await;
        assert_eq!(read_group(node, &later, "kept").await, StatusCode::UNAUTHORIZED);
        assert_eq!(read_group(node, &token, "kept").await, StatusCode::UNAUTHORIZED);
    }
    let token = writer(&nodes[0], &base).await;
    assert_eq!(read_group(&nodes[0], &token, "kept").await, StatusCode::OK);
    assert_eq!(read_group(&nodes[1], &token, "later").await, StatusCode::NOT_FOUND);
    assert_eq!(put_group(&nodes[1], &token, "after", "x").await, StatusCode::CREATED);

    // The other database is refused from now on, although it was promoted later.
    pair.standby.restart().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for node in &nodes {
        assert_eq!(read_group(node, &token, "after").await, StatusCode::OK);
    }
    pair.primary.stop(Shutdown::Immediate).unwrap();
    let host = format!("127.0.0.1:{}", pair.standby.port());
    for node in &nodes {
        until_refused(node, &[&host, "last decision of the operator"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_primaries_on_one_timeline_are_not_used() {
    let Some(pair) = Pair::start().await else { return };
    let nodes = start_nodes(&vec![pair.url.clone(); 1], None, None);
    let token = writer(&nodes[0], &nodes[0].base()).await;
    assert_eq!(put_group(&nodes[0], &token, "kept", "x").await, StatusCode::CREATED);
    // A copy of the primary that is started without being promoted.
    let address = pair.url.replace(&format!(",127.0.0.1:{}", pair.standby.port()), "");
    let client = connect(&address).await;
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = ''").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    pair.standby.stop(Shutdown::Fast).unwrap();
    pair.standby.forget_primary().unwrap();
    pair.standby.restart().unwrap();
    until_refused(&nodes[0], &["both accept writes"]).await;
    assert_eq!(put_group(&nodes[0], &token, "refused", "x").await, StatusCode::SERVICE_UNAVAILABLE);
    pair.standby.stop(Shutdown::Immediate).unwrap();
    until("the only primary", StatusCode::OK, async || readiness(&nodes[0]).await).await;
    assert_eq!(put_group(&nodes[0], &token, "after", "x").await, StatusCode::CREATED);
}
