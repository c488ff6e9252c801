//! The kick-off request. All checks precede the creation of a job (Bulk Data Access 2.0.0, kick-off request).

use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::group::GroupError;

/// Resource types that `_supporting` exports.
pub const SUPPORTING: [&str; 6] =
    ["Device", "Location", "Medication", "Organization", "Practitioner", "PractitionerRole"];

/// Level of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportLevel {
    /// All resources of the types that the client may read.
    System,
    /// All Patients with the resources of their compartments.
    Patient,
    /// The compartments of the members of the Group with this id.
    Group(String),
}

/// The resource types that a client may read.
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

    /// `true` if the client may read the type.
    pub fn has(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds.contains(&kind),
        }
    }

    /// `true` if the client may read no type.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(kinds) if kinds.is_empty())
    }
}

/// HTTP method of a kick-off, which determines where the parameters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KickOffMethod {
    /// Parameters in the query.
    Get,
    /// Parameters in the body, as a Parameters resource.
    Post,
}

/// A kick-off request.
#[derive(Debug, Clone)]
pub struct KickOff {
    /// Level of the export.
    pub level: ExportLevel,
    /// Decoded parameters in the order of the request.
    pub parameters: Vec<(String, String)>,
    /// HTTP method of the request.
    pub by: KickOffMethod,
    /// Full URL of the request, without parameters from the body. The manifest contains it.
    pub request_url: String,
    /// Id of the client that sent the request.
    pub client_id: String,
    /// Types that the client may read.
    pub types: TypeAccess,
    /// Ids of the Groups that the client may export. `None` means all Groups.
    pub groups: Option<Vec<String>>,
    /// `true` for `Prefer: handling=lenient`: unsupported parameters are omitted and listed in the manifest.
    pub lenient: bool,
}

/// Reasons why a kick-off is rejected.
#[derive(Debug, thiserror::Error)]
pub enum KickOffError {
    /// A parameter has an invalid value.
    #[error("parameter '{name}': {reason}")]
    Parameter {
        /// Name of the parameter.
        name: String,
        /// Reason and remedy.
        reason: String,
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
    /// The request names Patients that do not exist or are not members of the Group.
    #[error("parameter 'patient': {reason}: {}", patients.join(", "))]
    UnknownPatients {
        /// The reason: `not found` or `not in the Group`.
        reason: &'static str,
        /// Ids of up to ten of the Patients.
        patients: Vec<String>,
    },
    /// The members of the Group cannot be determined.
    #[error("{0}")]
    BadGroup(String),
    /// The client may not read a requested type.
    #[error("the token has no scope to read {kind}")]
    Forbidden {
        /// The resource type.
        kind: String,
    },
    /// A limit on running exports is reached.
    #[error("{reason}; try again in {retry_after_s} s, or delete an export that is not needed")]
    TooManyExports {
        /// Text that names the limit.
        reason: String,
        /// Seconds until a retry may succeed.
        retry_after_s: u32,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The parameters of a request body as pairs of name and text, in order. A value is a primitive, or a
/// Reference with a `reference`.
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
            let reason =
                "it must have one value: a primitive, or a valueReference with a reference".to_owned();
            Err(KickOffError::Parameter { name: parameter.name.into_owned(), reason })
        }
    };
    body.parameter.into_iter().map(pair).collect()
}

#[derive(Deserialize)]
struct Reference {
    reference: Option<String>,
}

impl From<GroupError> for KickOffError {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::NoGroup(id) => Self::UnknownGroup { id },
            GroupError::Bad(reason) => Self::BadGroup(reason),
            GroupError::Store(error) => error.into(),
        }
    }
}
