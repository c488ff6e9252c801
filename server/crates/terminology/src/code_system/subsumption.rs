//! The outcome of `$subsumes` for two concepts of a hierarchy.

use super::code_table::LocatedConcept;
use super::hierarchy::ConceptHierarchy;

/// Relation of code A to code B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsumption {
    /// The codes are equal.
    Equivalent,
    /// A is an ancestor of B.
    Subsumes,
    /// A is a descendant of B.
    SubsumedBy,
    /// Neither is an ancestor of the other.
    NotSubsumed,
}

impl Subsumption {
    /// The relation of two concepts. The hierarchy must not have a cycle.
    pub(crate) fn between(hierarchy: &ConceptHierarchy, a: LocatedConcept, b: LocatedConcept) -> Self {
        let is_a = |b: LocatedConcept, a: LocatedConcept| {
            b.above.may_be_below(a.above) && hierarchy.is_below(b, hierarchy.interval(a.at))
        };
        if a.at == b.at {
            Self::Equivalent
        } else if is_a(b, a) {
            Self::Subsumes
        } else if is_a(a, b) {
            Self::SubsumedBy
        } else {
            Self::NotSubsumed
        }
    }

    /// Returns the code in FHIR's concept-subsumption-outcome.
    pub fn code(self) -> &'static str {
        match self {
            Self::Equivalent => "equivalent",
            Self::Subsumes => "subsumes",
            Self::SubsumedBy => "subsumed-by",
            Self::NotSubsumed => "not-subsumed",
        }
    }
}
