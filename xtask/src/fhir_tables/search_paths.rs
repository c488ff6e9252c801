//! Resolves the expression of a search parameter, which is FHIRPath, to paths of JSON members and their data
//! types.
//!
//! The supported subset of FHIRPath is the one that HL7's search parameters use most: unions of paths of
//! elements, casts to a data type, `where(resolve() is Patient)` and `where(system='phone')`. A choice of
//! types is supported only as the last element of a path in a resource. Elements within a choice and choices
//! within data types (`useContext.value`) are not resolved.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

use super::definitions::{ElementDefinition, FhirDefinitions};

/// A cast in one of its two forms, `a.b as T` and `(a.b as T)`.
static CAST: LazyLock<Regex> = LazyLock::new(|| regex(r"^\(([\w.]+) as (\w+)\)|^([\w.]+) as (\w+)$"));
static PARENTHESES: LazyLock<Regex> = LazyLock::new(|| regex(r"^\(([\w.]+(?:\(\w+\))?)\)"));
/// One step of a path: an element, a cast, or one of the supported conditions.
static STEP: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:(?:ofType|as)\((?<cast>\w+)\)|where\(resolve\(\) is (?<target>\w+)\)|where\(system='(?<system>\w+)'\)|(?<element>\w+))$",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

/// A path to values of a search parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPath {
    /// Names of JSON members, separated by dots.
    pub members: String,
    pub data_type: String,
    /// Only this target type of references, or only this system, is searched.
    only: Option<String>,
}

impl fmt::Display for SearchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.members, self.data_type)?;
        self.only.iter().try_for_each(|only| write!(f, "={only}"))
    }
}

/// An element of a path, with the data type that a cast selects.
struct PathStep<'a> {
    element: &'a str,
    cast: Option<&'a str>,
}

/// The paths of an expression that begin with a resource type; `None` if a part of it is not supported.
pub fn resolve(definitions: &FhirDefinitions, base: &str, expression: &str) -> Option<Vec<SearchPath>> {
    let mut paths = Vec::new();
    for alternative in expression.split('|') {
        let path = normalize_casts(alternative.trim());
        let (steps, only) = parse_steps(&path)?;
        let (first, steps) = steps.split_first()?;
        if first.element != base {
            continue;
        }
        let mut resolved = Vec::new();
        ElementResolver { definitions, base, found: &mut resolved }.descend(base, steps, Vec::new());
        for (members, data_type) in resolved {
            let path = SearchPath { members, data_type, only: only.map(str::to_owned) };
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    Some(paths)
}

/// Rewrites `(a as T)` and `a as T` to `a.ofType(T)`, without parentheses around the path.
fn normalize_casts(path: &str) -> String {
    let path = CAST.replace(path, "$1$3.ofType($2$4)");
    PARENTHESES.replace(&path, "$1").into_owned()
}

/// Splits a path into elements, and returns the condition on its values.
fn parse_steps(path: &str) -> Option<(Vec<PathStep<'_>>, Option<&str>)> {
    let (mut steps, mut only) = (Vec::<PathStep<'_>>::new(), None);
    for part in path.split('.') {
        let step = STEP.captures(part)?;
        let text = |name| step.name(name).map(|group| group.as_str());
        if let Some(element) = text("element") {
            steps.push(PathStep { element, cast: None });
        } else if let Some(cast) = text("cast") {
            steps.last_mut()?.cast = Some(cast);
        } else {
            only = text("target").or(text("system"));
        }
    }
    Some((steps, only))
}

/// Resolver of paths, which follows the definitions of elements.
struct ElementResolver<'a> {
    definitions: &'a FhirDefinitions,
    base: &'a str,
    found: &'a mut Vec<(String, String)>,
}

impl ElementResolver<'_> {
    /// Adds the members and data types to which the steps lead, starting from an element.
    fn descend(&mut self, path: &str, steps: &[PathStep<'_>], mut members: Vec<String>) {
        let elements = &self.definitions.elements;
        let Some(element) = elements.get(path) else { return };
        if let Some(other) = &element.content_reference {
            return self.descend(other.trim_start_matches('#'), steps, members);
        }
        let Some((step, rest)) = steps.split_first() else {
            return self.add(element, &members);
        };
        let child = format!("{path}.{}", step.element);
        if let Some(declared) = elements.get(&child) {
            if step.cast.is_none_or(|cast| declared.type_names().any(|name| name == cast)) {
                members.push(step.element.to_owned());
                self.descend(&child, rest, members);
            }
        } else if let Some(choice) = elements.get(&format!("{child}[x]")) {
            let is_of_resource = path.split('.').next() == Some(self.base);
            if is_of_resource && rest.is_empty() {
                self.add_choice(choice, step, &members);
            }
        } else if let Some(data_type) = element.type_names().find(|name| elements.contains_key(*name)) {
            // The elements of a data type are defined in the definition of the type.
            if data_type != path {
                self.descend(data_type, steps, members);
            }
        }
    }

    fn add(&mut self, element: &ElementDefinition, members: &[String]) {
        for name in element.type_names() {
            // The definition of Resource.id says string; the specification says id.
            let name = if element.path == "Resource.id" { "id" } else { comparable_type(name) };
            self.found.push((members.join("."), name.to_owned()));
        }
    }

    /// Adds a choice of types. In JSON, the name of the member ends with the type.
    fn add_choice(&mut self, choice: &ElementDefinition, step: &PathStep<'_>, members: &[String]) {
        for name in choice.type_names().filter(|name| step.cast.is_none_or(|cast| cast == *name)) {
            let (first, rest) = name.split_at(1);
            let member = format!("{}{}{rest}", step.element, first.to_ascii_uppercase());
            let path: Vec<_> = members.iter().map(String::as_str).chain([member.as_str()]).collect();
            self.found.push((path.join("."), comparable_type(name).to_owned()));
        }
    }
}

/// Returns Quantity for its specializations, which are compared in the same way.
fn comparable_type(name: &str) -> &str {
    match name {
        "Age" | "Count" | "Distance" | "Duration" => "Quantity",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definitions() -> FhirDefinitions {
        let element = |path: &str, types: &[&str]| {
            let types: Vec<_> = types.iter().map(|code| serde_json::json!({"code": code})).collect();
            let element = serde_json::from_value(serde_json::json!({"path": path, "type": types}));
            (path.to_owned(), element.unwrap())
        };
        let elements = [
            element("Observation", &[]),
            element("Observation.value[x]", &["Quantity", "CodeableConcept", "dateTime"]),
            element("Observation.subject", &["Reference"]),
            element("Observation.length", &["Duration"]),
            element("Observation.telecom", &["ContactPoint"]),
            element("Observation.useContext", &["UsageContext"]),
            element("Observation.component", &["BackboneElement"]),
            element("Observation.component.code", &["CodeableConcept"]),
            element("BackboneElement", &[]),
            element("CodeableConcept", &[]),
            element("CodeableConcept.text", &["string"]),
            element("UsageContext", &[]),
            element("UsageContext.code", &["Coding"]),
            element("UsageContext.value[x]", &["CodeableConcept"]),
        ];
        FhirDefinitions { elements: elements.into(), ..FhirDefinitions::default() }
    }

    #[track_caller]
    fn check(expression: &str, expected: Option<&str>) {
        let paths = resolve(&definitions(), "Observation", expression);
        let text = paths.map(|paths| {
            let paths: Vec<_> = paths.iter().map(SearchPath::to_string).collect();
            paths.join(" ")
        });
        assert_eq!(text.as_deref(), expected, "{expression}");
    }

    #[test]
    fn elements_choices_and_casts_are_resolved() {
        check("Observation.component.code", Some("component.code:CodeableConcept"));
        check("Observation.component.code.text", Some("component.code.text:string"));
        check("Observation.length", Some("length:Quantity"));
        check(
            "Observation.value",
            Some("valueQuantity:Quantity valueCodeableConcept:CodeableConcept valueDateTime:dateTime"),
        );
        for cast in [
            "(Observation.value as dateTime)",
            "Observation.value as dateTime",
            "Observation.value.as(dateTime)",
            "Observation.value.ofType(dateTime)",
            "(Observation.value.ofType(dateTime))",
        ] {
            check(cast, Some("valueDateTime:dateTime"));
        }
    }

    #[test]
    fn unions_and_conditions_are_resolved() {
        check("Patient.name | Observation.length", Some("length:Quantity"));
        check("Observation.length | Observation.length", Some("length:Quantity"));
        check("Observation.subject.where(resolve() is Patient)", Some("subject:Reference=Patient"));
        check("Observation.telecom.where(system='phone')", Some("telecom:ContactPoint=phone"));
    }

    #[test]
    fn unsupported_expressions_are_rejected() {
        check("Observation.subject.where(type='x') | Observation.length", None);
        check("Observation.value.exists() and Observation.value != false", None);
        check("(Observation.value as CodeableConcept).text | Observation.length", Some("length:Quantity"));
        check("Observation.useContext.value", Some(""));
        check("Observation.useContext.code", Some("useContext.code:Coding"));
        check("Observation.unknown", Some(""));
    }
}
