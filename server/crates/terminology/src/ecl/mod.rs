//! SNOMED CT's expression constraint language (ECL 2.2), as far as it speaks of concepts: hierarchy operators,
//! `^`, `AND`, `OR`, `MINUS`, refinements by attribute with groups, cardinality and reversal, and the dot. Filters
//! on terms and history supplements (`{{ … }}`) are refused by name.
//!
//! A constraint is read once and then asked of one concept at a time; no set is built for that. Where all of its
//! concepts are wanted, each part of it is made a set once, whatever the number of concepts.
//!
//! | file | what lives there |
//! |---|---|
//! | `parser` | from text to a constraint |
//! | `question` | a constraint asked of one concept, or of all |
//! | here | what a constraint is made of |

mod parser;
mod question;

use std::fmt;

use self::question::Question;
use crate::Budget;
use crate::budget::Exhausted;
use crate::code_system::CodeSystem;
use crate::value_set::bits::Bits;

/// Why a constraint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not written in ECL, or in a part of it that is not known here.
    Syntax { at: usize, expected: &'static str },
    /// It names a concept that the code system does not have.
    UnknownConcept(String),
    /// The budget of the question has ended.
    Exhausted(Exhausted),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, expected } => write!(f, "ECL: {expected} at character {}", at + 1),
            Self::UnknownConcept(code) => write!(f, "there is no code '{code}'"),
            Self::Exhausted(exhausted) => write!(f, "ECL: {exhausted}"),
        }
    }
}

impl From<Exhausted> for Fault {
    fn from(exhausted: Exhausted) -> Self {
        Self::Exhausted(exhausted)
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
        parser::parse(text).map(Self)
    }

    /// Does a concept fulfil it?
    ///
    /// # Errors
    /// A concept that is not known; too much work.
    pub(crate) fn admits(&self, system: &CodeSystem, at: u32, budget: &Budget<'_>) -> Result<bool, Fault> {
        Question::of_one(system, budget).holds(&self.0, at)
    }

    /// All concepts that fulfil it.
    ///
    /// # Errors
    /// As for [`admits`](Self::admits).
    pub(crate) fn members(&self, system: &CodeSystem, budget: &Budget<'_>) -> Result<Bits, Fault> {
        Question::of_all(system, budget).set(&self.0).map(|set| (*set).clone())
    }
}
