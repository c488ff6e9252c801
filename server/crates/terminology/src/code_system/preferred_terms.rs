//! The displays of a release of SNOMED CT by the dialects that the operator prefers.

use crate::model::dialects::SnomedDialects;

/// The preferred terms of a release in the dialects of the operator.
#[derive(Debug)]
pub(super) struct PreferredTerms {
    pub(super) dialects: SnomedDialects,
    /// Number of the designation of each concept that is its display; `NONE` if no dialect prefers one.
    pub(super) designations: Vec<u32>,
}
