//! `_elements` and `_summary`: reduce resources to some of their top-level elements.
//!
//! Members are copied as borrowed slices, without parsing nested elements. Elements that FHIR R4 makes
//! mandatory are kept, as are `resourceType`, `id` and `meta`, to which the tag SUBSETTED is added.

use std::fmt;

use fhir::structures::{Element, elements};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::body::json::Text;

/// Tag that marks an incomplete resource (FHIR R4 search, `_elements`).
const SUBSETTED: &str =
    r#"{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue","code":"SUBSETTED"}"#;

/// Checks one value of the list: `Type.element` or `element`.
///
/// # Errors
/// Returns a text that describes why the value is invalid.
pub fn check_element(value: &str) -> Result<(), String> {
    let (kind, name) = match value.split_once('.') {
        Some((kind, name)) => {
            let kind_name = fhir::resource_type(kind);
            (Some(kind_name.ok_or_else(|| fhir::not_a_type(kind))?), name)
        }
        None => (None, value),
    };
    if let Some((root, _)) = name.split_once('.') {
        let top = kind.map_or_else(|| root.to_owned(), |kind| format!("{kind}.{root}"));
        return Err(format!("_elements accepts only top-level elements: use '{top}' instead of '{value}'"));
    }
    // A member of JSON only, which every result has; fhirpy always requests it.
    if name == "resourceType" {
        return Ok(());
    }
    let has = |kind: &str| elements(kind).iter().any(|root| root.has_member(name));
    let is_known = match kind {
        Some(kind) => has(kind),
        None => fhir::RESOURCE_TYPES.iter().any(|kind| has(kind)),
    };
    if is_known { Ok(()) } else { Err(format!("'{value}' is not a root element of FHIR R4")) }
}

/// The parts of a resource that `_summary` can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summary {
    /// `true`: the elements that FHIR marks as summary.
    Summary,
    /// `text`: the narrative.
    Text,
    /// `data`: everything except the narrative.
    Data,
}

/// The elements of one type that results include.
#[derive(Debug, Clone)]
pub struct ElementProjection {
    kept: Vec<&'static Element>,
    /// Members requested by a JSON name that includes the data type, such as `valueQuantity`.
    exact: Vec<String>,
}

impl ElementProjection {
    /// Creates a projection from values that [`check_element`] accepts.
    pub fn new(kind: &str, requested: &[String]) -> Self {
        let requested: Vec<&str> = requested
            .iter()
            .filter_map(|element| match element.split_once('.') {
                Some((named, name)) => (named == kind).then_some(name),
                None => Some(element.as_str()),
            })
            .collect();
        let is_asked = |root: &&'static Element| {
            let names = |requested: &&str| match requested.strip_suffix("[x]") {
                Some(name) => root.is_choice && name == root.name,
                None => *requested == root.name,
            };
            ["id", "meta"].contains(&root.name) || root.is_mandatory || requested.iter().any(names)
        };
        let members = elements(kind).iter().filter(is_asked).collect();
        let exact = requested
            .iter()
            .filter(|requested| !requested.ends_with("[x]"))
            .map(|requested| (*requested).to_owned())
            .collect();
        Self { kept: members, exact }
    }

    /// Creates a projection for a value of `_summary`.
    pub fn summary(kind: &str, summary: Summary) -> Self {
        let is_kept = |root: &&'static Element| match summary {
            Summary::Summary => root.is_summary || root.is_mandatory,
            Summary::Text => ["id", "meta", "text"].contains(&root.name) || root.is_mandatory,
            Summary::Data => root.name != "text",
        };
        Self { kept: elements(kind).iter().filter(is_kept).collect(), exact: Vec::new() }
    }

    /// The resource with only the requested elements, or `None` if no element was removed.
    ///
    /// # Errors
    /// Returns an error if the stored bytes are not JSON.
    pub fn apply(&self, resource: &[u8]) -> Result<Option<Vec<u8>>, serde_json::Error> {
        let mut out = Vec::with_capacity(resource.len().min(4096));
        out.push(b'{');
        let mut reader = serde_json::Deserializer::from_slice(resource);
        let dropped = MemberCopier { out: &mut out, choose: |name: &str| self.chooses(name) }
            .deserialize(&mut reader)?;
        out.push(b'}');
        Ok((dropped > 0).then_some(out))
    }

    fn chooses(&self, name: &str) -> MemberChoice {
        // `_birthDate` contains the extensions of `birthDate`, so both are kept or removed together.
        let element = name.strip_prefix('_').unwrap_or(name);
        if name == "meta" {
            MemberChoice::Tag
        } else if element == "resourceType"
            || self.kept.iter().any(|member| member.has_member(element))
            || self.exact.iter().any(|exact| exact == element)
        {
            MemberChoice::Keep
        } else {
            MemberChoice::Drop
        }
    }
}

enum MemberChoice {
    Keep,
    Drop,
    /// Copy the member, and add the tag.
    Tag,
}

/// Copies the selected members of an object and counts the others.
struct MemberCopier<'o, F> {
    out: &'o mut Vec<u8>,
    choose: F,
}

impl<'de, F: Fn(&str) -> MemberChoice> DeserializeSeed<'de> for MemberCopier<'_, F> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<usize, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, F: Fn(&str) -> MemberChoice> Visitor<'de> for MemberCopier<'_, F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a resource")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let mut dropped = 0;
        while let Some(name) = map.next_key::<Text<'de>>()? {
            let value: &RawValue = map.next_value()?;
            let choice = (self.choose)(&name);
            if matches!(choice, MemberChoice::Drop) {
                dropped += 1;
                continue;
            }
            if self.out.len() > 1 {
                self.out.push(b',');
            }
            serde_json::to_writer(&mut *self.out, &*name).map_err(serde::de::Error::custom)?;
            self.out.push(b':');
            match choice {
                MemberChoice::Tag => tag(self.out, value.get()),
                _ => self.out.extend_from_slice(value.get().as_bytes()),
            }
        }
        Ok(dropped)
    }
}

/// Copies `meta` and adds the tag.
fn tag(out: &mut Vec<u8>, meta: &str) {
    let parsed: Result<Vec<(String, &RawValue)>, _> = members(meta);
    let mut tags = None;
    out.push(b'{');
    for (name, value) in parsed.unwrap_or_default() {
        if name == "tag" {
            tags = Some(value.get());
            continue;
        }
        // A name may contain characters that JSON escapes.
        out.extend_from_slice(serde_json::Value::from(name).to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
        out.push(b',');
    }
    let others = tags.and_then(|tags| tags.strip_prefix('[')?.strip_suffix(']')).unwrap_or_default().trim();
    let comma = if others.is_empty() { "" } else { "," };
    out.extend_from_slice(format!("\"tag\":[{others}{comma}{SUBSETTED}]}}").as_bytes());
}

/// The members of an object in order.
fn members(object: &str) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    struct All;
    impl<'de> Visitor<'de> for All {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(entry) = map.next_entry()? {
                all.push(entry);
            }
            Ok(all)
        }
    }
    serde_json::Deserializer::from_str(object).deserialize_map(All)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_elements_are_accepted() {
        for good in [
            "id",
            "resourceType",
            "Patient.resourceType",
            "Patient.name",
            "Observation.value[x]",
            "valueQuantity",
        ] {
            assert_eq!(check_element(good), Ok(()), "{good}");
        }
        for (bad, reason) in [
            ("", "'' is not a root element"),
            ("Patient.nome", "'Patient.nome' is not a root element"),
            ("Patient.", "is not a root element"),
            ("Pony.name", "'Pony' is not a resource type"),
            ("Patient.name.family", "use 'Patient.name' instead of 'Patient.name.family'"),
            ("Observation.birthDate", "is not a root element"),
            ("namex", "is not a root element"),
        ] {
            assert!(check_element(bad).unwrap_err().contains(reason), "{bad}");
        }
    }

    #[test]
    fn selected_elements_remain() {
        #[track_caller]
        fn keep(elements: &[&str], resource: &str, expected: Option<&str>) {
            let kind = serde_json::from_str::<serde_json::Value>(resource).unwrap()["resourceType"].clone();
            let elements: Vec<String> = elements.iter().map(|element| (*element).to_owned()).collect();
            let projection = ElementProjection::new(kind.as_str().unwrap(), &elements);
            let out = projection.apply(resource.as_bytes()).unwrap();
            assert_eq!(out.map(|out| String::from_utf8(out).unwrap()).as_deref(), expected);
        }
        let tagged = |meta: &str| format!(r#""meta":{{{meta}"tag":[{SUBSETTED}]}}"#);
        let patient = r#"{"resourceType":"Patient","id":"p","meta":{"versionId":"1"},"name":[{"family":"x"}],"birthDate":"2000","_birthDate":{"id":"b"},"gender":"other"}"#;
        let meta = tagged(r#""versionId":"1","#);
        keep(
            &["gender"],
            patient,
            Some(&format!(r#"{{"resourceType":"Patient","id":"p",{meta},"gender":"other"}}"#)),
        );
        keep(
            &["Patient.birthDate", "Observation.code"],
            patient,
            Some(&format!(
                r#"{{"resourceType":"Patient","id":"p",{meta},"birthDate":"2000","_birthDate":{{"id":"b"}}}}"#
            )),
        );
        keep(&["name", "birthDate", "gender"], patient, None);
        let observation = r#"{"id":"o","resourceType":"Observation","meta":{"tag":[{"code":"a"}],"versionId":"1"},"status":"final","code":{},"valueQuantity":{"value":1},"valued":1}"#;
        let meta = format!(r#""meta":{{"versionId":"1","tag":[{{"code":"a"}},{SUBSETTED}]}}"#);
        let head = format!(r#"{{"id":"o","resourceType":"Observation",{meta},"status":"final","code":{{}}"#);
        keep(&["id"], observation, Some(&format!("{head}}}")));
        for value in ["value", "value[x]", "valueQuantity"] {
            keep(&[value], observation, Some(&format!(r#"{head},"valueQuantity":{{"value":1}}}}"#)));
        }
        let patient =
            r#"{"resourceType":"Patient","id":"p","meta":{},"text":{},"gender":"other","photo":[]}"#;
        for (summary, expected) in [
            (Summary::Summary, r#","gender":"other"}"#),
            (Summary::Text, r#","text":{}}"#),
            (Summary::Data, r#","gender":"other","photo":[]}"#),
        ] {
            let out =
                ElementProjection::summary("Patient", summary).apply(patient.as_bytes()).unwrap().unwrap();
            let head = format!(r#"{{"resourceType":"Patient","id":"p",{}"#, tagged(""));
            assert_eq!(String::from_utf8(out).unwrap(), format!("{head}{expected}"), "{summary:?}");
        }
        let escaped = r#"{"resourceType":"Patient","id":"p","meta":{"a\"b":1},"photo":[]}"#;
        let meta = tagged(r#""a\"b":1,"#);
        keep(&["gender"], escaped, Some(&format!(r#"{{"resourceType":"Patient","id":"p",{meta}}}"#)));
        keep(&["valueString"], observation, Some(&format!("{head}}}")));
    }
}
