//! Our rows about `CodeSystem/$subsumes` in the layout of HL7's terminology ecosystem suite, which has no
//! tests of this operation. They can be run with HL7's runner, or with the command `tx`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use http::Method;
use serde_json::{Value, json};

use crate::spec::Specification;
use crate::spec::case::Step;
use crate::spec::expectation::{Expectation, ExpectedStatus};
use crate::spec::request::Body;

const OPERATION: &str = "fhir/CodeSystem/$subsumes";

/// The files of the suite by path: `test-cases.json`, and for each test a request and a response.
pub fn files(spec: &Specification) -> BTreeMap<String, Value> {
    let mut files = BTreeMap::from([(
        "parameters-default.json".to_owned(),
        json!({ "resourceType": "Parameters", "parameter": [] }),
    )]);
    let mut suites: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for case in &spec.cases {
        let gists: Vec<&str> =
            spec.requirements_of(case).map(|requirement| requirement.gist.as_str()).collect();
        for (number, step) in (1..).zip(&case.steps) {
            let Some((request, response, class)) = exchange(step) else { continue };
            let (suite, mut name) = names(&case.id);
            if case.steps.len() > 1 {
                name = format!("{name}-{number}");
            }
            let path = |kind: &str| format!("{suite}/{name}-{kind}.json");
            let mut test = json!({
                "name": name, "description": gists.join(" "), "operation": "subsumes",
                "request": path("request"), "response": path("response"),
            });
            if class != "2xx" {
                test["http-code"] = class.into();
            }
            files.extend([(path("request"), request), (path("response"), response)]);
            suites.entry(suite).or_default().push(test);
        }
    }
    let suites: Vec<_> = suites
        .into_iter()
        .map(|(name, tests)| json!({ "name": name, "mode": "general", "setup": [], "tests": tests }))
        .collect();
    files.insert("test-cases.json".to_owned(), json!({ "suites": suites }));
    files
}

/// Writes the files below a folder.
///
/// # Errors
/// An error if a file cannot be written.
pub fn write(spec: &Specification, folder: &Path) -> Result<usize> {
    let files = files(spec);
    for (name, content) in &files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("failed to create {}", parent.display()))?;
        }
        std::fs::write(&path, format!("{content:#}\n"))
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(files.len())
}

/// The suite and the name of a test, from the id of its case: `design/subsumes/by-version/exact`.
fn names(id: &str) -> (String, String) {
    let parts: Vec<&str> = id.split('/').collect();
    let (name, before) = parts.split_last().expect("an id has several parts");
    (format!("subsumes-{}", before.last().copied().unwrap_or_default()), (*name).to_owned())
}

/// The request, the expected response and its class of status, if a step is a POST with resources of its own.
fn exchange(step: &Step) -> Option<(Value, Value, String)> {
    let Step { request, expect, house, .. } = step;
    let is_published = request.to == OPERATION && request.method == Method::POST && request.sends_resources();
    let Body::Json(body) = &request.body else { return None };
    // A row that refers to a stored code system or to variables cannot be sent to another server.
    let text = body.to_string();
    if !is_published || text.contains("trefoil.example") || text.contains("\"$") {
        return None;
    }
    // For an error, the code and the status are those of Trefoil.
    let (response, class) = response(expect).or_else(|| response(house.as_ref()?))?;
    Some((body.clone(), response, class))
}

/// The response in the language of HL7's suite. Texts of errors are the server's own.
fn response(expect: &Expectation) -> Option<(Value, String)> {
    if let Some(parameters) = &expect.parameters {
        let outcome = parameters.get("outcome")?["valueCode"].clone();
        let parameter = json!([{ "name": "outcome", "valueCode": outcome }]);
        return Some((json!({ "resourceType": "Parameters", "parameter": parameter }), "2xx".to_owned()));
    }
    let class = match expect.status.as_ref()? {
        ExpectedStatus::Is(status) => format!("{}xx", status / 100),
        ExpectedStatus::OneOf(_) => return None,
        ExpectedStatus::Class(class) => class.clone(),
    };
    let code = expect.json.as_ref()?.pointer("/issue/$some/code")?.clone();
    let issue = json!({
        "severity": "error", "code": code, "details": { "$optional-properties$": ["text", "coding"], "text": "$string$" },
        "$optional-properties$": ["details", "location", "expression"],
    });
    Some((json!({ "resourceType": "OperationOutcome", "issue": [issue] }), class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_published() {
        let files = files(&Specification::load().unwrap());
        let cases = files["test-cases.json"].to_string();
        let count = cases.matches("\"operation\":\"subsumes\"").count();
        assert!(count > 60, "{count}");
        assert_eq!(files.len(), 2 + 2 * count);
        assert!(!cases.contains("$contains"));
    }
}
