//! A code system with one expression as a concept.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::classification::{AttributeGroup, ClassifiedExpression, Classifier, GroupValue};
use super::syntax::ExpressionFault;
use super::{normal_form, parser};
use crate::code_system::CodeSystem;
use crate::code_system::concept_attribute::{AttributeValue, INACTIVE};
use crate::code_system::index_builder::{ConceptNumber, IndexBuilder};
use crate::model::Budget;

/// Memory in bytes that is counted for each concept of such a code system.
const CONCEPT_BYTES: usize = 512;

/// The code system that contains an expression at its place in the hierarchy, with the concepts above it, its
/// attributes, and what these need. Operations and filters find in it what they find in the whole code system
/// about a concept.
///
/// # Errors
/// [`ExpressionFault`] if the expression is wrong, or the budget is spent.
pub(crate) fn expression_system(
    system: &CodeSystem,
    code: &str,
    budget: &Budget<'_>,
) -> Result<CodeSystem, ExpressionFault> {
    let expression = parser::parse(code)?;
    let classifier = Classifier::new(system, budget);
    let meaning = classifier.classify(&expression.body)?;
    let mut excerpt = ExcerptBuilder::new(classifier, budget);
    let own = excerpt.add_expression(code, &meaning)?;
    let display = normal_form::with_terms(system, &expression);
    let is_defined = if expression.is_subtype { "false" } else { "true" };
    let normal_form = classifier.normal_form(&meaning, true)?;
    let terse = classifier.normal_form(&meaning, false)?;
    let builder = &mut excerpt.builder;
    let texts =
        [("sufficientlyDefined", is_defined), ("normalForm", &normal_form), ("normalFormTerse", &terse)];
    let added = builder.set_display(own, &display);
    let added =
        texts.iter().try_fold((), |(), (name, text)| builder.add_property(own, name, text)).and(added);
    added.expect("an expression has less text than an index can hold");
    excerpt.finish()
}

/// Copies concepts of a code system into a smaller one.
struct ExcerptBuilder<'a> {
    classifier: Classifier<'a>,
    budget: &'a Budget<'a>,
    builder: IndexBuilder,
    /// Concepts that were copied, with their numbers in the copy.
    copied: HashMap<u32, ConceptNumber>,
    /// Concepts whose parents are not copied yet.
    without_parents: Vec<u32>,
    /// Concepts whose attributes are not copied yet.
    without_attributes: Vec<u32>,
}

impl<'a> ExcerptBuilder<'a> {
    fn new(classifier: Classifier<'a>, budget: &'a Budget<'a>) -> Self {
        let builder =
            IndexBuilder::new(&classifier.system.header).expect("the header is that of an existing index");
        let (copied, without_parents, without_attributes) = (HashMap::new(), Vec::new(), Vec::new());
        Self { classifier, budget, builder, copied, without_parents, without_attributes }
    }

    /// Adds an expression as a concept with this code, and returns its number.
    fn add_expression(
        &mut self,
        code: &str,
        meaning: &ClassifiedExpression,
    ) -> Result<ConceptNumber, ExpressionFault> {
        self.budget.spend_memory(CONCEPT_BYTES + code.len())?;
        let (own, _) = self.builder.add_concept(code).expect("an expression has a code");
        for parent in self.classifier.nearest(&meaning.subsumers)? {
            let parent = self.copy(parent)?;
            self.builder.add_parent(own, parent);
        }
        for (number, group) in (1..).zip(&meaning.groups) {
            self.add_group(own, if group.is_ungrouped { 0 } else { number }, group)?;
        }
        Ok(own)
    }

    fn add_group(
        &mut self,
        own: ConceptNumber,
        number: u32,
        group: &AttributeGroup,
    ) -> Result<(), ExpressionFault> {
        for (name, value) in &group.attributes {
            let name = self.copy(*name)?;
            let value = match value {
                GroupValue::Concept(concept) => {
                    self.without_attributes.push(*concept);
                    self.copy(*concept)?
                }
                GroupValue::Expression(inner) => {
                    let inner = Rc::clone(inner);
                    let code = format!("({})", self.classifier.normal_form(&inner, false)?);
                    self.add_expression(&code, &inner)?
                }
                GroupValue::Literal(text) => {
                    let added = self.builder.add_literal_attribute(own, number, name, text);
                    added.expect("an expression has less text than an index can hold");
                    continue;
                }
            };
            self.builder.add_attribute(own, number, name, value);
        }
        Ok(())
    }

    /// Copies a concept without its links, which follow in [`finish`](Self::finish).
    fn copy(&mut self, concept: u32) -> Result<ConceptNumber, ExpressionFault> {
        if let Some(number) = self.copied.get(&concept) {
            return Ok(*number);
        }
        self.budget.spend(1)?;
        self.budget.spend_memory(CONCEPT_BYTES)?;
        let system = self.classifier.system;
        let (number, _) =
            self.builder.add_concept(system.code(concept)).expect("a concept of an index has a code");
        if let Some(display) = system.display(concept) {
            let added = self.builder.set_display(number, display);
            added.expect("an excerpt has less text than its code system");
        }
        if system.is_inactive(concept) {
            self.builder.set_flags(number, INACTIVE);
        }
        self.copied.insert(concept, number);
        self.without_parents.push(concept);
        Ok(number)
    }

    /// Copies what the copied concepts refer to, and builds the code system.
    fn finish(mut self) -> Result<CodeSystem, ExpressionFault> {
        let system = self.classifier.system;
        let mut with_attributes = HashSet::new();
        loop {
            if let Some(concept) = self.without_parents.pop() {
                let own = self.copied[&concept];
                for parent in self.classifier.hierarchy.parents(concept) {
                    let parent = self.copy(*parent)?;
                    self.builder.add_parent(own, parent);
                }
            } else if let Some(concept) = self.without_attributes.pop() {
                if !with_attributes.insert(concept) {
                    continue;
                }
                let own = self.copied[&concept];
                for attribute in system.attributes(concept) {
                    let name = self.copy(attribute.kind)?;
                    match attribute.value {
                        AttributeValue::Concept(value) => {
                            self.without_attributes.push(value);
                            let value = self.copy(value)?;
                            self.builder.add_attribute(own, attribute.group, name, value);
                        }
                        AttributeValue::Literal(text) => {
                            let added = self.builder.add_literal_attribute(own, attribute.group, name, text);
                            added.expect("an excerpt has less text than its code system");
                        }
                    }
                }
            } else {
                break;
            }
        }
        let excerpt = self.builder.build().expect("an excerpt has less text than its code system");
        Ok(excerpt.into_excerpt())
    }
}
