//! The values of properties as filters see them.

use std::borrow::Cow;

use super::concept_set::ConceptSet;
use super::{CodeSystem, CodingProperty, DEFINITION};
use crate::model::Budget;
use crate::model::budget::BudgetExhausted;
use crate::model::known_systems::LOINC;

impl CodeSystem {
    /// The values of a property of a concept, as the texts by which a filter can name them: a Coding as its
    /// code and as `system|code`, and in LOINC also as its display (FHIR R4, Using LOINC: a part by its
    /// number or name).
    pub(crate) fn property_texts<'a>(
        &'a self,
        concept: u32,
        name: &str,
    ) -> impl Iterator<Item = Cow<'a, str>> {
        self.property(concept, name).flat_map(|value| self.value_texts(value))
    }

    /// The texts by which a filter can name the value of a property.
    fn value_texts<'a>(&self, value: &'a str) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let texts = match CodingProperty::from_stored(value) {
            None => [Some(Cow::Borrowed(value)), None, None],
            Some(CodingProperty { code, system, display }) => {
                let display = (self.url == LOINC).then_some(Cow::Borrowed(display));
                [Some(Cow::Borrowed(code)), Some(Cow::Owned(format!("{system}|{code}"))), display]
            }
        };
        texts.into_iter().flatten()
    }

    /// The concepts with a value of a property that passes a test, which is called once for each value;
    /// `None` if the property is not one of those that concepts store as text.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn concepts_with_value(
        &self,
        name: &str,
        mut test: impl FnMut(&str) -> bool,
        budget: &Budget<'_>,
    ) -> Result<Option<ConceptSet>, BudgetExhausted> {
        let is_relationship = !self.attributes.is_empty() && self.find(name).is_some();
        let Some(name) = self.names.find(name).filter(|_| name != DEFINITION && !is_relationship) else {
            return Ok(None);
        };
        let mut passing = ConceptSet::empty(self.len());
        budget.spend_words(passing.words() + self.values.len() / 64, true)?;
        let mut tested = ConceptSet::empty(self.values.len());
        let mut passed = ConceptSet::empty(self.values.len());
        for concept in 0..self.len() as u32 {
            let row = self.properties.row(concept);
            budget.spend(usize::from(concept.is_multiple_of(16)) + row.len() / 16)?;
            for &[own, value] in row {
                if own != name {
                    continue;
                }
                if !tested.has(value) {
                    budget.spend(1)?;
                    tested.insert(value);
                    if self.value_texts(self.values.get(value)).any(|text| test(&text)) {
                        passed.insert(value);
                    }
                }
                if passed.has(value) {
                    passing.insert(concept);
                }
            }
        }
        Ok(Some(passing))
    }
}
