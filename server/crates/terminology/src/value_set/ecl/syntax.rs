//! The syntax tree of an expression constraint.

use std::fmt;

use super::filters::{ConceptTest, DescriptionTest, EclFilter, MemberQuery};
use crate::model::budget::BudgetExhausted;

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
    pub(super) fn farther(self, other: Self) -> Self {
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
pub(super) struct HierarchyOperator {
    pub(super) up: bool,
    pub(super) one_step: bool,
    pub(super) with_self: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum EclExpression {
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

impl EclExpression {
    /// Returns whether a post-coordinated expression can be in the set.
    pub(super) fn admits_expressions(&self) -> bool {
        match self {
            Self::Any | Self::AnyState => true,
            Self::Concept(_) | Self::MemberOf(_) | Self::Members(_) | Self::Values(..) => false,
            Self::Walk(walk, _) => !walk.up,
            Self::Extreme { of: inner, .. }
            | Self::Minus(inner, _)
            | Self::Refined(inner, _)
            | Self::Filtered(inner, _)
            | Self::Described(inner, _)
            | Self::WithHistory(inner, _) => inner.admits_expressions(),
            Self::And(all) => all.iter().all(Self::admits_expressions),
            Self::Or(any) => any.iter().any(Self::admits_expressions),
        }
    }
}

/// The reference sets of historical associations that a history supplement uses.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HistoryProfile {
    /// `+HISTORY-MIN` and `+HISTORY-MOD`: these reference sets.
    Listed(&'static [&'static str]),
    /// `+HISTORY-MAX`, and `+HISTORY` alone.
    All,
    /// `+HISTORY (…)`: the reference sets of an expression.
    Of(Box<EclExpression>),
}

/// A condition on the attributes of a concept.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EclRefinement {
    And(Vec<EclRefinement>),
    Or(Vec<EclRefinement>),
    /// All conditions within one group.
    Group(EclCardinality, Box<EclRefinement>),
    Attribute(AttributeConstraint),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttributeConstraint {
    pub(super) cardinality: EclCardinality,
    pub(super) reversed: bool,
    pub(super) name: EclExpression,
    pub(super) negated: bool,
    pub(super) value: ValueConstraint,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueConstraint {
    Expression(EclExpression),
    Number(std::cmp::Ordering, bool, f64),
    Text(Vec<String>),
    Boolean(bool),
}

/// Allowed number of occurrences; by default at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EclCardinality {
    pub(super) least: u32,
    pub(super) most: Option<u32>,
}

pub(super) const ONCE: EclCardinality = EclCardinality { least: 1, most: None };

impl EclCardinality {
    pub(super) fn admits(self, count: u32) -> bool {
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }
}
