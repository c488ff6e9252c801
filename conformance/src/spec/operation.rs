//! The short form of terminology operations: `op`, `in` and `out` stand for a request and its expectation.
//!
//! ```toml
//! op = "CodeSystem/$subsumes"
//! with = ["kinds@1.0.0"]
//! in = { system = "https://rows.example/kinds", codeA = "a", codeB = "b" }
//! out = { outcome = "subsumes" }
//! ```
//!
//! The request is a POST of Parameters, or a GET with a query if `by = "GET"`. A value has the type that the
//! operation defines for its parameter. A table whose key begins with `value` is sent unchanged, so that a
//! row can send a wrong type. `with` names resources that are sent as `tx-resource`. `out` expects status 200
//! and parameters by name, or members of the ValueSet that `$expand` returns.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Map, Value, json};

use super::expectation::{Expectation, ExpectedStatus};
use super::request::{Body, Request};
use super::resources;

/// Types of parameters by name, for values whose JSON type does not determine the FHIR type.
const PARAMETER_TYPES: &[(&str, &[&str])] = &[
    ("valueUri", &["url", "system", "context", "source", "target", "targetsystem"]),
    ("valueCode", &["code", "codeA", "codeB", "displayLanguage", "property", "outcome", "normalized-code"]),
    (
        "valueString",
        &[
            "filter",
            "version",
            "systemVersion",
            "valueSetVersion",
            "display",
            "designation",
            "name",
            "message",
            "definition",
        ],
    ),
    ("valueId", &["cache-id"]),
    ("valueUuid", &["uuid"]),
    ("valueDateTime", &["date"]),
    (
        "valueCanonical",
        &[
            "useSupplement",
            "system-version",
            "check-system-version",
            "force-system-version",
            "exclude-system",
            "default-valueset-version",
            "x-caused-by-unknown-system",
        ],
    ),
    ("valueCoding", &["coding", "codingA", "codingB", "sourceCoding", "targetCoding"]),
    ("valueCodeableConcept", &["codeableConcept"]),
];

/// The short form of an operation as in the tables.
#[derive(Debug, Default)]
pub(super) struct Operation {
    pub op: String,
    pub by: Option<String>,
    pub with: Vec<String>,
    pub input: Map<String, Value>,
    pub bearer: Option<String>,
}

impl Operation {
    pub fn into_request(self) -> Result<Request, String> {
        let to = format!("fhir/{}", self.op);
        let bearer = self.bearer.filter(|token| !token.is_empty());
        let (method, query, body) = match self.by.as_deref() {
            None | Some("POST") => {
                let parameters = parameters(&self.with, self.input)?;
                (Method::POST, BTreeMap::new(), Body::Json(parameters))
            }
            Some("GET") if !self.with.is_empty() => return Err("a GET cannot send resources".to_owned()),
            Some("GET") => {
                let query = self.input.into_iter().map(|(name, value)| Ok((name, query_text(value)?)));
                (Method::GET, query.collect::<Result<_, String>>()?, Body::Empty)
            }
            Some(other) => return Err(format!("'by' must be GET or POST, not '{other}'")),
        };
        Ok(Request {
            method,
            to,
            query,
            headers: BTreeMap::new(),
            bearer,
            dpop: None,
            body,
            content_type: None,
            poll: None,
            exact: false,
            times: 1,
            each: None,
        })
    }
}

/// Adds the expected output of an operation to an expectation. No standard states the texts of messages, so
/// these are rules of Trefoil.
pub(super) fn add_output(
    op: &str,
    mut out: Map<String, Value>,
    expectation: &mut Expectation,
    house: &mut Option<Expectation>,
) -> Result<(), String> {
    expectation.status.get_or_insert(ExpectedStatus::Is(200));
    expectation.content_type.get_or_insert_with(|| "application/fhir+json".to_owned());
    if op.ends_with("$expand") {
        let mut members = out;
        members.insert("resourceType".to_owned(), "ValueSet".into());
        expectation.json = Some(Value::Object(members));
    } else {
        if let Some(message) = out.shift_remove("message") {
            let message = typed("message", message)?;
            let parameters = &mut house.get_or_insert_default().parameters;
            parameters.get_or_insert_default().insert("message".to_owned(), message);
        }
        let typed = out.into_iter().map(|(name, value)| Ok((name.clone(), typed(&name, value)?)));
        expectation.parameters = Some(typed.collect::<Result<_, String>>()?);
    }
    Ok(())
}

fn query_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        other => Err(format!("a GET cannot send {other}")),
    }
}

/// A Parameters resource with the resources `with` and the parameters `input`.
fn parameters(with: &[String], input: Map<String, Value>) -> Result<Value, String> {
    let mut list = Vec::new();
    for name in with {
        list.push(json!({ "name": "tx-resource", "resource": resources::named(name)? }));
    }
    for (name, value) in input {
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            let mut parameter = match (name.as_str(), value) {
                ("valueSet" | "codeSystem" | "conceptMap", Value::String(resource)) => {
                    json!({ "resource": resources::named(&resource)? })
                }
                // An item of a batch is a Parameters resource.
                ("validation", Value::Object(input)) => json!({ "resource": parameters(&[], input)? }),
                (name, value) => typed(name, value)?,
            };
            parameter["name"] = name.as_str().into();
            list.push(parameter);
        }
    }
    Ok(json!({ "resourceType": "Parameters", "parameter": list }))
}

/// Returns whether this is a member of a parameter besides its name.
fn is_parameter_member(key: &str) -> bool {
    key.starts_with("value") || matches!(key, "resource" | "part")
}

/// A value as a member whose name contains the type: `{ "valueCode": "a" }`.
fn typed(name: &str, value: Value) -> Result<Value, String> {
    let of_name = || {
        let row = PARAMETER_TYPES.iter().find(|(_, names)| names.contains(&name)).map(|(member, _)| *member);
        row.ok_or_else(|| {
            format!("the type of '{name}' is not known; write it as a table such as {{ valueString = … }}")
        })
    };
    let member = match &value {
        Value::Bool(_) => "valueBoolean",
        Value::Number(_) => "valueInteger",
        // A parameter that the output must not contain.
        Value::String(text) if text == "$absent" => return Ok(value),
        Value::Object(members) if members.keys().all(|key| is_parameter_member(key)) => {
            return Ok(value);
        }
        _ => of_name()?,
    };
    Ok(json!({ member: value }))
}
