//! The elements of each resource type and data type of FHIR R4.
//!
//! `cargo xtask gen-fhir-tables` generates the table from HL7's structure definitions 4.0.1. Each line
//! contains the name of a structure and its elements with their types. A structure is a resource type, a data
//! type, or an element with elements of its own, such as `Patient.contact`. `name!` is mandatory, `name*`
//! repeats, `name+` is in the summary, and `value[x]` is a choice of data types. `Resource` as a type is a
//! resource of any type.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::primitive::Primitive;

const TABLE: &str = include_str!("../data/structures.txt");

/// An element of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Name of the element. For a choice of data types, the name without `[x]`.
    pub name: &'static str,
    /// `true` for a choice of data types. Its JSON name ends with the data type.
    pub is_choice: bool,
    /// `true` if FHIR requires at least one value.
    pub is_mandatory: bool,
    /// `true` if the element may have several values, so that its value in JSON is an array.
    pub repeats: bool,
    /// `true` if the element is in the summary of a resource.
    pub is_summary: bool,
    /// Data types of the values.
    pub types: Vec<&'static str>,
}

/// A resource type, a data type, or an element with elements of its own.
#[derive(Debug)]
pub struct Structure {
    /// The elements, in the order of the definition.
    pub elements: Vec<Element>,
    /// The members of the JSON object, except `resourceType`, by name.
    members: HashMap<&'static str, Member>,
    /// The mandatory elements: a bit for the index of each.
    mandatory: u128,
}

/// A member of the JSON object of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// Name of the member, such as `valueQuantity`.
    pub name: &'static str,
    pub element: usize,
    /// The form of each of its values.
    pub content: Content,
}

/// The form of the value of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Primitive(Primitive),
    /// An object with the elements of the structure at this index of the table.
    Structure(usize),
    Resource,
}

struct Structures {
    all: Vec<Structure>,
    indexes: HashMap<&'static str, usize>,
}

fn structures() -> &'static Structures {
    static STRUCTURES: OnceLock<Structures> = OnceLock::new();
    STRUCTURES.get_or_init(|| {
        let names = TABLE.lines().map(|line| line.split(' ').next().unwrap_or_default());
        let indexes = names.enumerate().map(|(index, name)| (name, index)).collect();
        let all = TABLE.lines().map(|line| Structure::parse(line, &indexes)).collect();
        Structures { all, indexes }
    })
}

/// The structure with this name, such as `Patient` or `Patient.contact`.
pub(crate) fn structure(name: &str) -> Option<&'static Structure> {
    structures().indexes.get(name).map(|&index| structure_at(index))
}

/// The structure at an index of the table.
pub(crate) fn structure_at(index: usize) -> &'static Structure {
    &structures().all[index]
}

/// The elements of a structure, in the order of its definition. A name that FHIR R4 does not have has none.
pub fn elements(name: &str) -> &'static [Element] {
    structure(name).map_or(&[], |structure| &structure.elements)
}

impl Structure {
    /// Parses a line of the table. `indexes` contains the index of each structure.
    fn parse(line: &'static str, indexes: &HashMap<&str, usize>) -> Self {
        let elements: Vec<_> = line.split(' ').skip(1).map(Element::parse).collect();
        let content = |data: &str| match Primitive::of(data) {
            Some(primitive) => Content::Primitive(primitive),
            // A test checks that the table contains each structure that it names.
            None => indexes.get(data).map_or(Content::Resource, |&index| Content::Structure(index)),
        };
        let members = elements.iter().enumerate().flat_map(|(index, element)| {
            element.types.iter().map(move |data| {
                let name = element.member(data);
                (name, Member { name, element: index, content: content(data) })
            })
        });
        let members = members.collect();
        let mandatory = elements.iter().enumerate().filter(|(_, element)| element.is_mandatory);
        let mandatory = mandatory.fold(0, |bits, (index, _)| bits | 1 << index);
        Self { elements, members, mandatory }
    }

    /// The mandatory elements that are not present. `present` has a bit for the index of each element.
    pub(crate) fn missing(&self, present: u128) -> impl Iterator<Item = &Element> {
        let missing = self.mandatory & !present;
        let elements = self.elements.iter().enumerate().take_while(move |_| missing != 0);
        elements.filter(move |(index, _)| missing >> index & 1 == 1).map(|(_, element)| element)
    }

    pub(crate) fn member(&self, name: &str) -> Option<Member> {
        self.members.get(name).copied()
    }
}

impl Element {
    fn parse(text: &'static str) -> Self {
        let (marked, types) = text.split_once(':').unwrap_or((text, ""));
        let name = marked.trim_end_matches(['!', '*', '+']);
        let has_mark = |mark| marked[name.len()..].contains(mark);
        let choice = name.strip_suffix("[x]");
        Self {
            name: choice.unwrap_or(name),
            is_choice: choice.is_some(),
            is_mandatory: has_mark('!'),
            repeats: has_mark('*'),
            is_summary: has_mark('+'),
            types: types.split(',').collect(),
        }
    }

    /// The JSON name of the element with a value of this type, such as `valueQuantity`.
    fn member(&self, data: &str) -> &'static str {
        if !self.is_choice {
            return self.name;
        }
        let (first, rest) = data.split_at(1);
        // The table is parsed once, so that these names live as long as the program anyway.
        format!("{}{}{rest}", self.name, first.to_ascii_uppercase()).leak()
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
    fn the_table_contains_each_type_that_it_names() {
        for kind in crate::RESOURCE_TYPES {
            for name in ["id", "meta"] {
                assert!(elements(kind).iter().any(|element| element.name == name), "{kind}.{name}");
            }
        }
        for line in TABLE.lines() {
            let name = line.split(' ').next().unwrap();
            for data in elements(name).iter().flat_map(|element| &element.types) {
                let is_known = Primitive::of(data).is_some() || structure(data).is_some();
                assert!(is_known || *data == "Resource", "{name}: {data}");
            }
        }
        assert_eq!(elements("Pony").len(), 0);
        let most = structures().all.iter().map(|structure| structure.elements.len()).max();
        assert!(most.is_some_and(|most| most < 128), "{most:?}: `mandatory` has a bit for each element");
    }

    #[test]
    fn the_marks_of_elements_are_parsed() {
        let find = |kind, name| elements(kind).iter().find(|element| element.name == name).unwrap();
        let check = |element: &Element, marks: [bool; 4], types: &[&str]| {
            let Element { is_choice, is_mandatory, repeats, is_summary, .. } = *element;
            assert_eq!([is_choice, is_mandatory, repeats, is_summary], marks, "{}", element.name);
            assert_eq!(element.types, types, "{}", element.name);
        };
        check(find("Observation", "status"), [false, true, false, true], &["code"]);
        check(find("Observation", "note"), [false, false, true, false], &["Annotation"]);
        let types = ["CodeableConcept", "Reference"];
        check(find("MedicationRequest", "medication"), [true, true, false, true], &types);
        check(find("Patient", "contact"), [false, false, true, false], &["Patient.contact"]);
        check(find("Questionnaire.item", "item"), [false, false, true, false], &["Questionnaire.item"]);
    }

    #[test]
    fn a_choice_has_the_member_of_each_type() {
        let value = Element::parse("value[x]:Quantity,string");
        for member in ["value", "value[x]", "valueQuantity"] {
            assert!(value.has_member(member), "{member}");
        }
        assert!(!value.has_member("valued"));
        assert!(!Element::parse("status!:code").has_member("statusReason"));
        assert!(!Element::parse("status:code").has_member("statusX"));
        let observation = structure("Observation").unwrap();
        let date_time = observation.member("valueDateTime").unwrap();
        assert_eq!(date_time.content, Content::Primitive(Primitive::DateTime));
        assert_eq!(observation.member("value"), None);
    }
}
