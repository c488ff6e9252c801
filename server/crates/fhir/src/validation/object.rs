//! Objects: the members of a structure, and arrays of them.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::ElementDefects;
use super::path::ElementPath;
use super::primitive_value::{PrimitiveMembers, PrimitiveValue};
use crate::structures::{Content, Member, Structure, structure, structure_at};
use crate::{IssueCode, Text};

/// An object with the elements of a structure.
pub(super) struct ObjectSeed<'v, 'p> {
    pub defects: &'v mut ElementDefects,
    pub structure: &'static Structure,
    /// `true` if the object is a resource, which has the member `resourceType`.
    pub is_resource: bool,
    pub path: &'p ElementPath<'p>,
}

/// How many values an element has in JSON, and which of them is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    /// The only value of an element that does not repeat.
    Only,
    /// All values of an element that repeats: an array.
    Array,
    /// An item of such an array.
    Item,
}

impl Occurrence {
    /// The occurrence of all values of an element.
    pub fn of(repeats: bool) -> Self {
        if repeats { Self::Array } else { Self::Only }
    }
}

impl ElementDefects {
    /// Adds the defect of a value that is alone although its element repeats.
    pub(super) fn check_alone(&mut self, occurrence: Occurrence, path: &ElementPath<'_>) {
        if occurrence == Occurrence::Array {
            self.add(path, IssueCode::Structure, false, || {
                "the element repeats, so that its value must be an array".to_owned()
            });
        }
    }

    /// Adds the defect of an array where FHIR does not expect one. Returns whether its items can be read.
    pub(super) fn check_array(&mut self, occurrence: Occurrence, path: &ElementPath<'_>) -> bool {
        match occurrence {
            Occurrence::Array => {}
            Occurrence::Only => self.add(path, IssueCode::Structure, false, || {
                "the element does not repeat, so that its value must not be an array".to_owned()
            }),
            Occurrence::Item => {
                self.add(path, IssueCode::Structure, true, || "an array is within an array".to_owned());
                return false;
            }
        }
        true
    }

    pub(super) fn add_empty(&mut self, path: &ElementPath<'_>, empty: &'static str) {
        self.add(path, IssueCode::Structure, false, || format!("{empty} is empty; leave the element out"));
    }

    pub(super) fn add_null(&mut self, path: &ElementPath<'_>) {
        self.add(path, IssueCode::Structure, false, || "the value is null; leave the element out".to_owned());
    }

    pub(super) fn add_other_form(&mut self, path: &ElementPath<'_>, expected: &str, actual: &str) {
        self.add(path, IssueCode::Structure, true, || format!("{actual} is here instead of {expected}"));
    }
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        let occurrence = Occurrence::Only;
        reader.deserialize_any(StructureValue { object: self, occurrence })
    }
}

/// The value of an element with a structure.
struct StructureValue<'v, 'p> {
    object: ObjectSeed<'v, 'p>,
    occurrence: Occurrence,
}

impl<'de> DeserializeSeed<'de> for StructureValue<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl StructureValue<'_, '_> {
    fn other_form<E>(self, actual: &str) -> Result<(), E> {
        self.object.defects.add_other_form(self.object.path, "an object", actual);
        Ok(())
    }
}

impl<'de> Visitor<'de> for StructureValue<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.object.defects.check_alone(self.occurrence, self.object.path);
        self.object.members(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let ObjectSeed { defects, structure, is_resource, path } = self.object;
        if !defects.check_array(self.occurrence, path) {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        for index in 0.. {
            let path = path.at(index);
            let object = ObjectSeed { defects, structure, is_resource, path: &path };
            let item = StructureValue { object, occurrence: Occurrence::Item };
            if items.next_element_seed(item)?.is_some() {
                continue;
            }
            if index == 0 {
                defects.add_empty(self.object.path, "the array");
            }
            break;
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.object.defects.add_null(self.object.path);
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.other_form("a boolean")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.other_form("a number")
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.other_form("a number")
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.other_form("a number")
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.other_form("a string")
    }
}

impl ObjectSeed<'_, '_> {
    /// Reads the members of the object, and checks which elements they contain.
    fn members<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { defects, structure, is_resource, path } = self;
        let mut is_empty = true;
        let mut elements = PresentElements::default();
        let mut primitives = PrimitiveMembers::default();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            is_empty = false;
            if is_resource && &*name == "resourceType" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            // `_birthDate` has the id and the extensions of `birthDate` (FHIR R4, JSON representation).
            let companion = name.strip_prefix('_');
            let member = structure.member(companion.unwrap_or(&name));
            let is_primitive = member.is_some_and(|member| matches!(member.content, Content::Primitive(_)));
            let Some(member) = member.filter(|_| is_primitive || companion.is_none()) else {
                defects.add(path, IssueCode::Structure, false, || {
                    format!("FHIR R4 has no element '{}' here", shortened(&name))
                });
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let element = &structure.elements[member.element];
            let path = path.element(element.name);
            elements.add(member, element.is_choice, defects, &path);
            let occurrence = Occurrence::of(element.repeats);
            match member.content {
                Content::Primitive(_) if companion.is_some() => {
                    primitives.companion(member.element, occurrence, defects, &path, map.next_value()?);
                }
                Content::Primitive(primitive) => {
                    let value = PrimitiveValue { primitive, json: map.next_value()? };
                    primitives.value(member.element, value, occurrence, defects, &path);
                }
                Content::Structure(index) => {
                    let structure = structure_at(index);
                    let object = ObjectSeed { defects, structure, is_resource: false, path: &path };
                    map.next_value_seed(StructureValue { object, occurrence })?;
                }
                Content::Resource => resource(map.next_value()?, occurrence, defects, path),
            }
        }
        // Values and companions are separate members in any order, so that both are known only here.
        primitives.check_nulls(structure, defects, path);
        if is_empty {
            defects.add_empty(path, "the object");
        }
        for element in structure.missing(elements.present) {
            defects.add(&path.element(element.name), IssueCode::Required, false, || {
                "the element is mandatory, but missing".to_owned()
            });
        }
        Ok(())
    }
}

/// The elements of an object that were read.
#[derive(Default)]
struct PresentElements {
    /// A bit for the index of each element.
    present: u128,
    /// The members of elements that are choices of data types.
    choices: SmallVec<[Member; 2]>,
}

impl PresentElements {
    /// Adds the element of a member. A choice must not have members of two data types.
    fn add(&mut self, member: Member, is_choice: bool, defects: &mut ElementDefects, path: &ElementPath<'_>) {
        self.present |= 1 << member.element;
        if !is_choice {
            return;
        }
        match self.choices.iter().find(|choice| choice.element == member.element) {
            Some(other) if other.name != member.name => {
                defects.add(path, IssueCode::Structure, false, || {
                    format!("the element has a value as '{}' and one as '{}'", other.name, member.name)
                })
            }
            Some(_) => {}
            None => self.choices.push(member),
        }
    }
}

/// The member of a resource from which its type is known.
#[derive(Deserialize)]
struct ResourceKind<'a> {
    #[serde(borrow, rename = "resourceType")]
    kind: Text<'a>,
}

/// Reads a resource within another one, or an array of them. Its text is read twice, because its type may
/// follow its elements.
fn resource(json: &RawValue, occurrence: Occurrence, defects: &mut ElementDefects, path: ElementPath<'_>) {
    let text = json.get();
    match text.as_bytes()[0] {
        b'[' => {
            if !defects.check_array(occurrence, &path) {
                return;
            }
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            if items.is_empty() {
                defects.add_empty(&path, "the array");
            }
            for (index, item) in items.into_iter().enumerate() {
                resource(item, Occurrence::Item, defects, path.at(index));
            }
        }
        b'{' => {
            defects.check_alone(occurrence, &path);
            let kind = serde_json::from_str::<ResourceKind<'_>>(text).ok();
            let kind = kind.as_ref().map(|resource| &*resource.kind);
            let resource_type =
                kind.filter(|kind| crate::resource_type(kind).is_some() || *kind == "Parameters");
            let Some(structure) = resource_type.and_then(structure) else {
                defects.add(&path, IssueCode::Structure, true, || match kind {
                    Some(kind) => format!("'{}' is not a resource type of FHIR R4", shortened(kind)),
                    None => "'resourceType' is missing or not a string".to_owned(),
                });
                return;
            };
            let seed = ObjectSeed { defects, structure, is_resource: true, path: &path };
            if let Err(error) = seed.deserialize(&mut serde_json::Deserializer::from_str(text)) {
                defects.add(&path, IssueCode::Structure, true, || format!("cannot be read: {error}"));
            }
        }
        b'n' => defects.add_null(&path),
        first => defects.add_other_form(&path, "a resource", form_name(first)),
    }
}

/// The JSON type of a value that begins with this byte.
pub(super) fn form_name(first: u8) -> &'static str {
    match first {
        b'{' => "an object",
        b'[' => "an array",
        b'"' => "a string",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    }
}

/// The first characters of a text that a description repeats.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
