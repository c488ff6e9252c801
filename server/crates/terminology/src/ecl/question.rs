//! A constraint asked of a code system: of one concept without any set, or of all concepts with a set for each of its
//! parts.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::{Attribute, Expression, Fault, Refinement, Value, Walk};
use crate::Budget;
use crate::code_system::{AttributeValue, CodeSystem};
use crate::value_set::bits::Bits;

/// The sets that parts of a constraint were made, by the place of the part.
#[derive(Default)]
struct Sets {
    expressions: RefCell<HashMap<*const Expression, Rc<Bits>>>,
    /// How often each concept is the value of a reversed attribute.
    reversed: RefCell<HashMap<*const Attribute, Rc<Vec<u32>>>>,
}

/// One question to one code system.
pub(super) struct Question<'a> {
    system: &'a CodeSystem,
    budget: &'a Budget<'a>,
    /// Where all concepts are asked for.
    sets: Option<Sets>,
}

impl<'a> Question<'a> {
    /// A question about one concept.
    pub(super) fn of_one(system: &'a CodeSystem, budget: &'a Budget<'a>) -> Self {
        budget.during("evaluating an expression constraint");
        Self { system, budget, sets: None }
    }

    /// A question for all concepts.
    pub(super) fn of_all(system: &'a CodeSystem, budget: &'a Budget<'a>) -> Self {
        budget.during("evaluating an expression constraint");
        Self { system, budget, sets: Some(Sets::default()) }
    }

    fn step(&self) -> Result<(), Fault> {
        Ok(self.budget.spend(1)?)
    }

    fn find(&self, code: &str) -> Result<u32, Fault> {
        self.system.find(code).ok_or_else(|| Fault::UnknownConcept(code.to_owned()))
    }

    /// Is a concept in the set of an expression?
    ///
    /// # Errors
    /// A concept that is not known; too much work.
    pub(super) fn holds(&self, expression: &Expression, at: u32) -> Result<bool, Fault> {
        self.step()?;
        if self.sets.is_some() && !is_quick(expression) {
            return Ok(self.set(expression)?.has(at));
        }
        Ok(match expression {
            Expression::Any => true,
            Expression::Concept(code) => self.find(code)? == at,
            Expression::MemberOf(inner) => self.is_member(inner, at)?,
            Expression::Walk(walk, inner) => self.reaches(*walk, inner, at)?,
            Expression::And(all) => self.all(all, |each| self.holds(each, at))?,
            Expression::Or(any) => self.any(any, |each| self.holds(each, at))?,
            Expression::Minus(from, without) => self.holds(from, at)? && !self.holds(without, at)?,
            Expression::Refined(inner, refinement) => {
                self.holds(inner, at)? && self.is_said(refinement, at)?
            }
            Expression::Values(of, name) => self.is_value(of, name, at)?,
        })
    }

    /// The concepts of an expression, gathered once.
    ///
    /// # Errors
    /// As for [`holds`](Self::holds).
    pub(super) fn set(&self, expression: &Expression) -> Result<Rc<Bits>, Fault> {
        let place = std::ptr::from_ref(expression);
        let sets = self.sets.as_ref().map(|sets| &sets.expressions);
        if let Some(known) = sets.and_then(|sets| sets.borrow().get(&place).cloned()) {
            return Ok(known);
        }
        let set = Rc::new(self.gather(expression)?);
        if let Some(sets) = sets {
            sets.borrow_mut().insert(place, set.clone());
        }
        Ok(set)
    }

    fn gather(&self, expression: &Expression) -> Result<Bits, Fault> {
        let len = self.system.len();
        let mut out = Bits::empty(len);
        let words = || self.budget.words(len.div_ceil(64), false);
        self.budget.words(len.div_ceil(64), true)?;
        match expression {
            Expression::Any => out = Bits::full(len),
            Expression::Concept(code) => out.insert(self.find(code)?),
            Expression::MemberOf(inner) => {
                if let Expression::Concept(code) = &**inner {
                    self.find(code)?;
                    self.add_subset(code, &mut out)?;
                    return Ok(out);
                }
                let names = self.set(inner)?;
                for name in self.system.subset_names() {
                    self.step()?;
                    if self.system.find(name).is_some_and(|at| names.has(at)) {
                        self.add_subset(name, &mut out)?;
                    }
                }
            }
            Expression::Walk(walk, inner) => return self.walk(*walk, &*self.set(inner)?),
            Expression::And(all) => {
                out = Bits::full(len);
                for each in all {
                    words()?;
                    out.intersect(&*self.set(each)?);
                }
            }
            Expression::Or(any) => {
                for each in any {
                    words()?;
                    out.unite(&*self.set(each)?);
                }
            }
            Expression::Minus(from, without) => {
                out = (*self.set(from)?).clone();
                words()?;
                out.subtract(&*self.set(without)?);
            }
            Expression::Refined(inner, refinement) => {
                for at in self.set(inner)?.iter_after(0) {
                    self.step()?;
                    if self.is_said(refinement, at)? {
                        out.insert(at);
                    }
                }
            }
            Expression::Values(of, name) => {
                for source in self.set(of)?.iter_after(0) {
                    self.step()?;
                    for attribute in self.system.attributes(source) {
                        if let (AttributeValue::Concept(value), true) =
                            (attribute.value, self.holds(name, attribute.kind)?)
                        {
                            out.insert(value);
                        }
                    }
                }
            }
        }
        Ok(out)
    }

    fn add_subset(&self, name: &str, out: &mut Bits) -> Result<(), Fault> {
        let members = self.system.subset(name).unwrap_or_default();
        self.budget.spend(members.len() / 8)?;
        members.iter().for_each(|at| out.insert(*at));
        Ok(())
    }

    /// Where walking from a set leads.
    fn walk(&self, walk: Walk, from: &Bits) -> Result<Bits, Fault> {
        let hierarchy = self.system.hierarchy();
        let mut out = Bits::empty(self.system.len());
        if !hierarchy.circle().is_empty() {
            return Ok(out);
        }
        for at in from.iter_after(0) {
            self.step()?;
            let next = hierarchy.next(at, walk.up).into_owned();
            match walk.one_step {
                true => next.into_iter().for_each(|other| out.insert(other)),
                false => out.reach(hierarchy, next, walk.up, self.budget)?,
            }
        }
        if walk.with_self {
            from.iter_after(0).for_each(|at| out.insert(at));
        }
        Ok(out)
    }

    fn all<'e, T: 'e>(
        &self,
        list: impl IntoIterator<Item = &'e T>,
        test: impl Fn(&'e T) -> Result<bool, Fault>,
    ) -> Result<bool, Fault> {
        for each in list {
            if !test(each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn any<T>(
        &self,
        list: impl IntoIterator<Item = T>,
        test: impl Fn(T) -> Result<bool, Fault>,
    ) -> Result<bool, Fault> {
        for each in list {
            if test(each)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_member(&self, of: &Expression, at: u32) -> Result<bool, Fault> {
        let is_in =
            |name: &str| self.system.subset(name).is_some_and(|members| members.binary_search(&at).is_ok());
        if let Expression::Concept(code) = of {
            self.find(code)?;
            return Ok(is_in(code));
        }
        self.any(self.system.subset_names(), |name| {
            self.step()?;
            let Some(subset) = self.system.find(name).filter(|_| is_in(name)) else { return Ok(false) };
            self.holds(of, subset)
        })
    }

    /// Does walking from a concept of the expression lead to this one? Walked backwards: from this one to those.
    fn reaches(&self, walk: Walk, from: &Expression, at: u32) -> Result<bool, Fault> {
        let hierarchy = self.system.hierarchy();
        if !hierarchy.circle().is_empty() {
            return Ok(false);
        }
        if let (Expression::Concept(code), false) = (from, walk.one_step) {
            let named = self.find(code)?;
            let (below, above) = if walk.up { (named, at) } else { (at, named) };
            self.budget.spend(hierarchy.walk_steps())?;
            return Ok(hierarchy.is_a(below, above) && (walk.with_self || at != named));
        }
        if walk.with_self && self.holds(from, at)? {
            return Ok(true);
        }
        let (mut seen, mut waiting) = (HashSet::from([at]), vec![at]);
        while let Some(here) = waiting.pop() {
            self.step()?;
            for &other in hierarchy.next(here, !walk.up).iter().filter(|other| seen.insert(**other)) {
                if self.holds(from, other)? {
                    return Ok(true);
                }
                if !walk.one_step {
                    waiting.push(other);
                }
            }
        }
        Ok(false)
    }

    /// Is it the value of such an attribute of such a concept? There is no way back from values to concepts, so all
    /// are looked at.
    fn is_value(&self, of: &Expression, name: &Expression, at: u32) -> Result<bool, Fault> {
        self.any(0..self.system.len() as u32, |source| {
            self.step()?;
            let mut mine = self.system.attributes(source).filter(|a| a.value == AttributeValue::Concept(at));
            let named = self.any(&mut mine, |attribute| self.holds(name, attribute.kind))?;
            Ok(named && self.holds(of, source)?)
        })
    }

    fn is_said(&self, refinement: &Refinement, at: u32) -> Result<bool, Fault> {
        self.step()?;
        match refinement {
            Refinement::And(all) => self.all(all, |each| self.is_said(each, at)),
            Refinement::Or(any) => self.any(any, |each| self.is_said(each, at)),
            Refinement::Attribute(attribute) => {
                let count = self.count(attribute, at, None)?;
                Ok(attribute.cardinality.admits(count))
            }
            Refinement::Group(cardinality, inner) => {
                let mut groups: Vec<u32> =
                    self.system.attributes(at).map(|a| a.group).filter(|group| *group != 0).collect();
                groups.sort_unstable();
                groups.dedup();
                let mut count = 0;
                for group in groups {
                    count += u32::from(self.is_said_in(inner, at, group)?);
                }
                Ok(cardinality.admits(count))
            }
        }
    }

    fn is_said_in(&self, refinement: &Refinement, at: u32, group: u32) -> Result<bool, Fault> {
        match refinement {
            Refinement::And(all) => self.all(all, |each| self.is_said_in(each, at, group)),
            Refinement::Or(any) => self.any(any, |each| self.is_said_in(each, at, group)),
            Refinement::Attribute(attribute) => {
                Ok(attribute.cardinality.admits(self.count(attribute, at, Some(group))?))
            }
            Refinement::Group(..) => Ok(false),
        }
    }

    /// How often the concept has the attribute, within one group where one is given.
    fn count(&self, wanted: &Attribute, at: u32, group: Option<u32>) -> Result<u32, Fault> {
        let mut count = 0;
        if let (true, Some(sets)) = (wanted.reversed, &self.sets) {
            let place = std::ptr::from_ref(wanted);
            let known = sets.reversed.borrow().get(&place).cloned();
            let counts = match known {
                Some(counts) => counts,
                None => {
                    let counts = Rc::new(self.counts(wanted)?);
                    sets.reversed.borrow_mut().insert(place, counts.clone());
                    counts
                }
            };
            return Ok(counts[at as usize]);
        }
        if wanted.reversed {
            // The attributes that lead here.
            for source in 0..self.system.len() as u32 {
                self.step()?;
                for attribute in self.system.attributes(source) {
                    if attribute.value == AttributeValue::Concept(at)
                        && self.holds(&wanted.name, attribute.kind)?
                    {
                        let source = AttributeValue::Concept(source);
                        count += u32::from(self.fits(&wanted.value, source)? != wanted.negated);
                    }
                }
            }
            return Ok(count);
        }
        for attribute in self.system.attributes(at) {
            self.step()?;
            if group.is_none_or(|group| group == attribute.group)
                && self.holds(&wanted.name, attribute.kind)?
                && self.fits(&wanted.value, attribute.value)? != wanted.negated
            {
                count += 1;
            }
        }
        Ok(count)
    }

    /// How often each concept is the value of a reversed attribute.
    fn counts(&self, wanted: &Attribute) -> Result<Vec<u32>, Fault> {
        let mut counts = vec![0; self.system.len()];
        for source in 0..self.system.len() as u32 {
            self.step()?;
            for attribute in self.system.attributes(source) {
                if let (AttributeValue::Concept(at), true) =
                    (attribute.value, self.holds(&wanted.name, attribute.kind)?)
                {
                    let source = AttributeValue::Concept(source);
                    counts[at as usize] += u32::from(self.fits(&wanted.value, source)? != wanted.negated);
                }
            }
        }
        Ok(counts)
    }

    fn fits(&self, wanted: &Value, value: AttributeValue<'_>) -> Result<bool, Fault> {
        Ok(match (wanted, value) {
            (Value::Expression(expression), AttributeValue::Concept(at)) => self.holds(expression, at)?,
            (Value::Number(order, or_equal, wanted), AttributeValue::Literal(text)) => {
                let value = text.strip_prefix('#').and_then(|text| text.parse::<f64>().ok());
                let found = value.and_then(|value| value.partial_cmp(wanted));
                found.is_some_and(|found| found == *order || (*or_equal && found.is_eq()))
            }
            (Value::Text(wanted), AttributeValue::Literal(text)) => text.trim_matches('"') == wanted,
            _ => false,
        })
    }
}

/// Is a part of a constraint asked of one concept faster than it is made a set?
fn is_quick(expression: &Expression) -> bool {
    match expression {
        Expression::Any | Expression::Concept(_) => true,
        Expression::Walk(walk, inner) => !walk.one_step && matches!(**inner, Expression::Concept(_)),
        Expression::MemberOf(inner) => matches!(**inner, Expression::Concept(_)),
        _ => false,
    }
}
