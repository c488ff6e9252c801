//! Primitive values. Beside the member `birthDate`, the member `_birthDate` contains the id and extensions of
//! the value, and in two arrays, `null` holds a place (FHIR R4, JSON representation of resources).

use std::collections::HashMap;

use serde::de::{DeserializeSeed as _, IgnoredAny};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::ElementDefects;
use super::object::{ObjectSeed, Occurrence, form_name, shortened};
use super::path::ElementPath;
use crate::primitive::{JsonForm, Primitive};
use crate::structures::{Structure, structure};
use crate::{IssueCode, Text};

/// The value of a primitive element, or all of its values.
pub(super) struct PrimitiveValue<'de> {
    pub primitive: Primitive,
    pub json: &'de RawValue,
}

/// The arrays of primitive values in one object.
#[derive(Default)]
pub(super) struct PrimitiveMembers {
    /// Elements with the indexes at which their array is `null`.
    nulls: SmallVec<[(usize, Vec<usize>); 1]>,
    /// Elements with the indexes at which the array beside them has more than an id.
    companions: SmallVec<[(usize, Vec<usize>); 1]>,
}

impl PrimitiveMembers {
    /// Reads the values of a primitive element.
    pub fn value(
        &mut self,
        element: usize,
        value: PrimitiveValue<'_>,
        occurrence: Occurrence,
        defects: &mut ElementDefects,
        path: &ElementPath<'_>,
    ) {
        let Some(items) = array_items(value.json, occurrence, defects, path) else {
            return match value.json.get() {
                "null" => defects.add_null(path),
                _ => value.check(defects, path),
            };
        };
        let mut nulls = Vec::new();
        for (index, json) in items.into_iter().enumerate() {
            match json.get() {
                "null" => nulls.push(index),
                _ => PrimitiveValue { json, ..value }.check(defects, &path.at(index)),
            }
        }
        if !nulls.is_empty() {
            self.nulls.push((element, nulls));
        }
    }

    /// Reads what accompanies the values of a primitive element.
    pub fn companion(
        &mut self,
        element: usize,
        occurrence: Occurrence,
        defects: &mut ElementDefects,
        path: &ElementPath<'_>,
        json: &RawValue,
    ) {
        let Some(items) = array_items(json, occurrence, defects, path) else {
            return check_companion(json, defects, path);
        };
        let mut present = Vec::new();
        for (index, item) in items.into_iter().enumerate().filter(|(_, item)| item.get() != "null") {
            if has_content(item) {
                present.push(index);
            }
            check_companion(item, defects, &path.at(index));
        }
        self.companions.push((element, present));
    }

    /// Adds a defect for each `null` of an array that has nothing but an id beside it.
    pub fn check_nulls(&self, structure: &Structure, defects: &mut ElementDefects, path: &ElementPath<'_>) {
        for (element, nulls) in &self.nulls {
            let companion = self.companions.iter().find(|(companion, _)| companion == element);
            let companion_members = companion.map_or(&[][..], |(_, present)| present);
            for &index in nulls.iter().filter(|index| !companion_members.contains(index)) {
                defects.add_null(&path.element(structure.elements[*element].name).at(index));
            }
        }
    }
}

/// The items of an array, or `None` for another value. The array is checked, but not its items.
fn array_items<'de>(
    json: &'de RawValue,
    occurrence: Occurrence,
    defects: &mut ElementDefects,
    path: &ElementPath<'_>,
) -> Option<Vec<&'de RawValue>> {
    if !json.get().starts_with('[') {
        defects.check_alone(occurrence, path);
        return None;
    }
    defects.check_array(occurrence, path);
    let items: Vec<_> = serde_json::from_str(json.get()).unwrap_or_default();
    if items.is_empty() {
        defects.add_empty(path, "the array");
    }
    Some(items)
}

/// `true` if an object has a member in addition to its id. An element must have a value or children, and an
/// id is no child that counts (FHIR R4, Element, ele-1).
fn has_content(object: &RawValue) -> bool {
    let members: HashMap<String, IgnoredAny> = serde_json::from_str(object.get()).unwrap_or_default();
    members.keys().any(|name| name != "id")
}

/// Checks the object beside a primitive value, which has the elements of the type Element.
fn check_companion(json: &RawValue, defects: &mut ElementDefects, path: &ElementPath<'_>) {
    let structure = structure("Element").expect("the table contains Element");
    let seed = ObjectSeed { defects, structure, is_resource: false, path };
    if let Err(error) = seed.deserialize(&mut serde_json::Deserializer::from_str(json.get())) {
        defects.add(path, IssueCode::Structure, true, || format!("cannot be read: {error}"));
    }
}

impl PrimitiveValue<'_> {
    /// Checks one value, which is not `null`.
    fn check(&self, defects: &mut ElementDefects, path: &ElementPath<'_>) {
        let json = self.json.get();
        let first = json.as_bytes()[0];
        let (form, expected) = match self.primitive.json_form() {
            JsonForm::Boolean => (matches!(first, b't' | b'f'), "a boolean"),
            JsonForm::Number => (matches!(first, b'-' | b'0'..=b'9'), "a number"),
            JsonForm::String => (first == b'"', "a string"),
        };
        if !form {
            defects.add_other_form(path, expected, form_name(first));
        } else if first != b'"' {
            self.check_format(json, defects, path);
        } else if json == r#""""# {
            defects.add_empty(path, "the string");
        } else if json.contains('\\') && !self.begins_as_xhtml() {
            let text: Text<'_> = serde_json::from_str(json).unwrap_or_default();
            self.check_format(&text, defects, path);
        } else {
            self.check_format(&json[1..json.len() - 1], defects, path);
        }
    }

    /// `true` for XHTML that begins as it must, so that its escapes, of which there are many, need not be
    /// decoded.
    fn begins_as_xhtml(&self) -> bool {
        self.primitive == Primitive::Xhtml && self.json.get().starts_with("\"<div")
    }

    fn check_format(&self, value: &str, defects: &mut ElementDefects, path: &ElementPath<'_>) {
        if self.primitive == Primitive::Id && defects.ids.permits(value) {
            return;
        }
        if let Err(defect) = self.primitive.check(value) {
            defects.add(path, IssueCode::Value, defect.is_unreadable, || {
                format!("'{}' is not {}", shortened(value), defect.expected)
            });
        }
    }
}
