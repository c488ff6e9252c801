//! `_include` and `_revinclude` of more resources than a page has: nothing is left out, whatever the numbers
//! of matches and of what is included for them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::notes::{Writer, next_page};
use crate::support::Server;

/// Maximum number of included resources on a page.
const INCLUDED: usize = 1_000;

/// Ids of matches and of included resources of all pages, and the number of pages.
async fn follow(writer: &Writer, search: &str) -> (Vec<String>, BTreeSet<String>, usize) {
    let (mut matches, mut included, mut pages) = (Vec::new(), BTreeSet::new(), 0);
    let mut path = search.to_owned();
    loop {
        let response = writer.get(&path, "*/*").await;
        let status = response.status();
        let bundle: Value = response.json().await.unwrap();
        assert_eq!(status, 200, "{path}: {bundle}");
        pages += 1;
        let entries = bundle["entry"].as_array().cloned().unwrap_or_default();
        let of_mode = |mode: &str| -> Vec<String> {
            let entries = entries.iter().filter(|entry| entry["search"]["mode"] == mode);
            entries.map(|entry| entry["resource"]["id"].as_str().unwrap().to_owned()).collect()
        };
        let here = of_mode("include");
        assert!(here.len() <= INCLUDED, "{path}: {}", here.len());
        included.extend(here);
        matches.extend(of_mode("match"));
        let Some(next) = next_page(&bundle) else { return (matches, included, pages) };
        path = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_included_is_on_some_page() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let writer = Writer::register(&server, "reader", "system/*.cruds", &[]).await;
    // Patients with few and with many Observations, and a List of all that the largest has.
    let mut numbers = vec![2_500, 0, 999, 3, 1_001, 1, 400, 700];
    // More matches than a page that continues has.
    numbers.extend([40; 30]);
    let (mut text, mut all) = (String::new(), BTreeSet::new());
    for (patient, count) in numbers.iter().copied().enumerate() {
        writeln!(
            text,
            r#"{{"resourceType":"Patient","id":"p{patient:02}","identifier":[{{"value":"ours"}}]}}"#
        )
        .unwrap();
        for number in 0..count {
            let observation = json!({
                "resourceType": "Observation", "id": format!("o{patient:02}-{number}"), "status": "final",
                "code": { "text": "x" }, "subject": { "reference": format!("Patient/p{patient:02}") },
            });
            writeln!(text, "{observation}").unwrap();
            all.insert(format!("o{patient:02}-{number}"));
        }
    }
    let items =
        (0..numbers[0]).map(|number| json!({ "item": { "reference": format!("Observation/o00-{number}") } }));
    let list = json!({
        "resourceType": "List", "id": "l", "status": "current", "mode": "working", "entry": items.collect::<Vec<_>>(),
    });
    writeln!(text, "{list}").unwrap();
    let file = server.data().join("all.ndjson");
    std::fs::write(&file, text).unwrap();
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());

    let patients: Vec<_> = (0..numbers.len()).map(|patient| format!("p{patient:02}")).collect();
    for search in [
        "Patient?identifier=ours&_revinclude=Observation:patient",
        "Patient?identifier=ours&_revinclude=Observation:patient&_count=3",
        "Patient?identifier=ours&_revinclude=Observation:patient&_sort=_id&_count=5",
        "Patient?identifier=ours&_revinclude=Observation:subject&_revinclude=Observation:patient",
        "Patient?identifier=ours&_revinclude=Observation:*",
    ] {
        let (matches, included, pages) = follow(&writer, search).await;
        assert_eq!(matches, patients, "{search}");
        assert!(included == all, "{search}: {} of {} on {pages} pages", included.len(), all.len());
    }
    let of_first: BTreeSet<_> = all.iter().filter(|id| id.starts_with("o00-")).cloned().collect();
    for (search, only) in [
        ("Patient?_id=p00&_revinclude=Observation:patient", "p00"),
        ("List?_id=l&_include=List:item", "l"),
        ("List?_id=l&_include=List:item&_revinclude=Provenance:target&_count=1", "l"),
    ] {
        let (matches, included, pages) = follow(&writer, search).await;
        assert_eq!((matches, pages), (vec![only.to_owned()], 3), "{search}");
        assert!(included == of_first, "{search}: {}", included.len());
    }

    // The match is deleted between two pages: what was included for it ends, and the cursor is still valid.
    let first: Value = writer.get("List?_id=l&_include=List:item", "*/*").await.json().await.unwrap();
    let next = next_page(&first).unwrap();
    assert_eq!(writer.request(reqwest::Method::DELETE, "List/l").send().await.unwrap().status(), 204);
    assert_eq!(follow(&writer, &next).await, (Vec::new(), BTreeSet::new(), 1));
    // A cursor of this kind that the server has not signed.
    let forged = next.replacen("include.", "include.A", 1);
    assert_eq!(writer.get(&forged, "*/*").await.status(), 400);
}
