//! A StructureDefinition as far as terminology needs it: which value set an element is bound to, so that
//! `$validate-code` can be asked by `context` (FHIR R4, ValueSet/$validate-code).

use serde::Deserialize;

use crate::catalog::Compiled;
use crate::wire::{Header, Text};

/// The bindings of one StructureDefinition.
#[derive(Debug)]
pub(crate) struct Definition(Vec<Binding>);

#[derive(Debug)]
struct Binding {
    id: Box<str>,
    path: Box<str>,
    value_set: Box<str>,
}

impl Definition {
    /// The canonical URL of the value set that the element of this id or path is bound to.
    pub(crate) fn binding(&self, element: &str) -> Option<&str> {
        let by_id = self.0.iter().find(|binding| *binding.id == *element);
        let found = by_id.or_else(|| self.0.iter().find(|binding| *binding.path == *element))?;
        Some(&found.value_set)
    }
}

/// `StructureDefinition`.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    snapshot: Option<Elements<'a>>,
    #[serde(borrow)]
    differential: Option<Elements<'a>>,
}

#[derive(Deserialize)]
struct Elements<'a> {
    #[serde(borrow, default)]
    element: Vec<Element<'a>>,
}

#[derive(Deserialize)]
struct Element<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    path: Text<'a>,
    #[serde(borrow)]
    binding: Option<Bound<'a>>,
}

#[derive(Deserialize)]
struct Bound<'a> {
    #[serde(borrow, rename = "valueSet")]
    value_set: Option<Text<'a>>,
}

impl Compiled for Definition {
    const KIND: &'static str = "StructureDefinition";

    fn weight(&self) -> usize {
        self.0
            .iter()
            .map(|one| size_of::<Binding>() + one.id.len() + one.path.len() + one.value_set.len())
            .sum()
    }

    /// Takes the snapshot, which says everything; where there is none, the differential.
    fn compile(_: &Header, bytes: &[u8]) -> Result<Self, String> {
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let elements = wire.snapshot.or(wire.differential).map_or_else(Vec::new, |list| list.element);
        let bound = |element: Element| {
            let value_set = element.binding?.value_set?;
            Some(Binding {
                id: (*element.id).into(),
                path: (*element.path).into(),
                value_set: (*value_set).into(),
            })
        };
        Ok(Self(elements.into_iter().filter_map(bound).collect()))
    }
}
