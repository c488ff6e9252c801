//! The kick-off request. Everything is checked before a job exists (Bulk Data Access 2.0.0, kick-off request).

use resources::ResourceError;
use serde::{Deserialize, Serialize};
use store::StoreError;

use super::parameters::ExportParameters;
use crate::group::GroupError;

/// Types of `_supporting`.
pub const SUPPORTING: [&str; 6] =
    ["Device", "Location", "Medication", "Organization", "Practitioner", "PractitionerRole"];

/// Level of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportLevel {
    /// All resources of the granted types.
    System,
    /// All Patients with their compartments.
    Patient,
    /// The compartments of the members of this Group.
    Group(String),
}

/// The types that a client may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeAccess {
    /// Every type.
    All,
    /// These types, sorted.
    Only(Vec<&'static str>),
}

impl TypeAccess {
    /// Returns access to these types only.
    pub fn only(kinds: impl IntoIterator<Item = &'static str>) -> Self {
        Self::Only(kinds.into_iter().collect())
    }

    /// Returns true if the type may be read.
    pub fn has(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds.contains(&kind),
        }
    }

    /// Returns true if no type may be read.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(kinds) if kinds.is_empty())
    }
}

/// Method of a kick-off, which determines the place of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KickOffMethod {
    /// Parameters in the query.
    Get,
    /// Parameters in the body, a Parameters resource.
    Post,
}

/// A kick-off request.
#[derive(Debug, Clone)]
pub struct KickOff {
    /// Level of the export.
    pub level: ExportLevel,
    /// Decoded parameters in order.
    pub parameters: Vec<(String, String)>,
    /// Method.
    pub by: KickOffMethod,
    /// Full URL of the request for the manifest, without parameters of a body.
    pub request_url: String,
    /// Client.
    pub client_id: String,
    /// Types that the client may read.
    pub types: TypeAccess,
    /// Groups that the client may export; `None` is all.
    pub groups: Option<Vec<String>>,
    /// `Prefer: handling=lenient`: leaves unsupported parameters out and lists them in the manifest.
    pub lenient: bool,
}

/// Rejection of a kick-off.
#[derive(Debug, thiserror::Error)]
pub enum KickOffError {
    /// A parameter has an invalid value.
    #[error("parameter '{name}': {why}")]
    Parameter {
        /// Name of the parameter.
        name: String,
        /// Reason and remedy.
        why: String,
    },
    /// A parameter is not supported.
    #[error("parameter '{name}' is not supported; leave it out, or send 'Prefer: handling=lenient'")]
    Unsupported {
        /// Name of the parameter.
        name: String,
    },
    /// The Group does not exist, or this client must not export it.
    #[error("Group/{id} is not known")]
    UnknownGroup {
        /// Id of the Group.
        id: String,
    },
    /// Patients that do not exist, or are not members of the Group.
    #[error("parameter 'patient': {why}: {}", patients.join(", "))]
    UnknownPatients {
        /// `not known here` or `not in the Group`.
        why: &'static str,
        /// Up to ten of them.
        patients: Vec<String>,
    },
    /// The members of the Group cannot be determined.
    #[error("{0}")]
    BadGroup(String),
    /// The client must not read a type.
    #[error("the token has no scope to read {kind}")]
    Forbidden {
        /// The type.
        kind: String,
    },
    /// The limit of running exports is reached.
    #[error("{why}; try again in {retry_after_s} s, or delete an export that is not needed")]
    TooManyExports {
        /// The limit that is exceeded.
        why: String,
        /// Seconds until a retry may succeed.
        retry_after_s: u32,
    },
    /// The Group could not be read.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the parameters of a body as names and texts in order. A value is a primitive, or a Reference with a
/// reference.
///
/// # Errors
/// Returns [`KickOffError::Parameter`] for any other value.
pub fn pairs(body: fhir::Parameters) -> Result<Vec<(String, String)>, KickOffError> {
    let text = |value: fhir::Value| match value {
        fhir::Value::Text(_, text) => Some(text),
        fhir::Value::Boolean(value) => Some(value.to_string()),
        fhir::Value::Number(_, number) => Some(number.to_string()),
        fhir::Value::Other(member, raw) if member == "valueReference" => {
            serde_json::from_str::<Reference>(raw.get()).ok()?.reference
        }
        _ => None,
    };
    let pair = |parameter: fhir::Parameter| match parameter.value.and_then(text) {
        Some(value) => Ok((parameter.name.into_owned(), value)),
        None => {
            let why = "it needs one value: a primitive, or a valueReference with a reference".to_owned();
            Err(KickOffError::Parameter { name: parameter.name.into_owned(), why })
        }
    };
    body.parameter.into_iter().map(pair).collect()
}

#[derive(Deserialize)]
struct Reference {
    reference: Option<String>,
}

/// Returns the stored types that the export contains, see [`ExportRole`].
pub fn kinds(request: &KickOff, parameters: &ExportParameters, mut stored: Vec<String>) -> Vec<String> {
    stored.retain(|kind| request.types.has(kind) && role(&request.level, parameters, kind).is_some());
    stored
}

/// Reason for exporting a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportRole {
    /// They are selected by the request.
    Main,
    /// Exported resources refer to them.
    Supporting,
}

/// Returns the role of a type in an export of this level, or `None` if it is not exported. Below the system level
/// only types of Patient compartments are selected. Types of `includeAssociatedData` are added to those of `_type`.
pub fn role(level: &ExportLevel, parameters: &ExportParameters, kind: &str) -> Option<ExportRole> {
    let is_named = parameters.types.as_ref().is_none_or(|named| named.iter().any(|named| named == kind));
    let is_associated = kind == "Provenance" && parameters.provenance.is_some();
    if is_associated || (is_named && (*level == ExportLevel::System || in_compartments(kind))) {
        return Some(ExportRole::Main);
    }
    (parameters.supporting && SUPPORTING.contains(&kind)).then_some(ExportRole::Supporting)
}

/// Returns true if resources of this type can be in Patient compartments.
pub(crate) fn in_compartments(kind: &str) -> bool {
    kind == "Patient" || !fhir::patient_compartment::paths(kind).is_empty()
}

impl From<GroupError> for KickOffError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::NoGroup(id) => Self::UnknownGroup { id },
            GroupError::Bad(why) => Self::BadGroup(why),
            GroupError::Store(error) => error.into(),
        }
    }
}
