//! Metrics: what a scrape contains, who may read it, and the rules and the dashboard that use it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use regex::Regex;
use serde_json::Value;
use test_database::TestDatabase;
use test_object_store::TestObjectStore;

use crate::bucket::bucket_settings;
use crate::cluster::{DatabaseLink, LinkState, start_nodes};
use crate::support::{Server, have};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus").join(file)
}

/// A running server with a demo project, and the address of its metrics.
fn observed_server() -> (Server, String) {
    let port = test_database::free_port().unwrap();
    let mut server = Server::in_fresh_folder();
    let backups = server.data().join("backups");
    let settings = format!(
        "[metrics]\nlisten = \"127.0.0.1:{port}\"\n[backup]\nto = {backups:?}\n[audit]\nsend_to = \"http://127.0.0.1:9\"\n"
    );
    server = server.with_settings(&settings);
    server.start();
    (server, format!("http://127.0.0.1:{port}/metrics"))
}

#[tokio::test]
async fn requests_to_a_bucket_are_counted() {
    let bucket = TestObjectStore::start().unwrap();
    let secrets = tempfile::tempdir().unwrap();
    let port = test_database::free_port().unwrap();
    let settings = bucket_settings(&bucket, secrets.path());
    let settings = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n{settings}");
    let mut server = Server::in_fresh_folder().with_settings(&settings);
    server.start();
    // The server looks at its bucket after it has started.
    let series = r#"trefoil_bucket_requests_total{method="GET",status="2xx"}"#;
    let start = Instant::now();
    let text = loop {
        let text = scrape(&format!("http://127.0.0.1:{port}/metrics")).await;
        if text.contains(series) {
            break text;
        }
        assert!(start.elapsed().as_secs() < 30, "{series} is missing in\n{text}");
    };
    assert!(value(&text, series) >= 1.0);
    assert!(value(&text, "trefoil_bucket_request_seconds_total") > 0.0);
}

async fn scrape(address: &str) -> String {
    let response = reqwest::get(address).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    response.text().await.unwrap()
}

#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is missing in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn a_scrape_counts_requests_events_and_refusals() {
    let (server, address) = observed_server();
    let (client, base) = (server.client(), server.base());
    client.get(format!("{base}/fhir/R4/metadata")).send().await.unwrap();
    for path in ["/nothing/1", "/nothing/2", "/fhir/R4/Patient/p1"] {
        client.get(format!("{base}{path}")).send().await.unwrap();
    }
    let token = server.backend_token("system/Patient.read").await;
    let wrong = client.post(format!("{base}/oauth2/token")).basic_auth("unknown", Some("wrong"));
    wrong.form(&[("grant_type", "client_credentials")]).send().await.unwrap();
    let text = scrape(&address).await;
    let requests = |labels: &str| value(&text, &format!("trefoil_http_requests_total{{{labels}}}"));
    assert_eq!(requests(r#"method="GET",route="/fhir/R4/metadata",status="2xx""#), 1.0);
    assert_eq!(requests(r#"method="other",route="other",status="4xx""#), 2.0);
    assert_eq!(requests(r#"method="GET",route="/fhir/R4/{kind}/{id}",status="4xx""#), 1.0);
    assert_eq!(value(&text, r#"trefoil_audit_events_total{event="token-issued"}"#), 1.0);
    assert_eq!(value(&text, r#"trefoil_refusals_total{kind="client",reason="invalid_client"}"#), 1.0);
    assert_eq!(value(&text, "trefoil_store_writable"), 1.0);
    assert!(value(&text, "trefoil_store_sequence") > 0.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1e6);
    let bucket =
        r#"trefoil_http_request_duration_seconds_bucket{le="+Inf",method="GET",route="/fhir/R4/metadata"}"#;
    let other = bucket.replace(
        r#"{le="+Inf",method="GET",route="/fhir/R4/metadata"}"#,
        r#"{method="GET",route="/fhir/R4/metadata",le="+Inf"}"#,
    );
    assert!(text.contains(&format!("{bucket} 1")) || text.contains(&format!("{other} 1")), "{text}");
    assert!(!text.contains(&token) && !text.contains("unknown"), "no token and no name of a client");

    // Requests of strangers add no series.
    let before = text.lines().count();
    for number in 0..100 {
        client.get(format!("{base}/fhir/R4/Patient/stranger-{number}")).send().await.unwrap();
        client.get(format!("{base}/stranger/{number}")).send().await.unwrap();
    }
    let after = scrape(&address).await;
    assert_eq!(after.lines().count(), before);
    let other = reqwest::get(address.replace("/metrics", "/fhir/R4/metadata")).await.unwrap();
    assert_eq!(other.status(), 404, "only the metrics are served there");
}

#[tokio::test]
async fn administrators_read_the_metrics_with_a_token() {
    let (server, _) = observed_server();
    let (client, url) = (server.client(), format!("{}/metrics", server.base()));
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
    let token = server.backend_token("system/Patient.read").await;
    assert_eq!(client.get(&url).bearer_auth(token).send().await.unwrap().status(), 403);
    let add = ["client", "add", "monitor", "--auth-method", "client_secret_post", "--scope", "trefoil/admin"];
    let add = [&add[..], &["--grant-type", "client_credentials", "--json"]].concat();
    let added = server.trefoil(&add);
    let text = String::from_utf8(added.stdout).unwrap();
    let secret = text.lines().find_map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["client_secret"].as_str().map(str::to_owned)
    });
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "monitor"),
        ("client_secret", &secret.unwrap()),
        ("scope", "trefoil/admin"),
    ];
    let issued = client.post(format!("{}/oauth2/token", server.base())).form(&form).send().await.unwrap();
    let issued: Value = issued.json().await.unwrap();
    let response =
        client.get(&url).bearer_auth(issued["access_token"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.text().await.unwrap().contains("trefoil_build_info{version="));
}

// The client closes its connection while the server stops.
#[tokio::test(flavor = "multi_thread")]
async fn lines_of_the_log_are_json_objects() {
    let settings = "[log]\nformat = \"json\"\nslow_ms = 1\n";
    let mut server =
        Server::in_fresh_folder().with_settings(settings).with_variables(&[("TREFOIL_LOG", "info")]);
    server.start();
    let token = server.backend_token("system/Patient.read").await;
    let client = server.client();
    let read =
        client.get(format!("{}/Patient?_count=1", server.fhir())).bearer_auth(token).send().await.unwrap();
    let id = read.headers()["x-request-id"].to_str().unwrap().to_owned();
    client.get(format!("{}/health/ready", server.base())).send().await.unwrap();
    assert_eq!(server.stop(), Some(0));
    let log = server.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["request_id"] == *id).unwrap_or_else(|| panic!("{log}"));
    let backend = &server.demo_json()["backend"][0]["client_id"];
    assert_eq!(
        [&line["path"], &line["address"], &line["client"]],
        [&"/fhir/R4/Patient".into(), &"127.0.0.1".into(), backend]
    );
    // A sign-in of a client takes longer than a millisecond, and a health check may do so on a busy machine.
    let (slow, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["message"] == "slow request");
    assert!(slow.iter().any(|line| line["path"] == "/oauth2/token"), "{log}");
    assert!(slow.iter().all(|line| line["level"] == "WARN"), "{log}");
    let is_health = |line: &Value| line["path"].as_str().is_some_and(|path| path.starts_with("/health/"));
    assert!(!others.into_iter().any(is_health), "{log}");
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\b(trefoil|process)_[a-z_]+").unwrap();
    name.find_iter(text).map(|name| name.as_str().to_owned()).collect()
}

/// The names of the series in a scrape.
fn series(scrape: &str) -> BTreeSet<String> {
    let lines = scrape.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

/// The series that only a node on a database has; none if no database is here.
async fn series_of_database() -> BTreeSet<String> {
    let Some(database) = TestDatabase::shared() else { return BTreeSet::new() };
    let port = test_database::free_port().unwrap();
    let settings = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n");
    let _nodes = start_nodes(&[database.create().unwrap()], None, Some(&settings));
    series(&scrape(&format!("http://127.0.0.1:{port}/metrics")).await)
}

#[tokio::test]
async fn rules_dashboard_and_documentation_use_metrics_that_exist() {
    let (server, address) = observed_server();
    server.client().get(server.base()).send().await.unwrap();
    // One refusal and one event, so that these metrics have a series.
    let wrong =
        server.client().post(format!("{}/oauth2/token", server.base())).basic_auth("unknown", Some("w"));
    wrong.form(&[("grant_type", "client_credentials")]).send().await.unwrap();
    let text = scrape(&address).await;
    let of_database = series_of_database().await;
    let series: BTreeSet<_> = series(&text).union(&of_database).cloned().collect();
    let dashboard = std::fs::read_to_string(deploy("dashboard.json")).unwrap();
    let rules = std::fs::read_to_string(deploy("alerts.yml")).unwrap();
    for name in names(&dashboard).union(&names(&rules)) {
        let needs_database = name.starts_with("trefoil_database_") || name == "trefoil_store_heard_sequence";
        let is_left_out = needs_database && of_database.is_empty();
        assert!(is_left_out || series.contains(name), "{name} is not in a scrape:\n{text}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented = names(&page);
    for name in &series {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        assert!(documented.contains(family.unwrap_or(name)), "{name} is not documented");
    }
    let alert = Regex::new("alert: ([A-Za-z]+)").unwrap();
    for name in alert.captures_iter(&rules) {
        assert!(page.contains(&format!("| `{}` |", &name[1])), "{} is not documented", &name[1]);
    }
}

#[test]
fn each_alert_fires() {
    if !have("promtool", "the alerts of Prometheus") {
        return;
    }
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let folder = deploy("");
        let output = Command::new("promtool").args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let read = |file| std::fs::read_to_string(deploy(file)).unwrap();
    let (rules, tests) = (read("alerts.yml"), read("alerts.test.yml"));
    let alert = Regex::new("alert: ([A-Za-z]+)").unwrap();
    for name in alert.captures_iter(&rules) {
        assert!(tests.contains(&format!("alertname: {}\n", &name[1])), "{} is not tested", &name[1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_does_not_wait_for_a_database_that_is_silent() {
    let Some(database) = TestDatabase::shared() else { return };
    let link = DatabaseLink::start(database.port()).await;
    let url = database.create().unwrap().replace(&database.port().to_string(), &link.port.to_string());
    let port = test_database::free_port().unwrap();
    let settings = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n");
    let _nodes = start_nodes(&[url], None, Some(&settings));
    let address = format!("http://127.0.0.1:{port}/metrics");
    let text = scrape(&address).await;
    assert_eq!(
        (value(&text, "trefoil_scrape_incomplete"), value(&text, "trefoil_store_writable")),
        (0.0, 1.0)
    );
    link.set(LinkState::Stalled);
    let text = scrape(&address).await;
    assert_eq!(
        (value(&text, "trefoil_scrape_incomplete"), value(&text, "trefoil_store_writable")),
        (1.0, 0.0)
    );
    assert!(!text.contains("trefoil_store_sequence "), "the last number is unknown");
    assert!(text.contains("trefoil_database_connections"), "what needs no answer is known");
}

#[tokio::test]
async fn a_token_of_a_monitoring_reads_the_metrics_and_nothing_else() {
    let (server, _) = observed_server();
    let added = server.trefoil(&[
        "client",
        "add",
        "monitoring",
        "--auth-method",
        "client_secret_basic",
        "--grant-type",
        "client_credentials",
        "--scope",
        "trefoil/metrics",
        "--json",
    ]);
    let added = String::from_utf8_lossy(&added.stdout).into_owned();
    let lines = added.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let secret = lines.into_iter().find_map(|line| Some(line["client_secret"].as_str()?.to_owned())).unwrap();
    let (client, base) = (server.client(), server.base());
    let request = client.post(format!("{base}/oauth2/token")).basic_auth("monitoring", Some(secret));
    let token: Value =
        request.form(&[("grant_type", "client_credentials")]).send().await.unwrap().json().await.unwrap();
    let token = token["access_token"].as_str().unwrap_or_else(|| panic!("{token}"));
    let status = async |path: &str, token: &str| {
        client.get(format!("{base}{path}")).bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("/metrics", token).await, 200);
    for path in ["/admin/users", "/admin/status", "/fhir/R4/Patient/p1", "/fhir/R4/CodeSystem"] {
        assert_eq!(status(path, token).await, 403, "{path}");
    }
    let other = server.backend_token("system/Patient.read").await;
    assert_eq!(status("/metrics", &other).await, 403);
}
