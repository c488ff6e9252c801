//! SNOMED CT's expression constraint language (ECL 2.2), as far as it concerns concepts: hierarchy operators, `^`,
//! `AND`, `OR`, `MINUS`, refinements by attribute with groups, cardinality and reversal, the dot, filters on concepts,
//! descriptions and members, selected fields of reference sets, history supplements and alternate identifiers, with
//! symbols or with the words of the long syntax.
//!
//! A constraint is parsed once. It is tested on one concept without building a set. If all its concepts are requested,
//! the set of each part is computed once, whatever the number of concepts.
//!
//! | module | contents |
//! |---|---|
//! | `parser` | from text to a constraint |
//! | `filter_parser` | the filters of a constraint |
//! | `filters` | the syntax tree of filters |
//! | `evaluation` | the test of one concept, and the list of all |
//! | `filter_evaluation` | the test of filters |
//! | `member_evaluation` | the rows of reference sets |
//! | here | the syntax tree of a constraint |

mod evaluation;
mod filter_evaluation;
mod filter_parser;
mod filters;
mod member_evaluation;
mod parser;

use std::fmt;

use self::evaluation::EclEvaluator;
use self::filters::{ConceptTest, DescriptionTest, EclFilter, MemberQuery};
use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::model::Budget;
use crate::model::budget::BudgetExhausted;

/// Error of a constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EclError {
    /// The text is not ECL, or uses a part of it that is not supported.
    Syntax { at: usize, expected: &'static str },
    /// The constraint names a concept that the code system does not have.
    UnknownConcept(String),
    /// The constraint names a field that the reference set does not have.
    UnknownField { reference_set: String, field: String },
    /// The budget of the request is spent.
    Exhausted(BudgetExhausted),
}

impl fmt::Display for EclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, expected } => write!(f, "ECL: {expected} at character {}", at + 1),
            Self::UnknownConcept(code) => write!(f, "the code system has no code '{code}'"),
            Self::UnknownField { reference_set, field } => {
                write!(f, "the reference set {reference_set} has no field '{field}'")
            }
            Self::Exhausted(exhausted) => write!(f, "ECL: {exhausted}"),
        }
    }
}

impl EclError {
    /// Returns of two errors of alternatives the one that occurred later in the text.
    fn farther(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Syntax { at, .. }, Self::Syntax { at: end, .. }) if at > end => self,
            _ => other,
        }
    }
}

impl From<BudgetExhausted> for EclError {
    fn from(exhausted: BudgetExhausted) -> Self {
        Self::Exhausted(exhausted)
    }
}

/// Direction and depth of a hierarchy operator, and whether it includes the concept itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HierarchyOperator {
    up: bool,
    one_step: bool,
    with_self: bool,
}

/// A set of concepts.
#[derive(Debug, Clone, PartialEq)]
enum EclExpression {
    /// `*`: all active concepts.
    Any,
    /// `*` with a filter on the state: all concepts, because the filter selects the state.
    AnyState,
    /// The code of a concept, or an alternate identifier as `ALIAS#IDENTIFIER`.
    Concept(String),
    MemberOf(Box<EclExpression>),
    /// Members, or concepts in fields, of the rows of reference sets that pass filters.
    Members(Box<MemberQuery>),
    Walk(HierarchyOperator, Box<EclExpression>),
    /// `!!>`: concepts of a set without an ancestor in it; `!!<`: without a descendant in it.
    Extreme {
        is_top: bool,
        of: Box<EclExpression>,
    },
    And(Vec<EclExpression>),
    Or(Vec<EclExpression>),
    Minus(Box<EclExpression>, Box<EclExpression>),
    Refined(Box<EclExpression>, Box<EclRefinement>),
    /// The values of attributes of these concepts.
    Values(Box<EclExpression>, Box<EclExpression>),
    /// `{{ C … }}`: the concepts that pass all filters.
    Filtered(Box<EclExpression>, Vec<EclFilter<ConceptTest>>),
    /// `{{ D … }}`: the concepts that have a description that passes all filters.
    Described(Box<EclExpression>, Vec<EclFilter<DescriptionTest>>),
    /// `{{ +HISTORY … }}`: also the concepts that these concepts replaced.
    WithHistory(Box<EclExpression>, HistoryProfile),
}

/// The reference sets of historical associations that a history supplement uses.
#[derive(Debug, Clone, PartialEq)]
enum HistoryProfile {
    /// `+HISTORY-MIN` and `+HISTORY-MOD`: these reference sets.
    Listed(&'static [&'static str]),
    /// `+HISTORY-MAX`, and `+HISTORY` alone.
    All,
    /// `+HISTORY (…)`: the reference sets of an expression.
    Of(Box<EclExpression>),
}

/// A condition on the attributes of a concept.
#[derive(Debug, Clone, PartialEq)]
enum EclRefinement {
    And(Vec<EclRefinement>),
    Or(Vec<EclRefinement>),
    /// All conditions within one group.
    Group(EclCardinality, Box<EclRefinement>),
    Attribute(AttributeConstraint),
}

#[derive(Debug, Clone, PartialEq)]
struct AttributeConstraint {
    cardinality: EclCardinality,
    reversed: bool,
    name: EclExpression,
    negated: bool,
    value: ValueConstraint,
}

#[derive(Debug, Clone, PartialEq)]
enum ValueConstraint {
    Expression(EclExpression),
    Number(std::cmp::Ordering, bool, f64),
    /// Any of these texts.
    Text(Vec<String>),
    Boolean(bool),
}

/// Allowed number of occurrences; by default at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EclCardinality {
    least: u32,
    most: Option<u32>,
}

const ONCE: EclCardinality = EclCardinality { least: 1, most: None };

impl EclCardinality {
    fn admits(self, count: u32) -> bool {
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }
}

/// A parsed constraint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EclConstraint(EclExpression);

impl EclConstraint {
    /// Parses a constraint.
    ///
    /// # Errors
    /// Returns [`EclError::Syntax`] if the text is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, EclError> {
        parser::parse(text).map(Self)
    }

    /// Returns whether a concept satisfies the constraint.
    ///
    /// # Errors
    /// Returns [`EclError`] if the constraint names an unknown concept, or if the budget is spent.
    pub(crate) fn admits(&self, system: &CodeSystem, at: u32, budget: &Budget<'_>) -> Result<bool, EclError> {
        EclEvaluator::of_one(system, budget).contains(&self.0, at)
    }

    /// Returns all concepts that satisfy the constraint.
    ///
    /// # Errors
    /// Returns the same errors as [`admits`](Self::admits).
    pub(crate) fn members(&self, system: &CodeSystem, budget: &Budget<'_>) -> Result<ConceptSet, EclError> {
        EclEvaluator::of_all(system, budget).concepts_of(&self.0).map(|set| (*set).clone())
    }
}
