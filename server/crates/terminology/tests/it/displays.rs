//! Which texts of a concept are correct displays, and which are shown. A definition is neither.

use fhir::Parameters;
use serde_json::{Value, json};
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange};

use crate::support::{short, validate_code};

/// Returns a terminology in which a definition of spade is in the code system, in a supplement and in a value set.
fn tools() -> Terminology {
    let usage =
        |code| json!({ "system": "http://terminology.hl7.org/CodeSystem/designation-usage", "code": code });
    let means = |language, value| json!({ "language": language, "value": value, "use": usage("definition") });
    let resources: [(&str, &str, Value); 3] = [
        (
            "CodeSystem",
            "tools",
            json!({ "resourceType": "CodeSystem", "url": "urn:tools", "status": "active", "content": "complete", "language": "en",
                "concept": [
                    { "code": "spade", "display": "Spade", "definition": "Moves earth.", "designation": [
                        means("de", "Bewegt Erde."),
                        { "language": "fr", "value": "Bêche", "use": usage("display") },
                        { "language": "en", "value": "Digger", "use": { "code": "synonym" } },
                        // The same text as another designation.
                        means("en", "Digger") ] },
                    { "code": "rake", "designation": [means("en", "Gathers leaves.")] }] }),
        ),
        (
            "CodeSystem",
            "more",
            json!({ "resourceType": "CodeSystem", "url": "urn:more", "status": "active", "content": "supplement",
                "supplements": "urn:tools", "concept": [{ "code": "spade", "designation": [means("it", "Muove la terra.")] }] }),
        ),
        (
            "ValueSet",
            "set",
            json!({ "resourceType": "ValueSet", "url": "urn:set", "status": "active", "compose": { "include": [{
                "system": "urn:tools", "concept": [
                    { "code": "spade", "designation": [means("es", "Mueve tierra.")] }, { "code": "rake" }] }] } }),
        ),
    ];
    let terminology = Terminology::default();
    terminology.apply(resources.iter().map(|(kind, id, resource)| TerminologyChange::Put {
        kind,
        id: (*id).to_owned(),
        bytes: resource.to_string().into(),
    }));
    terminology
}

#[test]
fn a_definition_is_not_a_display() {
    let tools = tools();
    for (code, more, expected) in [
        ("spade", "display=Spade", "true [Spade]"),
        ("spade", "display=Digger", "true [Spade]"),
        ("spade", "display=Bêche&displayLanguage=fr", "true [Bêche]"),
        ("spade", "display=Moves earth.", "false [Spade] [Wrong Display Name 'Moves earth.'"),
        ("spade", "display=Bewegt Erde.", "false [Spade] [Wrong Display Name 'Bewegt Erde.'"),
        ("spade", "display=Mueve tierra.", "false [Spade] [Wrong Display Name 'Mueve tierra.'"),
        ("spade", "display=Muove la terra.&useSupplement=urn:more", "false [Spade] [Wrong Display Name"),
        // It is not shown either, even if it is the only text in a language.
        ("spade", "displayLanguage=de", "true [Spade]"),
        ("spade", "displayLanguage=es", "true [Spade]"),
        // A concept without a display accepts any.
        ("rake", "", "true"),
        ("rake", "display=Rake", "true"),
        ("rake", "display=Gathers leaves.", "true"),
    ] {
        let answer = validate_code(&tools, "urn:set", "urn:tools", code, &format!("&{more}"));
        assert!(answer.starts_with(expected), "{code} {more}: {answer}");
        assert_eq!(answer.starts_with("true ["), code == "spade" && expected.starts_with("true"), "{answer}");
        let query = Parameters::from_query(&format!("url=urn:tools&code={code}&{more}"));
        let answer =
            short(tools.validate_code_in_system(OperationLevel::Type, OperationInput::from_query(&query)));
        assert!(answer.starts_with(expected), "CodeSystem {code} {more}: {answer}");
    }
}

#[test]
fn lookup_and_expand_return_definitions() {
    let tools = tools();
    let lookup = |query: &str| {
        let query = Parameters::from_query(query);
        serde_json::to_value(tools.lookup(OperationInput::from_query(&query)).unwrap()).unwrap()
    };
    let answer = lookup("system=urn:tools&code=spade&displayLanguage=de");
    let value = |name: &str| {
        let all = answer["parameter"].as_array().unwrap();
        all.iter().find(|parameter| parameter["name"] == name).unwrap()["valueString"].clone()
    };
    assert_eq!((value("display"), value("definition")), (json!("Spade"), json!("Bewegt Erde.")));
    assert!(answer.to_string().contains("\"Bewegt Erde.\""), "{answer}");
    let answer = lookup("system=urn:tools&code=rake").to_string();
    assert!(answer.contains(r#"{"name":"display","valueString":"rake"}"#), "{answer}");

    let query = Parameters::from_query("url=urn:set&includeDesignations=true&displayLanguage=es");
    let set = tools
        .expand(OperationLevel::Type, OperationInput::from_query(&query), "2026-01-01T00:00:00Z")
        .unwrap();
    assert!(set.get().contains("Mueve tierra.") && set.get().contains(r#""display":"Spade""#), "{set}");
}
