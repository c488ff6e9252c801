//! The reader of CodeSystem resources in JSON. It reads in one pass: each concept is added to the builder
//! directly, so no tree of concepts is ever in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::CodeSystem;
use super::concept_attribute::{DEPRECATED, INACTIVE};
use super::concept_designation::ConceptDesignation;
use super::index_builder::{ConceptNumber, IndexBuilder};
use crate::model::concept_extensions::stored_with_concept;
use crate::model::resource_json::{self, NamedValue, ResourceHeader, Text};

impl CodeSystem {
    /// Compiles a CodeSystem resource whose header is already read.
    ///
    /// # Errors
    /// A message of one line if the resource is invalid.
    pub(crate) fn compile(header: &ResourceHeader, bytes: &[u8]) -> Result<Self, String> {
        let mut builder = IndexBuilder::new(header)?;
        let mut json = serde_json::Deserializer::from_slice(bytes);
        ResourceVisitor(&mut builder)
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|e| e.to_string())?;
        builder.build()
    }
}

/// Visitor of the resource, which reads only the concepts.
struct ResourceVisitor<'b>(&'b mut IndexBuilder);

impl<'de> DeserializeSeed<'de> for ResourceVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ResourceVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a CodeSystem")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_key::<Text<'de>>()? {
            match &*member {
                "concept" => drop(map.next_value_seed(ConceptListVisitor(self.0))?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Visitor of a list of concepts; returns their numbers.
struct ConceptListVisitor<'b>(&'b mut IndexBuilder);

impl<'de> DeserializeSeed<'de> for ConceptListVisitor<'_> {
    type Value = Vec<ConceptNumber>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<ConceptNumber>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ConceptListVisitor<'_> {
    type Value = Vec<ConceptNumber>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of concepts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<ConceptNumber>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = seq.next_element_seed(ConceptVisitor(self.0))? {
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// Visitor of one concept and its children; returns its number.
struct ConceptVisitor<'b>(&'b mut IndexBuilder);

impl<'de> DeserializeSeed<'de> for ConceptVisitor<'_> {
    type Value = ConceptNumber;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ConceptNumber, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ConceptVisitor<'_> {
    type Value = ConceptNumber;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a concept")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ConceptNumber, A::Error> {
        let (mut code, mut display) = (None::<Text<'de>>, None::<Text<'de>>);
        let mut definition = None::<Text<'de>>;
        let mut designations = Vec::<resource_json::DesignationJson<'de>>::new();
        let (mut properties, mut extensions) = (Vec::<NamedValue<'de>>::new(), Vec::<NamedValue<'de>>::new());
        let mut below = Vec::new();
        while let Some(member) = map.next_key::<Text<'de>>()? {
            match &*member {
                "code" => code = Some(map.next_value()?),
                "display" => display = map.next_value()?,
                "definition" => definition = map.next_value()?,
                "designation" => designations = map.next_value()?,
                "property" => properties = map.next_value()?,
                "extension" => extensions = map.next_value()?,
                // The children are added before their parent, because `concept` may precede the other
                // members.
                "concept" => below = map.next_value_seed(ConceptListVisitor(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let builder = self.0;
        let code = code.ok_or_else(|| A::Error::missing_field("code"))?;
        let (number, is_new) = builder.add_concept(&code).map_err(A::Error::custom)?;
        for child in below {
            builder.add_parent(child, number);
        }
        if is_new {
            add_concept_data(builder, number, display.as_deref(), &designations, &properties, &extensions)
                .map_err(A::Error::custom)?;
            if let Some(definition) = definition {
                builder.set_definition(number, &definition).map_err(A::Error::custom)?;
            }
        } else {
            // If a code occurs twice, the links of both occurrences are added, but other data only of the
            // first.
            builder
                .report(|| format!("the code '{}' occurs twice; its texts are those of the first", &*code));
            for property in &properties {
                if let (true, Some(value)) =
                    (builder.is_link_property(&property.name), property.value.as_deref())
                {
                    builder.add_property(number, &property.name, value).map_err(A::Error::custom)?;
                }
            }
        }
        Ok(number)
    }
}

fn add_concept_data(
    builder: &mut IndexBuilder,
    number: ConceptNumber,
    display: Option<&str>,
    designations: &[resource_json::DesignationJson<'_>],
    properties: &[NamedValue<'_>],
    extensions: &[NamedValue<'_>],
) -> Result<(), String> {
    if let Some(display) = display {
        builder.set_display(number, display)?;
    }
    // The extension structuredefinition-standards-status retires a concept as the property `status` does.
    match resource_json::standards_status(extensions) {
        Some("deprecated") => builder.set_flags(number, DEPRECATED),
        Some("withdrawn") => builder.set_flags(number, INACTIVE),
        _ => {}
    }
    for property in properties {
        match (property.value.as_deref(), &property.coding) {
            (Some(code), Some([system, display])) if builder.role_of(&property.name).is_none() => {
                builder.add_coding_property(number, &property.name, [system, code, display])?;
            }
            (Some(value), _) => builder.add_property(number, &property.name, value)?,
            (None, _) => {}
        }
    }
    for (url, value) in stored_with_concept(extensions) {
        builder.add_property(number, url, value)?;
    }
    for designation in designations {
        let usage = designation.usage.as_ref().map(|usage| {
            [usage.system.as_deref(), usage.code.as_deref(), usage.display.as_deref()]
                .map(Option::unwrap_or_default)
        });
        let status = resource_json::standards_status(&designation.extension)
            .filter(|status| matches!(*status, "deprecated" | "withdrawn"));
        let language = designation.language.as_deref();
        let description_id = resource_json::description_id(&designation.extension);
        let designation = ConceptDesignation {
            language,
            usage,
            value: &designation.value,
            status,
            description_id,
            description: None,
        };
        builder.add_designation(number, designation)?;
    }
    Ok(())
}
