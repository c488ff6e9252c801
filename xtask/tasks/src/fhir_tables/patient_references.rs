//! The table of the elements that may refer to a Patient: one line for each resource type. Its form is
//! described in the module that reads it, `trefoil_fhir::patient_references`.

use super::definitions::{ElementDefinition, FhirDefinitions};

/// Types without a line. `Patient.link` and `Group.member` would make other patients' data visible to
/// clients that may read one of them, and a client reads its own Groups, whatever they refer to.
const LEFT_OUT: [&str; 2] = ["Group", "Patient"];

pub fn table(definitions: &FhirDefinitions) -> String {
    let mut table = String::new();
    for (kind, definition) in &definitions.types {
        if !definition.is_resource() || LEFT_OUT.contains(&&**kind) {
            continue;
        }
        let elements = definition.elements();
        let references: Vec<&str> = elements
            .iter()
            .filter(|element| element.may_refer_to("Patient"))
            .map(|element| &*element.path)
            .collect();
        let paths = elements.iter().filter_map(|element| written(element, kind, &references));
        let line: String = paths.map(|path| format!(" {path}")).collect();
        if !references.is_empty() {
            table.push_str(&format!("{kind}{line}\n"));
        }
    }
    table
}

/// An element as the table contains it, if it is a reference or repeats an element that contains one.
fn written(element: &ElementDefinition, kind: &str, references: &[&str]) -> Option<String> {
    let path = |path: &str| Some(path.strip_prefix(kind)?.strip_prefix('.')?.to_owned());
    let own = path(&element.path)?;
    if let Some(repeated) = &element.content_reference {
        let repeated = repeated.trim_start_matches('#');
        let has_reference = references.iter().any(|path| path.starts_with(&format!("{repeated}.")));
        return has_reference.then(|| Some(format!("{own}={}", path(repeated)?)))?;
    }
    let is_reference = references.contains(&&*element.path);
    // A choice of data types has a member for each of them.
    is_reference.then(|| own.replace("[x]", "Reference"))
}
