//! Ids of 65 to 128 characters (`[resources] long_ids`): refused by default, accepted with the setting, and
//! still readable after it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::notes::Writer;
use crate::support::Server;

fn observation(id: &str, patient: &str) -> Value {
    json!({
        "resourceType": "Observation", "id": id, "status": "final", "code": { "text": "x" },
        "subject": { "reference": format!("Patient/{patient}") },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn long_ids_are_accepted_by_a_setting() {
    let mut server = Server::in_fresh_folder().with_settings("");
    server.start();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    let (patient, other) = ("p".repeat(88), format!("{}.-{}", "A1".repeat(60), "b".repeat(6)));
    let resource = json!({ "resourceType": "Patient", "id": patient, "active": true });
    let refusal = writer.put(&resource).await;
    assert_eq!(refusal.status(), 400);
    let text = refusal.text().await.unwrap();
    assert!(text.contains("FHIR R4 permits 64") && text.contains("long_ids"), "{text}");
    // A reference to such a resource elsewhere is no defect.
    assert_eq!(writer.put(&observation("early", &patient)).await.status(), 201);

    let set = |text: &str| std::fs::write(server.data().join("trefoil.toml"), text).unwrap();
    set("[resources]\nlong_ids = true\nvalidation = \"reject\"\n");
    assert!(server.trefoil(&["reload"]).status.success());
    assert_eq!(writer.put(&resource).await.status(), 201);
    assert_eq!(writer.put(&observation(&other, &patient)).await.status(), 201);
    let too_long = writer.put(&json!({ "resourceType": "Patient", "id": "p".repeat(129) })).await;
    assert_eq!(too_long.status(), 400);
    let file = server.data().join("more.ndjson");
    let imported = "i".repeat(128);
    std::fs::write(&file, observation(&imported, &patient).to_string()).unwrap();
    let import = server.trefoil(&["import", file.to_str().unwrap()]);
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    let transaction = json!({
        "resourceType": "Bundle", "type": "transaction",
        "entry": [{
            "resource": observation(&"t".repeat(100), &patient),
            "request": { "method": "PUT", "url": format!("Observation/{}", "t".repeat(100)) },
        }],
    });
    let result = writer.request(Method::POST, "").json(&transaction).send().await.unwrap();
    assert_eq!(result.status(), 200, "{}", result.text().await.unwrap());

    // The setting ends, also for the files that are imported; what is stored remains.
    for settings in [None, Some("")] {
        if let Some(settings) = settings {
            set(settings);
            assert!(server.trefoil(&["reload"]).status.success());
        }
        for search in [
            format!("Observation?patient={patient}"),
            format!("Observation?subject=Patient/{patient}"),
            format!("Observation?_id={other},{imported},early,{}", "t".repeat(100)),
            format!("Observation?patient={patient}&_include=Observation:patient"),
        ] {
            let bundle: Value = writer.get(&search, "*/*").await.json().await.unwrap();
            let entries = bundle["entry"].as_array().unwrap();
            let matches = entries.iter().filter(|entry| entry["search"]["mode"] == "match").count();
            assert_eq!(matches, 4, "{search}: {bundle}");
            assert_eq!(entries.len(), if search.contains("_include") { 5 } else { 4 }, "{search}");
        }
        for path in ["", "/_history", "/_history/1"] {
            let response = writer.get(&format!("Observation/{other}{path}"), "*/*").await;
            assert_eq!(response.status(), 200, "{path}");
        }
    }
    assert_eq!(writer.put(&observation(&other, &patient)).await.status(), 400);
    let exported = server.data().join("exported");
    let export = server.trefoil(&["export", "--out", exported.to_str().unwrap()]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    let texts = std::fs::read_dir(&exported).unwrap().flatten();
    let texts: String = texts.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    assert!([&patient, &other, &imported].iter().all(|id| texts.contains(&format!("\"id\":\"{id}\""))));
    let delete = writer.request(Method::DELETE, &format!("Observation/{other}"));
    assert_eq!(delete.send().await.unwrap().status(), 204);
    let purged = server.trefoil(&["purge", &format!("Patient/{patient}"), "--yes"]);
    assert!(purged.status.success(), "{}", String::from_utf8_lossy(&purged.stderr));
    let bundle: Value = writer.get("Observation?_id=early", "*/*").await.json().await.unwrap();
    assert_eq!(bundle["total"], 0, "{bundle}");
}
