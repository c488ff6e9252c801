//! The expression as text: as stated, with the terms of its concepts, and in its normal form, which states
//! the nearest primitive concepts above it and all its attributes.

use std::collections::HashSet;

use super::classification::{AttributeGroup, ClassifiedExpression, Classifier, GroupValue};
use super::syntax::{
    Attribute, AttributeTerm, ConceptReference, Expression, ExpressionBody, ExpressionFault,
};
use crate::code_system::CodeSystem;

/// The stated expression, in which the display follows each code. It has no optional blanks.
pub(super) fn with_terms(system: &CodeSystem, expression: &Expression) -> String {
    let prefix = if expression.is_subtype { "<<<" } else { "" };
    format!("{prefix}{}", body_with_terms(system, &expression.body))
}

fn body_with_terms(system: &CodeSystem, body: &ExpressionBody) -> String {
    let term = |reference: &ConceptReference| match system.find(&reference.code) {
        Some(concept) => code_with_term(system, concept, true),
        None => reference.code.clone(),
    };
    let attribute = |Attribute { name, value }: &Attribute| {
        let value = match value {
            AttributeTerm::Concept(concept) => term(concept),
            AttributeTerm::Expression(body) => format!("({})", body_with_terms(system, body)),
            AttributeTerm::Literal(text) => text.clone(),
        };
        format!("{}={value}", term(name))
    };
    let list = |attributes: &[Attribute]| attributes.iter().map(attribute).collect::<Vec<_>>().join(",");
    let focus = body.focus.iter().map(term).collect::<Vec<_>>().join("+");
    let ungrouped = Some(list(&body.ungrouped)).filter(|text| !text.is_empty());
    let groups = body.groups.iter().map(|group| format!("{{{}}}", list(group)));
    let refinement: Vec<_> = ungrouped.into_iter().chain(groups).collect();
    if refinement.is_empty() { focus } else { format!("{focus}:{}", refinement.join(",")) }
}

fn code_with_term(system: &CodeSystem, concept: u32, has_terms: bool) -> String {
    match system.display(concept).filter(|_| has_terms) {
        Some(display) => format!("{}|{display}|", system.code(concept)),
        None => system.code(concept).to_owned(),
    }
}

impl Classifier<'_> {
    /// The normal form of an expression, with or without terms. Equivalent expressions have the same one.
    pub(super) fn normal_form(
        self,
        expression: &ClassifiedExpression,
        has_terms: bool,
    ) -> Result<String, ExpressionFault> {
        self.budget.spend(expression.subsumers.len())?;
        let is_primitive = |concept: &u32| !self.is_defined(*concept);
        let primitive: Vec<u32> = expression.subsumers.iter().copied().filter(is_primitive).collect();
        let mut focus: Vec<String> = self
            .nearest(&primitive)?
            .into_iter()
            .map(|concept| code_with_term(self.system, concept, has_terms))
            .collect();
        focus.sort_unstable();
        let mut groups = Vec::new();
        for group in self.without_general(&expression.groups, |a, b| self.group_is_below(a, b))? {
            groups.push(self.group_text(&group, has_terms)?);
        }
        groups.sort_unstable();
        let colon = if groups.is_empty() { "" } else { ":" };
        Ok(format!("{}{colon}{}", focus.join("+"), groups.join(",")))
    }

    fn group_text(self, group: &AttributeGroup, has_terms: bool) -> Result<String, ExpressionFault> {
        let single = |attribute: &(u32, GroupValue)| AttributeGroup {
            attributes: vec![attribute.clone()],
            is_ungrouped: group.is_ungrouped,
        };
        let single: Vec<AttributeGroup> = group.attributes.iter().map(single).collect();
        let mut attributes = Vec::new();
        for one in self.without_general(&single, |a, b| self.group_is_below(a, b))? {
            let (name, value) = &one.attributes[0];
            let value = match value {
                GroupValue::Concept(concept) => code_with_term(self.system, *concept, has_terms),
                GroupValue::Expression(inner) => format!("({})", self.normal_form(inner, has_terms)?),
                GroupValue::Literal(text) => text.clone(),
            };
            attributes.push(format!("{}={value}", code_with_term(self.system, *name, has_terms)));
        }
        attributes.sort_unstable();
        Ok(format!("{{{}}}", attributes.join(",")))
    }

    /// The concepts of a list that have no other one of it below them. Each ancestor is visited once:
    /// comparing the concepts in pairs would take seconds for an expression of 200 bytes.
    pub(super) fn nearest(self, concepts: &[u32]) -> Result<Vec<u32>, ExpressionFault> {
        let mut ancestors = HashSet::new();
        let mut waiting = concepts.to_vec();
        while let Some(concept) = waiting.pop() {
            let parents = self.hierarchy.parents(concept);
            self.budget.spend(1 + parents.len())?;
            waiting.extend(parents.iter().filter(|parent| ancestors.insert(**parent)));
        }
        Ok(concepts.iter().copied().filter(|concept| !ancestors.contains(concept)).collect())
    }

    /// The items that no other one is below. Of items that are below each other, the first one stays.
    fn without_general<T: Clone>(
        self,
        items: &[T],
        is_below: impl Fn(&T, &T) -> Result<bool, ExpressionFault>,
    ) -> Result<Vec<T>, ExpressionFault> {
        let mut minimal: Vec<T> = Vec::new();
        for item in items {
            let mut is_implied = false;
            for other in &minimal {
                is_implied = is_implied || is_below(other, item)?;
            }
            if is_implied {
                continue;
            }
            let mut specific = Vec::new();
            for other in minimal {
                if !is_below(item, &other)? {
                    specific.push(other);
                }
            }
            minimal = specific;
            minimal.push(item.clone());
        }
        Ok(minimal)
    }
}
