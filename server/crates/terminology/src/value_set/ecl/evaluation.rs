//! Evaluation of a constraint, either for one concept without computing any set, or for all concepts with a
//! set for each part of the constraint.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::prepared::{PreparedAttribute, PreparedPart, is_testable};
use super::syntax::{AttributeConstraint, EclError, EclExpression, HierarchyOperator};
use crate::code_system::CodeSystem;
use crate::code_system::concept_attribute::AttributeValue;
use crate::code_system::concept_set::ConceptSet;
use crate::model::Budget;
use crate::model::text_folding::same_folded;

/// Number of concepts for each member of a reference set from which its members are tested one by one.
const MEMBERS_PER_CONCEPT: usize = 16;

/// Aliases of schemes of alternate identifiers, with the concepts of the schemes.
const SCHEME_ALIASES: [(&str, &str); 1] = [("LOINC", "30051010000102")];

/// The parts of a constraint that are already computed or prepared, by the address of the part.
#[derive(Default)]
pub(super) struct EvaluatedSets<'a> {
    expressions: RefCell<HashMap<*const EclExpression, Rc<ConceptSet>>>,
    /// Number of reversed attributes of each concept.
    pub(super) reversed: RefCell<HashMap<*const AttributeConstraint, Rc<Vec<u32>>>>,
    /// Attributes of refinements. Nearly all constraints have one or two.
    pub(super) attributes: RefCell<Vec<(*const AttributeConstraint, Rc<PreparedAttribute<'a>>)>>,
    /// Whether the refinement is tested for so many concepts that a set of its values is faster than tests of
    /// their ancestors, which are all over the memory.
    pub(super) has_many: Cell<bool>,
}

/// Evaluation of a constraint on one code system.
pub(super) struct EclEvaluator<'a> {
    pub(super) system: &'a CodeSystem,
    pub(super) budget: &'a Budget<'a>,
    /// Computed sets, if all concepts are requested.
    pub(super) sets: Option<EvaluatedSets<'a>>,
}

impl<'a> EclEvaluator<'a> {
    /// An evaluator for one concept.
    pub(super) fn of_one(system: &'a CodeSystem, budget: &'a Budget<'a>) -> Self {
        budget.set_activity("evaluating an expression constraint");
        Self { system, budget, sets: None }
    }

    pub(super) fn of_all(system: &'a CodeSystem, budget: &'a Budget<'a>) -> Self {
        budget.set_activity("evaluating an expression constraint");
        Self { system, budget, sets: Some(EvaluatedSets::default()) }
    }

    pub(super) fn spend_step(&self) -> Result<(), EclError> {
        Ok(self.budget.spend(1)?)
    }

    /// The concept with a code or an alternate identifier. An excerpt of a code system can lack it.
    pub(super) fn find_concept(&self, code: &str) -> Result<Option<u32>, EclError> {
        let concept = match code.split_once('#') {
            Some((alias, identifier)) => self.find_identified(alias, identifier),
            None => self.system.find(code),
        };
        match concept {
            None if !self.system.is_excerpt() => Err(EclError::UnknownConcept(code.to_owned())),
            concept => Ok(concept),
        }
    }

    /// The concept with an alternate identifier. The alias of its scheme is one of ECL, or a term of the
    /// concept of the scheme.
    fn find_identified(&self, alias: &str, identifier: &str) -> Option<u32> {
        let identifiers = self.system.identifiers();
        let alias_row = SCHEME_ALIASES.iter().find(|(alias_row, _)| alias_row.eq_ignore_ascii_case(alias));
        let mut schemes = identifiers.schemes().filter(|scheme| match alias_row {
            Some((_, alias_row)) => alias_row == scheme,
            None => self.system.find(scheme).is_some_and(|concept| {
                let mut terms = self.system.displays(concept).filter(|term| term.retired.is_none());
                terms.any(|term| same_folded(&term.text.replace(' ', "-"), alias))
            }),
        });
        schemes.find_map(|scheme| identifiers.find(scheme, identifier))
    }

    /// Returns whether a concept is in the set of an expression.
    ///
    /// # Errors
    /// [`EclError`] if the expression names an unknown concept, or if the budget is spent.
    pub(super) fn contains(&self, expression: &EclExpression, concept: u32) -> Result<bool, EclError> {
        self.spend_step()?;
        if self.sets.is_some() && !is_quick(expression) {
            return Ok(self.concepts_of(expression)?.has(concept));
        }
        Ok(match expression {
            EclExpression::Any => !self.system.is_inactive(concept),
            EclExpression::AnyState => true,
            EclExpression::Concept(code) => self.find_concept(code)? == Some(concept),
            EclExpression::MemberOf(inner) => self.is_member(inner, concept)?,
            EclExpression::Members(query) => self.is_selected(query, concept)?,
            EclExpression::Walk(walk, inner) => self.reaches(*walk, inner, concept)?,
            EclExpression::And(all) => self.all_hold(all, |each| self.contains(each, concept))?,
            EclExpression::Or(any) => self.any_holds(any, |each| self.contains(each, concept))?,
            EclExpression::Minus(from, without) => {
                self.contains(from, concept)? && !self.contains(without, concept)?
            }
            EclExpression::Refined(inner, refinement) => {
                self.contains(inner, concept)? && self.satisfies(refinement, concept)?
            }
            EclExpression::Values(of, name) => self.is_value(of, name, concept)?,
            EclExpression::Extreme { is_top, of } => {
                // The concept is reached from another one of the set exactly if that one is an ancestor or
                // descendant.
                let beyond = HierarchyOperator { up: !*is_top, one_step: false, with_self: false };
                self.contains(of, concept)? && !self.reaches(beyond, of, concept)?
            }
            EclExpression::Filtered(inner, filters) => {
                self.contains(inner, concept)?
                    && self.all_hold(filters, |filter| self.passes(filter, concept))?
            }
            EclExpression::Described(inner, filters) => {
                self.contains(inner, concept)? && self.is_described(filters, concept)?
            }
            EclExpression::WithHistory(inner, profile) => {
                self.contains(inner, concept)?
                    || self.replaced_by_any(profile, concept, |to| self.contains(inner, to))?
            }
        })
    }

    /// The concepts of an expression, which are computed once.
    ///
    /// # Errors
    /// The same errors as [`contains`](Self::contains).
    pub(super) fn concepts_of(&self, expression: &EclExpression) -> Result<Rc<ConceptSet>, EclError> {
        let address = std::ptr::from_ref(expression);
        let sets = self.sets.as_ref().map(|sets| &sets.expressions);
        if let Some(cached) = sets.and_then(|sets| sets.borrow().get(&address).cloned()) {
            return Ok(cached);
        }
        let set = Rc::new(self.compute_set(expression)?);
        if let Some(sets) = sets {
            sets.borrow_mut().insert(address, set.clone());
        }
        Ok(set)
    }

    fn compute_set(&self, expression: &EclExpression) -> Result<ConceptSet, EclError> {
        let len = self.system.len();
        let mut out = ConceptSet::empty(len);
        // A set has a bit for each concept, so that each operation on sets costs a pass over its words.
        let words = || self.budget.spend_words(len.div_ceil(64), false);
        self.budget.spend_words(len.div_ceil(64), true)?;
        match expression {
            EclExpression::AnyState => out = ConceptSet::full(len),
            EclExpression::Any => {
                out = ConceptSet::full(len);
                if self.system.has_inactive() {
                    self.budget.spend(len / 8)?;
                    out.retain(|concept| !self.system.is_inactive(concept));
                }
            }
            EclExpression::Extreme { is_top, of } => {
                let beyond = HierarchyOperator { up: !*is_top, one_step: false, with_self: false };
                let set = self.concepts_of(of)?;
                out = (*set).clone();
                words()?;
                out.subtract(&self.walk_from(beyond, &set)?);
            }
            EclExpression::Filtered(inner, filters) => {
                for concept in self.concepts_of(inner)?.iter_after(0) {
                    self.spend_step()?;
                    if self.all_hold(filters, |filter| self.passes(filter, concept))? {
                        out.insert(concept);
                    }
                }
            }
            EclExpression::Described(inner, filters) => {
                let mut candidates = (*self.concepts_of(inner)?).clone();
                // The word index first: descriptions are read only of concepts that can match.
                self.retain_with_words(filters, &mut candidates)?;
                for concept in candidates.iter_after(0) {
                    self.spend_step()?;
                    if self.is_described(filters, concept)? {
                        out.insert(concept);
                    }
                }
            }
            EclExpression::WithHistory(inner, profile) => {
                let set = self.concepts_of(inner)?;
                out = (*set).clone();
                for concept in 0..len as u32 {
                    self.spend_step()?;
                    if !set.has(concept) && self.replaced_by_any(profile, concept, |to| Ok(set.has(to)))? {
                        out.insert(concept);
                    }
                }
            }
            EclExpression::Concept(code) => {
                self.find_concept(code)?.into_iter().for_each(|concept| out.insert(concept));
            }
            EclExpression::MemberOf(inner) => {
                // The usual form names one reference set, and must not look at the names of all others.
                if let EclExpression::Concept(code) = &**inner {
                    if let Some(name) = self.find_concept(code)? {
                        self.add_subset(self.system.code(name), &mut out)?;
                    }
                    return Ok(out);
                }
                let names = self.concepts_of(inner)?;
                for name in self.system.subset_names() {
                    self.spend_step()?;
                    if self.system.find(name).is_some_and(|concept| names.has(concept)) {
                        self.add_subset(name, &mut out)?;
                    }
                }
            }
            EclExpression::Members(query) => return self.select_members(query),
            EclExpression::Walk(walk, inner) => return self.walk_from(*walk, &*self.concepts_of(inner)?),
            EclExpression::And(all) => {
                if let Some(few) = self.intersect_few(all)? {
                    return Ok(few);
                }
                out = ConceptSet::full(len);
                for each in all {
                    words()?;
                    out.intersect(&*self.concepts_of(each)?);
                }
            }
            EclExpression::Or(any) => {
                for each in any {
                    words()?;
                    out.unite(&*self.concepts_of(each)?);
                }
            }
            EclExpression::Minus(from, without) => {
                out = (*self.concepts_of(from)?).clone();
                words()?;
                out.subtract(&*self.concepts_of(without)?);
            }
            EclExpression::Refined(inner, refinement) => return self.refined_set(inner, refinement),
            EclExpression::Values(of, name) => {
                for source in self.concepts_of(of)?.iter_after(0) {
                    self.spend_step()?;
                    for attribute in self.system.attributes(source) {
                        if let (AttributeValue::Concept(value), true) =
                            (attribute.value, self.contains(name, attribute.kind)?)
                        {
                            out.insert(value);
                        }
                    }
                }
            }
        }
        Ok(out)
    }

    /// Prepares a part.
    ///
    /// # Errors
    /// [`EclError`] if the part names an unknown concept, or if the budget is spent.
    pub(super) fn prepare(&self, part: &EclExpression) -> Result<PreparedPart<'a>, EclError> {
        self.spend_step()?;
        let all = |parts: &[EclExpression]| -> Result<Vec<_>, EclError> {
            parts.iter().map(|part| self.prepare(part)).collect()
        };
        if !is_testable(part) {
            return Ok(PreparedPart::Set(self.concepts_of(part)?));
        }
        Ok(match part {
            EclExpression::Any => PreparedPart::Active,
            EclExpression::AnyState => PreparedPart::All,
            EclExpression::Concept(code) => match self.find_concept(code)? {
                Some(concept) => PreparedPart::One(concept),
                None => PreparedPart::Nothing,
            },
            // Without rows of ancestors, each test would walk the hierarchy.
            EclExpression::Walk(..) if self.system.hierarchy().needs_walk() => {
                PreparedPart::Set(self.concepts_of(part)?)
            }
            EclExpression::Walk(walk, of) => match self.prepare(of)? {
                PreparedPart::One(concept) if self.system.hierarchy().cycle().is_empty() => {
                    PreparedPart::Walk(*walk, concept)
                }
                _ => PreparedPart::Nothing,
            },
            EclExpression::MemberOf(of) => match self.prepare(of)? {
                PreparedPart::One(set) => {
                    PreparedPart::Members(self.system.subset(self.system.code(set)).unwrap_or_default())
                }
                _ => PreparedPart::Nothing,
            },
            EclExpression::And(parts) => PreparedPart::And(all(parts)?),
            EclExpression::Or(parts) => PreparedPart::Or(all(parts)?),
            EclExpression::Minus(from, without) => {
                PreparedPart::Minus(Box::new([self.prepare(from)?, self.prepare(without)?]))
            }
            _ => unreachable!("other parts cannot be tested"),
        })
    }

    /// The intersection of parts of which one is a reference set with few members: these are tested for the
    /// other parts. `None` if there is no such part.
    fn intersect_few(&self, parts: &[EclExpression]) -> Result<Option<ConceptSet>, EclError> {
        let prepared: Vec<_> = parts
            .iter()
            .filter(|part| matches!(part, EclExpression::MemberOf(_)))
            .map(|part| self.prepare(part))
            .collect::<Result<_, _>>()?;
        let lists = prepared.iter().filter_map(|part| match part {
            PreparedPart::Members(members) => Some(*members),
            _ => None,
        });
        let most = self.system.len() / MEMBERS_PER_CONCEPT;
        let Some(few) = lists.min_by_key(|members| members.len()).filter(|members| members.len() <= most)
        else {
            return Ok(None);
        };
        let prepared: Vec<_> = parts.iter().map(|part| self.prepare(part)).collect::<Result<_, _>>()?;
        let mut out = ConceptSet::default();
        for member in few {
            self.budget.spend(parts.len())?;
            if prepared.iter().all(|part| part.has(self.system, *member)) {
                out.insert(*member);
            }
        }
        Ok(Some(out))
    }

    fn add_subset(&self, name: &str, out: &mut ConceptSet) -> Result<(), EclError> {
        let members = self.system.subset(name).unwrap_or_default();
        self.budget.spend(members.len() / 8)?;
        members.iter().for_each(|concept| out.insert(*concept));
        Ok(())
    }

    /// The concepts that an operator reaches from a set.
    fn walk_from(&self, walk: HierarchyOperator, from: &ConceptSet) -> Result<ConceptSet, EclError> {
        let hierarchy = self.system.hierarchy();
        let mut out = ConceptSet::empty(self.system.len());
        if !hierarchy.cycle().is_empty() {
            return Ok(out);
        }
        let is_single = from.count() == 1;
        for index in from.iter_after(0) {
            self.spend_step()?;
            let next = || hierarchy.neighbours(index, walk.up).into_owned();
            match (walk.one_step, walk.up) {
                (true, _) => next().into_iter().for_each(|other| out.insert(other)),
                (false, true) => out.reach(hierarchy, next(), true, self.budget)?,
                (false, false) if is_single => out.unite(&*self.system.descendants(index, self.budget)?),
                (false, false) => out.add_descendants(hierarchy, index, self.budget)?,
            }
        }
        if walk.with_self {
            from.iter_after(0).for_each(|index| out.insert(index));
        }
        Ok(out)
    }

    pub(super) fn all_hold<'e, T: 'e>(
        &self,
        list: impl IntoIterator<Item = &'e T>,
        test: impl Fn(&'e T) -> Result<bool, EclError>,
    ) -> Result<bool, EclError> {
        for each in list {
            if !test(each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn any_holds<T>(
        &self,
        list: impl IntoIterator<Item = T>,
        test: impl Fn(T) -> Result<bool, EclError>,
    ) -> Result<bool, EclError> {
        for each in list {
            if test(each)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_member(&self, of: &EclExpression, concept: u32) -> Result<bool, EclError> {
        let is_in = |name: &str| {
            self.system.subset(name).is_some_and(|members| members.binary_search(&concept).is_ok())
        };
        if let EclExpression::Concept(code) = of {
            return Ok(self.find_concept(code)?.is_some_and(|name| is_in(self.system.code(name))));
        }
        self.any_holds(self.system.subset_names(), |name| {
            self.spend_step()?;
            let Some(subset) = self.system.find(name).filter(|_| is_in(name)) else { return Ok(false) };
            self.contains(of, subset)
        })
    }

    /// Returns whether an operator reaches this concept from a concept of the expression. It walks in
    /// reverse, starting from this concept.
    fn reaches(&self, walk: HierarchyOperator, from: &EclExpression, concept: u32) -> Result<bool, EclError> {
        let hierarchy = self.system.hierarchy();
        if !hierarchy.cycle().is_empty() {
            return Ok(false);
        }
        if let (EclExpression::Concept(code), false) = (from, walk.one_step) {
            let Some(place) = self.find_concept(code)? else { return Ok(false) };
            let (below, above) = if walk.up { (place, concept) } else { (concept, place) };
            self.budget.spend(hierarchy.walk_steps())?;
            return Ok(hierarchy.is_a(below, above) && (walk.with_self || concept != place));
        }
        if walk.with_self && self.contains(from, concept)? {
            return Ok(true);
        }
        let (mut seen, mut waiting) = (HashSet::from([concept]), vec![concept]);
        while let Some(here) = waiting.pop() {
            self.spend_step()?;
            for &other in hierarchy.neighbours(here, !walk.up).iter().filter(|other| seen.insert(**other)) {
                if self.contains(from, other)? {
                    return Ok(true);
                }
                if !walk.one_step {
                    waiting.push(other);
                }
            }
        }
        Ok(false)
    }

    /// Returns whether the concept is the value of such an attribute of such a concept. No index exists from
    /// values to concepts, so all concepts are tested.
    fn is_value(&self, of: &EclExpression, name: &EclExpression, concept: u32) -> Result<bool, EclError> {
        self.any_holds(0..self.system.len() as u32, |source| {
            self.spend_step()?;
            let mut mine =
                self.system.attributes(source).filter(|a| a.value == AttributeValue::Concept(concept));
            let holds = self.any_holds(&mut mine, |attribute| self.contains(name, attribute.kind))?;
            Ok(holds && self.contains(of, source)?)
        })
    }
}

/// Returns whether testing one concept is faster than computing the set of a part.
fn is_quick(expression: &EclExpression) -> bool {
    match expression {
        EclExpression::Any | EclExpression::AnyState | EclExpression::Concept(_) => true,
        EclExpression::Walk(walk, inner) => !walk.one_step && matches!(**inner, EclExpression::Concept(_)),
        EclExpression::MemberOf(inner) => matches!(**inner, EclExpression::Concept(_)),
        _ => false,
    }
}
