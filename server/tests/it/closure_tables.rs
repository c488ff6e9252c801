//! Closure tables: many clients of two nodes add codes to one table at the same time, nodes are restarted,
//! and the release of a table is removed.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use test_database::TestDatabase;

use crate::cluster::start_nodes;
use crate::nodes::until;
use crate::notes::Writer;
use crate::support::Server;

const SCT: &str = "http://snomed.info/sct";
const RELEASE: &str = "SnomedCT_GardenInternationalRF2_20250101T120000Z";
/// Plant, flower, lily, iris, fern, and flowers by a stated attribute.
const CODES: [&str; 6] =
    ["700101006", "700110003", "700112006", "700113001", "700114007", "700101006 : 700002005 = 700103009"];
/// The relations of the codes, each with the code that subsumes.
const RELATIONS: [(&str, &str); 8] = [
    ("700110003", "700101006"),
    ("700112006", "700101006"),
    ("700112006", "700110003"),
    ("700113001", "700101006"),
    ("700113001", "700110003"),
    ("700114007", "700101006"),
    ("700101006:700002005=700103009", "700101006"),
    ("700113001", "700101006:700002005=700103009"),
];

async fn close(writer: &Writer, fhir: &str, parameters: &[Value]) -> (u16, Value) {
    let body = json!({ "resourceType": "Parameters", "parameter": parameters }).to_string();
    let request = writer.request(reqwest::Method::POST, &format!("{fhir}/$closure"));
    let response = request.header("content-type", "application/fhir+json").body(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn named(name: &str) -> Value {
    json!({ "name": "name", "valueString": name })
}

fn concept(code: &str) -> Value {
    json!({ "name": "concept", "valueCoding": { "system": SCT, "code": code } })
}

fn since(version: u64) -> Value {
    json!({ "name": "version", "valueString": version.to_string() })
}

fn relations(map: &Value) -> BTreeSet<(String, String)> {
    let mut pairs = BTreeSet::new();
    let elements = map["group"][0]["element"].as_array();
    for element in elements.into_iter().flatten() {
        for target in element["target"].as_array().unwrap() {
            let code = |value: &Value| value["code"].as_str().unwrap().to_owned();
            pairs.insert((code(element), code(target)));
        }
    }
    pairs
}

fn expected() -> BTreeSet<(String, String)> {
    RELATIONS.iter().map(|(of, above)| ((*of).to_owned(), (*above).to_owned())).collect()
}

fn import(server: &Server) {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/releases").join(RELEASE);
    let imported = server.trefoil(&["import", release.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_gets_the_codes_of_all_nodes_and_ends_with_its_release() {
    let mut server = Server::in_fresh_folder();
    import(&server);
    server.start();
    let writer = Writer::register(&server, "reports", "system/*.rs", &[]).await;
    let fhir = server.fhir();
    let (status, map) = close(&writer, &fhir, &[named("t")]).await;
    assert_eq!((status, &map["version"]), (200, &json!("0")), "{map}");
    let codes: Vec<Value> = CODES.iter().map(|code| concept(code)).collect();
    let (status, map) = close(&writer, &fhir, &[&[named("t")], &codes[..]].concat()).await;
    assert_eq!((status, relations(&map)), (200, expected()), "{map}");
    let version = format!("{SCT}/900000000000207008/version/20250101");
    assert_eq!(map["group"][0]["sourceVersion"], version);

    server.stop();
    server.start();
    let fhir = server.fhir();
    let (status, map) = close(&writer, &fhir, &[named("t"), since(0)]).await;
    assert_eq!((status, relations(&map)), (200, expected()), "{map}");
    // The same expression with other blanks is known.
    let again = concept("700101006:700002005=700103009");
    let (status, map) = close(&writer, &fhir, &[named("t"), again]).await;
    assert_eq!((status, &map["version"], relations(&map)), (200, &json!("1"), BTreeSet::new()), "{map}");

    let release = "snomed.info-sct-900000000000207008-version-20250101";
    let removed = server.trefoil(&["release", "remove", release, "--yes"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let (status, map) = close(&writer, &fhir, &[named("t"), since(0)]).await;
    assert_eq!(status, 422, "{map}");
    let text = map["issue"][0]["details"]["text"].as_str().unwrap();
    assert!(text.contains("no longer stored; begin the table again"), "{text}");
    let (status, map) = close(&writer, &fhir, &[named("t")]).await;
    assert_eq!((status, &map["version"]), (200, &json!("0")), "{map}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_code_is_lost_when_two_nodes_add_to_one_table() {
    let Some(database) = TestDatabase::shared() else { return };
    let nodes = start_nodes(&vec![database.create().unwrap(); 2], None, None);
    let writer = Writer::register(&nodes[0], "reports", "system/*.cruds", &[]).await;
    let system = json!({ "resourceType": "CodeSystem", "id": "chain", "url": "urn:chain", "version": "1", "status": "active",
        "content": "complete", "hierarchyMeaning": "is-a", "concept": [{ "code": "c0", "concept": [{ "code": "c1",
        "concept": [{ "code": "c2", "concept": [{ "code": "c3", "concept": [{ "code": "c4" }] }] }] }] }] });
    assert_eq!(writer.put(&system).await.status(), 201);
    let bases: Vec<String> = nodes.iter().map(Server::fhir).collect();
    // Another node follows within a moment.
    let lookup = format!("{}/CodeSystem/$lookup?system=urn:chain&code=c1", bases[1]);
    until("the code system", StatusCode::OK, async || writer.get(&lookup, "*/*").await.status()).await;
    assert_eq!(close(&writer, &bases[0], &[named("t")]).await.0, 200);
    let added = join_all((0..5).map(|at| {
        let (writer, base) = (&writer, &bases[at % 2]);
        async move {
            let code = json!({ "name": "concept", "valueCoding": { "system": "urn:chain", "code": format!("c{at}") } });
            close(writer, base, &[named("t"), code]).await
        }
    }))
    .await;
    // Each relation is in exactly one of the answers.
    let mut answers = BTreeSet::new();
    let mut count = 0;
    for (status, map) in added {
        assert_eq!(status, 200, "{map}");
        count += relations(&map).len();
        answers.extend(relations(&map));
    }
    assert_eq!((answers.len(), count), (10, 10));
    for base in &bases {
        let (status, map) = close(&writer, base, &[named("t"), since(0)]).await;
        assert_eq!((status, &map["version"], relations(&map)), (200, &json!("5"), answers.clone()), "{map}");
    }
}
