//! Resolves the expression of a search parameter, which is FHIRPath, to paths of JSON members and their data
//! types.
//!
//! The supported subset of FHIRPath is the one that HL7's search parameters use most: unions of paths of
//! elements, casts to a data type, `where(resolve() is Patient)` and `where(system='phone')`. A choice of
//! types is supported only as the last element of a path. Elements within a choice are not resolved. The
//! path of `relatedArtifact.where(type='depends-on').resource` ends at `relatedArtifact`, whose values are
//! compared as a whole.

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
        r"^(?:(?:ofType|as)\((?<cast>\w+)\)|where\(resolve\(\) is (?<target>\w+)\)|where\(system='(?<system>\w+)'\)|where\(type='(?<relation>[\w-]+)'\)|(?<element>\w+))$",
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
    /// The code system of values that have none of their own.
    system: Option<String>,
    /// Only this target type of references, or only this system, is searched.
    only: Option<String>,
}

impl SearchPath {
    /// A path without conditions.
    pub fn new(members: &str, data_type: &str) -> Self {
        Self { members: members.to_owned(), data_type: data_type.to_owned(), system: None, only: None }
    }
}

impl fmt::Display for SearchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.members, self.data_type)?;
        self.system.iter().try_for_each(|system| write!(f, "@{system}"))?;
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
        // The expression of one parameter lacks the type.
        let path = if path.starts_with(char::is_lowercase) { format!("{base}.{path}") } else { path };
        let (steps, only) = parse_steps(&path)?;
        let (first, steps) = steps.split_first()?;
        if first.element != base {
            continue;
        }
        let mut resolved = Vec::new();
        ElementResolver { definitions, found: &mut resolved }.descend(base, steps, Vec::new());
        for path in resolved {
            let path = SearchPath { only: only.map(str::to_owned), ..path };
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
    let (mut steps, mut only, mut relation) = (Vec::<PathStep<'_>>::new(), None, None);
    for part in path.split('.') {
        let step = STEP.captures(part)?;
        let text = |name| step.name(name).map(|group| group.as_str());
        if text("element") == Some("resource") && relation.is_some() {
            continue;
        }
        if relation.is_some() {
            return None;
        }
        if let Some(relation_type) = text("relation") {
            let is_artifact = steps.last().is_some_and(|step| step.element == "relatedArtifact");
            relation = Some(relation_type).filter(|_| is_artifact);
            only = Some(relation?);
        } else if let Some(element) = text("element") {
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
    found: &'a mut Vec<SearchPath>,
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
            if rest.is_empty() {
                self.add_choice(choice, step, &members);
            }
        } else if let Some(data_type) = element.type_names().find(|name| elements.contains_key(*name)) {
            // The elements of a data type are defined in the definition of the type.
            if data_type != path {
                self.descend(data_type, steps, members);
            }
        }
    }

    fn push(&mut self, members: String, data_type: &str, system: Option<&str>) {
        let (data_type, system) = (data_type.to_owned(), system.map(str::to_owned));
        self.found.push(SearchPath { members, data_type, system, only: None });
    }

    fn add(&mut self, element: &ElementDefinition, members: &[String]) {
        for name in element.type_names() {
            // The definition of Resource.id says string; the specification says id.
            let name = if element.path == "Resource.id" { "id" } else { comparable_type(name) };
            let system = if name == "code" { self.definitions.implicit_system(element) } else { None };
            self.push(members.join("."), name, system);
        }
    }

    /// Adds a choice of types. In JSON, the name of the member ends with the type.
    fn add_choice(&mut self, choice: &ElementDefinition, step: &PathStep<'_>, members: &[String]) {
        for name in choice.type_names().filter(|name| step.cast.is_none_or(|cast| cast == *name)) {
            let (first, rest) = name.split_at(1);
            let member = format!("{}{}{rest}", step.element, first.to_ascii_uppercase());
            let path: Vec<_> = members.iter().map(String::as_str).chain([member.as_str()]).collect();
            self.push(path.join("."), comparable_type(name), None);
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
            element("Observation.relatedArtifact", &["RelatedArtifact"]),
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
        check(
            "Observation.useContext.value as CodeableConcept",
            Some("useContext.valueCodeableConcept:CodeableConcept"),
        );
        check(
            "Observation.relatedArtifact.where(type='depends-on').resource",
            Some("relatedArtifact:RelatedArtifact=depends-on"),
        );
        check("length | unknown", Some("length:Quantity"));
    }

    #[test]
    fn unsupported_expressions_are_rejected() {
        check("Observation.subject.where(type='x') | Observation.length", None);
        check("Observation.value.exists() and Observation.value != false", None);
        check("(Observation.value as CodeableConcept).text | Observation.length", Some("length:Quantity"));
        check("Observation.subject.where(type='x').resource", None);
        check("Observation.useContext.code", Some("useContext.code:Coding"));
        check("Observation.unknown", Some(""));
    }
}
