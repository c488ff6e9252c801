//! Facts about one resource of an export: a summary for a list, its references, and its codes.

use serde::Deserialize;
use serde_json::Value;

use super::bindings::{Binding, bindings};
use crate::json_path::Selector;

pub fn id(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Id {
        id: Option<String>,
    }
    serde_json::from_slice::<Id>(line).ok()?.id
}

/// A line of a list of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Id of the resource; empty if the line is not a resource.
    pub id: String,
    /// Date, status and subject of the resource, the values that a JSONPath selects, or the reason why the
    /// line is not JSON.
    pub text: String,
}

/// The summary of a line. A JSONPath selects its text.
pub fn summary(line: &[u8], selector: Option<&Selector>) -> Summary {
    if line.len() >= MAX_LINE {
        return Summary { id: String::new(), text: format!("longer than {} MiB", MAX_LINE >> 20) };
    }
    let json: Value = match serde_json::from_slice(line) {
        Ok(json) => json,
        Err(error) => return Summary { id: String::new(), text: format!("Error: not JSON: {error}") },
    };
    let id = json["id"].as_str().unwrap_or_default().to_owned();
    if let Some(selector) = selector {
        return Summary { id, text: selector.short_text(&String::from_utf8_lossy(line)) };
    }
    let parts = [date(&json), json["status"].as_str().map(str::to_owned), subject(&json)];
    Summary { id, text: parts.into_iter().flatten().collect::<Vec<_>>().join("  ") }
}

/// The main date of a resource.
fn date(json: &Value) -> Option<String> {
    let names = [
        "effectiveDateTime",
        "recordedDate",
        "onsetDateTime",
        "occurrenceDateTime",
        "authoredOn",
        "issued",
        "date",
        "birthDate",
        "performedDateTime",
        "created",
        "recorded",
    ];
    let text = names.iter().find_map(|name| json[*name].as_str());
    let text = text
        .or_else(|| json["period"]["start"].as_str())
        .or_else(|| json["performedPeriod"]["start"].as_str());
    text.map(|date| date.chars().take(10).collect())
}

/// A text about the subject of a resource: a code, or a name.
fn subject(json: &Value) -> Option<String> {
    let concept = |value: &Value| {
        let text = value["text"].as_str();
        text.or_else(|| value["coding"][0]["display"].as_str())
            .or_else(|| value["coding"][0]["code"].as_str())
            .map(str::to_owned)
    };
    let names = ["code", "medicationCodeableConcept", "vaccineCode", "type", "category", "class"];
    let coded = names.iter().find_map(|name| match &json[*name] {
        Value::Array(all) => all.first().and_then(concept),
        one => concept(one).or_else(|| one["code"].as_str().map(str::to_owned)),
    });
    coded.or_else(|| name(&json["name"]))
}

/// A name: a text, or the first HumanName.
fn name(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let first = value.get(0)?;
    if let Some(text) = first["text"].as_str() {
        return Some(text.to_owned());
    }
    let given_names = first["given"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let parts: Vec<_> = given_names.chain(first["family"].as_str()).collect();
    Some(parts.join(" "))
}

/// The relative references in a resource, such as `Patient/p1`, without repetitions.
pub fn references(json: &Value) -> Vec<String> {
    fn collect(json: &Value, out: &mut Vec<String>) {
        match json {
            Value::Object(members) => {
                for (name, value) in members {
                    match value {
                        Value::String(text) if name == "reference" => {
                            let is_listed = out.iter().any(|is_listed| is_listed == text);
                            if !is_listed && split_reference(text).is_some() {
                                out.push(text.clone());
                            }
                        }
                        other => collect(other, out),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
            _ => {}
        }
    }
    let mut out = Vec::new();
    collect(json, &mut out);
    out
}

/// Splits a reference into type and id.
pub fn split_reference(reference: &str) -> Option<(&str, &str)> {
    let (rest, id) = reference.rsplit_once('/')?;
    let kind = rest.rsplit('/').next()?;
    let is_type =
        kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphabetic());
    (is_type && !id.is_empty()).then_some((kind, id))
}

/// A code of a resource that a value set of FHIR restricts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundCode {
    /// Path of the element, such as `Observation.status`.
    pub path: String,
    pub system: String,
    pub code: String,
    /// Canonical URL of the value set.
    pub value_set: &'static str,
}

/// The codes of a resource that [`bindings`] restricts.
pub fn bound_codes(json: &Value) -> Vec<BoundCode> {
    let kind = json["resourceType"].as_str().unwrap_or_default();
    bindings(kind).flat_map(|binding| codes(json, kind, binding)).collect()
}

fn codes(json: &Value, kind: &str, binding: &'static Binding) -> Vec<BoundCode> {
    let bound = |system: &str, code: &str| BoundCode {
        path: format!("{kind}.{}", binding.element),
        system: system.to_owned(),
        code: code.to_owned(),
        value_set: binding.value_set,
    };
    match &json[binding.element] {
        Value::String(code) => vec![bound(binding.system, code)],
        concept => {
            let codings = concept["coding"].as_array().into_iter().flatten();
            codings
                .filter_map(|coding| Some(bound(coding["system"].as_str()?, coding["code"].as_str()?)))
                .collect()
        }
    }
}

/// Maximum number of bytes of a line that are returned. A longer line is cut.
pub const MAX_LINE: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_summarized() {
        #[track_caller]
        fn check(json: Value, expected: &str) {
            assert_eq!(summary(json.to_string().as_bytes(), None).text, expected);
        }
        check(
            json!({ "id": "o1", "status": "final", "effectiveDateTime": "2024-05-01T10:00:00Z",
                "code": { "coding": [{ "code": "8302-2", "display": "Height" }] } }),
            "2024-05-01  final  Height",
        );
        check(
            json!({ "birthDate": "1970-01-01", "name": [{ "given": ["Ada"], "family": "Example" }] }),
            "1970-01-01  Ada Example",
        );
        check(json!({ "name": "A set" }), "A set");
        assert!(summary(b"{", None).text.starts_with("Error: not JSON"));
    }

    #[test]
    fn references_are_collected_once() {
        let json = json!({ "subject": { "reference": "Patient/p1" }, "a": [{ "reference": "Patient/p1" },
            { "reference": "https://t.example/fhir/Encounter/e1" }, { "reference": "#contained" }] });
        assert_eq!(references(&json), ["Patient/p1", "https://t.example/fhir/Encounter/e1"]);
        assert_eq!(split_reference("https://t.example/fhir/Encounter/e1"), Some(("Encounter", "e1")));
        assert_eq!(split_reference("urn:uuid:1"), None);
    }

    #[test]
    fn bound_codes_are_found() {
        let json = json!({ "resourceType": "Condition", "clinicalStatus": { "coding": [
            { "system": "http://terminology.hl7.org/CodeSystem/condition-clinical", "code": "active" },
        ]}});
        let codes = bound_codes(&json);
        assert_eq!(
            (codes.len(), codes[0].path.as_str(), codes[0].code.as_str()),
            (1, "Condition.clinicalStatus", "active")
        );
        let codes = bound_codes(&json!({ "resourceType": "Patient", "gender": "femal" }));
        assert_eq!(
            (codes[0].system.as_str(), codes[0].code.as_str()),
            ("http://hl7.org/fhir/administrative-gender", "femal")
        );
    }
}
