//! The set of all concepts that pass a filter.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;

use super::{FilterOperator, FilterSubject, ValueSetFilter, WrittenFilter};
use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::code_system::hierarchy::ConceptHierarchy;
use crate::model::budget::BudgetExhausted;
use crate::model::{Budget, Unprocessable};

/// The property of each concept is read if at most this fraction (1/N) of all concepts is left: for the
/// operator `=`, and for operators that must compare each value of the property.
const READ_FRACTIONS: [usize; 2] = [1024, 8];
/// Number of concepts with a value that cost as much as reading the values of one concept.
const CONCEPTS_PER_READ: usize = 32;

impl ValueSetFilter {
    /// Returns those of these concepts that pass the filter.
    ///
    /// # Errors
    /// The same errors as [`admits`](Self::admits).
    pub(crate) fn members(
        &self,
        system: &CodeSystem,
        mut among: ConceptSet,
        budget: &Budget<'_>,
    ) -> Result<ConceptSet, Unprocessable> {
        if let FilterOperator::Ecl(constraint) = &self.op {
            let all = constraint.members(system, budget).map_err(|fault| self.ecl_fault(system, fault))?;
            among.intersect(&all);
            return Ok(among);
        }
        if let FilterOperator::BelowAny(list) | FilterOperator::AboveAny(list) = &self.op {
            let hierarchy = system.require_is_a_hierarchy()?;
            let is_above = matches!(self.op, FilterOperator::AboveAny(_));
            let mut reached = ConceptSet::empty(system.len());
            for concept in self.named_concepts(system, list)? {
                let mut walked = walk(system, hierarchy, concept, is_above, budget)?;
                walked.remove(concept);
                reached.unite(&walked);
            }
            among.intersect(&reached);
            return Ok(among);
        }
        if self.walks_hierarchy()
            && let Ok(hierarchy) = system.require_is_a_hierarchy()
            && let Some(Range { start: named, .. }) = self.named_interval(system, hierarchy)
        {
            self.retain_reached(system, hierarchy, named, &mut among, budget)?;
            return Ok(among);
        }
        let [of_equal, of_others] = READ_FRACTIONS;
        let part = if matches!(self.op, FilterOperator::Equal) { of_equal } else { of_others };
        if self.subject == FilterSubject::Property
            && among.count() > system.len() / part
            && let Some(passing) =
                self.concepts_by_value(system, among.count().saturating_mul(CONCEPTS_PER_READ), budget)?
        {
            match self.op {
                FilterOperator::NotIn(_) | FilterOperator::Exists(false) => among.subtract(&passing),
                _ => among.intersect(&passing),
            }
            return Ok(among);
        }
        let mut out = ConceptSet::empty(system.len());
        for concept in among.iter_after(0) {
            if self.admits(system, system.hierarchy().concept_at(concept), budget)? {
                out.insert(concept);
            }
        }
        Ok(out)
    }

    /// The concepts with a value that the operator names, for operators that compare values of a property.
    fn concepts_by_value(
        &self,
        system: &CodeSystem,
        most: usize,
        budget: &Budget<'_>,
    ) -> Result<Option<ConceptSet>, Unprocessable> {
        let WrittenFilter { written, .. } = &*self.source;
        let exact = matches!(self.op, FilterOperator::Equal).then_some(written.value.as_str());
        let with_value = |test: &dyn Fn(&str) -> bool| {
            system.concepts_with_value(&written.property, exact, most, test, budget)
        };
        Ok(match &self.op {
            FilterOperator::Equal => with_value(&|value| self.equals(system, value, &written.value))?,
            FilterOperator::In(list) | FilterOperator::NotIn(list) => {
                budget.spend(list.len() / 4)?;
                let values: HashSet<&str> = list.iter().map(String::as_str).collect();
                with_value(&|value| values.contains(value))?
            }
            FilterOperator::Regex(pattern) => {
                let (regex, steps) = self.pattern(pattern, budget)?;
                let bytes = Cell::new(0);
                let passing = with_value(&|value| {
                    bytes.set(bytes.get() + value.len());
                    regex.is_match(value)
                })?;
                budget.spend(steps + bytes.get() / 16)?;
                passing
            }
            FilterOperator::Exists(_) => with_value(&|_| true)?,
            _ => None,
        })
    }

    /// Keeps those of these concepts that a walk of the hierarchy from the named one reaches, or their
    /// complement for `is-not-a`.
    fn retain_reached(
        &self,
        system: &CodeSystem,
        hierarchy: &ConceptHierarchy,
        root: u32,
        among: &mut ConceptSet,
        budget: &Budget<'_>,
    ) -> Result<(), Unprocessable> {
        if matches!(self.op, FilterOperator::ChildOf) {
            let children = hierarchy.children(root);
            budget.spend(children.len())?;
            let mut reached = ConceptSet::empty(hierarchy.len());
            children.into_iter().for_each(|concept| reached.insert(concept));
            among.intersect(&reached);
            return Ok(());
        }
        let is_above = matches!(self.op, FilterOperator::Generalizes);
        let reached = walk(system, hierarchy, root, is_above, budget)?;
        match self.op {
            FilterOperator::IsNotA => among.subtract(&reached),
            _ => among.intersect(&reached),
        }
        match self.op {
            FilterOperator::DescendentOf => among.remove(root),
            FilterOperator::DescendentLeaf => {
                budget.spend(reached.count())?;
                among.remove(root);
                among.retain(|concept| hierarchy.is_leaf(concept));
            }
            _ => {}
        }
        Ok(())
    }
}

/// A concept with all its ancestors or descendants. The hierarchy must not have a cycle.
fn walk(
    system: &CodeSystem,
    hierarchy: &ConceptHierarchy,
    from: u32,
    up: bool,
    budget: &Budget<'_>,
) -> Result<ConceptSet, BudgetExhausted> {
    if up {
        return ConceptSet::ancestors(hierarchy, from, budget);
    }
    let mut reached = (*system.descendants(from, budget)?).clone();
    reached.insert(from);
    Ok(reached)
}
