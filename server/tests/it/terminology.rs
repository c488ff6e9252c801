//! Test of a validator with real data: it sends the codings of records, each with the value set that FHIR R4
//! binds to the element. The records and the terminology package of R4 are in the folder `data` of the folder
//! named by TREFOIL_SHARED, or of `shared` next to the workspace. Without them, the test prints that it is
//! left out.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::Server;

const CODINGS: usize = 10_000;
/// Number of concurrent requests.
const AT_ONCE: usize = 16;

/// Elements and the value sets to which R4 binds them.
const BINDINGS: [(&str, &str, &str); 22] = [
    ("AllergyIntolerance", "clinicalStatus", "http://hl7.org/fhir/ValueSet/allergyintolerance-clinical"),
    ("AllergyIntolerance", "code", "http://hl7.org/fhir/ValueSet/allergyintolerance-code"),
    (
        "AllergyIntolerance",
        "verificationStatus",
        "http://hl7.org/fhir/ValueSet/allergyintolerance-verification",
    ),
    ("Condition", "category", "http://hl7.org/fhir/ValueSet/condition-category"),
    ("Condition", "clinicalStatus", "http://hl7.org/fhir/ValueSet/condition-clinical"),
    ("Condition", "code", "http://hl7.org/fhir/ValueSet/condition-code"),
    ("Condition", "verificationStatus", "http://hl7.org/fhir/ValueSet/condition-ver-status"),
    ("Device", "type", "http://hl7.org/fhir/ValueSet/device-type"),
    ("DocumentReference", "category", "http://hl7.org/fhir/ValueSet/document-classcodes"),
    ("DocumentReference", "type", "http://hl7.org/fhir/ValueSet/c80-doc-typecodes"),
    ("Encounter", "class", "http://terminology.hl7.org/ValueSet/v3-ActEncounterCode"),
    ("Encounter", "participant", "http://hl7.org/fhir/ValueSet/encounter-participant-type"),
    ("Encounter", "reasonCode", "http://hl7.org/fhir/ValueSet/encounter-reason"),
    ("Encounter", "type", "http://hl7.org/fhir/ValueSet/encounter-type"),
    ("Immunization", "vaccineCode", "http://hl7.org/fhir/ValueSet/vaccine-code"),
    ("MedicationRequest", "category", "http://hl7.org/fhir/ValueSet/medicationrequest-category"),
    ("MedicationRequest", "medicationCodeableConcept", "http://hl7.org/fhir/ValueSet/medication-codes"),
    ("Organization", "type", "http://hl7.org/fhir/ValueSet/organization-type"),
    ("Patient", "communication", "http://hl7.org/fhir/ValueSet/languages"),
    ("Patient", "maritalStatus", "http://hl7.org/fhir/ValueSet/marital-status"),
    ("PractitionerRole", "code", "http://hl7.org/fhir/ValueSet/practitioner-role"),
    ("Procedure", "code", "http://hl7.org/fhir/ValueSet/procedure-code"),
];

/// Returns the path of a file or folder of the data, if it exists.
fn data(name: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = std::env::var_os("TREFOIL_SHARED").map_or_else(beside, PathBuf::from).join("data").join(name);
    if !path.exists() {
        println!("left out: ten thousand codings of records: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// Collects all objects in a value that have a system and a code.
fn codings<'v>(value: &'v Value, out: &mut Vec<&'v Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| codings(item, out)),
        Value::Object(members) => {
            if members.contains_key("system") && members.contains_key("code") {
                out.push(value);
            }
            members.values().for_each(|member| codings(member, out));
        }
        _ => {}
    }
}

/// Returns one request for each coding of the records in a folder.
fn questions(folder: &Path) -> Vec<Value> {
    let mut out = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let mut text = String::new();
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let resource: Value = serde_json::from_str(line).unwrap();
            for (_, element, url) in BINDINGS.iter().filter(|(kind, ..)| resource["resourceType"] == *kind) {
                let mut displays = Vec::new();
                codings(&resource[*element], &mut displays);
                out.extend(displays.into_iter().map(|coding| {
                    json!({ "resourceType": "Parameters", "parameter": [
                        { "name": "url", "valueUri": url }, { "name": "coding", "valueCoding": coding }] })
                }));
            }
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_codings_of_records_are_validated() {
    let (Some(records), Some(package)) = (data("synthea-10"), data("hl7.fhir.r4.terminology-4.0.1.tgz"))
    else {
        return;
    };
    let mut server = Server::in_fresh_folder();
    let settings = server.data().join("trefoil.toml");
    std::fs::write(&settings, "[terminology]\nanonymous = true\n").unwrap();
    server.start_with(&["--config", settings.to_str().unwrap()]);
    let imported = server.trefoil(&["import", package.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));

    let questions = questions(&records);
    assert!(!questions.is_empty());
    let (client, address) = (server.client(), format!("{}/ValueSet/$validate-code", server.fhir()));
    let answers = questions.iter().cycle().take(CODINGS).map(|question| {
        let request = client.post(&address).header("content-type", "application/fhir+json");
        let request = request.body(question.to_string());
        async move {
            let response = request.send().await.unwrap();
            let (status, body) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
            let result = body.pointer("/parameter/0/valueBoolean").and_then(Value::as_bool);
            let url = &question["parameter"][0]["valueUri"];
            assert!(status < 500, "{status} {question}: {body}");
            (format!("{url}"), status, result)
        }
    });
    let answers: Vec<_> = futures_util::stream::iter(answers).buffer_unordered(AT_ONCE).collect().await;
    let mut sums = BTreeMap::new();
    for response in answers {
        *sums.entry(response).or_insert(0) += 1;
    }
    for ((url, status, result), count) in &sums {
        println!("{count:6} {status} {result:?} {url}");
    }
    let right: usize =
        sums.iter().filter(|((.., result), _)| *result == Some(true)).map(|(_, count)| count).sum();
    assert!(right > CODINGS / 10, "{right} of {CODINGS} are valid");
}

/// Without a token, terminology resources can be read and searched, but not written, and no others.
#[tokio::test]
async fn everyone_reads_terminology_if_it_is_anonymous() {
    let mut server = Server::open_terminology();
    let file = server.data().join("some.ndjson");
    let resources = [
        json!({ "resourceType": "CodeSystem", "id": "s", "url": "urn:s", "version": "1", "status": "active",
            "content": "complete", "concept": [{ "code": "a" }] }),
        json!({ "resourceType": "Patient", "id": "p" }),
        json!({ "resourceType": "Provenance", "id": "r", "recorded": "2026-01-01T00:00:00Z",
            "target": [{ "reference": "CodeSystem/s" }], "agent": [{ "who": { "display": "a test" } }] }),
    ];
    std::fs::write(&file, resources.map(|resource| resource.to_string()).join("\n")).unwrap();
    assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
    server.start();
    let client = server.client();
    let get = async |path: &str| {
        let response = client.get(format!("{}/{path}", server.fhir())).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (status, system) = get("CodeSystem/s").await;
    assert_eq!((status, &system["url"]), (200, &json!("urn:s")));
    let (status, found) = get("CodeSystem?url=urn:s&_revinclude=Provenance:target").await;
    assert_eq!((status, found["entry"].as_array().map(Vec::len)), (200, Some(1)), "{found}");
    assert_eq!(get("ValueSet?url=urn:none").await.0, 200);
    assert_eq!(get("CodeSystem/s/_history").await.0, 200);
    assert_eq!(get("Patient/p").await.0, 401);
    assert_eq!(get("Provenance/r").await.0, 401);
    assert_eq!(get("Patient?_revinclude=Provenance:target").await.0, 401);
    for method in [reqwest::Method::PUT, reqwest::Method::DELETE] {
        let request = client.request(method, format!("{}/CodeSystem/s", server.fhir()));
        let request = request.header("Content-Type", "application/fhir+json").body(system.to_string());
        assert_eq!(request.send().await.unwrap().status().as_u16(), 401);
    }
    // A token that is not valid is not ignored.
    let request = client.get(format!("{}/CodeSystem/s", server.fhir())).bearer_auth("invalid");
    assert_eq!(request.send().await.unwrap().status().as_u16(), 401);
}
