//! The resources that decide whose data a carer sees: RelatedPerson and Person. A caller whose own reach
//! follows from them must not change it, nor that of others.

use serde_json::{Map, Value};
use store::Version;

use crate::error::ResourceError;
use crate::write::prepare::PreparedResource;

/// The types, with the members that decide about access.
const RELATIONS: [(&str, &[&str]); 2] =
    [("RelatedPerson", &["patient", "active", "period", "identifier"]), ("Person", &["link", "active"])];

/// The members of a type that decide about access; empty for other types.
fn deciding_members(kind: &str) -> &'static [&'static str] {
    RELATIONS.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, members)| *members)
}

/// Checks that a write through a view of patients leaves the relation of a carer as it is. A new resource
/// has no effect until an administrator names it as the `fhirUser` of a user.
///
/// # Errors
/// Returns [`ResourceError::Relation`] if it does not.
pub(super) fn check_unchanged(
    prepared: &PreparedResource,
    replaced: Option<&Version>,
) -> Result<(), ResourceError> {
    let members = deciding_members(prepared.kind);
    let Some(replaced) = replaced.filter(|_| !members.is_empty()) else { return Ok(()) };
    let refuse =
        |member| ResourceError::Relation { key: format!("{}/{}", prepared.kind, prepared.id), member };
    // A resource that was deleted would relate its user again.
    let Some(before) = &replaced.body else { return Err(refuse("deleted")) };
    let parse = |bytes: &[u8]| serde_json::from_slice::<Map<String, Value>>(bytes).ok();
    let (before, after) = (parse(before), parse(&prepared.draft.bytes));
    let value = |of: &Option<Map<String, Value>>, member: &str| of.as_ref()?.get(member).cloned();
    match members.iter().find(|member| value(&before, member) != value(&after, member)) {
        Some(member) => Err(refuse(member)),
        None => Ok(()),
    }
}

/// Checks that a resource is no relation, which a view of patients does not delete.
///
/// # Errors
/// Returns [`ResourceError::Relation`] if it is one.
pub(super) fn check_deletable(kind: &str, id: &str) -> Result<(), ResourceError> {
    match deciding_members(kind).first() {
        Some(member) => Err(ResourceError::Relation { key: format!("{kind}/{id}"), member }),
        None => Ok(()),
    }
}
