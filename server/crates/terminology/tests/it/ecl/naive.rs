//! The naive evaluator, which computes sets as the specification defines them.

use std::collections::BTreeSet;

use super::descriptions::{concept_has_tag, has_description};
use super::expression::{Attribute, Expression, Filter, Refinement, Wanted};
use super::release::{Concept, Literal, Set};

/// The naive evaluator.
pub(super) struct Naive<'r>(pub(super) &'r [Concept]);

impl Naive<'_> {
    fn ancestors(&self, at: usize) -> Set {
        let mut all = Set::new();
        for &parent in &self.0[at].parents {
            all.insert(parent);
            all.extend(self.ancestors(parent));
        }
        all
    }

    fn is_below(&self, at: usize, above: usize) -> bool {
        self.ancestors(at).contains(&above)
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        0..self.0.len()
    }

    pub(super) fn set(&self, expression: &Expression) -> Set {
        match expression {
            Expression::Any => self.all().filter(|at| self.0[*at].active).collect(),
            Expression::Concept(at) | Expression::Identified(at) => Set::from([*at]),
            Expression::MemberOf(of) => {
                let sets = self.set(of);
                self.all()
                    .filter(|at| self.0[*at].members.iter().any(|row| row.active && sets.contains(&row.set)))
                    .collect()
            }
            Expression::Members(query) => {
                let rows = |at: usize| self.0[at].members.iter().map(move |row| (at, row));
                query.concepts(self.all().flat_map(rows))
            }
            Expression::Walk((_, _, up, one_step, with_self), of) => {
                let from = self.set(of);
                let is_next = |at: usize, other: usize| match (up, one_step) {
                    (false, true) => self.0[at].parents.contains(&other),
                    (true, true) => self.0[other].parents.contains(&at),
                    (false, false) => self.is_below(at, other),
                    (true, false) => self.is_below(other, at),
                };
                let reached = |at: &usize| {
                    (*with_self && from.contains(at)) || from.iter().any(|other| is_next(*at, *other))
                };
                self.all().filter(reached).collect()
            }
            Expression::Extreme(is_top, of) => {
                let set = self.set(of);
                let beyond = |at: usize, other: usize| match is_top {
                    true => self.is_below(at, other),
                    false => self.is_below(other, at),
                };
                set.iter().copied().filter(|at| !set.iter().any(|other| beyond(*at, *other))).collect()
            }
            Expression::And(list) => {
                let sets: Vec<Set> = list.iter().map(|one| self.set(one)).collect();
                self.all().filter(|at| sets.iter().all(|set| set.contains(at))).collect()
            }
            Expression::Or(list) => list.iter().flat_map(|one| self.set(one)).collect(),
            Expression::Minus(a, b) => &self.set(a) - &self.set(b),
            Expression::Refined(of, refinement) => {
                self.set(of).into_iter().filter(|at| self.satisfies(refinement, *at)).collect()
            }
            Expression::Dot(of, name) => {
                let (of, names) = (self.set(of), self.set(name));
                let attributes = of.iter().flat_map(|at| &self.0[*at].attributes);
                attributes
                    .filter_map(|(_, kind, value)| match value {
                        Literal::Concept(at) if names.contains(kind) => Some(*at),
                        _ => None,
                    })
                    .collect()
            }
            Expression::Filtered(of, filters) => {
                let has_state = filters.iter().any(|filter| matches!(filter, Filter::Active(..)));
                let set = match (&**of, has_state) {
                    (Expression::Any, true) => self.all().collect(),
                    (of, _) => self.set(of),
                };
                set.into_iter().filter(|at| filters.iter().all(|one| self.passes(one, *at))).collect()
            }
            Expression::Described(of, filters) => {
                let passes = |at: &usize| has_description(*at, &self.0[*at].descriptions, filters);
                self.set(of).into_iter().filter(passes).collect()
            }
            Expression::History(of, profile) => {
                let mut set = self.set(of);
                let used = [1, 2, 3, 3][*profile];
                let leads = |at: &usize| {
                    self.0[*at].replaced.iter().any(|(which, to)| *which < used && set.contains(to))
                };
                let more: Set = self.all().filter(leads).collect();
                set.extend(more);
                set
            }
        }
    }

    fn passes(&self, filter: &Filter, at: usize) -> bool {
        let concept = &self.0[at];
        match filter {
            Filter::Active(not, yes) => (concept.active == *yes) != *not,
            Filter::Defined(not, yes) => (concept.defined == *yes) != *not,
            Filter::Module(not, list) => list.contains(&concept.module) != *not,
            Filter::Tag(not, tag) => concept_has_tag(&concept.descriptions, tag) != *not,
            // A list is a disjunction, whose negation excludes all its members.
            Filter::Time("!=", times) => times.iter().all(|time| concept.time != *time),
            Filter::Time(order, times) => times.iter().any(|time| compares(order, &concept.time, time)),
        }
    }

    fn satisfies(&self, refinement: &Refinement, at: usize) -> bool {
        match refinement {
            Refinement::And(list) => list.iter().all(|one| self.satisfies(one, at)),
            Refinement::Or(list) => list.iter().any(|one| self.satisfies(one, at)),
            Refinement::Attribute(attribute) => self.has(attribute, at, None),
            Refinement::Group(cardinality, list, any) => {
                let groups: BTreeSet<u32> = self.0[at]
                    .attributes
                    .iter()
                    .map(|(group, ..)| *group)
                    .filter(|group| *group > 0)
                    .collect();
                let holds = |group: &&u32| match any {
                    true => list.iter().any(|one| self.has(one, at, Some(**group))),
                    false => list.iter().all(|one| self.has(one, at, Some(**group))),
                };
                admits(*cardinality, groups.iter().filter(holds).count())
            }
        }
    }

    fn has(&self, attribute: &Attribute, at: usize, group: Option<u32>) -> bool {
        let names = self.set(&attribute.name);
        let count = if attribute.reversed {
            let to = Literal::Concept(at);
            let sources = self.all().map(|source| {
                let mine = self.0[source].attributes.iter().filter(|(_, kind, value)| {
                    names.contains(kind) && *value == to && self.matches(attribute, &Literal::Concept(source))
                });
                mine.count()
            });
            sources.sum()
        } else {
            let mine = self.0[at].attributes.iter().filter(|(of, kind, value)| {
                group.is_none_or(|group| group == *of)
                    && names.contains(kind)
                    && self.matches(attribute, value)
            });
            mine.count()
        };
        admits(attribute.cardinality, count)
    }

    fn matches(&self, attribute: &Attribute, value: &Literal) -> bool {
        let holds = match (&attribute.value, value) {
            (Wanted::Expression(expression), Literal::Concept(at)) => self.set(expression).contains(at),
            (Wanted::Number(order, attribute), Literal::Number(number)) => compares(order, number, attribute),
            (Wanted::Texts(texts), Literal::Text(text)) => texts.contains(text),
            (Wanted::Boolean(attribute), Literal::Boolean(value)) => attribute == value,
            // A value of another type satisfies no comparison.
            _ => return false,
        };
        holds != attribute.negated
    }
}

pub(super) fn admits(cardinality: Option<(u32, Option<u32>)>, count: usize) -> bool {
    let (least, most) = cardinality.unwrap_or((1, None));
    count >= least as usize && most.is_none_or(|most| count <= most as usize)
}

pub(super) fn compares<T: PartialOrd>(order: &str, a: &T, b: &T) -> bool {
    match order {
        "=" => a == b,
        "!=" => a != b,
        "<" => a < b,
        "<=" => a <= b,
        ">" => a > b,
        _ => a >= b,
    }
}
