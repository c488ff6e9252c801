//! The description of a code system as a release states it.

use terminology::indexing::{ContentMode, HierarchyMeaning, PropertyDefinition, ResourceHeader};

/// Describes a release that has all codes, compares them exactly and has an is-a hierarchy. Readers change
/// what differs.
pub(crate) fn release_header(url: &str, version: &str, name: &str, title: &str) -> ResourceHeader {
    ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        url: Some(url.to_owned()),
        version: Some(version.to_owned()),
        name: Some(name.to_owned()),
        title: Some(title.to_owned()),
        status: Some("active".to_owned()),
        content: Some(ContentMode::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        language: Some("en".to_owned()),
        ..ResourceHeader::default()
    }
}

/// Describes a property by its code and its type in FHIR, such as `string`.
pub(crate) fn property(code: &str, kind: &str) -> PropertyDefinition {
    PropertyDefinition {
        code: code.to_owned(),
        r#type: Some(kind.to_owned()),
        ..PropertyDefinition::default()
    }
}
