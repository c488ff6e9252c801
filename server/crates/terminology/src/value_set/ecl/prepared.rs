//! Parts of a constraint that are prepared for tests of many concepts: their concepts are looked up once, and
//! a set is computed only if no test of one concept is faster.

use std::cell::OnceCell;
use std::rc::Rc;

use super::syntax::{EclExpression, HierarchyOperator};
use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;

/// A prepared part.
pub(super) enum PreparedPart<'a> {
    Nothing,
    All,
    Active,
    One(u32),
    /// All ancestors or descendants of a concept.
    Walk(HierarchyOperator, u32),
    /// The members of a reference set, sorted.
    Members(&'a [u32]),
    Set(Rc<ConceptSet>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Minus(Box<[Self; 2]>),
}

/// The name and the value of an attribute of a refinement.
pub(super) struct PreparedAttribute<'a> {
    pub(super) name: PreparedPart<'a>,
    /// Prepared when the first attribute has the name: an unknown concept is an error only then.
    pub(super) value: OnceCell<PreparedPart<'a>>,
}

impl PreparedPart<'_> {
    /// Whether a concept is in the part.
    pub(super) fn has(&self, system: &CodeSystem, concept: u32) -> bool {
        let hierarchy = system.hierarchy();
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Active => !system.is_inactive(concept),
            Self::One(only) => *only == concept,
            Self::Walk(walk, named) => {
                let (below, above) = if walk.up { (*named, concept) } else { (concept, *named) };
                (walk.with_self || concept != *named) && hierarchy.is_a(below, above)
            }
            Self::Members(members) => members.binary_search(&concept).is_ok(),
            Self::Set(set) => set.has(concept),
            Self::And(parts) => parts.iter().all(|part| part.has(system, concept)),
            Self::Or(parts) => parts.iter().any(|part| part.has(system, concept)),
            Self::Minus(parts) => parts[0].has(system, concept) && !parts[1].has(system, concept),
        }
    }
}

/// Whether testing one concept needs no set.
pub(super) fn is_testable(part: &EclExpression) -> bool {
    match part {
        EclExpression::Any | EclExpression::AnyState | EclExpression::Concept(_) => true,
        EclExpression::Walk(walk, of) => !walk.one_step && matches!(**of, EclExpression::Concept(_)),
        EclExpression::MemberOf(of) => matches!(**of, EclExpression::Concept(_)),
        EclExpression::And(parts) | EclExpression::Or(parts) => parts.iter().all(is_testable),
        EclExpression::Minus(from, without) => is_testable(from) && is_testable(without),
        _ => false,
    }
}
