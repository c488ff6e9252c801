//! The table of root elements: one line for each resource type, with its elements in the order of the
//! definition. `name!` is a mandatory element, `name+` one of the summary, and `value[x]` is a choice of
//! types.

use super::definitions::FhirDefinitions;

/// Resource type for input and output of operations, which is never stored or exported.
const NOT_STORED: &str = "Parameters";

pub fn table(definitions: &FhirDefinitions) -> String {
    let mut table = String::new();
    for (kind, definition) in &definitions.types {
        if !definition.is_concrete_resource() || kind == NOT_STORED {
            continue;
        }
        table.push_str(kind);
        for element in definition.elements() {
            let name = element.path.strip_prefix(kind).and_then(|rest| rest.strip_prefix('.'));
            let Some(name) = name.filter(|name| !name.contains('.')) else { continue };
            table.push(' ');
            table.push_str(name);
            if element.min > 0 {
                table.push('!');
            }
            if element.is_summary {
                table.push('+');
            }
        }
        table.push('\n');
    }
    table
}
