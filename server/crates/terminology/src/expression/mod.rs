//! Post-coordinated expressions of SNOMED CT: a code that combines concepts, such as
//! `125605004:363698007=71341001` (SNOMED CT Compositional Grammar 2.3).
//!
//! | module | contents |
//! |---|---|
//! | `syntax` | the parts of an expression |
//! | `parser` | the grammar |
//! | `classification` | the concepts that subsume an expression, and the relation of two expressions |
//! | `normal_form` | the expression as text: as stated with terms, and in its normal form |
//! | `expression_system` | a code system with the expression as a concept, so that the operations need no other path |

mod classification;
mod expression_system;
mod normal_form;
mod parser;
mod syntax;

pub(crate) use self::classification::compare;
pub(crate) use self::expression_system::expression_system;
pub(crate) use self::syntax::ExpressionFault;
use crate::model::known_systems::SNOMED_CT;

/// Returns whether a code of a system is meant as an expression, right or wrong.
pub(crate) fn is_expression(url: &str, code: &str) -> bool {
    code.bytes().any(|byte| b":+|={(<".contains(&byte)) && url == SNOMED_CT
}
