//! Extensions of concepts that an expansion repeats (HL7's terminology ecosystem): some become properties of
//! the code, the others stay extensions.

use super::resource_json::{NamedValue, STANDARDS_STATUS};

/// Prefix of the URIs of FHIR's standard concept properties.
pub(crate) const STANDARD_PROPERTIES: &str = "http://hl7.org/fhir/concept-properties#";

/// How an expansion repeats an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepeatedAs {
    /// As a property with this code and name among FHIR's standard properties.
    Property {
        code: &'static str,
        standard: &'static str,
    },
    Extension,
}

/// An extension that an expansion repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepeatedExtension {
    /// URL in a concept of a CodeSystem, if it can occur there.
    pub(crate) in_system: Option<&'static str>,
    /// URL in a concept that a ValueSet lists.
    pub(crate) in_value_set: &'static str,
    /// Type of the value in an expansion.
    pub(crate) kind: &'static str,
    pub(crate) repeated_as: RepeatedAs,
}

macro_rules! structure {
    ($name:literal) => {
        concat!("http://hl7.org/fhir/StructureDefinition/", $name)
    };
}

/// The extensions that an expansion repeats. The one of a value set takes precedence over the one of a code
/// system.
pub(crate) const REPEATED: &[RepeatedExtension] = &[
    property(Some(structure!("itemWeight")), structure!("itemWeight"), "Decimal", "weight", "itemWeight"),
    property(Some(structure!("codesystem-label")), structure!("valueset-label"), "String", "label", "label"),
    property(
        Some(structure!("codesystem-conceptOrder")),
        structure!("valueset-conceptOrder"),
        "Decimal",
        "order",
        "order",
    ),
    extension(None, structure!("valueset-deprecated"), "Boolean"),
    extension(None, structure!("valueset-concept-definition"), "String"),
    extension(Some(structure!("rendering-style")), structure!("rendering-style"), "String"),
    extension(Some(structure!("rendering-xhtml")), structure!("rendering-xhtml"), "String"),
];

const fn property(
    in_system: Option<&'static str>,
    in_value_set: &'static str,
    kind: &'static str,
    code: &'static str,
    standard: &'static str,
) -> RepeatedExtension {
    let repeated_as = RepeatedAs::Property { code, standard };
    RepeatedExtension { in_system, in_value_set, kind, repeated_as }
}

const fn extension(
    in_system: Option<&'static str>,
    in_value_set: &'static str,
    kind: &'static str,
) -> RepeatedExtension {
    RepeatedExtension { in_system, in_value_set, kind, repeated_as: RepeatedAs::Extension }
}

/// The extensions of a concept of a code system that are stored with it: those that an expansion repeats, and
/// the standards status. They are stored as properties with their URL as name.
pub(crate) fn stored_with_concept<'e>(
    extensions: &'e [NamedValue<'_>],
) -> impl Iterator<Item = (&'static str, &'e str)> {
    let is_repeated = |name: &str| {
        let repeated = REPEATED.iter().find_map(|one| one.in_system.filter(|url| *url == name));
        repeated.or_else(|| (name == STANDARDS_STATUS).then_some(STANDARDS_STATUS))
    };
    extensions.iter().filter_map(move |one| Some((is_repeated(&one.name)?, one.value.as_deref()?)))
}

/// The position in [`REPEATED`] and the value of each extension of a listed concept that an expansion
/// repeats.
pub(crate) fn stored_with_listed_code(extensions: &[NamedValue<'_>]) -> Vec<(u8, Box<str>)> {
    let is_repeated = |one: &NamedValue<'_>| {
        let index = REPEATED.iter().position(|repeated| repeated.in_value_set == &*one.name)?;
        Some((index as u8, Box::from(one.value.as_deref()?)))
    };
    extensions.iter().filter_map(is_repeated).collect()
}

/// The URI of one of FHIR's standard concept properties.
pub(crate) fn standard_property_uri(code: &str) -> Option<String> {
    const NAMES: &[(&str, &str)] = &[
        ("child", "child"),
        ("comment", "comment"),
        ("definition", "definition"),
        ("deprecated", "deprecated"),
        ("inactive", "inactive"),
        ("label", "label"),
        ("notSelectable", "notSelectable"),
        ("order", "order"),
        ("parent", "parent"),
        ("status", "status"),
        ("weight", "itemWeight"),
    ];
    let (_, name) = NAMES.iter().find(|(key, _)| *key == code)?;
    Some(format!("{STANDARD_PROPERTIES}{name}"))
}
