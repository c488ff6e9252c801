//! Terminology requests that cost much for their size, many at a time: each is answered or refused, everything else
//! answers meanwhile, and the server obeys SIGTERM.

use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use trefoil_fixtures::costly;

use super::{report, size};
use crate::support::Server;

/// Requests at a time.
const AT_ONCE: usize = 50;

/// The operations and bodies of a round: each kind as often as it takes to make so many.
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
async fn costly_questions_delay_nobody_else() {
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
                let answer = request.send().await.unwrap();
                let (status, text) = (answer.status(), answer.text().await.unwrap());
                (operation, status, text, started.elapsed())
            }
        })
        .collect();
    let questions = tokio::spawn(questions.collect::<Vec<_>>());
    // Identity and health answer while they run, and once more at the end.
    let mut slowest = [std::time::Duration::ZERO; 2];
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
        rounds += 1;
        if is_last {
            break;
        }
    }
    for (operation, status, text, time) in questions.await.unwrap() {
        let answer: Value = serde_json::from_str(&text).unwrap();
        let code = answer["issue"][0]["code"].as_str().unwrap_or_default();
        match status.as_u16() {
            200 => assert_ne!(answer["resourceType"], "OperationOutcome"),
            400 => assert_eq!(code, "invalid", "{operation}: {text}"),
            422 => assert_eq!(code, "too-costly", "{operation}: {text}"),
            503 => assert_eq!(code, "transient", "{operation}: {text}"),
            _ => panic!("{operation}: {status} {text}"),
        }
        report("terminology", format!("{operation}: {status} after {time:?}"));
    }
    report(
        "terminology",
        format!("health within {:?}, a token within {:?}, {rounds} times", slowest[0], slowest[1]),
    );
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_full_of_costly_questions_obeys_sigterm() {
    let mut server = Server::open_terminology();
    server.start();
    let client = server.client();
    let questions: Vec<_> = round()
        .into_iter()
        .map(|(operation, body)| {
            let request = client.post(format!("{}/{operation}", server.fhir()));
            tokio::spawn(request.header("content-type", "application/fhir+json").body(body).send())
        })
        .collect();
    // As soon as one is answered, others run and wait.
    let (first, _, others) = futures_util::future::select_all(questions).await;
    first.unwrap().unwrap();
    let started = Instant::now();
    assert_eq!(server.stop(), Some(0));
    report("terminology", format!("stopped after {:?}", started.elapsed()));
    for question in others {
        // Answered, refused, or cut off; never left waiting.
        drop(question.await.unwrap());
    }
}
