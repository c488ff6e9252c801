//! A JSON writer for responses with known members. It appends each value directly to the bytes of the
//! response. Serde would write a response of `$validate-code` in about two hundred small calls, which takes
//! longer than the validation.

use serde_json::value::RawValue;

/// A type with a JSON representation.
pub trait Json {
    /// Appends the value as JSON.
    fn write(&self, out: &mut Vec<u8>);

    /// The value as JSON. The initial capacity is large enough for most responses, so that the buffer rarely
    /// grows.
    fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.write(&mut out);
        out
    }
}

impl Json for RawValue {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.get().as_bytes());
    }
}

impl Json for Box<RawValue> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

impl Json for serde_json::Value {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_string().as_bytes());
    }
}

impl Json for String {
    fn write(&self, out: &mut Vec<u8>) {
        text(self, out);
    }
}

/// Implements `Serialize` by means of [`Json`], for the few places that nest such a value in a serde
/// structure.
macro_rules! serialize {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::Error as _;
                let text = String::from_utf8($crate::json::Json::to_json(self)).map_err(S::Error::custom)?;
                serde_json::value::RawValue::from_string(text).map_err(S::Error::custom)?.serialize(serializer)
            }
        }
    )+};
}
pub(crate) use serialize;

/// Writer of a JSON object. Member names must not need escapes.
pub(crate) struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> Object<'o> {
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }

    /// Appends the name of the next member, which consists of two parts. The caller then appends the value.
    pub(crate) fn member(&mut self, name: [&str; 2]) -> &mut Vec<u8> {
        self.out.extend_from_slice(if self.is_empty { b"\"" } else { b",\"" });
        self.is_empty = false;
        name.iter().for_each(|part| self.out.extend_from_slice(part.as_bytes()));
        self.out.extend_from_slice(b"\":");
        self.out
    }

    pub(crate) fn value(&mut self, name: &str, value: &impl Json) {
        value.write(self.member(["", name]));
    }

    pub(crate) fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            text(value, self.member(["", name]));
        }
    }

    pub(crate) fn boolean(&mut self, name: &str, value: Option<bool>) {
        if let Some(value) = value {
            self.member(["", name]).extend_from_slice(if value { b"true" } else { b"false" });
        }
    }

    /// Appends a list, unless it is empty.
    pub(crate) fn list(&mut self, name: &str, values: &[impl Json]) {
        if values.is_empty() {
            return;
        }
        let out = self.member(["", name]);
        for (index, value) in values.iter().enumerate() {
            out.push(if index == 0 { b'[' } else { b',' });
            value.write(out);
        }
        out.push(b']');
    }
}

/// Appends a string. Serde is used only for strings that need escapes.
pub(crate) fn text(text: &str, out: &mut Vec<u8>) {
    let needs_escapes = |bad, byte: &u8| bad | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\');
    if text.as_bytes().iter().fold(false, needs_escapes) {
        serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
        return;
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_are_written_as_serde_writes_them(string in "\\PC*|[\\x00-\\x7f]*") {
            let mut out = Vec::new();
            text(&string, &mut out);
            prop_assert_eq!(out, serde_json::to_vec(&string).unwrap());
        }
    }
}
