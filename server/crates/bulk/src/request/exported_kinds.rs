//! Which resource types an export has, and why.

use crate::request::kick_off::{ExportLevel, KickOff, SUPPORTING, in_compartments};
use crate::request::parameters::ExportParameters;

/// The stored types that the export contains (see [`ExportRole`]).
pub fn kinds(request: &KickOff, parameters: &ExportParameters, mut stored: Vec<String>) -> Vec<String> {
    stored.retain(|kind| request.types.has(kind) && role(&request.level, parameters, kind).is_some());
    stored
}

/// The reason for which resources of a type are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportRole {
    /// The request selects them.
    Main,
    /// Other exported resources refer to them.
    Supporting,
}

/// The role of a type in an export of this level, or `None` if the type is not exported. Exports of Patients
/// and Groups contain only types of Patient compartments. Types of `includeAssociatedData` are added to those
/// of `_type`.
pub fn role(level: &ExportLevel, parameters: &ExportParameters, kind: &str) -> Option<ExportRole> {
    let is_named = parameters.types.as_ref().is_none_or(|named| named.iter().any(|named| named == kind));
    let is_associated = kind == "Provenance" && parameters.provenance.is_some();
    if is_associated || (is_named && (*level == ExportLevel::System || in_compartments(kind))) {
        return Some(ExportRole::Main);
    }
    (parameters.supporting && SUPPORTING.contains(&kind)).then_some(ExportRole::Supporting)
}
