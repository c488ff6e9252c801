//! Traces: a collector of OpenTelemetry receives a span for each request, and other servers its trace.

use serde_json::Value;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::Server;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_receives_the_spans_of_requests() {
    let collector = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/v1/traces"))
        .and(header("content-type", "application/json"))
        .respond_with(ResponseTemplate::new(200))
        .mount(&collector)
        .await;
    let settings = format!("[traces]\ncollector = \"{}\"\n", collector.uri());
    let mut server =
        Server::in_fresh_folder().with_settings(&settings).with_variables(&[("TREFOIL_LOG", "info")]);
    server.start();
    let token = server.backend_token("system/Patient.read").await;
    let read = server.client().get(format!("{}/Patient?_count=1", server.fhir())).bearer_auth(token);
    let read = read.header("traceparent", format!("00-{TRACE}-{PARENT}-01")).send().await.unwrap();
    let request_id = read.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(server.stop(), Some(0), "the last spans are sent when the server stops");
    let mut spans = Vec::new();
    for request in collector.received_requests().await.unwrap() {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let resource = &body["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(
            (&resource["key"], &resource["value"]["stringValue"]),
            (&"service.name".into(), &"trefoil".into())
        );
        spans.extend(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    let of_trace: Vec<_> = spans.iter().filter(|span| span["traceId"] == TRACE).collect();
    let [span] = &of_trace[..] else { panic!("{spans:?}") };
    assert_eq!((&span["name"], &span["parentSpanId"]), (&"GET /fhir/R4/{kind}".into(), &PARENT.into()));
    let attribute = |name: &str| {
        let attributes = span["attributes"].as_array().unwrap();
        attributes
            .iter()
            .find(|attribute| attribute["key"] == name)
            .map(|attribute| attribute["value"].clone())
    };
    assert_eq!(attribute("trefoil.request_id").unwrap()["stringValue"], *request_id);
    assert_eq!(attribute("http.response.status_code").unwrap()["intValue"], "200");
    assert!(attribute("trefoil.client_id").is_some());
    assert!(spans.iter().any(|span| span["name"] == "POST /oauth2/token" && span["parentSpanId"].is_null()));
    let log = server.log();
    let line = log.lines().find(|line| line.contains(&request_id)).unwrap();
    assert!(line.contains(TRACE), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_cannot_be_reached_costs_spans_only() {
    let settings = "[traces]\ncollector = \"http://127.0.0.1:9\"\n";
    let mut server = Server::in_fresh_folder().with_settings(settings);
    server.start();
    let read = || server.client().get(server.base()).send();
    while !server.log().contains("sending traces failed: no connection") {
        assert_eq!(read().await.unwrap().status(), 200);
    }
    assert_eq!(server.stop(), Some(0));
    let wrong = Server::in_fresh_folder().with_settings("[traces]\ncollector = \"localhost:4318\"\n");
    let config = wrong.data().join("trefoil.toml");
    let output = wrong.trefoil(&["serve", "--config", config.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("line 2: collector") && text.contains("http://localhost:4318"), "{text}");
}
