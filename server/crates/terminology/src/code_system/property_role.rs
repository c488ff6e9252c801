//! The roles of FHIR's standard concept properties.

/// Prefix of the URIs of FHIR's standard concept properties.
const STANDARD: &str = "http://hl7.org/fhir/concept-properties#";

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
    /// Returns the role of a property by FHIR's name for it.
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

    /// Returns the role of a property with this code and declared URI. A standard URI determines the role. With another
    /// URI, `notSelectable` has no role, but the properties of the hierarchy keep theirs, because LOINC has URIs of its
    /// own.
    pub(super) fn of_property(code: &str, uri: Option<&str>) -> Option<Self> {
        if let Some(name) = uri.and_then(|uri| uri.strip_prefix(STANDARD)) {
            return Self::named(name);
        }
        Self::named(code).filter(|role| uri.is_none() || *role != Self::NotSelectable)
    }
}
