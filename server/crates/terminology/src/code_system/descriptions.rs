//! Descriptions of SNOMED CT: the texts of a concept with the data by which constraints select them.

use super::description_facts::DescriptionFacts;
use super::{CodeSystem, ConceptDesignation};
use crate::model::known_systems::{SNOMED_CT, SNOMED_CT_SYNONYM};

#[derive(Debug, Clone, Copy)]
pub(crate) struct ConceptDescription<'a> {
    pub(crate) term: &'a str,
    pub(crate) language: Option<&'a str>,
    /// Concept of the type: fully specified name, synonym or definition.
    pub(crate) kind: &'a str,
    pub(crate) is_active: bool,
    pub(crate) facts: Option<DescriptionFacts<'a>>,
}

impl<'a> From<ConceptDesignation<'a>> for ConceptDescription<'a> {
    fn from(designation: ConceptDesignation<'a>) -> Self {
        let kind = designation.usage.filter(|[system, ..]| *system == SNOMED_CT).map(|[_, code, _]| code);
        let stated = designation.description_id.and_then(|id| id.parse().ok());
        let stated = stated.map(|id| DescriptionFacts { id, module: "", effective_time: "", dialects: "" });
        Self {
            term: designation.value,
            language: designation.language,
            kind: kind.unwrap_or(SNOMED_CT_SYNONYM),
            is_active: designation.status != Some("withdrawn"),
            facts: designation.description.or(stated),
        }
    }
}

impl CodeSystem {
    /// The descriptions of a concept. A display that is not among its designations is a synonym.
    pub(crate) fn descriptions(&self, concept: u32) -> impl Iterator<Item = ConceptDescription<'_>> {
        let display = self
            .display(concept)
            .filter(|display| self.designations(concept).all(|one| one.value != *display));
        let display = display.map(|term| ConceptDescription {
            term,
            language: self.language.as_deref(),
            kind: SNOMED_CT_SYNONYM,
            is_active: true,
            facts: None,
        });
        display.into_iter().chain(self.designations(concept).map(ConceptDescription::from))
    }
}
