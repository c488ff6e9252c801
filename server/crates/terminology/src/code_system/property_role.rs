//! The roles of FHIR's standard concept properties.

use crate::model::concept_extensions::STANDARD_PROPERTIES;

/// Role of a standard property, regardless of its code in the code system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyRole {
    Inactive,
    Status,
    Deprecated,
    NotSelectable,
    Parent,
    Child,
}

impl PropertyRole {
    /// The role of a property by FHIR's name for it.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "inactive" => Self::Inactive,
            "status" => Self::Status,
            "deprecated" => Self::Deprecated,
            "notSelectable" => Self::NotSelectable,
            // Before R4, the property for parents was named `subsumedBy`.
            "parent" | "subsumedBy" => Self::Parent,
            "child" => Self::Child,
            _ => return None,
        })
    }

    /// The role of a property with this code and declared URI. The URI of a standard property determines the
    /// role. With any other URI the code does, because code systems such as LOINC have URIs of their own.
    pub(super) fn of_property(code: &str, uri: Option<&str>) -> Option<Self> {
        let standard = uri.and_then(|uri| uri.strip_prefix(STANDARD_PROPERTIES));
        standard.and_then(Self::named).or_else(|| Self::named(code))
    }
}
