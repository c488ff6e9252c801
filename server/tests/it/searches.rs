//! Searches with `_sort` of more resources than are sorted at once: pages in the order of the index.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::notes::{Writer, next_page};
use crate::support::Server;

/// Number of DiagnosticReports, more than a server reads to sort them.
const COUNT: usize = 2_000;
/// The DiagnosticReports with these numbers modulo 5 have no date.
const UNDATED: usize = 4;

/// The ids of all pages. `after_first` is called after the first page.
async fn ids(writer: &Writer, search: &str, after_first: impl AsyncFnOnce()) -> Vec<String> {
    let (mut ids, mut path, mut after_first) = (Vec::new(), search.to_owned(), Some(after_first));
    loop {
        let bundle: Value = writer.get(&path, "*/*").await.json().await.unwrap();
        let entries = bundle["entry"].as_array().unwrap_or_else(|| panic!("{path}: {bundle}"));
        ids.extend(entries.iter().map(|entry| entry["resource"]["id"].as_str().unwrap().to_owned()));
        if let Some(after_first) = after_first.take() {
            after_first().await;
        }
        let Some(next) = next_page(&bundle) else { return ids };
        path = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_the_order_of_dates_and_ids() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let writer = Writer::register(&server, "reader", "system/*.cruds", &[]).await;
    // The order of the ids is not that of the dates.
    let place = |number: usize| number * 7 % COUNT;
    let id = |number: usize| format!("o{:04}", place(number));
    let mut text = String::new();
    for number in 0..COUNT {
        let date =
            format!("2020-{:02}-{:02}T{:02}:00:00Z", 1 + number / 700, 1 + number / 24 % 28, number % 24);
        let date = (number % 5 != UNDATED).then_some(date);
        let observation = json!({
            "resourceType": "DiagnosticReport", "id": id(number), "status": "final", "code": { "text": "x" },
            "category": [{ "coding": [{ "code": if number % 3 == 0 { "vital-signs" } else { "laboratory" } }] }],
            "effectiveDateTime": date,
        });
        writeln!(text, "{observation}").unwrap();
    }
    let text = text.replace(r#""effectiveDateTime":null,"#, "");
    let file = server.data().join("all.ndjson");
    std::fs::write(&file, &text).unwrap();
    let imported = server.trefoil(&["import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));

    let in_order = |is_wanted: &dyn Fn(usize) -> bool, is_descending: bool| {
        let mut dated: Vec<(String, String)> = Vec::new();
        let mut rest = Vec::new();
        for line in text.lines() {
            let body: Value = serde_json::from_str(line).unwrap();
            let id = body["id"].as_str().unwrap().to_owned();
            let number = (0..COUNT).find(|number| format!("o{:04}", place(*number)) == id).unwrap();
            match body["effectiveDateTime"].as_str() {
                _ if !is_wanted(number) => {}
                Some(date) => dated.push((date.to_owned(), id)),
                None => rest.push(id),
            }
        }
        dated.sort();
        if is_descending {
            dated.reverse();
        }
        rest.sort();
        dated.into_iter().map(|(_, id)| id).chain(rest).collect::<Vec<_>>()
    };
    let all: &dyn Fn(usize) -> bool = &|_| true;
    let laboratory: &dyn Fn(usize) -> bool = &|number| number % 3 != 0;
    for (search, is_wanted, is_descending) in [
        ("DiagnosticReport?_sort=date&_count=400", all, false),
        ("DiagnosticReport?_sort=-date&_count=400", all, true),
        ("DiagnosticReport?category=laboratory&_sort=-date&_count=150", laboratory, true),
        ("DiagnosticReport?category:not=vital-signs&_sort=date&_count=999", laboratory, false),
    ] {
        let matches = ids(&writer, search, async || ()).await;
        assert!(matches == in_order(is_wanted, is_descending), "{search}: {} of {COUNT}", matches.len());
    }
    let mut by_id: Vec<String> = (0..COUNT).map(id).collect();
    by_id.sort();
    assert!(ids(&writer, "DiagnosticReport?_sort=_id&_count=700", async || ()).await == by_id);
    by_id.reverse();
    assert!(ids(&writer, "DiagnosticReport?_sort=-_id&_count=700", async || ()).await == by_id);

    // A resource that is deleted after the first page is still on its page; one that is erased is on none.
    let newest = in_order(all, true);
    let (deleted, erased) = (&newest[300], &newest[301]);
    let matches = ids(&writer, "DiagnosticReport?_sort=-date&_count=200", async || {
        for id in [deleted, erased] {
            let delete = writer.request(reqwest::Method::DELETE, &format!("DiagnosticReport/{id}"));
            assert_eq!(delete.send().await.unwrap().status(), 204);
        }
        let purged = server.trefoil(&["purge", &format!("DiagnosticReport/{erased}"), "--yes"]);
        assert!(purged.status.success(), "{}", String::from_utf8_lossy(&purged.stderr));
    });
    let expected: Vec<_> = newest.iter().filter(|id| *id != erased).cloned().collect();
    assert!(matches.await == expected);
    let matches = ids(&writer, "DiagnosticReport?_sort=-date&_count=200", async || ()).await;
    let expected: Vec<_> = expected.into_iter().filter(|id| id != deleted).collect();
    assert!(matches == expected);

    // The number of matches is on request.
    let first: Value = writer.get("DiagnosticReport?_sort=-date&_count=2", "*/*").await.json().await.unwrap();
    assert_eq!(first["total"], Value::Null, "{first}");
    let page = writer.get("DiagnosticReport?_sort=-date&_count=2&_total=accurate", "*/*").await;
    assert_eq!(page.json::<Value>().await.unwrap()["total"], COUNT - 2);
}
