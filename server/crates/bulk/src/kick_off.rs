//! The kick-off request: everything is checked before a job exists (Bulk Data Access 2.0.0, kick-off
//! request; DESIGN, export).

use resources::ResourceError;
use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::criteria::MembersError;
pub use crate::parameters::{Parameters, Provenance};
use crate::supporting::SUPPORTING;

/// What is exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Every stored resource of the granted types.
    System,
    /// Every Patient with its compartment.
    Patient,
    /// The compartments of the members of the Group with this id.
    Group(String),
}

/// The types that a client may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeAccess {
    /// Every type.
    All,
    /// These, sorted.
    Only(Vec<&'static str>),
}

impl TypeAccess {
    /// Only these.
    pub fn only(kinds: impl IntoIterator<Item = &'static str>) -> Self {
        Self::Only(kinds.into_iter().collect())
    }

    /// Is this type among them?
    pub fn has(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds.contains(&kind),
        }
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(kinds) if kinds.is_empty())
    }
}

/// How the parameters of a kick-off came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// In the query.
    Get,
    /// In a body, a Parameters resource.
    Post,
}

/// A kick-off request.
#[derive(Debug, Clone)]
pub struct KickOff {
    /// What is exported.
    pub level: Level,
    /// The parameters, decoded, in order.
    pub parameters: Vec<(String, String)>,
    /// How they came.
    pub by: Method,
    /// The full URL of the request, for the manifest; parameters of a body are not in it.
    pub request_url: String,
    /// Who asks.
    pub client_id: String,
    /// What the client may read.
    pub types: TypeAccess,
    /// Groups that the client may export; `None` is all.
    pub groups: Option<Vec<String>>,
    /// `Prefer: handling=lenient`: run without what is not supported, and say so in the manifest.
    pub lenient: bool,
}

/// Why no export began.
#[derive(Debug, thiserror::Error)]
pub enum KickOffError {
    /// A parameter is there but cannot be used.
    #[error("parameter '{name}': {why}")]
    Parameter {
        /// Its name.
        name: String,
        /// What was wrong and what to do.
        why: String,
    },
    /// A parameter that is not supported.
    #[error("parameter '{name}' is not supported; leave it out, or send 'Prefer: handling=lenient'")]
    Unsupported {
        /// Its name.
        name: String,
    },
    /// No such Group, or one that this client may not export.
    #[error("Group/{id} is not known")]
    UnknownGroup {
        /// Its id.
        id: String,
    },
    /// Patients that are not there, or not members of the Group.
    #[error("parameter 'patient': {why}: {}", patients.join(", "))]
    UnknownPatients {
        /// `not known here`, or `not in the Group`.
        why: &'static str,
        /// The first of them.
        patients: Vec<String>,
    },
    /// A Group whose members cannot be told.
    #[error("{0}")]
    BadGroup(String),
    /// A type that the client may not read.
    #[error("the token has no scope to read {kind}")]
    Forbidden {
        /// The type.
        kind: String,
    },
    /// Too many exports under way, or too long ones.
    #[error("{why}; try again in {retry_after_s} s, or delete an export that is not needed")]
    TooMany {
        /// What is too much.
        why: String,
        /// When to try again.
        retry_after_s: u32,
    },
    /// The Group could not be read.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The parameters of a body as pairs of name and text, in order: any primitive value, or the reference of a
/// Reference.
///
/// # Errors
/// [`KickOffError::Parameter`] for one without such a value.
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

/// The types that an export can hold, of those that are stored: see [`Role`].
pub fn kinds(request: &KickOff, parameters: &Parameters, mut stored: Vec<String>) -> Vec<String> {
    stored.retain(|kind| request.types.has(kind) && role(&request.level, parameters, kind).is_some());
    stored
}

/// Why resources of a type are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// They are asked for.
    Main,
    /// Other resources of the export refer to them.
    Supporting,
}

/// Why resources of a type are in an export of this level, or `None`. Below the system only what lies in
/// compartments of Patients is asked for; what `includeAssociatedData` names comes beside what `_type` names.
pub fn role(level: &Level, parameters: &Parameters, kind: &str) -> Option<Role> {
    let is_named = parameters.types.as_ref().is_none_or(|named| named.iter().any(|named| named == kind));
    let is_associated = kind == "Provenance" && parameters.provenance.is_some();
    if is_associated || (is_named && (*level == Level::System || in_compartments(kind))) {
        return Some(Role::Main);
    }
    (parameters.supporting && SUPPORTING.contains(&kind)).then_some(Role::Supporting)
}

/// Are there resources of this type in compartments of Patients?
pub(crate) fn in_compartments(kind: &str) -> bool {
    kind == "Patient" || !resources::compartment::paths(kind).is_empty()
}

impl From<MembersError> for KickOffError {
    fn from(error: MembersError) -> Self {
        match error {
            MembersError::NoGroup(id) => Self::UnknownGroup { id },
            MembersError::Bad(why) => Self::BadGroup(why),
            MembersError::Store(error) => error.into(),
        }
    }
}
