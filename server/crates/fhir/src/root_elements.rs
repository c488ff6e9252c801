//! The root elements of each resource type of FHIR R4.
//!
//! `cargo xtask gen-fhir-tables` generates the table from HL7's structure definitions 4.0.1. Each line
//! contains a resource type and its root elements: `name!` is mandatory, `name+` is in the summary, and
//! `value[x]` is a choice of data types.

const TABLE: &str = include_str!("../data/root-elements.txt");

/// A root element of a resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootElement {
    /// Name of the element. For a choice of data types, the name without `[x]`.
    pub name: &'static str,
    /// `true` for a choice of data types. Its JSON name ends with the data type.
    pub is_choice: bool,
    /// `true` if FHIR requires at least one value.
    pub is_mandatory: bool,
    /// `true` if the element is in the summary of a resource.
    pub is_summary: bool,
}

/// The root elements of a resource type, in the order of its definition.
pub fn root_elements(kind: &str) -> impl Iterator<Item = RootElement> {
    let row = TABLE.lines().find_map(|row| row.strip_prefix(kind)?.strip_prefix(' '));
    row.into_iter().flat_map(|row| row.split(' ')).map(RootElement::parse)
}

impl RootElement {
    fn parse(written: &'static str) -> Self {
        let is_summary = written.ends_with('+');
        let written = written.trim_end_matches('+');
        let is_mandatory = written.ends_with('!');
        let written = written.trim_end_matches('!');
        let choice = written.strip_suffix("[x]");
        Self { name: choice.unwrap_or(written), is_choice: choice.is_some(), is_mandatory, is_summary }
    }

    /// `true` if a JSON member with this name belongs to the element. For a choice of data types, these are
    /// `value[x]` and names such as `valueQuantity`, in which the data type begins with a capital letter.
    pub fn has_member(&self, member: &str) -> bool {
        let rest = member.strip_prefix(self.name);
        rest.is_some_and(|rest| {
            rest.is_empty()
                || (self.is_choice && (rest == "[x]" || rest.starts_with(|c: char| c.is_ascii_uppercase())))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_contains_each_type() {
        for kind in crate::RESOURCE_TYPES {
            for name in ["id", "meta"] {
                assert!(root_elements(kind).any(|root| root.name == name), "{kind}.{name}");
            }
        }
        assert_eq!(TABLE.lines().count(), crate::RESOURCE_TYPES.len());
        assert_eq!(root_elements("Pony").count(), 0);
    }

    #[test]
    fn the_marks_of_mandatory_and_choice_elements_are_parsed() {
        let find = |kind, name| root_elements(kind).find(|root| root.name == name).unwrap();
        let element = |name, is_choice, is_mandatory, is_summary| RootElement {
            name,
            is_choice,
            is_mandatory,
            is_summary,
        };
        assert_eq!(find("Observation", "status"), element("status", false, true, true));
        assert_eq!(find("Observation", "value"), element("value", true, false, true));
        assert_eq!(find("Observation", "note"), element("note", false, false, false));
        assert_eq!(find("MedicationRequest", "medication"), element("medication", true, true, true));
    }

    #[test]
    fn a_choice_has_the_member_of_each_type() {
        let value = RootElement::parse("value[x]");
        for member in ["value", "value[x]", "valueQuantity"] {
            assert!(value.has_member(member), "{member}");
        }
        assert!(!value.has_member("valued"));
        assert!(!RootElement::parse("status!").has_member("statusReason"));
        assert!(!RootElement::parse("status").has_member("statusX"));
    }
}
