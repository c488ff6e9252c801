//! SNOMED CT's expression constraint language (ECL 2.2), as far as it concerns concepts: hierarchy operators,
//! `^`, `AND`, `OR`, `MINUS`, refinements by attribute with groups, cardinality and reversal, the dot,
//! filters on concepts, descriptions and members, selected fields of reference sets, history supplements and
//! alternate identifiers, with symbols or with the words of the long syntax.
//!
//! A constraint is parsed once. It is tested on one concept without building a set. If all its concepts are
//! requested, the set of each part is computed once, whatever the number of concepts.
//!
//! | module | contents |
//! |---|---|
//! | `parser` | from text to a constraint |
//! | `syntax` | the syntax tree of a constraint |
//! | `filter_parser` | the filters of a constraint |
//! | `filters` | the syntax tree of filters |
//! | `evaluation` | the test of one concept, and the list of all |
//! | `refinement_evaluation` | the test of refinements, and the sets of all concepts that satisfy one |
//! | `prepared` | parts that are prepared for tests of many concepts |
//! | `filter_evaluation` | the test of filters |
//! | `member_evaluation` | the rows of reference sets |
//! | here | a parsed constraint, for the rest of the crate |

mod evaluation;
mod filter_evaluation;
mod filter_parser;
mod filters;
mod member_evaluation;
mod parser;
mod prepared;
mod refinement_evaluation;
mod syntax;

use self::evaluation::EclEvaluator;
pub(crate) use self::syntax::EclError;
use self::syntax::EclExpression;
use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::model::Budget;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EclConstraint(EclExpression);

impl EclConstraint {
    /// Parses a constraint.
    ///
    /// # Errors
    /// [`EclError::Syntax`] if the text is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, EclError> {
        parser::parse(text).map(Self)
    }

    /// Returns whether a post-coordinated expression can satisfy the constraint.
    pub(crate) fn admits_expressions(&self) -> bool {
        self.0.admits_expressions()
    }

    /// Returns whether a concept satisfies the constraint.
    ///
    /// # Errors
    /// [`EclError`] if the constraint names an unknown concept, or if the budget is spent.
    pub(crate) fn admits(
        &self,
        system: &CodeSystem,
        concept: u32,
        budget: &Budget<'_>,
    ) -> Result<bool, EclError> {
        EclEvaluator::of_one(system, budget).contains(&self.0, concept)
    }

    /// All concepts that satisfy the constraint.
    ///
    /// # Errors
    /// The same errors as [`admits`](Self::admits).
    pub(crate) fn members(&self, system: &CodeSystem, budget: &Budget<'_>) -> Result<ConceptSet, EclError> {
        EclEvaluator::of_all(system, budget).concepts_of(&self.0).map(|set| (*set).clone())
    }
}
