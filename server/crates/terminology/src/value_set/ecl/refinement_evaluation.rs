//! Evaluation of the refinements of a constraint.

use std::cell::OnceCell;
use std::rc::Rc;

use super::evaluation::{EclEvaluator, EvaluatedSets};
use super::prepared::{PreparedAttribute, PreparedPart};
use super::syntax::{AttributeConstraint, EclError, EclExpression, EclRefinement, ONCE, ValueConstraint};
use crate::code_system::concept_attribute::AttributeValue;
use crate::code_system::concept_set::ConceptSet;

/// If the focus has more than this fraction (1/N) of all concepts, the values of a refinement are computed as
/// a set. A fraction, so that property tests with small code systems reach both cases.
const VALUE_SET_FRACTION: usize = 128;
/// If the focus has at most this fraction (1/N) of all concepts, the attributes of each one are read.
const READ_FRACTION: usize = 1024;
/// Maximum number of attribute types for which concepts are looked up by their values. Each type needs an
/// index of its own.
const MAX_INDEXED_TYPES: usize = 16;

/// A set with at least all concepts that satisfy a refinement.
struct RefinementCandidates {
    concepts: ConceptSet,
    /// Whether all of them satisfy the refinement.
    is_exact: bool,
}

impl<'a> EclEvaluator<'a> {
    /// The concepts of an expression that satisfy a refinement.
    ///
    /// # Errors
    /// The same errors as [`contains`](Self::contains).
    pub(super) fn refined_set(
        &self,
        inner: &EclExpression,
        refinement: &EclRefinement,
    ) -> Result<ConceptSet, EclError> {
        let len = self.system.len();
        let mut focus = self.concepts_of(inner)?;
        if focus.count() > len / READ_FRACTION
            && let Some(candidates) = self.candidates_of(refinement)?
        {
            self.budget.spend_words(len.div_ceil(64), false)?;
            Rc::make_mut(&mut focus).intersect(&candidates.concepts);
            if candidates.is_exact {
                return Ok(Rc::unwrap_or_clone(focus));
            }
        }
        let is_large = focus.count() > len / VALUE_SET_FRACTION;
        let outer = self.sets.as_ref().map(|sets| sets.has_many.replace(is_large));
        let mut out = ConceptSet::empty(len);
        for concept in focus.iter_after(0) {
            self.spend_step()?;
            if self.satisfies(refinement, concept)? {
                out.insert(concept);
            }
        }
        if let (Some(sets), Some(outer)) = (&self.sets, outer) {
            sets.has_many.set(outer);
        }
        Ok(out)
    }

    /// Returns the concepts that have the values named by a refinement. Returns `None` if concepts without
    /// such a value can satisfy the refinement, or if its values are not concepts.
    fn candidates_of(&self, refinement: &EclRefinement) -> Result<Option<RefinementCandidates>, EclError> {
        match refinement {
            EclRefinement::Attribute(attribute) => self.attribute_candidates(attribute),
            EclRefinement::Group(cardinality, inner) if !cardinality.admits(0) => {
                let candidates = self.candidates_of(inner)?;
                Ok(candidates.map(|candidates| RefinementCandidates { is_exact: false, ..candidates }))
            }
            EclRefinement::Group(..) => Ok(None),
            EclRefinement::And(all) => {
                let mut both: Option<RefinementCandidates> = None;
                let mut is_exact = true;
                for each in all {
                    let candidates = self.candidates_of(each)?;
                    is_exact &= candidates.as_ref().is_some_and(|candidates| candidates.is_exact);
                    match (&mut both, candidates) {
                        (Some(both), Some(candidates)) => both.concepts.intersect(&candidates.concepts),
                        (None, candidates) => both = candidates,
                        (Some(_), None) => {}
                    }
                }
                Ok(both.map(|both| RefinementCandidates { is_exact, ..both }))
            }
            EclRefinement::Or(any) => {
                let mut either = RefinementCandidates { concepts: ConceptSet::default(), is_exact: true };
                for each in any {
                    let Some(candidates) = self.candidates_of(each)? else { return Ok(None) };
                    either.concepts.unite(&candidates.concepts);
                    either.is_exact &= candidates.is_exact;
                }
                Ok(Some(either))
            }
        }
    }

    /// Returns the concepts that have a value named by one attribute of a refinement, as
    /// [`candidates_of`](Self::candidates_of) does.
    fn attribute_candidates(
        &self,
        attribute: &AttributeConstraint,
    ) -> Result<Option<RefinementCandidates>, EclError> {
        let ValueConstraint::Expression(values) = &attribute.value else { return Ok(None) };
        if attribute.reversed || attribute.negated || attribute.cardinality.admits(0) {
            return Ok(None);
        }
        let kinds = self.concepts_of(&attribute.name)?;
        if kinds.count() > MAX_INDEXED_TYPES {
            return Ok(None);
        }
        let values = match self.concepts_of(values) {
            // An unknown value is an error only if a concept has the attribute.
            Err(EclError::UnknownConcept(_)) => return Ok(None),
            values => values?,
        };
        let mut concepts = ConceptSet::empty(self.system.len());
        self.budget.spend_words(concepts.words(), true)?;
        for kind in kinds.iter_after(0) {
            let sources = self.system.relationship_sources(kind, self.budget)?;
            sources.for_each_of(&values, |with_value| {
                self.budget.spend(1 + with_value.len() / 16)?;
                with_value.iter().for_each(|concept| concepts.insert(*concept));
                Ok::<_, EclError>(())
            })?;
        }
        Ok(Some(RefinementCandidates { concepts, is_exact: attribute.cardinality == ONCE }))
    }

    pub(super) fn satisfies(&self, refinement: &EclRefinement, concept: u32) -> Result<bool, EclError> {
        self.spend_step()?;
        match refinement {
            EclRefinement::And(all) => self.all_hold(all, |each| self.satisfies(each, concept)),
            EclRefinement::Or(any) => self.any_holds(any, |each| self.satisfies(each, concept)),
            EclRefinement::Attribute(attribute) => {
                let count = self.attribute_count(attribute, concept, None)?;
                Ok(attribute.cardinality.admits(count))
            }
            EclRefinement::Group(cardinality, inner) => {
                let mut groups: Vec<u32> =
                    self.system.attributes(concept).map(|a| a.group).filter(|group| *group != 0).collect();
                groups.sort_unstable();
                groups.dedup();
                let mut count = 0;
                for group in groups {
                    count += u32::from(self.satisfies_in_group(inner, concept, group)?);
                }
                Ok(cardinality.admits(count))
            }
        }
    }

    fn satisfies_in_group(
        &self,
        refinement: &EclRefinement,
        concept: u32,
        group: u32,
    ) -> Result<bool, EclError> {
        match refinement {
            EclRefinement::And(all) => {
                self.all_hold(all, |each| self.satisfies_in_group(each, concept, group))
            }
            EclRefinement::Or(any) => {
                self.any_holds(any, |each| self.satisfies_in_group(each, concept, group))
            }
            EclRefinement::Attribute(attribute) => {
                Ok(attribute.cardinality.admits(self.attribute_count(attribute, concept, Some(group))?))
            }
            EclRefinement::Group(..) => Ok(false),
        }
    }

    /// Returns how often the concept has the attribute, within one group if there is one.
    fn attribute_count(
        &self,
        constraint: &AttributeConstraint,
        concept: u32,
        group: Option<u32>,
    ) -> Result<u32, EclError> {
        let mut count = 0;
        if let (true, Some(sets)) = (constraint.reversed, &self.sets) {
            let address = std::ptr::from_ref(constraint);
            let cached = sets.reversed.borrow().get(&address).cloned();
            let counts = match cached {
                Some(counts) => counts,
                None => {
                    let counts = Rc::new(self.reversed_counts(constraint)?);
                    sets.reversed.borrow_mut().insert(address, counts.clone());
                    counts
                }
            };
            return Ok(counts[concept as usize]);
        }
        if constraint.reversed {
            // Counts the attributes whose value is this concept.
            for source in 0..self.system.len() as u32 {
                self.spend_step()?;
                for attribute in self.system.attributes(source) {
                    if attribute.value == AttributeValue::Concept(concept)
                        && self.contains(&constraint.name, attribute.kind)?
                    {
                        count += u32::from(self.value_matches(constraint, AttributeValue::Concept(source))?);
                    }
                }
            }
            return Ok(count);
        }
        if let Some(sets) = &self.sets {
            let prepared = self.prepared_attribute(sets, constraint)?;
            for attribute in self.system.attributes(concept) {
                self.spend_step()?;
                if group.is_some_and(|group| group != attribute.group)
                    || !prepared.name.has(self.system, attribute.kind)
                {
                    continue;
                }
                count += u32::from(match (&constraint.value, attribute.value) {
                    (ValueConstraint::Expression(expression), AttributeValue::Concept(value)) => {
                        let part = match prepared.value.get() {
                            Some(part) => part,
                            None => {
                                let part = match sets.has_many.get() {
                                    true => PreparedPart::Set(self.concepts_of(expression)?),
                                    false => self.prepare(expression)?,
                                };
                                prepared.value.get_or_init(|| part)
                            }
                        };
                        part.has(self.system, value) != constraint.negated
                    }
                    (_, value) => self.value_matches(constraint, value)?,
                });
            }
            return Ok(count);
        }
        for attribute in self.system.attributes(concept) {
            self.spend_step()?;
            if group.is_none_or(|group| group == attribute.group)
                && self.contains(&constraint.name, attribute.kind)?
                && self.value_matches(constraint, attribute.value)?
            {
                count += 1;
            }
        }
        Ok(count)
    }

    /// An attribute of a refinement, which is prepared once.
    fn prepared_attribute(
        &self,
        sets: &EvaluatedSets<'a>,
        constraint: &AttributeConstraint,
    ) -> Result<Rc<PreparedAttribute<'a>>, EclError> {
        let address = std::ptr::from_ref(constraint);
        let cached =
            sets.attributes.borrow().iter().find(|(known, _)| *known == address).map(|(_, one)| one.clone());
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let name = self.prepare(&constraint.name)?;
        let prepared = Rc::new(PreparedAttribute { name, value: OnceCell::new() });
        sets.attributes.borrow_mut().push((address, prepared.clone()));
        Ok(prepared)
    }

    /// Returns how often each concept is the value of a reversed attribute.
    fn reversed_counts(&self, constraint: &AttributeConstraint) -> Result<Vec<u32>, EclError> {
        let mut counts = vec![0; self.system.len()];
        for source in 0..self.system.len() as u32 {
            self.spend_step()?;
            for attribute in self.system.attributes(source) {
                if let (AttributeValue::Concept(index), true) =
                    (attribute.value, self.contains(&constraint.name, attribute.kind)?)
                {
                    counts[index as usize] +=
                        u32::from(self.value_matches(constraint, AttributeValue::Concept(source))?);
                }
            }
        }
        Ok(counts)
    }

    /// Returns whether a value satisfies the comparison of an attribute. A value of another type satisfies
    /// none.
    fn value_matches(
        &self,
        constraint: &AttributeConstraint,
        value: AttributeValue<'_>,
    ) -> Result<bool, EclError> {
        let matches = match (&constraint.value, value) {
            (ValueConstraint::Expression(expression), AttributeValue::Concept(at)) => {
                self.contains(expression, at)?
            }
            (_, AttributeValue::Concept(_)) | (ValueConstraint::Expression(_), _) => return Ok(false),
            (constraint, AttributeValue::Literal(text)) => match (constraint, LiteralValue::parse(text)) {
                (ValueConstraint::Number(order, or_equal, constraint), LiteralValue::Number(number)) => {
                    let Some(ordering) = number.partial_cmp(constraint) else { return Ok(false) };
                    ordering == *order || (*or_equal && ordering.is_eq())
                }
                (ValueConstraint::Text(any), LiteralValue::Text(text)) => {
                    self.budget.spend(any.len() / 8)?;
                    any.iter().any(|constraint| constraint == text)
                }
                (ValueConstraint::Boolean(constraint), LiteralValue::Boolean(value)) => *constraint == value,
                _ => return Ok(false),
            },
        };
        Ok(matches != constraint.negated)
    }
}

/// A concrete value, as a release writes it: `#5`, `"text"`, `true`.
enum LiteralValue<'a> {
    Number(f64),
    Boolean(bool),
    Text(&'a str),
}

impl<'a> LiteralValue<'a> {
    fn parse(text: &'a str) -> Self {
        let plain = text.strip_prefix('#').unwrap_or(text);
        match (plain.parse(), plain) {
            (Ok(number), _) if plain.len() < text.len() => Self::Number(number),
            _ if plain.eq_ignore_ascii_case("true") => Self::Boolean(true),
            _ if plain.eq_ignore_ascii_case("false") => Self::Boolean(false),
            _ => Self::Text(text.trim_matches('"')),
        }
    }
}
