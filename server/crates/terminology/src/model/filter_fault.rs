//! Why a filter of a value set cannot be applied.

/// A filter of a value set that cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", filter_fault(self))]
pub struct FilterFault {
    /// Canonical URL of the filtered code system.
    pub system: String,
    /// Property of the filter.
    pub property: String,
    /// Operator of the filter.
    pub op: String,
    /// Value of the filter; empty if the fault is that it has none.
    pub value: String,
    /// Path of the filter, such as `ValueSet.compose.include[0].filter[0]`.
    pub at: String,
    /// Reason why the filter is invalid.
    pub reason: String,
    /// Whether the filter is right, but names a concept that the stored version does not have.
    pub is_of_other_version: bool,
}

/// The text with the id `UNABLE_TO_HANDLE_SYSTEM_FILTER_WITH_NO_VALUE`, or our own text for other invalid
/// filters.
pub(crate) fn filter_fault(fault: &FilterFault) -> String {
    let FilterFault { system, property, op, value, reason, .. } = fault;
    match value.as_str() {
        "" => format!("The system {system} filter with property = {property}, op = {op} has no value"),
        _ => format!("The filter {property} {op} '{value}' on the system {system} cannot be used: {reason}"),
    }
}
