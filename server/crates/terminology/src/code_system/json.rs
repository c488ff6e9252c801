//! A CodeSystem resource as JSON, read in one pass: concepts go into the builder as they come, so that no tree
//! of them ever stands in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::builder::{Builder, Designation, Number};
use super::{CodeSystem, DEPRECATED, INACTIVE};
use crate::wire::{self, Header, Tagged, Text};

/// Compiles a resource whose head was read already.
///
/// # Errors
/// Says in one line what was wrong with the resource.
pub(super) fn compile(header: &Header, bytes: &[u8]) -> Result<CodeSystem, String> {
    let mut builder = Builder::new(header)?;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    Resource(&mut builder).deserialize(&mut json).and_then(|()| json.end()).map_err(|e| e.to_string())?;
    builder.finish()
}

/// The resource: of its members only the concepts count here.
struct Resource<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Resource<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Resource<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a CodeSystem")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_key::<Text<'de>>()? {
            match &*member {
                "concept" => drop(map.next_value_seed(Concepts(self.0))?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A list of concepts; gives the numbers of them.
struct Concepts<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Concepts<'_> {
    type Value = Vec<Number>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Number>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Concepts<'_> {
    type Value = Vec<Number>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of concepts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Number>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = seq.next_element_seed(Concept(self.0))? {
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// One concept with those below it; gives its number.
struct Concept<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Concept<'_> {
    type Value = Number;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Number, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Concept<'_> {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a concept")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
        let (mut code, mut display) = (None::<Text<'de>>, None::<Text<'de>>);
        let mut definition = None::<Text<'de>>;
        let mut designations = Vec::<wire::Designation<'de>>::new();
        let (mut properties, mut extensions) = (Vec::<Tagged<'de>>::new(), Vec::<Tagged<'de>>::new());
        let mut below = Vec::new();
        while let Some(member) = map.next_key::<Text<'de>>()? {
            match &*member {
                "code" => code = Some(map.next_value()?),
                "display" => display = map.next_value()?,
                "definition" => definition = map.next_value()?,
                "designation" => designations = map.next_value()?,
                "property" => properties = map.next_value()?,
                "extension" => extensions = map.next_value()?,
                // Wherever it stands among the members: the concept is told after those below it.
                "concept" => below = map.next_value_seed(Concepts(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let builder = self.0;
        let code = code.ok_or_else(|| A::Error::missing_field("code"))?;
        let (number, is_new) = builder.concept(&code).map_err(A::Error::custom)?;
        for child in below {
            builder.link(child, number);
        }
        if is_new {
            tell(builder, number, display.as_deref(), &designations, &properties, &extensions)
                .map_err(A::Error::custom)?;
            if let Some(definition) = definition {
                builder.definition(number, &definition).map_err(A::Error::custom)?;
            }
        } else {
            // Of a code that stands twice the links of both places count, and what the first one says.
            for property in &properties {
                if let (true, Some(value)) = (builder.is_link(&property.name), property.value.as_deref()) {
                    builder.property(number, &property.name, value).map_err(A::Error::custom)?;
                }
            }
        }
        Ok(number)
    }
}

fn tell(
    builder: &mut Builder,
    number: Number,
    display: Option<&str>,
    designations: &[wire::Designation<'_>],
    properties: &[Tagged<'_>],
    extensions: &[Tagged<'_>],
) -> Result<(), String> {
    if let Some(display) = display {
        builder.display(number, display)?;
    }
    match wire::standards_status(extensions) {
        Some("deprecated") => builder.mark(number, DEPRECATED),
        Some("withdrawn") => builder.mark(number, INACTIVE),
        _ => {}
    }
    for property in properties {
        if let Some(value) = property.value.as_deref() {
            builder.property(number, &property.name, value)?;
        }
    }
    for designation in designations {
        let usage = designation.usage.as_ref().map(|usage| {
            [usage.system.as_deref(), usage.code.as_deref(), usage.display.as_deref()]
                .map(Option::unwrap_or_default)
        });
        let status = wire::standards_status(&designation.extension)
            .filter(|status| matches!(*status, "deprecated" | "withdrawn"));
        let language = designation.language.as_deref();
        builder.designation(number, Designation { language, usage, value: &designation.value, status })?;
    }
    Ok(())
}
