//! The properties and relationships of concepts, and the concepts that have a value.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::concept_attribute::{AttributeValue, ConceptAttribute, LITERAL};
use super::concept_set::ConceptSet;
use super::value_sources::{SourceColumn, ValueSources};
use super::{CodeSystem, CodingProperty, DEFINITION, PropertyRole};
use crate::model::Budget;
use crate::model::budget::BudgetExhausted;
use crate::model::known_systems::LOINC;

/// Number of concepts that are read in one step.
const CONCEPTS_PER_STEP: usize = 16;

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
    /// `None` if concepts do not store the property, or if more than about `most` concepts pass. With
    /// `exact`, no other value passes the test.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn concepts_with_value<'s>(
        &'s self,
        name: &str,
        exact: Option<&str>,
        most: usize,
        mut test: impl FnMut(&str) -> bool,
        budget: &Budget<'_>,
    ) -> Result<Option<ConceptSet>, BudgetExhausted> {
        let kind = if self.attributes.is_empty() { None } else { self.find(name) };
        let own_name = self.names.find(name);
        if name == DEFINITION || kind.is_none() && own_name.is_none() {
            return Ok(None);
        }
        let mut passing = ConceptSet::empty(self.len());
        budget.spend_words(passing.words(), true)?;
        let mut count = 0;
        let mut add_sources =
            |sources: &ValueSources, values: Range<u32>, text_of: &dyn Fn(u32) -> &'s str| {
                for (value, concepts) in sources.by_value(values) {
                    budget.spend(1 + concepts.len() / CONCEPTS_PER_STEP)?;
                    if self.value_texts(text_of(value)).any(|text| test(&text)) {
                        count += concepts.len();
                        if count > most {
                            return Ok(false);
                        }
                        concepts.iter().for_each(|concept| passing.insert(*concept));
                    }
                }
                Ok::<_, BudgetExhausted>(true)
            };
        if let Some(name) = own_name {
            let sources = self.sources_of(SourceColumn::Property(name), budget)?;
            if !add_sources(&sources, 0..u32::MAX, &|value| self.values.get(value))? {
                return Ok(None);
            }
        }
        if let Some(kind) = kind {
            let sources = self.sources_of(SourceColumn::Relationship(kind), budget)?;
            let codes = match exact {
                Some(code) => self.find(code).map_or(0..0, |value| value..value + 1),
                None => 0..LITERAL,
            };
            let text_of = |value| self.text_of_value(self.attribute_value(value));
            if !add_sources(&sources, codes, &text_of)?
                || !add_sources(&sources, LITERAL..u32::MAX, &text_of)?
            {
                return Ok(None);
            }
        }
        Ok(Some(passing))
    }

    /// The concepts with each value of a relationship of this type.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if they are not known and the budget is spent.
    pub(crate) fn relationship_sources(
        &self,
        kind: u32,
        budget: &Budget<'_>,
    ) -> Result<Arc<ValueSources>, BudgetExhausted> {
        self.sources_of(SourceColumn::Relationship(kind), budget)
    }

    fn sources_of(
        &self,
        column: SourceColumn,
        budget: &Budget<'_>,
    ) -> Result<Arc<ValueSources>, BudgetExhausted> {
        self.sources.get_or_make(column, || {
            let mut pairs = Vec::new();
            for concept in 0..self.len() as u32 {
                let count = self.property_count(concept);
                budget
                    .spend(usize::from((concept as usize).is_multiple_of(CONCEPTS_PER_STEP)) + count / 16)?;
                match column {
                    SourceColumn::Property(name) => {
                        let mine = self.properties.row(concept).iter().filter(|property| property[0] == name);
                        pairs.extend(mine.map(|property| (property[1], concept)));
                    }
                    SourceColumn::Relationship(kind) => {
                        let mine =
                            self.attributes.row(concept).iter().filter(|attribute| attribute[1] == kind);
                        pairs.extend(mine.map(|attribute| (attribute[2], concept)));
                    }
                }
            }
            budget.spend(pairs.len() / CONCEPTS_PER_STEP)?;
            Ok(pairs)
        })
    }

    /// Returns whether a property is declared, used by a concept, or a standard one.
    pub(crate) fn has_property(&self, name: &str) -> bool {
        self.is_excerpt
            || self.names.find(name).is_some()
            || PropertyRole::named(name).is_some()
            || (name == DEFINITION && !self.definitions.is_empty())
            || (!self.attributes.is_empty() && self.find(name).is_some())
    }

    /// The values of a property of a concept, as text. The type of a defining relationship is a property too.
    pub(crate) fn property<'a>(&'a self, concept: u32, name: &str) -> impl Iterator<Item = &'a str> {
        let kind = if self.attributes.is_empty() { None } else { self.find(name) };
        let definition = self.definition(concept).filter(|_| name == DEFINITION);
        let name = self.names.find(name);
        let mine = move |property: &&[u32; 2]| Some(property[0]) == name;
        let values =
            self.properties.row(concept).iter().filter(mine).map(|property| self.values.get(property[1]));
        let defined = self.attributes(concept).filter(move |attribute| Some(attribute.kind) == kind);
        definition
            .into_iter()
            .chain(values)
            .chain(defined.map(|attribute| self.text_of_value(attribute.value)))
    }

    /// The value of a relationship as the value of a property.
    fn text_of_value<'a>(&'a self, value: AttributeValue<'a>) -> &'a str {
        match value {
            AttributeValue::Concept(concept) => self.code(concept),
            AttributeValue::Literal(text) => text.trim_start_matches('#').trim_matches('"'),
        }
    }

    /// The number of properties and defining relationships of a concept.
    pub(crate) fn property_count(&self, concept: u32) -> usize {
        self.properties.range(concept).len() + self.attributes.range(concept).len()
    }

    /// Returns name and value of all properties of a concept, except its parents and children.
    pub(crate) fn properties(&self, concept: u32) -> impl Iterator<Item = (&str, &str)> {
        let all = self.properties.row(concept).iter();
        let all = all.map(|[name, value]| (self.names.get(*name), self.values.get(*value)));
        // Extensions are stored as properties whose name is a URL. The code of a property is not a URL.
        all.filter(|(name, _)| !name.contains("://"))
    }

    /// Returns whether any concept has an extension with this URL.
    pub(crate) fn has_extension(&self, url: &str) -> bool {
        self.names.find(url).is_some()
    }

    /// The value of an extension of a concept, as text.
    pub(crate) fn extension(&self, concept: u32, url: &str) -> Option<&str> {
        let name = self.names.find(url)?;
        let property = self.properties.row(concept).iter().find(|property| property[0] == name)?;
        Some(self.values.get(property[1]))
    }

    /// The declared type and URI of a property.
    pub(crate) fn declaration(&self, name: &str) -> (Option<&str>, Option<&str>) {
        let declared = self.header.property.iter().find(|property| property.code == name);
        declared.map_or((None, None), |property| (property.r#type.as_deref(), property.uri.as_deref()))
    }

    /// Returns whether a property holds the parents, the children or the inactive status of a concept.
    /// Callers read these from the hierarchy and the flags instead.
    pub(crate) fn is_structural(&self, name: &str) -> bool {
        let role = PropertyRole::of_property(name, self.declaration(name).1);
        matches!(role, Some(PropertyRole::Parent | PropertyRole::Child | PropertyRole::Inactive))
    }

    pub(crate) fn attributes(&self, concept: u32) -> impl Iterator<Item = ConceptAttribute<'_>> {
        self.attributes.row(concept).iter().map(|[group, kind, value]| ConceptAttribute {
            group: *group,
            kind: *kind,
            value: self.attribute_value(*value),
        })
    }

    /// The value of a relationship from its number.
    fn attribute_value(&self, number: u32) -> AttributeValue<'_> {
        match number & LITERAL {
            0 => AttributeValue::Concept(number),
            _ => AttributeValue::Literal(self.values.get(number ^ LITERAL)),
        }
    }
}
