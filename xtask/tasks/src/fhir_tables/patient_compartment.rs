//! The rows of the Patient compartment in `patient_compartment.rs`: resource types, and the paths of the
//! search parameters that HL7's CompartmentDefinition names.

use anyhow::{Context as _, Result};

use super::definitions::FhirDefinitions;
use super::search_parameters::SearchRows;

/// Types without rows: `Patient.link` and `Group.member` would add other patients to a compartment.
const LEFT_OUT: [&str; 2] = ["Patient", "Group"];
/// Line that precedes the rows, and line that follows them.
const ROWS_START: &str = "const PATIENT: &[(&str, &[&str])] = &[\n";
const ROWS_END: &str = "];\n";

/// The rows as Rust, sorted by type.
///
/// # Errors
/// Fails if the compartment names a search parameter that has no paths.
pub fn rows(definitions: &FhirDefinitions, parameters: &SearchRows) -> Result<String> {
    let mut rows = Vec::new();
    for member in &definitions.patient_compartment {
        let kind = member.kind.as_str();
        if member.parameters.is_empty() || LEFT_OUT.contains(&kind) {
            continue;
        }
        let mut paths: Vec<&str> = Vec::new();
        for code in &member.parameters {
            let row = parameters.get(kind).and_then(|of_type| of_type.get(code)).with_context(|| {
                format!("the search parameter '{code}' of {kind} in the Patient compartment has no paths")
            })?;
            for path in &row.paths {
                if !paths.contains(&path.members.as_str()) {
                    paths.push(&path.members);
                }
            }
        }
        rows.push((kind, paths));
    }
    rows.sort();
    Ok(rows.iter().map(|(kind, paths)| format!("    ({kind:?}, &{paths:?}),\n")).collect())
}

/// The source with other rows.
///
/// # Errors
/// Fails if the source does not contain the table.
pub fn replace_rows(source: &str, rows: &str) -> Result<String> {
    let (before, rest) =
        source.split_once(ROWS_START).context("patient_compartment.rs has no table PATIENT")?;
    let (_, after) = rest
        .split_once(ROWS_END)
        .context("the end of the table PATIENT is missing in patient_compartment.rs")?;
    Ok([before, ROWS_START, rows, ROWS_END, after].concat())
}

#[cfg(test)]
mod tests {
    use super::{ROWS_END, ROWS_START, replace_rows};

    #[test]
    fn only_the_rows_are_replaced() {
        let source =
            format!("//! Before.\n{ROWS_START}    (\"Flag\", &[\"subject\"]),\n{ROWS_END}// After.\n");
        let replaced = replace_rows(&source, "    (\"Goal\", &[\"subject\"]),\n").unwrap();
        assert_eq!(replaced, source.replace("Flag", "Goal"));
        assert!(replace_rows("// No table.\n", "").is_err());
    }
}
