//! SNOMED CT's expression constraint language (ECL 2.2), as far as it speaks of concepts: hierarchy operators,
//! `^`, `AND`, `OR`, `MINUS`, refinements by attribute with groups, cardinality and reversal, and the dot. Filters
//! on terms and history supplements (`{{ … }}`) are refused by name.
//!
//! A constraint is read once and then asked of one concept at a time; no set is built for that. Where all of its
//! concepts are wanted, each part of it is made a set once, whatever the number of concepts.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use crate::code_system::{AttributeValue, CodeSystem};
use crate::value_set::members::Bits;

/// Longest constraint, in bytes.
const LONGEST: usize = 16 * 1024;
/// How deep brackets may be nested.
const DEEPEST: usize = 32;
/// How many concepts one question may look at. Enough for a few passes over all of SNOMED CT.
const STEPS: u64 = 4_000_000;
/// How many the question for all concepts may look at.
const STEPS_FOR_ALL: u64 = 100_000_000;

/// Why a constraint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not written in ECL, or in a part of it that is not known here.
    Syntax { at: usize, expected: &'static str },
    /// It names a concept that the code system does not have.
    UnknownConcept(String),
    /// It would look at too many concepts.
    TooCostly,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, expected } => write!(f, "ECL: {expected} at character {}", at + 1),
            Self::UnknownConcept(code) => write!(f, "there is no code '{code}'"),
            Self::TooCostly => write!(f, "ECL: the constraint looks at more than {STEPS} concepts"),
        }
    }
}

/// Which way an operator walks, how far, and whether the concept itself counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Walk {
    up: bool,
    one_step: bool,
    with_self: bool,
}

/// A set of concepts.
#[derive(Debug, Clone, PartialEq)]
enum Expression {
    Any,
    Concept(String),
    MemberOf(Box<Expression>),
    Walk(Walk, Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Minus(Box<Expression>, Box<Expression>),
    Refined(Box<Expression>, Box<Refinement>),
    /// The values that attributes of these concepts have.
    Values(Box<Expression>, Box<Expression>),
}

/// What must be said of a concept.
#[derive(Debug, Clone, PartialEq)]
enum Refinement {
    And(Vec<Refinement>),
    Or(Vec<Refinement>),
    /// All within one group.
    Group(Cardinality, Box<Refinement>),
    Attribute(Attribute),
}

#[derive(Debug, Clone, PartialEq)]
struct Attribute {
    cardinality: Cardinality,
    reversed: bool,
    name: Expression,
    negated: bool,
    value: Value,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Expression(Expression),
    Number(std::cmp::Ordering, bool, f64),
    Text(String),
}

/// How often something may be there; none given: at least once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cardinality {
    least: u32,
    most: Option<u32>,
}

const ONCE: Cardinality = Cardinality { least: 1, most: None };

impl Cardinality {
    fn admits(self, count: u32) -> bool {
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }
}

/// A constraint that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constraint(Expression);

impl Constraint {
    /// Reads a constraint.
    ///
    /// # Errors
    /// [`Fault::Syntax`].
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        if text.len() > LONGEST {
            return Err(Fault::Syntax { at: LONGEST, expected: "the end is expected" });
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let expression = parser.expression()?;
        parser.space();
        match parser.rest() {
            "" => Ok(Self(expression)),
            _ => Err(parser.expected("AND, OR, MINUS, a refinement or the end is expected")),
        }
    }

    /// Does a concept fulfil it?
    ///
    /// # Errors
    /// A concept that is not known; too much work.
    pub(crate) fn admits(&self, system: &CodeSystem, at: u32) -> Result<bool, Fault> {
        Question { system, steps: Cell::new(STEPS), sets: None }.holds(&self.0, at)
    }

    /// All concepts that fulfil it.
    ///
    /// # Errors
    /// As for [`admits`](Self::admits).
    pub(crate) fn members(&self, system: &CodeSystem) -> Result<Bits, Fault> {
        let question = Question { system, steps: Cell::new(STEPS_FOR_ALL), sets: Some(Sets::default()) };
        question.set(&self.0).map(|set| (*set).clone())
    }
}

/// The sets that parts of a constraint were made, by the place of the part.
#[derive(Default)]
struct Sets {
    expressions: RefCell<HashMap<*const Expression, Rc<Bits>>>,
    /// How often each concept is the value of a reversed attribute.
    reversed: RefCell<HashMap<*const Attribute, Rc<Vec<u32>>>>,
}

/// One question to one code system.
struct Question<'a> {
    system: &'a CodeSystem,
    /// How many are left.
    steps: Cell<u64>,
    /// Where all concepts are asked for.
    sets: Option<Sets>,
}

impl Question<'_> {
    fn step(&self) -> Result<(), Fault> {
        match self.steps.get().checked_sub(1) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => Err(Fault::TooCostly),
        }
    }

    fn find(&self, code: &str) -> Result<u32, Fault> {
        self.system.find(code).ok_or_else(|| Fault::UnknownConcept(code.to_owned()))
    }

    fn holds(&self, expression: &Expression, at: u32) -> Result<bool, Fault> {
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
    fn set(&self, expression: &Expression) -> Result<Rc<Bits>, Fault> {
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
        match expression {
            Expression::Any => out = Bits::full(len),
            Expression::Concept(code) => out.insert(self.find(code)?),
            Expression::MemberOf(inner) => {
                if let Expression::Concept(code) = &**inner {
                    self.find(code)?;
                    self.system.subset(code).into_iter().flatten().for_each(|at| out.insert(*at));
                    return Ok(out);
                }
                let names = self.set(inner)?;
                for name in self.system.subset_names() {
                    if self.system.find(name).is_some_and(|at| names.has(at)) {
                        self.system.subset(name).into_iter().flatten().for_each(|at| out.insert(*at));
                    }
                }
            }
            Expression::Walk(walk, inner) => return self.walk(*walk, &*self.set(inner)?),
            Expression::And(all) => {
                out = Bits::full(len);
                for each in all {
                    let set = self.set(each)?;
                    out.retain(|at| set.has(at));
                }
            }
            Expression::Or(any) => {
                for each in any {
                    self.set(each)?.iter_after(0).for_each(|at| out.insert(at));
                }
            }
            Expression::Minus(from, without) => {
                out = (*self.set(from)?).clone();
                let without = self.set(without)?;
                out.retain(|at| !without.has(at));
            }
            Expression::Refined(inner, refinement) => {
                for at in self.set(inner)?.iter_after(0) {
                    if self.is_said(refinement, at)? {
                        out.insert(at);
                    }
                }
            }
            Expression::Values(of, name) => {
                for source in self.set(of)?.iter_after(0) {
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

    /// Where walking from a set leads.
    fn walk(&self, walk: Walk, from: &Bits) -> Result<Bits, Fault> {
        let hierarchy = self.system.hierarchy();
        let mut out = Bits::empty(self.system.len());
        if !hierarchy.circle().is_empty() {
            return Ok(out);
        }
        for at in from.iter_after(0) {
            self.step()?;
            match (walk.up, walk.one_step) {
                (false, true) => hierarchy.children(at).iter().for_each(|child| out.insert(*child)),
                (true, true) => hierarchy.parents(at).iter().for_each(|parent| out.insert(*parent)),
                // What lies below a concept that was reached has been reached too.
                (false, false) if !out.has(at) => {
                    hierarchy.below(at).flatten().filter(|below| *below != at).for_each(|at| out.insert(at));
                }
                (false, false) => {}
                (true, false) => {
                    let mut waiting = hierarchy.parents(at).to_vec();
                    while let Some(above) = waiting.pop() {
                        if !out.has(above) {
                            out.insert(above);
                            waiting.extend(hierarchy.parents(above));
                        }
                    }
                }
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
            return Ok(hierarchy.is_a(below, above) && (walk.with_self || at != named));
        }
        if walk.with_self && self.holds(from, at)? {
            return Ok(true);
        }
        match (walk.up, walk.one_step) {
            (false, true) => self.any(hierarchy.parents(at), |parent| self.holds(from, *parent)),
            (true, true) => self.any(hierarchy.children(at), |child| self.holds(from, *child)),
            (true, false) => {
                let below = hierarchy.below(at).flatten().filter(|below| *below != at);
                self.any(below, |below| self.holds(from, below))
            }
            (false, false) => {
                let mut seen = vec![at];
                let mut next = 0;
                while let Some(&here) = seen.get(next) {
                    next += 1;
                    for &parent in hierarchy.parents(here) {
                        if !seen.contains(&parent) {
                            if self.holds(from, parent)? {
                                return Ok(true);
                            }
                            seen.push(parent);
                        }
                    }
                }
                Ok(false)
            }
        }
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

/// Reads from left to right; ECL needs no looking back.
struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn expected(&self, expected: &'static str) -> Fault {
        Fault::Syntax { at: self.text[..self.at].chars().count(), expected }
    }

    /// Passes over blanks and comments.
    fn space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            match trimmed.strip_prefix("/*").and_then(|comment| comment.find("*/")) {
                Some(end) => self.at += end + 4,
                None => return,
            }
        }
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Takes a word, whatever its case, that is not the beginning of a longer one.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let rest = self.rest();
        let found = rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric());
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn number<T: std::str::FromStr>(&mut self, expected: &'static str) -> Result<T, Fault> {
        self.space();
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        // `..` ends a number: it stands between those of a cardinality.
        let end = rest[..end].find("..").unwrap_or(end);
        let number = rest[..end].parse().map_err(|_| self.expected(expected))?;
        self.at += end;
        Ok(number)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.expected("brackets are nested too deep"));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn expression(&mut self) -> Result<Expression, Fault> {
        self.nested(|parser| {
            let first = parser.refined()?;
            if parser.word("MINUS") {
                return Ok(Expression::Minus(Box::new(first), Box::new(parser.refined()?)));
            }
            let mut list = vec![first];
            if parser.and() {
                list.push(parser.refined()?);
                while parser.and() {
                    list.push(parser.refined()?);
                }
                return Ok(Expression::And(list));
            }
            while parser.word("OR") {
                list.push(parser.refined()?);
            }
            Ok(if list.len() == 1 { list.remove(0) } else { Expression::Or(list) })
        })
    }

    fn and(&mut self) -> bool {
        self.word("AND") || self.take(",")
    }

    /// A set with its refinement and dots.
    fn refined(&mut self) -> Result<Expression, Fault> {
        let mut set = self.set()?;
        while self.take(".") {
            set = Expression::Values(Box::new(set), Box::new(self.set()?));
        }
        if self.take(":") {
            let refinement = self.refinement()?;
            set = Expression::Refined(Box::new(set), Box::new(refinement));
        }
        Ok(set)
    }

    /// A concept, `*` or brackets, with operators before it.
    fn set(&mut self) -> Result<Expression, Fault> {
        self.nested(|parser| {
            // The longer ones first.
            for (token, up, one_step, with_self) in [
                ("<<!", false, true, true),
                (">>!", true, true, true),
                ("<<", false, false, true),
                (">>", true, false, true),
                ("<!", false, true, false),
                (">!", true, true, false),
                ("<", false, false, false),
                (">", true, false, false),
            ] {
                if parser.take(token) {
                    let inner = parser.set()?;
                    return Ok(Expression::Walk(Walk { up, one_step, with_self }, Box::new(inner)));
                }
            }
            if parser.take("^") {
                return Ok(Expression::MemberOf(Box::new(parser.set()?)));
            }
            if parser.take("(") {
                let inner = parser.expression()?;
                return match parser.take(")") {
                    true => Ok(inner),
                    false => Err(parser.expected("AND, OR, MINUS or ')' is expected")),
                };
            }
            let set = if parser.take("*") { Expression::Any } else { Expression::Concept(parser.concept()?) };
            if parser.take("{{") {
                return Err(parser.expected("filters in {{ }} are not known here; nothing else is expected"));
            }
            Ok(set)
        })
    }

    /// An identifier, with its term between bars.
    fn concept(&mut self) -> Result<String, Fault> {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !(6..=18).contains(&end) {
            return Err(self.expected("the identifier of a concept is expected"));
        }
        self.at += end;
        if self.take("|") {
            let Some(term) = self.rest().find('|') else {
                return Err(self.expected("a '|' is expected after the term"));
            };
            self.at += term + 1;
        }
        Ok(rest[..end].to_owned())
    }

    fn refinement(&mut self) -> Result<Refinement, Fault> {
        self.nested(|parser| {
            let mut list = vec![parser.refinement_part()?];
            if parser.and() {
                list.push(parser.refinement_part()?);
                while parser.and() {
                    list.push(parser.refinement_part()?);
                }
                return Ok(Refinement::And(list));
            }
            while parser.word("OR") {
                list.push(parser.refinement_part()?);
            }
            Ok(if list.len() == 1 { list.remove(0) } else { Refinement::Or(list) })
        })
    }

    fn refinement_part(&mut self) -> Result<Refinement, Fault> {
        let cardinality = self.cardinality()?;
        if self.take("{") {
            let inner = self.refinement()?;
            return match self.take("}") {
                true => Ok(Refinement::Group(cardinality, Box::new(inner))),
                false => Err(self.expected("AND, OR or '}' is expected")),
            };
        }
        // A bracket holds attributes or, before an `=`, the attribute's name; what comes behind it tells.
        let here = self.at;
        if self.take("(") {
            let inner = self.refinement();
            if let (Ok(inner), true) = (inner, self.take(")")) {
                return Ok(inner);
            }
            self.at = here;
        }
        let reversed = self.word("R");
        let name = self.set()?;
        self.attribute(cardinality, reversed, name).map(Refinement::Attribute)
    }

    fn attribute(
        &mut self,
        cardinality: Cardinality,
        reversed: bool,
        name: Expression,
    ) -> Result<Attribute, Fault> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        self.space();
        let (order, or_equal, negated) = [
            ("!=", Equal, true, true),
            ("<=", Less, true, false),
            (">=", Greater, true, false),
            ("=", Equal, true, false),
            ("<", Less, false, false),
            (">", Greater, false, false),
        ]
        .into_iter()
        .find_map(|(token, order, or_equal, negated)| self.take(token).then_some((order, or_equal, negated)))
        .ok_or_else(|| self.expected("a comparison is expected"))?;
        let value = if self.take("#") {
            Value::Number(order, or_equal, self.number("a number is expected")?)
        } else if order != Equal {
            return Err(self.expected("a number, as in #5, is expected"));
        } else if self.take("\"") {
            let Some(end) = self.rest().find('"') else {
                return Err(self.expected("a '\"' is expected after the text"));
            };
            let text = self.rest()[..end].to_owned();
            self.at += end + 1;
            Value::Text(text)
        } else {
            Value::Expression(self.set()?)
        };
        Ok(Attribute { cardinality, reversed, name, negated, value })
    }

    fn cardinality(&mut self) -> Result<Cardinality, Fault> {
        if !self.take("[") {
            return Ok(ONCE);
        }
        let least = self.number("the least count is expected")?;
        if !self.take("..") {
            return Err(self.expected("'..' is expected"));
        }
        let most =
            if self.take("*") { None } else { Some(self.number("the greatest count or '*' is expected")?) };
        match self.take("]") {
            true => Ok(Cardinality { least, most }),
            false => Err(self.expected("']' is expected")),
        }
    }
}
