//! Fuzz targets of this crate; the tests and cargo-fuzz share them. A target must not panic, run for a second
//! or take a GiB of memory for any input.

use crate::support::run;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fhir::Parameters;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation};

use crate::support;

/// Returns the folder of the valid inputs of a target.
pub fn seed_folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR").trim_end_matches("/fuzz")).join("fuzz/seeds").join(target)
}

/// Reads Parameters with resources, and answers two operations.
pub fn parameters(text: &[u8]) {
    static GARDEN: LazyLock<Terminology> = LazyLock::new(support::garden);
    let Ok(parameters) = Parameters::from_json(text) else { return };
    drop(run(
        &GARDEN,
        TerminologyOperation::ValidateCode,
        OperationLevel::Type,
        OperationInput::from_body(&parameters),
    ));
    drop(run(
        &GARDEN,
        TerminologyOperation::Subsumes,
        OperationLevel::Type,
        OperationInput::from_body(&parameters),
    ));
}
