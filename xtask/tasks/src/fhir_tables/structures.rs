//! The table of structures: one line for each resource type, data type and element with elements of its own.
//! Its form is described in the module that reads it, `trefoil_fhir::structures`.

use std::collections::BTreeMap;

use super::definitions::{ElementDefinition, FhirDefinitions};

pub fn table(definitions: &FhirDefinitions) -> String {
    let mut table = String::new();
    for (name, definition) in &definitions.types {
        if !definition.has_elements() {
            continue;
        }
        let mut lines: BTreeMap<&str, String> = BTreeMap::from([(&**name, String::new())]);
        for element in definition.elements() {
            let Some((parent, member)) = element.path.rsplit_once('.') else { continue };
            lines.entry(parent).or_default().push_str(&written(element, member));
        }
        for (path, elements) in lines {
            table.push_str(&format!("{path}{elements}\n"));
        }
    }
    table
}

/// An element as the table contains it, after a space.
fn written(element: &ElementDefinition, name: &str) -> String {
    let mut line = format!(" {name}");
    for (mark, is_set) in [('!', element.min > 0), ('*', element.max != "1"), ('+', element.is_summary)] {
        if is_set {
            line.push(mark);
        }
    }
    line.push(':');
    let types: Vec<&str> = match element.content_reference.as_deref() {
        Some(reference) => vec![reference.trim_start_matches('#')],
        None => element.type_names().map(|name| own_structure(element, name)).collect(),
    };
    line.push_str(&types.join(","));
    line
}

/// The structure with the elements of a type: that of the element itself if they are defined in place.
fn own_structure<'a>(element: &'a ElementDefinition, name: &'a str) -> &'a str {
    match name {
        "BackboneElement" | "Element" => &element.path,
        name => name,
    }
}
