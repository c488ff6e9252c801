//! Which resource types an export has, and why.

use crate::request::kick_off::{ExportLevel, KickOff, SUPPORTING};
use crate::request::parameters::ExportParameters;
use fhir::patient_compartment::contains_type;

/// The stored types that the export contains (see [`ExportRole`]).
pub fn kinds(request: &KickOff, parameters: &ExportParameters, mut all_kinds: Vec<String>) -> Vec<String> {
    all_kinds.retain(|kind| {
        request.types.has(kind) && role(&request.level, parameters, kind, contains_type(kind)).is_some()
    });
    all_kinds
}

/// The reason for which resources of a type are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportRole {
    /// The request selects them.
    Main,
    /// Other exported resources refer to them.
    Supporting,
    /// The request selects those of Patients, and other exported resources refer to some that have no
    /// Patient.
    MainAndSupporting,
}

impl ExportRole {
    /// `true` if the request selects resources of the type.
    pub fn is_main(self) -> bool {
        self != Self::Supporting
    }

    /// `true` if resources of the type are exported because others refer to them.
    pub fn is_supporting(self) -> bool {
        self != Self::Main
    }
}

/// The role of a type in an export of this level, or `None` if the type is not exported. Exports of Patients
/// and Groups contain types of Patient compartments, and of the supporting types those that `_type` names or
/// all with `_supporting`. Types of `includeAssociatedData` are added to those of `_type`. `has_compartments`
/// tells whether resources of the type are in the compartments of Patients.
pub fn role(
    level: &ExportLevel,
    parameters: &ExportParameters,
    kind: &str,
    has_compartments: bool,
) -> Option<ExportRole> {
    let names = |types: &Vec<String>| types.iter().any(|kind_name| kind_name == kind);
    let is_named = parameters.types.as_ref().is_none_or(names);
    let is_associated = kind == "Provenance" && parameters.provenance.is_some();
    let is_main = is_associated || (is_named && (*level == ExportLevel::System || has_compartments));
    if is_main && *level == ExportLevel::System {
        return Some(ExportRole::Main);
    }
    let is_wanted = parameters.supporting || parameters.types.as_ref().is_some_and(names);
    let is_supporting = is_wanted && SUPPORTING.contains(&kind);
    match (is_main, is_supporting) {
        (true, true) => Some(ExportRole::MainAndSupporting),
        (true, false) => Some(ExportRole::Main),
        (false, true) => Some(ExportRole::Supporting),
        (false, false) => None,
    }
}
