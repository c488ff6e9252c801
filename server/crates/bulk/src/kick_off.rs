//! The kick-off request: everything is checked before a job exists (Bulk Data Access 2.0.0, kick-off
//! request; DESIGN, export).

use jiff::Timestamp;
use resources::ResourceError;
use serde::{Deserialize, Serialize};
use store::StoreError;

/// What is exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Every stored resource of the granted types.
    System,
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

/// A kick-off request.
#[derive(Debug, Clone)]
pub struct KickOff {
    /// What is exported.
    pub level: Level,
    /// Query parameters, decoded, in order.
    pub query: Vec<(String, String)>,
    /// The full URL of the request, for the manifest.
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
    /// A type that the client may not read.
    #[error("the token has no scope to read {kind}")]
    Forbidden {
        /// The type.
        kind: String,
    },
    /// Too many exports under way.
    #[error("too many exports are under way; try again in {retry_after_s} s")]
    TooMany {
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

/// What a checked kick-off asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Only these types; `None` is all. Sorted.
    pub types: Option<Vec<String>>,
    /// Only resources changed after this moment.
    pub since: Option<Timestamp>,
    /// Only resources changed before this moment.
    pub until: Option<Timestamp>,
    /// What was left out under `handling=lenient`, one text each.
    pub notes: Vec<String>,
}

/// The three spellings of NDJSON that a server must know.
const NDJSON: [&str; 3] = ["application/fhir+ndjson", "application/ndjson", "ndjson"];

/// Checks the parameters of a kick-off.
///
/// # Errors
/// [`KickOffError`]: which parameter, and what to do.
pub fn check_parameters(request: &KickOff) -> Result<Parameters, KickOffError> {
    let mut parameters = Parameters::default();
    let mut types = Vec::new();
    let mut seen = Vec::new();
    for (name, value) in &request.query {
        let wrong = |why: String| KickOffError::Parameter { name: name.clone(), why };
        if name != "_type" && seen.contains(&name.as_str()) {
            return Err(wrong("it is there more than once".to_owned()));
        }
        seen.push(name);
        match name.as_str() {
            // A raw `+` in a query arrives as a space.
            "_outputFormat" if NDJSON.contains(&value.replace(' ', "+").as_str()) => {}
            "_outputFormat" => {
                return Err(wrong(format!("'{value}' is not offered; use application/fhir+ndjson")));
            }
            "_since" => parameters.since = Some(fhir::instant::parse(value).map_err(wrong)?),
            "_until" => parameters.until = Some(fhir::instant::parse(value).map_err(wrong)?),
            // Repeating the parameter means the same as a comma list.
            "_type" => types.extend(value.split(',').map(|kind| (kind.trim(), wrong))),
            "_format" => {}
            _ if request.lenient => {
                parameters.notes.push(format!("parameter '{name}' is not supported and was left out"));
            }
            _ => return Err(KickOffError::Unsupported { name: name.clone() }),
        }
    }
    if !types.is_empty() {
        parameters.types = Some(check_types(request, types, &mut parameters.notes)?);
    }
    Ok(parameters)
}

fn check_types(
    request: &KickOff,
    asked: Vec<(&str, impl Fn(String) -> KickOffError)>,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, KickOffError> {
    let mut types = Vec::new();
    for (kind, wrong) in asked {
        if fhir::resource_type(kind).is_none() {
            let why = format!("'{kind}' is not a resource type of FHIR R4");
            if !request.lenient {
                return Err(wrong(why));
            }
            notes.push(format!("_type: {why}; it was left out"));
        } else if !request.types.has(kind) {
            return Err(KickOffError::Forbidden { kind: kind.to_owned() });
        } else {
            types.push(kind.to_owned());
        }
    }
    types.sort();
    types.dedup();
    Ok(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &[(&str, &str)], lenient: bool) -> KickOff {
        KickOff {
            level: Level::System,
            query: query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            request_url: String::new(),
            client_id: "c".to_owned(),
            types: TypeAccess::only(["Patient", "Observation"]),
            groups: None,
            lenient,
        }
    }

    #[track_caller]
    fn check(query: &[(&str, &str)], lenient: bool, expected: Result<Option<&[&str]>, &str>) {
        match (check_parameters(&request(query, lenient)), expected) {
            (Ok(got), Ok(types)) => {
                let types = types.map(|types| types.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
                assert_eq!(got.types, types, "{query:?}");
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{query:?}: {error}"),
            (got, expected) => panic!("{query:?}: {got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn parameters_are_taken_or_refused() {
        check(&[], false, Ok(None));
        for format in NDJSON {
            check(&[("_outputFormat", format)], false, Ok(None));
        }
        check(&[("_outputFormat", "application/fhir ndjson")], false, Ok(None));
        check(&[("_outputFormat", "text/csv")], false, Err("'text/csv' is not offered"));
        check(&[("_outputFormat", "")], false, Err("is not offered"));
        check(
            &[("_type", "Patient,Observation"), ("_type", "Patient")],
            false,
            Ok(Some(&["Observation", "Patient"])),
        );
        check(&[("_type", "Patient,Nonsense")], false, Err("'Nonsense' is not a resource type"));
        check(&[("_type", "Patient,Nonsense")], true, Ok(Some(&["Patient"])));
        check(&[("_type", "Condition")], true, Err("no scope to read Condition"));
        check(&[("_type", "")], false, Err("'' is not a resource type"));
        check(&[("_since", "2026-01-01T00:00:00 01:00")], false, Ok(None));
        check(&[("_since", "yesterday")], true, Err("is not an instant"));
        check(
            &[("_since", "2026-01-01T00:00:00Z"), ("_since", "2026-01-01T00:00:00Z")],
            false,
            Err("more than once"),
        );
        check(&[("_elements", "id")], false, Err("'_elements' is not supported"));
        check(&[("_elements", "id")], true, Ok(None));
    }
}
