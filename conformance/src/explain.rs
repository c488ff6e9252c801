//! Texts that describe requirements and cases.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::spec::case::{Case, Step};
use crate::spec::expectation::Expectation;
use crate::spec::request::Body;
use crate::spec::requirement::Requirement;
use crate::spec::{Specification, resources};

/// The description of a requirement or a case with this id, or of all requirements of a section; `None` if no
/// id equals the text and no section begins with it.
pub fn explanation(spec: &Specification, id: &str) -> Option<String> {
    if let Some(case) = spec.cases.iter().find(|case| case.id == id) {
        let covered = spec.requirements.iter().filter(|requirement| case.covers.contains(&requirement.id));
        let texts: Vec<_> = covered.map(requirement_text).collect();
        return Some(format!("{}\n{}", texts.join(""), case_text(case)));
    }
    let is_named = |requirement: &&Requirement| {
        requirement.id == id || requirement.id.strip_prefix(id).is_some_and(|rest| rest.starts_with('/'))
    };
    let mut text = String::new();
    for requirement in spec.requirements.iter().filter(is_named) {
        text.push_str(&requirement_text(requirement));
        for case in spec.cases.iter().filter(|case| case.covers.contains(&requirement.id)) {
            let _ = writeln!(text, "  case {}  {}", case.id, case.place);
        }
    }
    (!text.is_empty()).then_some(text)
}

fn requirement_text(requirement: &Requirement) -> String {
    let kind = if requirement.standard.is_some() { "standard" } else { "house rule" };
    let (level, source) = (requirement.level.keyword(), requirement.source());
    format!("{}  {level}\n  {}\n  {kind}: {source}\n", requirement.id, requirement.gist)
}

/// The row as it is in the table, followed by the requests that it sends.
fn case_text(case: &Case) -> String {
    let mut text = format!("{}\n", case.place);
    for line in case.row.lines() {
        let _ = writeln!(text, "  {line}");
    }
    for (number, step) in (1..).zip(&case.steps) {
        text.push_str(&step_text(number, step));
    }
    text
}

fn step_text(number: usize, step: &Step) -> String {
    let request = &step.request;
    let mut text = format!("\n{number}. {} {}\n", request.method, request.to);
    for (name, value) in &request.query {
        let _ = writeln!(text, "   ?{name}={value}");
    }
    for (name, values) in &request.headers {
        for value in values.as_slice() {
            let _ = writeln!(text, "   {name}: {value}");
        }
    }
    if let Some(token) = &request.bearer {
        let _ = writeln!(text, "   authorization: Bearer {token}");
    }
    let body = match &request.body {
        Body::Empty => None,
        Body::Form(form) => Some(json!(form)),
        Body::Json(json) => Some(json.clone()),
        Body::Resource(name) => resources::named(name).ok().cloned(),
        Body::Text(text) => Some(text.as_str().into()),
    };
    if let Some(body) = body {
        for line in format!("{body:#}").lines() {
            let _ = writeln!(text, "   {line}");
        }
    }
    text.push_str(&expectation_text(&step.expect));
    text
}

/// The members of an expectation that the row states or implies, as JSON.
fn expectation_text(expect: &Expectation) -> String {
    let is_stated = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    };
    let mut members = json!(expect);
    if let Value::Object(members) = &mut members {
        members.retain(|_, value| is_stated(value));
    }
    format!("expects {members:#}").lines().fold(String::new(), |text, line| text + "   " + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_shown_with_their_place_and_what_they_send() {
        let spec = Specification::load().unwrap();
        let text = explanation(&spec, "design/subsumes/by-version/exact").unwrap();
        assert!(text.contains("specs/subsumes.toml:"), "{text}");
        assert!(text.contains("1. POST fhir/CodeSystem/$subsumes"), "{text}");
        assert!(text.contains("\"name\": \"codeA\""), "{text}");
        assert!(text.contains("\"outcome\": {"), "{text}");
        assert!(explanation(&spec, "design/subsumes").unwrap().contains("design/subsumes/by-version  MUST"));
        assert_eq!(explanation(&spec, "design/subs"), None);
    }
}
