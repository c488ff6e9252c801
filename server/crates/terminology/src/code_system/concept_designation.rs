//! A designation of a concept.

use super::description_facts::DescriptionFacts;

/// A designation of a concept.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConceptDesignation<'a> {
    /// Language tag (BCP 47).
    pub language: Option<&'a str>,
    /// System, code and display of its `use`.
    pub usage: Option<[&'a str; 3]>,
    /// Text of the designation.
    pub value: &'a str,
    /// Standards status, if it is `deprecated` or `withdrawn`.
    pub status: Option<&'a str>,
    /// Id of the description of SNOMED CT, if the resource states it.
    pub description_id: Option<&'a str>,
    /// Data of the description in a release of SNOMED CT.
    pub description: Option<DescriptionFacts<'a>>,
}
