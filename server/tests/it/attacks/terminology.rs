//! Small terminology requests that are expensive to answer, many at a time. Each must be answered or
//! rejected, other requests must be answered meanwhile, and the server must stop on SIGTERM.

use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use trefoil_fixtures::costly;
use trefoil_fixtures::polyhierarchy::{Polyhierarchy, URL};

use super::{report, size};
use crate::sign_in::{Browser, tokens};
use crate::support::Server;

/// Number of concurrent requests.
const AT_ONCE: usize = 50;

/// Returns the operations and bodies of a round. Each kind of request is repeated until the round has
/// [`AT_ONCE`] requests.
fn round() -> Vec<(String, String)> {
    let bodies: Vec<_> = costly::ALL
        .iter()
        .map(|costly| {
            (costly.operation.to_owned(), costly.body(size(costly.large / 10, costly.large)).to_string())
        })
        .collect();
    bodies.iter().cycle().take(AT_ONCE.max(bodies.len())).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn expensive_requests_do_not_delay_other_requests() {
    let mut server = Server::open_terminology();
    server.start();
    let client = server.client();
    let questions: FuturesUnordered<_> = round()
        .into_iter()
        .map(|(operation, body)| {
            let request = client
                .post(format!("{}/{operation}", server.fhir()))
                .header("content-type", "application/fhir+json")
                .body(body);
            async move {
                let started = Instant::now();
                let response = request.send().await.unwrap();
                let (status, text) = (response.status(), response.text().await.unwrap());
                (operation, status, text, started.elapsed())
            }
        })
        .collect();
    let questions = tokio::spawn(questions.collect::<Vec<_>>());
    // Identity and health endpoints must answer during the expensive requests, and again after the last one.
    let user = server.demo_json()["users"][0].clone();
    let mut slowest = [std::time::Duration::ZERO; 3];
    let mut rounds = 0;
    loop {
        let is_last = questions.is_finished();
        let started = Instant::now();
        let health = client.get(format!("{}/health/live", server.base())).send().await.unwrap();
        assert_eq!(health.status(), 200);
        slowest[0] = slowest[0].max(started.elapsed());
        let started = Instant::now();
        assert!(!server.backend_token("system/Patient.read").await.is_empty());
        slowest[1] = slowest[1].max(started.elapsed());
        let started = Instant::now();
        assert!(!tokens(&server, &mut Browser::new(&server), &user).await.access.is_empty());
        slowest[2] = slowest[2].max(started.elapsed());
        rounds += 1;
        if is_last {
            break;
        }
    }
    for (operation, status, text, time) in questions.await.unwrap() {
        let response: Value = serde_json::from_str(&text).unwrap();
        let code = response["issue"][0]["code"].as_str().unwrap_or_default();
        match status.as_u16() {
            200 => assert_ne!(response["resourceType"], "OperationOutcome"),
            400 => assert_eq!(code, "invalid", "{operation}: {text}"),
            422 => assert_eq!(code, "too-costly", "{operation}: {text}"),
            503 => assert_eq!(code, "transient", "{operation}: {text}"),
            _ => panic!("{operation}: {status} {text}"),
        }
        report("terminology", format!("{operation}: {status} after {time:?}"));
    }
    report(
        "terminology",
        format!(
            "health within {:?}, a token within {:?}, a sign-in by password within {:?}, {rounds} times",
            slowest[0], slowest[1], slowest[2]
        ),
    );
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_filters_over_a_large_hierarchy_are_answered_or_refused() {
    let mut server = Server::open_terminology();
    let concepts = u32::try_from(size(5_000, 350_000)).unwrap();
    let file = server.data().with_extension("json");
    let hierarchy = Polyhierarchy::new(1, concepts);
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
    hierarchy.write_json("hierarchy", &mut out).unwrap();
    drop(out);
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    std::fs::remove_file(file).unwrap();
    server.start();
    let client = server.client();
    // The concepts of the second level have the most descendants.
    let is_a = |n: u32| {
        let filter = json!({ "property": "concept", "op": "is-a", "value": Polyhierarchy::code(1 + n) });
        json!({ "system": URL, "filter": [filter] })
    };
    let everything = json!([{ "system": URL }]);
    for (includes, excludes) in [(20, 0), (200, 0), (0, 300), (200, 300), (800, 0)] {
        let mut compose = json!({ "include": (0..includes).map(is_a).collect::<Vec<_>>() });
        if includes == 0 {
            compose["include"] = everything.clone();
        }
        if excludes > 0 {
            compose["exclude"] = (400..400 + excludes).map(is_a).collect();
        }
        let value_set = json!({ "resourceType": "ValueSet", "status": "active", "compose": compose });
        for count in [20, 1_000] {
            let parameters = json!({ "resourceType": "Parameters", "parameter": [
                { "name": "valueSet", "resource": value_set },
                { "name": "count", "valueInteger": count },
            ] });
            let started = Instant::now();
            let request = client.post(format!("{}/ValueSet/$expand", server.fhir()));
            let request = request.header("content-type", "application/fhir+json");
            let response = request.body(parameters.to_string()).send().await.unwrap();
            let status = response.status().as_u16();
            let response: Value = response.json().await.unwrap();
            match status {
                200 => assert!(response["expansion"]["total"].as_u64().is_some_and(|total| total > 0)),
                422 => assert_eq!(response["issue"][0]["code"], "too-costly"),
                _ => panic!("{status}: {response}"),
            }
            report(
                "terminology",
                format!(
                    "$expand of {includes} is-a includes less {excludes} excludes over {concepts} concepts, a page of {count}: {status} after {:?}",
                    started.elapsed()
                ),
            );
        }
    }
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_many_expensive_requests_stops_on_sigterm() {
    let mut server = Server::open_terminology();
    server.start();
    let client = server.client();
    let questions: Vec<_> = round()
        .into_iter()
        .map(|(operation, body)| {
            let request = client.post(format!("{}/{operation}", server.fhir()));
            let request = request.header("content-type", "application/fhir+json").body(body);
            // An unread response would keep its connection open until the drain deadline.
            tokio::spawn(async move { request.send().await?.bytes().await })
        })
        .collect();
    // When the first request is answered, others are running or waiting.
    let (first, _, others) = futures_util::future::select_all(questions).await;
    first.unwrap().unwrap();
    let started = Instant::now();
    assert_eq!(server.stop(), Some(0));
    report("terminology", format!("stopped after {:?}", started.elapsed()));
    for question in others {
        // Each request was answered, rejected or disconnected; none is still waiting.
        drop(question.await.unwrap());
    }
}
