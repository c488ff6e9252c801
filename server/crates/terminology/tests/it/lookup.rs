//! `CodeSystem/$lookup`: definitions, and the state of a day. What a concept is else told with is in `expand`.

use fhir::Parameters;
use serde_json::{Value, json};
use trefoil_terminology::{Change, Input, Terminology};

use crate::releases::loaded;
use crate::support::short;

/// A terminology of these resources.
fn of(resources: &[Value]) -> Terminology {
    let terminology = Terminology::default();
    terminology.apply(resources.iter().enumerate().map(|(number, resource)| Change::Put {
        kind: "CodeSystem",
        id: format!("system-{number}"),
        bytes: resource.to_string().into(),
    }));
    terminology
}

/// The parameters of these names that `$lookup` answers, by GET.
fn lookup(terminology: &Terminology, query: &str, names: &[&str]) -> String {
    let query = Parameters::from_query(query);
    let answer = match terminology.lookup(Input::from_query(&query)) {
        Ok(answer) => serde_json::to_value(&answer).unwrap(),
        Err(error) => return short(Err(error)),
    };
    let all = answer["parameter"].as_array().unwrap().iter();
    let of_name = all.filter(|parameter| names.iter().any(|name| parameter["name"] == *name));
    let value = |parameter: &Value| match parameter["part"].as_array() {
        Some(parts) => parts.iter().map(last).collect::<Vec<_>>().join(":"),
        None => last(parameter),
    };
    of_name.map(value).collect::<Vec<_>>().join("; ")
}

/// The value of a parameter, which stands behind its name.
fn last(parameter: &Value) -> String {
    let (_, value) =
        parameter.as_object().unwrap().iter().find(|(name, _)| name.starts_with("value")).unwrap();
    match value {
        Value::Object(coding) => coding["code"].as_str().unwrap().to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[test]
fn a_definition_is_told_where_there_is_one() {
    let usage = "http://terminology.hl7.org/CodeSystem/designation-usage";
    let mut terminology = of(&[
        json!({ "resourceType": "CodeSystem", "url": "urn:tools", "status": "active", "content": "complete", "language": "en",
            "concept": [
                { "code": "spade", "display": "Spade", "definition": "Moves earth.",
                  "designation": [{ "language": "de", "value": "Bewegt Erde.", "use": { "system": usage, "code": "definition" } }],
                  "property": [{ "code": "weight", "valueInteger": 2 }], "concept": [{ "code": "trowel" }] },
                { "code": "rake" }] }),
        json!({ "resourceType": "CodeSystem", "url": "urn:more", "status": "active", "content": "supplement",
            "supplements": "urn:tools", "concept": [{ "code": "rake", "definition": "Gathers leaves." }] }),
    ]);
    for (query, expected) in [
        ("code=spade", "Moves earth."),
        ("code=spade&displayLanguage=de", "Bewegt Erde."),
        ("code=spade&displayLanguage=fr", "Moves earth."),
        ("code=spade&property=definition", "Moves earth."),
        ("code=spade&property=*", "Moves earth."),
        ("code=spade&property=weight", ""),
        ("code=rake", ""),
        ("code=rake&useSupplement=urn:more", "Gathers leaves."),
        ("code=trowel", ""),
    ] {
        let said = lookup(&terminology, &format!("system=urn:tools&{query}"), &["definition"]);
        assert_eq!(said, expected, "{query}");
    }
    // It is no property besides, and its translation a designation of its use.
    let said = lookup(&terminology, "system=urn:tools&code=spade", &["designation", "property"]);
    assert_eq!(said, "de:definition:Bewegt Erde.; inactive:false; child:trowel; weight:2");

    terminology = loaded(&["SnomedCT_GardenInternationalRF2_20250101T120000Z", "Loinc_0.1", "claml-garden"]);
    for (query, expected) in [
        ("system=http://snomed.info/sct&code=700101006", "Something that grows where a gardener put it."),
        ("system=http://snomed.info/sct&code=700112006", ""),
        ("system=http://loinc.org&code=90001-1", "How deep the water of a pond is."),
        ("system=http://loinc.org&code=90002-9", ""),
        ("system=http://hl7.org/fhir/sid/icd-10&code=G01", "A pond that loses its water."),
    ] {
        assert_eq!(lookup(&terminology, query, &["definition"]), expected, "{query}");
    }
}

#[test]
fn the_state_of_a_day_is_that_of_the_version_that_was_there() {
    let version = |version: &str, date: Option<&str>, display: &str| {
        json!({ "resourceType": "CodeSystem", "url": "urn:tools", "version": version, "date": date, "status": "active",
            "content": "complete", "concept": [{ "code": "spade", "display": display }] })
    };
    let terminology = of(&[
        version("1", Some("2020-05-01"), "Old spade"),
        version("2", Some("2024-05-01T10:00:00Z"), "Spade"),
    ]);
    for (query, expected) in [
        ("", "2; Spade"),
        ("date=2026-01-01", "2; Spade"),
        ("date=2024-05-01", "2; Spade"),
        ("date=2024-04-30T23:59:59Z", "1; Old spade"),
        ("date=2021", "1; Old spade"),
        ("date=2020-05", "1; Old spade"),
        // The version that is named is meant, whatever the day.
        ("date=2021&version=2", "2; Spade"),
        (
            "date=2019-12-31",
            "NotOnDay(not-found): CodeSystem 'urn:tools' was not there on 2019-12-31; its versions here are later: 1, 2",
        ),
        ("date=soon", "Malformed(invalid): parameter 'date': 'soon' is no date, such as 2026-11-21"),
        (
            "date=soon&version=2",
            "Malformed(invalid): parameter 'date': 'soon' is no date, such as 2026-11-21",
        ),
    ] {
        let said =
            lookup(&terminology, &format!("system=urn:tools&code=spade&{query}"), &["version", "display"]);
        assert_eq!(said, expected, "{query}");
    }
    // What has no date, and what is built in, was there at all times.
    let terminology = of(&[version("1", None, "Spade")]);
    assert_eq!(lookup(&terminology, "system=urn:tools&code=spade&date=1999", &["display"]), "Spade");
    let query = "system=urn:iso:std:iso:4217&code=EUR&date=2001";
    assert_eq!(lookup(&terminology, query, &["code"]), "EUR");
    // A release of SNOMED CT is dated by its version.
    let terminology = loaded(&[
        "SnomedCT_GardenInternationalRF2_20250101T120000Z",
        "SnomedCT_GardenEditionRF2_20250301T120000Z",
    ]);
    let query = "system=http://snomed.info/sct&code=700112006&date=2025-02-01";
    assert_eq!(lookup(&terminology, query, &["display"]), "Water lily");
    let said = lookup(&terminology, &query.replace("2025", "2024"), &["display"]);
    assert!(said.starts_with("NotOnDay(not-found): "), "{said}");
}
