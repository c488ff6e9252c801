//! The history of all types: every version once, page by page, and only what the token may search.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::notes::{Writer, next_page};
use crate::support::Server;

/// `Type/id` and version of all entries on all pages, in their order.
async fn follow(reader: &Writer, search: &str) -> Vec<(String, String)> {
    let (mut path, mut found) = (search.to_owned(), Vec::new());
    loop {
        let response = reader.get(&path, "*/*").await;
        assert_eq!(response.status(), 200, "{path}");
        let bundle: Value = response.json().await.unwrap();
        for entry in bundle["entry"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            found.push((text(&entry["request"]["url"]), text(&entry["response"]["etag"])));
        }
        let Some(next) = next_page(&bundle) else { return found };
        path = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_all_types_has_what_the_token_may_search() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    let before = follow(&writer, "_history?_count=1000").await.len();
    let mut expected = Vec::new();
    for round in 0..3 {
        for kind in ["Basic", "Patient", "Group"] {
            let mut resource = json!({ "resourceType": kind, "id": "h", "language": format!("x-{round}") });
            match kind {
                "Basic" => resource["code"] = json!({ "text": "x" }),
                "Group" => (resource["type"], resource["actual"]) = ("person".into(), true.into()),
                _ => {}
            }
            assert!(writer.put(&resource).await.status().is_success(), "{resource}");
            expected.push((format!("{kind}/h"), format!("W/\"{}\"", round + 1)));
        }
    }
    assert_eq!(writer.request(reqwest::Method::DELETE, "Basic/h").send().await.unwrap().status(), 204);
    expected.push(("Basic/h".to_owned(), "W/\"4\"".to_owned()));
    expected.reverse();
    for count in [1, 3, 1_000] {
        let history = follow(&writer, &format!("_history?_count={count}")).await;
        assert_eq!(history.len(), before + expected.len(), "{count} on a page");
        assert_eq!(history[..expected.len()], expected, "{count} on a page");
        let distinct: BTreeSet<_> = history.iter().collect();
        assert_eq!(distinct.len(), history.len(), "{count} on a page");
    }

    // Other types are left out, also between those of the token.
    let patients = Writer::register(&server, "patients", "system/Patient.rs", &[]).await;
    let history = follow(&patients, "_history?_count=2").await;
    let of_patients: Vec<_> = expected.iter().filter(|(key, _)| key == "Patient/h").cloned().collect();
    assert_eq!(history[..3], of_patients);
    assert!(history.iter().all(|(key, _)| key.starts_with("Patient/")));
    // A granular scope shows the versions that its search matches.
    let limited_client = Writer::register(&server, "chosen", "system/Patient.rs?_id=h", &[]).await;
    assert_eq!(follow(&limited_client, "_history").await, of_patients);
}
