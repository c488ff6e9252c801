//! Conversion between R5, which the suite uses, and R4, which the server implements, and removal of the
//! members of an answer that are not compared.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Prefix of the extensions that represent elements of R5 in R4.
const CROSS_VERSION: &str = "http://hl7.org/fhir/5.0/StructureDefinition/extension-";
/// Extension with the id of a message. It is optional except in the mode of the reference server.
const MESSAGE_ID: &str = "http://hl7.org/fhir/StructureDefinition/operationoutcome-message-id";
/// Extensions that a server must support, according to the suite. Other extensions are additional
/// information.
const HANDLED: [&str; 13] = [
    "codesystem-alternate",
    "codesystem-conceptOrder",
    "codesystem-label",
    "coding-sctdescid",
    "itemWeight",
    "rendering-style",
    "rendering-xhtml",
    "valueset-concept-definition",
    "valueset-conceptOrder",
    "valueset-deprecated",
    "valueset-label",
    "valueset-supplement",
    "translation",
];

/// Converts an R5 resource to R4, as far as the suite needs it.
pub fn from_r5(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(from_r5).collect(),
        Value::Object(members) => {
            // A member name with a colon is from a draft of multi-language JSON, which R4 does not have.
            let members = members.iter().filter(|(name, _)| !name.contains(':'));
            let mut out: Map<_, _> = members.map(|(name, value)| (name.clone(), from_r5(value))).collect();
            match out.get("resourceType").and_then(Value::as_str).map(str::to_owned).as_deref() {
                Some("CodeSystem") => canonical_resource(&mut out, "CodeSystem"),
                Some("ValueSet") => {
                    canonical_resource(&mut out, "ValueSet");
                    value_set(&mut out);
                }
                Some("ConceptMap") => {
                    canonical_resource(&mut out, "ConceptMap");
                    concept_map(&mut out);
                }
                _ => {}
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

fn canonical_resource(resource: &mut Map<String, Value>, kind: &str) {
    for form in ["Coding", "String"] {
        if let Some(value) = resource.remove(&format!("versionAlgorithm{form}")) {
            let url = format!("{CROSS_VERSION}{kind}.versionAlgorithm");
            push(resource, "extension", json!({ "url": url, format!("value{form}"): value }));
        }
    }
    resource.remove("copyrightLabel");
}

fn value_set(resource: &mut Map<String, Value>) {
    resource.remove("scope");
    let Some(expansion) = resource.get_mut("expansion").and_then(Value::as_object_mut) else { return };
    expansion.remove("next");
    let Some(Value::Array(properties)) = expansion.remove("property") else { return };
    for property in properties {
        let part = |(name, value): (&String, &Value)| match name.as_str() {
            "uri" => Some(json!({ "url": "uri", "valueUri": value })),
            "code" => Some(json!({ "url": "code", "valueCode": value })),
            _ => None,
        };
        let parts: Vec<_> = property.as_object().into_iter().flatten().filter_map(part).collect();
        let url = format!("{CROSS_VERSION}ValueSet.expansion.property");
        push(expansion, "extension", json!({ "url": url, "extension": parts }));
    }
}

fn concept_map(resource: &mut Map<String, Value>) {
    for (new, old) in [("source", "sourceScope"), ("target", "targetScope")] {
        for form in ["Uri", "Canonical"] {
            if let Some(value) = resource.remove(&format!("{old}{form}")) {
                resource.insert(format!("{new}{form}"), value);
            }
        }
    }
    for group in each(resource, "group") {
        for element in each(group, "element") {
            for target in each(element, "target") {
                if let Some(Value::String(relationship)) = target.remove("relationship") {
                    let equivalence = match relationship.as_str() {
                        "related-to" => "relatedto",
                        // R4 describes the target in relation to the source, and R5 the source in relation to
                        // the target.
                        "source-is-narrower-than-target" => "wider",
                        "source-is-broader-than-target" => "narrower",
                        "not-related-to" => "unmatched",
                        other => other,
                    };
                    target.insert("equivalence".to_owned(), equivalence.into());
                }
            }
        }
        let Some(unmapped) = group.get_mut("unmapped").and_then(Value::as_object_mut) else { continue };
        unmapped.remove("relationship");
        if unmapped.get("mode").is_some_and(|mode| mode == "use-source-code") {
            unmapped.insert("mode".to_owned(), "provided".into());
        }
        if let Some(other) = unmapped.remove("otherMap") {
            unmapped.insert("url".to_owned(), other);
        }
    }
}

/// The objects in a member that is an array.
fn each<'m>(
    object: &'m mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'m mut Map<String, Value>> {
    let items = object.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn push(object: &mut Map<String, Value>, name: &str, item: Value) {
    let list = object.entry(name.to_owned()).or_insert_with(|| json!([]));
    if let Value::Array(list) = list {
        list.push(item);
    }
}

/// Converts the cross-version extensions of an R4 answer to the R5 elements that are expected.
pub fn to_r5(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(to_r5),
        Value::Object(members) => {
            members.values_mut().for_each(to_r5);
            let Some(Value::Array(extensions)) = members.remove("extension") else { return };
            let mut items = Vec::new();
            for extension in extensions {
                match element(&extension) {
                    Some((name, element)) => push(members, name, element),
                    None => items.push(extension),
                }
            }
            if !items.is_empty() {
                members.insert("extension".to_owned(), Value::Array(items));
            }
        }
        _ => {}
    }
}

/// The name and value of the R5 element that an extension represents.
fn element(extension: &Value) -> Option<(&'static str, Value)> {
    let url = extension.get("url")?.as_str()?.strip_prefix(CROSS_VERSION)?;
    let name = match url {
        "ValueSet.expansion.property" | "ValueSet.expansion.contains.property" => "property",
        "ValueSet.expansion.contains.property.subProperty" => "subProperty",
        _ => return None,
    };
    let mut out = Map::new();
    for part in extension.get("extension").and_then(Value::as_array).into_iter().flatten() {
        let member = part.get("url").and_then(Value::as_str).unwrap_or_default();
        let values = part.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("value"));
        for (typed, value) in values {
            let member = if member == "value" { typed } else { member };
            out.insert(member.to_owned(), value.clone());
        }
    }
    Some((name, Value::Object(out)))
}

/// Prepares an expectation: removes members that are never compared.
pub fn expectation(value: &Value, modes: &BTreeSet<String>) -> Value {
    let with_message_ids = modes.contains("tx.fhir.org");
    match value {
        Value::Array(items) => items.iter().map(|item| expectation(item, modes)).collect(),
        Value::Object(members) => {
            let is_resource = members.contains_key("resourceType");
            let mut out = Map::new();
            for (name, value) in members {
                if name == "diagnostics" || (is_resource && (name == "text" || name == "meta")) {
                    continue;
                }
                let mut value = expectation(value, modes);
                if let (Value::Array(list), "extension", false) =
                    (&mut value, name.as_str(), with_message_ids)
                {
                    list.retain(|extension| extension.get("url").is_none_or(|url| url != MESSAGE_ID));
                    if list.is_empty() {
                        continue;
                    }
                }
                out.insert(name.clone(), value);
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

/// Prepares an answer for comparison: removes narrative, `meta`, diagnostics, ids of Parameters and
/// OperationOutcomes, unexpected extensions, and members that become empty.
pub fn answer(value: &Value, expected: &Value, modes: &BTreeSet<String>) -> Value {
    let mut urls = BTreeSet::new();
    extension_urls(expected, &mut urls);
    urls.extend(HANDLED.iter().map(|name| format!("http://hl7.org/fhir/StructureDefinition/{name}")));
    if !modes.contains("tx.fhir.org") {
        urls.remove(MESSAGE_ID);
    }
    let mut value = value.clone();
    to_r5(&mut value);
    scrub(&value, &urls)
}

fn extension_urls(value: &Value, all_urls: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| extension_urls(item, all_urls)),
        Value::Object(members) => {
            let extensions = members.get("extension").and_then(Value::as_array);
            let urls =
                extensions.into_iter().flatten().filter_map(|extension| extension.get("url")?.as_str());
            all_urls.extend(urls.map(str::to_owned));
            members.values().for_each(|value| extension_urls(value, all_urls));
        }
        _ => {}
    }
}

fn scrub(value: &Value, urls: &BTreeSet<String>) -> Value {
    let members = match value {
        Value::Array(items) => return items.iter().map(|item| scrub(item, urls)).collect(),
        Value::Object(members) => members,
        other => return other.clone(),
    };
    let kind = members.get("resourceType").and_then(Value::as_str).filter(|kind| !kind.is_empty());
    let passes = |name: &str| match kind {
        _ if name == "diagnostics" => false,
        Some(_) if matches!(name, "text" | "meta" | "implicitRules") => false,
        Some("Parameters" | "OperationOutcome" | "Bundle") => !matches!(name, "id" | "language"),
        _ => true,
    };
    let is_wanted = |extension: &Value| {
        let url = extension.get("url").and_then(Value::as_str).unwrap_or_default();
        !extension.is_object() || !url.contains("://") || urls.contains(url)
    };
    let mut out = Map::new();
    for (name, value) in members.iter().filter(|(name, _)| passes(name)) {
        let value = match value {
            Value::Array(list) if name == "extension" || name == "modifierExtension" => {
                list.iter().filter(|extension| is_wanted(extension)).map(|e| scrub(e, urls)).collect()
            }
            value => scrub(value, urls),
        };
        let is_empty = match &value {
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        if !is_empty {
            out.insert(name.clone(), value);
        }
    }
    if kind == Some("OperationOutcome")
        && let Some(Value::Array(issues)) = out.get_mut("issue")
    {
        // An issue without any other content than severity and code is not compared, unless it is the only
        // issue.
        let says_more = |issue: &Value| {
            issue
                .as_object()
                .is_none_or(|issue| issue.keys().any(|name| name != "severity" && name != "code"))
        };
        if issues.iter().any(says_more) {
            issues.retain(says_more);
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_is_converted_to_r4() {
        let r5 = json!({ "resourceType": "Parameters", "parameter": [{ "name": "tx-resource", "resource": {
            "resourceType": "ValueSet", "versionAlgorithmCoding": { "code": "semver" }, "title:de": "Titel",
            "copyrightLabel": "x", "scope": {},
            "expansion": { "next": "x", "property": [{ "code": "a", "uri": "urn:a", "other": 1 }] },
        } }] });
        assert_eq!(
            from_r5(&r5)["parameter"][0]["resource"],
            json!({
                "resourceType": "ValueSet",
                "extension": [{
                    "url": "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.versionAlgorithm",
                    "valueCoding": { "code": "semver" },
                }],
                "expansion": { "extension": [{
                    "url": "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property",
                    "extension": [{ "url": "code", "valueCode": "a" }, { "url": "uri", "valueUri": "urn:a" }],
                }] },
            })
        );
        let map = json!({ "resourceType": "ConceptMap", "sourceScopeUri": "urn:s", "group": [{
            "element": [{ "target": [{ "relationship": "source-is-narrower-than-target" }] }],
            "unmapped": { "mode": "use-source-code", "relationship": "x", "otherMap": "urn:o" },
        }] });
        assert_eq!(
            from_r5(&map),
            json!({ "resourceType": "ConceptMap", "sourceUri": "urn:s", "group": [{
                "element": [{ "target": [{ "equivalence": "wider" }] }],
                "unmapped": { "mode": "provided", "url": "urn:o" },
            }] })
        );
    }

    #[test]
    fn extensions_of_r4_are_converted_to_elements() {
        let extension = |name: &str, parts: Value| json!({ "url": format!("{CROSS_VERSION}ValueSet.expansion.{name}"), "extension": parts });
        let mut response = json!({ "expansion": {
            "extension": [extension("property", json!([{ "url": "code", "valueCode": "a" }])), { "url": "urn:x" }],
            "contains": [{ "extension": [extension("contains.property",
                json!([{ "url": "code", "valueCode": "a" }, { "url": "value", "valueInteger": 7 }]))] }],
        } });
        to_r5(&mut response);
        assert_eq!(
            response,
            json!({ "expansion": {
                "extension": [{ "url": "urn:x" }],
                "property": [{ "code": "a" }],
                "contains": [{ "property": [{ "code": "a", "valueInteger": 7 }] }],
            } })
        );
    }

    #[test]
    fn members_that_are_not_compared_are_removed() {
        let modes = BTreeSet::from(["general".to_owned()]);
        let expected = expectation(
            &json!({ "resourceType": "OperationOutcome", "text": {}, "issue": [{
                "severity": "error", "diagnostics": "x",
                "extension": [{ "url": MESSAGE_ID, "valueString": "X" }],
            }, { "extension": [{ "url": "http://x/wanted" }] }] }),
            &modes,
        );
        assert_eq!(
            expected,
            json!({ "resourceType": "OperationOutcome", "issue": [
                { "severity": "error" }, { "extension": [{ "url": "http://x/wanted" }] }] })
        );
        let got = json!({ "resourceType": "OperationOutcome", "id": "1", "meta": {}, "text": {}, "issue": [
            { "severity": "error", "code": "x", "diagnostics": "y", "extension": [{ "url": "http://x/other" }] },
            { "severity": "error", "details": { "text": "t", "coding": [] },
              "extension": [{ "url": "http://x/wanted" }, { "url": MESSAGE_ID }] },
        ] });
        assert_eq!(
            answer(&got, &expected, &modes),
            json!({ "resourceType": "OperationOutcome", "issue": [
                { "severity": "error", "details": { "text": "t" }, "extension": [{ "url": "http://x/wanted" }] }] })
        );
        let alone =
            json!({ "resourceType": "OperationOutcome", "issue": [{ "severity": "error", "code": "x" }] });
        assert_eq!(answer(&alone, &expected, &modes), alone, "the only issue stays");
    }
}
