//! Bindings of a StructureDefinition: the value set to which each element is bound. `$validate-code` uses
//! them for its parameter `context` (FHIR R4, ValueSet/$validate-code).

use serde::Deserialize;

use super::CompiledResource;
use crate::model::resource_json::{ResourceHeader, Text};

/// The bindings of one StructureDefinition.
#[derive(Debug)]
pub(crate) struct ElementBindings(Vec<ElementBinding>);

#[derive(Debug)]
struct ElementBinding {
    id: Box<str>,
    path: Box<str>,
    value_set: Box<str>,
}

impl ElementBindings {
    /// The canonical URL of the value set that an element is bound to, by the id or path of the element.
    pub(crate) fn binding(&self, element: &str) -> Option<&str> {
        let by_id = self.0.iter().find(|binding| *binding.id == *element);
        let declared = by_id.or_else(|| self.0.iter().find(|binding| *binding.path == *element))?;
        Some(&declared.value_set)
    }
}

/// JSON of a `StructureDefinition`, with the members that contain bindings.
#[derive(Deserialize)]
struct StructureDefinitionJson<'a> {
    #[serde(borrow)]
    snapshot: Option<ElementListJson<'a>>,
    #[serde(borrow)]
    differential: Option<ElementListJson<'a>>,
}

#[derive(Deserialize)]
struct ElementListJson<'a> {
    #[serde(borrow, default)]
    element: Vec<ElementJson<'a>>,
}

#[derive(Deserialize)]
struct ElementJson<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    path: Text<'a>,
    #[serde(borrow)]
    binding: Option<BindingJson<'a>>,
}

#[derive(Deserialize)]
struct BindingJson<'a> {
    #[serde(borrow, rename = "valueSet")]
    value_set: Option<Text<'a>>,
}

impl CompiledResource for ElementBindings {
    const KIND: &'static str = "StructureDefinition";

    fn memory_bytes(&self) -> usize {
        self.0
            .iter()
            .map(|one| size_of::<ElementBinding>() + one.id.len() + one.path.len() + one.value_set.len())
            .sum()
    }

    /// Compiles the snapshot, which contains all elements, or the differential if there is no snapshot.
    fn compile(_: &ResourceHeader, bytes: &[u8]) -> Result<Self, String> {
        let wire: StructureDefinitionJson =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let elements = wire.snapshot.or(wire.differential).map_or_else(Vec::new, |list| list.element);
        let bound = |element: ElementJson| {
            let value_set = element.binding?.value_set?;
            Some(ElementBinding {
                id: (*element.id).into(),
                path: (*element.path).into(),
                value_set: (*value_set).into(),
            })
        };
        Ok(Self(elements.into_iter().filter_map(bound).collect()))
    }
}
