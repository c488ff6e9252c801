//! `cargo xtask gen-fhir-tables`: writes or compares the tables that are generated from HL7's definitions of
//! FHIR R4.
//!
//! | module | contents |
//! |---|---|
//! | [`definitions`] | finding and reading HL7's definitions |
//! | [`search_parameters`] | the table of search parameters |
//! | [`search_paths`] | the JSON paths to which the expression of a search parameter leads |
//! | [`structures`] | the table of the elements of resource types and data types |
//! | [`patient_compartment`] | the table of the Patient compartment |
//! | [`patient_references`] | the table of the elements that may refer to a Patient |

mod definitions;
mod patient_compartment;
mod patient_references;
mod search_parameters;
mod search_paths;
mod structures;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use self::definitions::FhirDefinitions;
use xtask::workspace::root;

const STRUCTURES: &str = "server/crates/fhir/data/structures.txt";
const SEARCH_PARAMETERS: &str = "server/crates/fhir/data/search-parameters.txt";
const PATIENT_REFERENCES: &str = "server/crates/fhir/data/patient-references.txt";
const PATIENT_COMPARTMENT: &str = "server/crates/fhir/src/patient_compartment.rs";

/// Writes the tables, or compares them with the files of the workspace. Returns the reason if a comparison
/// was left out, because there are no definitions.
///
/// # Errors
/// An error if a compared table differs, or if tables must be written and the definitions are missing.
pub fn run(only_compare: bool) -> Result<Option<String>> {
    let data = shared_folder().join("data");
    let Some(folder) = definitions::find_folder(&data)? else {
        let missing = format!(
            "HL7's definitions of FHIR R4 are not in {}: expected the package {} or a folder {} with its JSON files \
             (TREFOIL_SHARED names another folder than ../shared)",
            data.display(),
            definitions::PACKAGE,
            definitions::FOLDER
        );
        // The project must build and pass without HL7's definitions, which are not part of it.
        if only_compare {
            return Ok(Some(missing));
        }
        bail!(missing);
    };
    let definitions = FhirDefinitions::read(&folder)?;
    let parameters = search_parameters::collect(&definitions);
    let compartment_source = read_file(PATIENT_COMPARTMENT)?;
    let compartment_rows = patient_compartment::rows(&definitions, &parameters)?;
    let tables = [
        (STRUCTURES, structures::table(&definitions)),
        (SEARCH_PARAMETERS, search_parameters::table(&parameters)),
        (PATIENT_REFERENCES, patient_references::table(&definitions)),
        (PATIENT_COMPARTMENT, patient_compartment::replace_rows(&compartment_source, &compartment_rows)?),
    ];
    let mut different = 0;
    for (path, generated) in &tables {
        if !only_compare {
            std::fs::write(root().join(path), generated)
                .with_context(|| format!("failed to write {path}"))?;
            println!("wrote {path}");
        } else if let Some(difference) = first_difference(&read_file(path)?, generated) {
            println!("{path}: {difference}");
            different += 1;
        } else {
            println!("{path}: equal to the definitions");
        }
    }
    if different > 0 {
        bail!(
            "{different} tables differ from HL7's definitions; run 'cargo xtask gen-fhir-tables' to regenerate them"
        );
    }
    Ok(None)
}

/// The folder named by TREFOIL_SHARED, or `shared` next to the workspace.
fn shared_folder() -> PathBuf {
    std::env::var_os("TREFOIL_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from)
}

fn read_file(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("failed to read {path}"))
}

/// Describes the first line that differs, or returns `None` if the texts are equal.
fn first_difference(before: &str, generated: &str) -> Option<String> {
    if before == generated {
        return None;
    }
    let (mut before, mut generated, mut number) = (before.lines(), generated.lines(), 1);
    loop {
        match (before.next(), generated.next()) {
            (None, None) => return Some("the line ends differ".to_owned()),
            (before, generated) if before != generated => {
                let text = |line: Option<&str>| line.unwrap_or("(the end of the file)").to_owned();
                let (before, generated) = (text(before), text(generated));
                return Some(format!("line {number} is\n  {before}\ninstead of\n  {generated}"));
            }
            _ => number += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_different_line_is_shown() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n").as_deref(), Some("line 2 is\n  b\ninstead of\n  c"));
        assert_eq!(
            first_difference("a\n", "a\nc\n").as_deref(),
            Some("line 2 is\n  (the end of the file)\ninstead of\n  c")
        );
        assert_eq!(first_difference("a", "a\n").as_deref(), Some("the line ends differ"));
    }
}
