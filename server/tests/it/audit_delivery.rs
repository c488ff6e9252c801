//! Audit events outside of the node: a collector of OpenTelemetry, a syslog server and standard output, with
//! their faults, kills of the server, and the bound of what waits.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use test_database::free_port;
use test_server::program;
use trefoil_server::node::tls::load_tls;
use wiremock::matchers::{header, path};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::support::Server;

/// Ids of the events in the files of the log.
fn recorded(server: &Server) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for file in std::fs::read_dir(server.data().join("audit")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        ids.extend(text.lines().map(event_id));
    }
    ids
}

fn event_id(line: &str) -> String {
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(event["resourceType"], "AuditEvent");
    event["id"].as_str().unwrap().to_owned()
}

/// A collector that fails in each way, and accepts at most ten events at once.
struct FaultyCollector(AtomicUsize);

impl Respond for FaultyCollector {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        if records(request).len() > 10 {
            return ResponseTemplate::new(413);
        }
        match self.0.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => ResponseTemplate::new(503),
            1 => ResponseTemplate::new(429).insert_header("retry-after", "1"),
            _ => ResponseTemplate::new(200).set_body_string("{}"),
        }
    }
}

fn records(request: &Request) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().unwrap().clone()
}

/// Ids of the events that a collector was sent, with those that it has refused.
async fn received(collector: &MockServer) -> BTreeSet<String> {
    let requests = collector.received_requests().await.unwrap();
    let records = requests.iter().flat_map(records);
    records.map(|record| event_id(record["body"]["stringValue"].as_str().unwrap())).collect()
}

async fn collector_at(port: u16) -> MockServer {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let collector = MockServer::builder().listener(listener).start().await;
    Mock::given(path("/v1/logs")).respond_with(ResponseTemplate::new(200)).mount(&collector).await;
    collector
}

/// A server whose metrics can be read without a token, and their address.
fn with_metrics(settings: &str) -> (Server, String) {
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let settings = format!("[metrics]\nlisten = \"{address}\"\n{settings}");
    (Server::in_fresh_folder().with_settings(&settings), format!("http://{address}/metrics"))
}

async fn metric(address: &str, name: &str) -> f64 {
    let text = reqwest::get(address).await.unwrap().text().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_receives_each_event_through_faults_and_kills() {
    let collector = MockServer::start().await;
    Mock::given(path("/v1/logs"))
        .and(header("authorization", "Bearer of-the-collector"))
        .respond_with(FaultyCollector(AtomicUsize::new(0)))
        .mount(&collector)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("collector-token");
    std::fs::write(&file, "Bearer of-the-collector\n").unwrap();
    let settings = format!(
        "[audit]\ndurability = \"synced\"\nsend_to = \"{}\"\nsend_authorization_file = \"{}\"\n",
        collector.uri(),
        file.display()
    );
    let (mut server, metrics) = with_metrics(&settings);
    for _ in 0..3 {
        server.start();
        for _ in 0..20 {
            server.backend_token("system/*.read").await;
        }
        server.kill();
    }
    server.start();
    let all = recorded(&server);
    assert!(all.len() >= 60, "{}", all.len());
    while !received(&collector).await.is_superset(&all)
        || metric(&metrics, "trefoil_audit_unsent_bytes").await != 0.0
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.stop(), Some(0));
    let all = recorded(&server);
    assert_eq!(received(&collector).await, all, "the last events are sent at the stop");
    let requests = collector.received_requests().await.unwrap();
    let record = records(&requests[0]).remove(0);
    assert_eq!((&record["eventName"], &record["severityNumber"]), (&"fhir.audit_event".into(), &9.into()));
    assert!(!server.log().contains("of-the-collector"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_bound_synced_refuses_and_written_drops() {
    for durability in ["synced", "written"] {
        let port = free_port().unwrap();
        let settings = format!(
            "[audit]\ndurability = \"{durability}\"\nsend_to = \"http://127.0.0.1:{port}\"\nsend_queue_bytes = 65536\n"
        );
        let (mut server, metrics) = with_metrics(&settings);
        server.start();
        let mut refusal = None;
        for _ in 0..100 {
            if let Err(error) = server.try_backend_token("system/*.read").await {
                refusal = Some(error);
                break;
            }
        }
        let ready = || server.client().get(format!("{}/health/ready", server.base())).send();
        let response = ready().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        let output = server.trefoil(&["status"]);
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(report.contains("audit events are not delivered to http://127.0.0.1"), "{report}");
        if durability == "synced" {
            let refusal = refusal.unwrap();
            assert!(refusal.contains("too many events wait"), "{refusal}");
            assert!(status == 503 && text.contains("audit log"), "{status} {text}");
            assert!(std::fs::read_to_string(server.data().join("audit-sent.json")).is_ok());
        } else {
            assert_eq!((refusal, status.as_u16()), (None, 200), "{text}");
            while metric(&metrics, "trefoil_audit_dropped_bytes_total").await == 0.0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            // The bound is compared each second.
            while metric(&metrics, "trefoil_audit_unsent_bytes").await > 65_536.0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(metric(&metrics, "trefoil_audit_delivery_failed").await, 1.0);
        }
        let collector = collector_at(port).await;
        while ready().await.unwrap().status() != 200
            || metric(&metrics, "trefoil_audit_delivery_failed").await != 0.0
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(server.stop(), Some(0));
        let (all, received) = (recorded(&server), received(&collector).await);
        assert!(received.is_subset(&all));
        match durability {
            "synced" => assert_eq!(received, all, "nothing is dropped"),
            _ => assert!(received.len() < all.len(), "the oldest events stay in the files only"),
        }
    }
}

/// Runs rsyslog, which writes what it receives into a file.
fn start_rsyslog(folder: &std::path::Path, port: u16, tls: bool) -> std::process::Child {
    let secure = format!(
        "global(DefaultNetstreamDriver=\"ossl\" DefaultNetstreamDriverCAFile=\"{0}/ca.pem\" \
         DefaultNetstreamDriverCertFile=\"{0}/cert.pem\" DefaultNetstreamDriverKeyFile=\"{0}/key.pem\")\n\
         module(load=\"imtcp\" StreamDriver.Name=\"ossl\" StreamDriver.Mode=\"1\" StreamDriver.AuthMode=\"anon\")\n",
        folder.join("tls").display()
    );
    let input = if tls { secure } else { "module(load=\"imtcp\")\n".to_owned() };
    let configuration = format!(
        "global(maxMessageSize=\"64k\" workDirectory=\"{0}\")\n{input}input(type=\"imtcp\" port=\"{port}\")\n\
         template(name=\"line\" type=\"string\" string=\"%syslogfacility-text% %syslogseverity-text% %app-name% %msgid%%msg%\\n\")\n\
         action(type=\"omfile\" file=\"{0}/received\" template=\"line\" asyncWriting=\"off\")\n",
        folder.display()
    );
    let file = folder.join("rsyslog.conf");
    std::fs::write(&file, configuration).unwrap();
    let mut command = Command::new("rsyslogd");
    command.arg("-n").arg("-f").arg(&file).arg("-i").arg(folder.join("pid"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rsyslog_receives_events_over_tcp_and_tls() {
    let version = Command::new("rsyslogd").arg("-v").output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!("left out: a syslog server: rsyslogd is not here");
        return;
    }
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    for tls in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        load_tls(None, folder.path(), Timestamp::now()).unwrap();
        let port = free_port().unwrap();
        let scheme = if tls { "tls" } else { "tcp" };
        let ca = folder.path().join("tls/ca.pem");
        let mut server = Server::in_fresh_folder()
            .with_settings(&format!("[audit]\nsend_to = \"syslog+{scheme}://localhost:{port}\"\n"))
            .with_variables(&[("SSL_CERT_FILE", ca.to_str().unwrap())]);
        server.start();
        // Events that happen before the syslog server runs are sent too, and after its restart over a new
        // connection.
        server.backend_token("system/*.read").await;
        let text = || std::fs::read_to_string(folder.path().join("received")).unwrap_or_default();
        for _ in 0..2 {
            let before = text().lines().count();
            let mut syslog = start_rsyslog(folder.path(), port, tls);
            while text().lines().count() <= before {
                assert_eq!(syslog.try_wait().unwrap(), None, "rsyslog has ended");
                server.backend_token("system/*.read").await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            drop(Command::new("kill").arg(syslog.id().to_string()).status());
            drop(syslog.wait());
        }
        assert_eq!(server.stop(), Some(0));
        let all = recorded(&server);
        for line in text().lines() {
            let (head, event) = line.split_once('{').unwrap();
            assert!(head.starts_with("audit notice trefoil 1101"), "{line}");
            assert!(all.contains(&event_id(&format!("{{{event}"))));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_begins_with_ready_and_then_has_the_events() {
    let server = Server::in_fresh_folder().with_settings("[audit]\nsend_to = \"stdout\"\n");
    let mut command = Command::new(program().unwrap());
    command.args(["serve", "--insecure-http", "--listen", "127.0.0.1:0", "--data"]).arg(server.data());
    command.arg("--config").arg(server.data().join("trefoil.toml"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("ready http://"));
    let added = server.add_user(&["ada"], "correct horse battery staple");
    assert!(added.status.success(), "{added:?}");
    let id = event_id(&lines.next().unwrap());
    assert!(recorded(&server).contains(&id));
    drop(Command::new("kill").arg(child.id().to_string()).status());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_destination_that_acknowledges_nothing_is_refused_with_synced() {
    for to in ["syslog+tls://localhost", "stdout"] {
        let settings = format!("[audit]\ndurability = \"synced\"\nsend_to = \"{to}\"\n");
        let mut server = Server::in_fresh_folder().with_settings(&settings);
        assert!(server.try_start(&[]).is_err());
        let text = server.log();
        assert!(text.contains("acknowledges nothing") && text.contains("line 3"), "{text}");
    }
}
