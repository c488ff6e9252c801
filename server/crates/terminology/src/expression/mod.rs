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

use self::classification::Classifier;
pub(crate) use self::classification::compare;
pub(crate) use self::expression_system::expression_system;
pub(crate) use self::syntax::ExpressionFault;
use self::syntax::{Attribute, AttributeTerm, ExpressionBody};
use crate::code_system::CodeSystem;
use crate::model::Budget;
use crate::model::known_systems::SNOMED_CT;

/// The expression of a code without terms and blanks; `None` if it cannot be parsed. Codes that state the
/// same have the same text.
pub(crate) fn stated_form(code: &str) -> Option<String> {
    let expression = parser::parse(code).ok()?;
    let prefix = if expression.is_subtype { "<<<" } else { "" };
    Some(format!("{prefix}{}", expression.body.stated_form()))
}

/// The normal form of a concept, with or without terms.
///
/// # Errors
/// [`ExpressionFault::Exhausted`] if the budget is spent.
pub(crate) fn concept_normal_form(
    system: &CodeSystem,
    code: &str,
    has_terms: bool,
    budget: &Budget<'_>,
) -> Result<String, ExpressionFault> {
    let classifier = Classifier::new(system, budget);
    let meaning = classifier.classify(&parser::parse(code)?.body)?;
    classifier.normal_form(&meaning, has_terms)
}

/// An attribute of an expression, at any depth.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatedAttribute {
    /// Codes of the concepts that it refines.
    pub(crate) focus: Vec<String>,
    /// Code of the attribute.
    pub(crate) name: String,
    /// Codes of the concepts of its value; empty for a number, a text or a truth value.
    pub(crate) values: Vec<String>,
}

/// The attributes that an expression states; none if the code is no expression.
pub(crate) fn stated_attributes(code: &str) -> Vec<StatedAttribute> {
    fn collect(body: &ExpressionBody, out: &mut Vec<StatedAttribute>) {
        let codes = |body: &ExpressionBody| body.focus.iter().map(|one| one.code.clone()).collect();
        for Attribute { name, value } in body.ungrouped.iter().chain(body.groups.iter().flatten()) {
            let values = match value {
                AttributeTerm::Concept(concept) => vec![concept.code.clone()],
                AttributeTerm::Expression(inner) => {
                    collect(inner, out);
                    codes(inner)
                }
                AttributeTerm::Literal(_) => Vec::new(),
            };
            out.push(StatedAttribute { focus: codes(body), name: name.code.clone(), values });
        }
    }
    let mut out = Vec::new();
    if let Ok(expression) = parser::parse(code) {
        collect(&expression.body, &mut out);
    }
    out
}

/// Returns whether a code of a system is meant as an expression, right or wrong.
pub(crate) fn is_expression(url: &str, code: &str) -> bool {
    code.bytes().any(|byte| b":+|={(<".contains(&byte)) && url == SNOMED_CT
}
