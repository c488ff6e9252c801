//! The meaning of an expression, as a classifier of the description logic EL sees it: the concepts that
//! subsume it, and its groups of attributes.
//!
//! A concept that is sufficiently defined subsumes everything that its parents subsume and that has a group
//! for each of its own. A group subsumes another one if each of its attributes subsumes one of the other. An
//! attribute outside of a group is a group of its own, also for the constraints that search in groups; only
//! relationships that a release states outside of groups stay there. If exactly one group of the focus
//! concepts has an attribute that the attribute of the expression specializes, it takes its place there, as
//! the rules for expressions of users say (SNOMED CT, Transforming expressions to normal forms).

use std::collections::HashSet;
use std::rc::Rc;

use super::parser;
use super::syntax::{
    Attribute, AttributeTerm, ConceptReference, Expression, ExpressionBody, ExpressionFault,
};
use crate::code_system::concept_attribute::{AttributeValue, ConceptAttribute};
use crate::code_system::hierarchy::ConceptHierarchy;
use crate::code_system::{CodeSystem, Subsumption};
use crate::model::Budget;
use crate::model::text_folding::same_folded;

/// The concept whose descendants are the attributes.
const CONCEPT_MODEL_ATTRIBUTE: &str = "410662002";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClassifiedExpression {
    pub(super) focus: Vec<u32>,
    /// The concepts that subsume the expression, sorted.
    pub(super) subsumers: Vec<u32>,
    /// All groups: those of the expression and those of the focus concepts.
    pub(super) groups: Vec<AttributeGroup>,
}

/// Attributes that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttributeGroup {
    /// The concepts of their names, and their values.
    pub(super) attributes: Vec<(u32, GroupValue)>,
    /// `true` for a relationship that the release states outside of groups.
    pub(super) is_ungrouped: bool,
}

impl AttributeGroup {
    fn stated(attributes: Vec<(u32, GroupValue)>) -> Self {
        Self { attributes, is_ungrouped: false }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum GroupValue {
    Concept(u32),
    Expression(Rc<ClassifiedExpression>),
    Literal(String),
}

/// Classifies expressions in one code system.
#[derive(Clone, Copy)]
pub(super) struct Classifier<'a> {
    pub(super) system: &'a CodeSystem,
    pub(super) hierarchy: &'a ConceptHierarchy,
    pub(super) budget: &'a Budget<'a>,
}

/// The relation of two codes, of which at least one is an expression.
///
/// # Errors
/// The position of the wrong code, and its [`ExpressionFault`].
pub(crate) fn compare(
    system: &CodeSystem,
    codes: [&str; 2],
    budget: &Budget<'_>,
) -> Result<Subsumption, (usize, ExpressionFault)> {
    let classifier = Classifier::new(system, budget);
    let read = |which: usize| {
        let expression = parser::parse(codes[which]).map_err(|fault| (which, fault))?;
        let classified = classifier.classify(&expression.body).map_err(|fault| (which, fault))?;
        Ok((expression, classified))
    };
    let ((a, meaning_a), (b, meaning_b)) = (read(0)?, read(1)?);
    let subsumes = |a: &Expression, meaning_a, b: &Expression, meaning_b| match a.is_subtype {
        // Such an expression has a meaning of its own, which only the same expression shares.
        true => Ok(b.is_subtype && a.body.stated_form() == b.body.stated_form()),
        false => classifier.subsumes(meaning_a, meaning_b),
    };
    let down = subsumes(&a, &meaning_a, &b, &meaning_b).map_err(|fault| (0, fault))?;
    let up = subsumes(&b, &meaning_b, &a, &meaning_a).map_err(|fault| (0, fault))?;
    Ok(match (down, up) {
        (true, true) => Subsumption::Equivalent,
        (true, false) => Subsumption::Subsumes,
        (false, true) => Subsumption::SubsumedBy,
        (false, false) => Subsumption::NotSubsumed,
    })
}

impl<'a> Classifier<'a> {
    pub(super) fn new(system: &'a CodeSystem, budget: &'a Budget<'a>) -> Self {
        budget.set_activity("classifying a post-coordinated expression");
        Self { system, hierarchy: system.hierarchy(), budget }
    }

    /// The meaning of an expression.
    ///
    /// # Errors
    /// [`ExpressionFault`] if a concept is unknown, a name is not that of an attribute, a term is wrong, or
    /// the budget is spent.
    pub(super) fn classify(self, body: &ExpressionBody) -> Result<ClassifiedExpression, ExpressionFault> {
        let focus = body.focus.iter().map(|one| self.find(one)).collect::<Result<Vec<_>, _>>()?;
        let mut groups: Vec<AttributeGroup> = focus.iter().flat_map(|one| self.groups_of(*one)).collect();
        self.budget.spend(groups.len())?;
        let inherited = groups.len();
        for group in &body.groups {
            let attributes = group.iter().map(|one| self.attribute(one)).collect::<Result<_, _>>()?;
            groups.push(AttributeGroup::stated(attributes));
        }
        for attribute in &body.ungrouped {
            let (name, value) = self.attribute(attribute)?;
            let mut refined = Vec::new();
            for (group, AttributeGroup { attributes, .. }) in groups[..inherited].iter().enumerate() {
                self.budget.spend(attributes.len())?;
                for (place, (general, of)) in attributes.iter().enumerate() {
                    if self.hierarchy.is_a(name, *general) && self.value_is_below(&value, of)? {
                        refined.push((group, place));
                        break;
                    }
                }
            }
            match refined[..] {
                [(group, place)] => groups[group].attributes[place] = (name, value),
                _ => groups.push(AttributeGroup::stated(vec![(name, value)])),
            }
        }
        let is_refined = focus.len() > 1 || !body.ungrouped.is_empty() || !body.groups.is_empty();
        let mut classified = ClassifiedExpression { focus, subsumers: Vec::new(), groups };
        let mut subsumers = HashSet::new();
        let mut waiting = classified.focus.clone();
        // A concept alone is classified by its release.
        while let Some(concept) = waiting.pop() {
            if !subsumers.insert(concept) {
                continue;
            }
            waiting.extend(self.hierarchy.parents(concept));
            self.budget.spend(1 + self.hierarchy.parents(concept).len())?;
        }
        waiting.extend(subsumers.iter().filter(|_| is_refined));
        while let Some(concept) = waiting.pop() {
            let children = self.hierarchy.children(concept);
            self.budget.spend(1 + children.len())?;
            for child in children {
                let parents = self.hierarchy.parents(child);
                if !subsumers.contains(&child)
                    && parents.iter().all(|parent| subsumers.contains(parent))
                    && self.is_defined(child)
                    && self.has_all_groups(&classified, &self.groups_of(child))?
                {
                    subsumers.insert(child);
                    waiting.push(child);
                }
            }
        }
        classified.subsumers = subsumers.into_iter().collect();
        classified.subsumers.sort_unstable();
        Ok(classified)
    }

    /// Returns whether one expression subsumes another.
    pub(super) fn subsumes(
        self,
        general: &ClassifiedExpression,
        special: &ClassifiedExpression,
    ) -> Result<bool, ExpressionFault> {
        Ok(general.focus.iter().all(|concept| special.is_below(*concept))
            && self.has_all_groups(special, &general.groups)?)
    }

    /// Returns whether an expression has a group below each of these.
    fn has_all_groups(
        self,
        expression: &ClassifiedExpression,
        groups: &[AttributeGroup],
    ) -> Result<bool, ExpressionFault> {
        for group in groups {
            let mut is_there = false;
            for other in &expression.groups {
                is_there = is_there || self.group_is_below(other, group)?;
            }
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a group has an attribute below each one of another group.
    pub(super) fn group_is_below(
        self,
        special: &AttributeGroup,
        general: &AttributeGroup,
    ) -> Result<bool, ExpressionFault> {
        for (name, value) in &general.attributes {
            let mut is_there = false;
            self.budget.spend(special.attributes.len())?;
            for (other, of) in &special.attributes {
                is_there =
                    is_there || (self.hierarchy.is_a(*other, *name) && self.value_is_below(of, value)?);
            }
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn value_is_below(self, special: &GroupValue, general: &GroupValue) -> Result<bool, ExpressionFault> {
        self.budget.spend(1 + self.hierarchy.walk_steps())?;
        Ok(match (special, general) {
            (GroupValue::Concept(special), GroupValue::Concept(general)) => {
                self.hierarchy.is_a(*special, *general)
            }
            (GroupValue::Expression(special), GroupValue::Concept(general)) => special.is_below(*general),
            (GroupValue::Concept(special), GroupValue::Expression(general)) => {
                let code = self.system.code(*special).to_owned();
                let focus = vec![ConceptReference { code, term: None }];
                let special = self.classify(&ExpressionBody { focus, ..ExpressionBody::default() })?;
                self.subsumes(general, &special)?
            }
            (GroupValue::Expression(special), GroupValue::Expression(general)) => {
                self.subsumes(general, special)?
            }
            (GroupValue::Literal(a), GroupValue::Literal(b)) => is_same_literal(a, b),
            (GroupValue::Literal(_), _) | (_, GroupValue::Literal(_)) => false,
        })
    }

    /// Returns whether a concept has a sufficient definition.
    pub(super) fn is_defined(self, concept: u32) -> bool {
        self.system.property(concept, "sufficientlyDefined").next() == Some("true")
    }

    /// The groups of the defining relationships of a concept.
    fn groups_of(self, concept: u32) -> Vec<AttributeGroup> {
        let mut attributes: Vec<ConceptAttribute<'_>> = self.system.attributes(concept).collect();
        attributes.sort_by_key(|attribute| attribute.group);
        let together =
            |a: &ConceptAttribute<'_>, b: &ConceptAttribute<'_>| a.group != 0 && a.group == b.group;
        let own_value = |attribute: &ConceptAttribute<'_>| {
            let value = match attribute.value {
                AttributeValue::Concept(concept) => GroupValue::Concept(concept),
                AttributeValue::Literal(text) => GroupValue::Literal(text.to_owned()),
            };
            (attribute.kind, value)
        };
        let groups = attributes.chunk_by(together).map(|group| AttributeGroup {
            attributes: group.iter().map(own_value).collect(),
            is_ungrouped: group[0].group == 0,
        });
        groups.collect()
    }

    fn attribute(self, stated: &Attribute) -> Result<(u32, GroupValue), ExpressionFault> {
        let name = self.find(&stated.name)?;
        let root = self.system.find(CONCEPT_MODEL_ATTRIBUTE);
        if root.is_some_and(|root| root == name || !self.hierarchy.is_a(name, root)) {
            return Err(ExpressionFault::NotAnAttribute(stated.name.code.clone()));
        }
        let value = match &stated.value {
            AttributeTerm::Concept(concept) => GroupValue::Concept(self.find(concept)?),
            AttributeTerm::Expression(body) => GroupValue::Expression(Rc::new(self.classify(body)?)),
            AttributeTerm::Literal(text) => GroupValue::Literal(text.clone()),
        };
        Ok((name, value))
    }

    /// The concept of a reference, whose term must be one of its own.
    pub(super) fn find(self, reference: &ConceptReference) -> Result<u32, ExpressionFault> {
        self.budget.spend(1)?;
        let ConceptReference { code, term } = reference;
        let concept = self.system.find(code).ok_or_else(|| ExpressionFault::UnknownConcept(code.clone()))?;
        let is_own = |term: &String| self.system.displays(concept).any(|own| same_folded(own.text, term));
        if let Some(term) = term.as_ref().filter(|term| !is_own(term)) {
            let display = self.system.display(concept).unwrap_or(code).to_owned();
            return Err(ExpressionFault::WrongTerm { code: code.clone(), term: term.clone(), display });
        }
        Ok(concept)
    }
}

impl ClassifiedExpression {
    fn is_below(&self, concept: u32) -> bool {
        self.subsumers.binary_search(&concept).is_ok()
    }
}

/// Returns whether two values are the same number, text or truth.
fn is_same_literal(a: &str, b: &str) -> bool {
    let number = |text: &str| text.strip_prefix('#').and_then(|text| text.parse::<f64>().ok());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.trim_start_matches('#').eq_ignore_ascii_case(b.trim_start_matches('#')),
    }
}
