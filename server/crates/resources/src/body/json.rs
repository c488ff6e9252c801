//! Reads the values at a path of a resource as borrowed slices, without building a tree. All other values are
//! skipped.

use std::fmt;

pub use fhir::Text;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Adds the values at `path` in `value` to `values_found`. Arrays on the path and at its end are traversed.
/// Invalid JSON has no values.
pub fn values<'a>(value: &'a RawValue, path: &[&str], values_found: &mut Vec<&'a RawValue>) {
    let text = value.get();
    match (text.as_bytes().first(), path) {
        (Some(b'['), _) => {
            for item in serde_json::from_str::<Vec<&RawValue>>(text).unwrap_or_default() {
                values(item, path, values_found);
            }
        }
        (Some(b'n'), _) => {}
        (_, []) => values_found.push(value),
        (Some(b'{'), [name, rest @ ..]) => {
            let mut reader = serde_json::Deserializer::from_str(text);
            if let Ok(Some(member)) = MemberOf(name).deserialize(&mut reader) {
                values(member, rest, values_found);
            }
        }
        _ => {}
    }
}

/// Deserializes one member of an object.
struct MemberOf<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for MemberOf<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MemberOf<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut value_of_name = None;
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if &*name == self.0 {
                value_of_name = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(value_of_name)
    }
}

/// The unescaped text of a JSON string.
pub fn text(value: &RawValue) -> Option<Text<'_>> {
    serde_json::from_str(value.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_on_the_path_are_traversed() {
        #[track_caller]
        fn check(json: &str, path: &str, expected: &[&str]) {
            let value: &RawValue = serde_json::from_str(json).unwrap();
            let mut targets = Vec::new();
            values(value, &path.split('.').collect::<Vec<_>>(), &mut targets);
            assert_eq!(
                targets.iter().map(|value| value.get()).collect::<Vec<_>>(),
                expected,
                "{json} {path}"
            );
        }
        let json = r#"{"x":{"b":0},"a":[{"b":1},{"c":[{"b":2}],"b":[3,null,[4]]},5,null],"d":null}"#;
        check(json, "a.b", &["1", "3", "4"]);
        check(json, "a.c.b", &["2"]);
        check(json, "x.b", &["0"]);
        check(json, "d", &[]);
        check(json, "x.b.c", &[]);
        check(json, "y", &[]);
        check(r#"{"\u0061":1}"#, "a", &["1"]);
    }
}
