//! `CodeSystem/$lookup`: definitions, and the version that `date` selects. Other parameters are tested in `expand`.

use fhir::Parameters;
use serde_json::{Value, json};
use trefoil_terminology::{OperationInput, Terminology, TerminologyChange};

use crate::support::short;

/// Returns a terminology of these resources.
fn of(resources: &[Value]) -> Terminology {
    let terminology = Terminology::default();
    terminology.apply(resources.iter().enumerate().map(|(number, resource)| TerminologyChange::Put {
        kind: "CodeSystem",
        id: format!("system-{number}"),
        bytes: resource.to_string().into(),
    }));
    terminology
}

/// Runs `$lookup` by GET and returns the parameters with these names.
fn lookup(terminology: &Terminology, query: &str, names: &[&str]) -> String {
    let query = Parameters::from_query(query);
    let answer = match terminology.lookup(OperationInput::from_query(&query)) {
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

/// Returns the value of a parameter.
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
fn lookup_returns_the_definition() {
    let usage = "http://terminology.hl7.org/CodeSystem/designation-usage";
    let terminology = of(&[
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
        let actual = lookup(&terminology, &format!("system=urn:tools&{query}"), &["definition"]);
        assert_eq!(actual, expected, "{query}");
    }
    // The definition is not a property as well, and its translation is a designation with that use.
    let actual = lookup(&terminology, "system=urn:tools&code=spade", &["designation", "property"]);
    assert_eq!(actual, "de:definition:Bewegt Erde.; inactive:false; child:trowel; weight:2");
}

#[test]
fn the_day_selects_the_version() {
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
        // A version in the request takes precedence over the day.
        ("date=2021&version=2", "2; Spade"),
        (
            "date=2019-12-31",
            "NotOnDay(not-found): CodeSystem 'urn:tools' has no version of 2019-12-31 or earlier; its stored versions are: 1, 2",
        ),
        ("date=soon", "Malformed(invalid): parameter 'date': 'soon' is not a date, such as 2026-11-21"),
        (
            "date=soon&version=2",
            "Malformed(invalid): parameter 'date': 'soon' is not a date, such as 2026-11-21",
        ),
    ] {
        let actual =
            lookup(&terminology, &format!("system=urn:tools&code=spade&{query}"), &["version", "display"]);
        assert_eq!(actual, expected, "{query}");
    }
    // A resource without a date and a built-in code system exist on every day.
    let terminology = of(&[version("1", None, "Spade")]);
    assert_eq!(lookup(&terminology, "system=urn:tools&code=spade&date=1999", &["display"]), "Spade");
    let query = "system=urn:iso:std:iso:4217&code=EUR&date=2001";
    assert_eq!(lookup(&terminology, query, &["code"]), "EUR");
}
