//! The parts of an expression.

use std::fmt;

use crate::model::budget::BudgetExhausted;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expression {
    /// `<<<`: the expression means only a part of what it describes, so that it subsumes no other one.
    pub(super) is_subtype: bool,
    pub(super) body: ExpressionBody,
}

/// The concepts that an expression refines, and the refinement.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ExpressionBody {
    /// Concepts joined by `+`.
    pub(super) focus: Vec<ConceptReference>,
    pub(super) ungrouped: Vec<Attribute>,
    pub(super) groups: Vec<Vec<Attribute>>,
}

impl ExpressionBody {
    /// The expression without terms and blanks, with its parts in one order. Expressions that state the same
    /// have the same text.
    pub(super) fn stated_form(&self) -> String {
        let sorted = |mut texts: Vec<String>, between: &str| {
            texts.sort_unstable();
            texts.join(between)
        };
        let attribute = |Attribute { name, value }: &Attribute| {
            let value = match value {
                AttributeTerm::Concept(concept) => concept.code.clone(),
                AttributeTerm::Expression(body) => format!("({})", body.stated_form()),
                AttributeTerm::Literal(text) => text.clone(),
            };
            format!("{}={value}", name.code)
        };
        let list = |attributes: &[Attribute]| sorted(attributes.iter().map(attribute).collect(), ",");
        let focus = sorted(self.focus.iter().map(|concept| concept.code.clone()).collect(), "+");
        let groups = self.groups.iter().map(|group| format!("{{{}}}", list(group))).collect();
        format!("{focus}:{}{}", list(&self.ungrouped), sorted(groups, ""))
    }
}

/// A code, and the term after it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConceptReference {
    pub(super) code: String,
    pub(super) term: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Attribute {
    pub(super) name: ConceptReference,
    pub(super) value: AttributeTerm,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttributeTerm {
    Concept(ConceptReference),
    Expression(Box<ExpressionBody>),
    /// As a release writes it: `#5`, `"text"`, `true`.
    Literal(String),
}

/// Reason why an expression has no meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExpressionFault {
    Syntax {
        /// Position in characters, from 0.
        at: usize,
        expected: &'static str,
    },
    UnknownConcept(String),
    /// The code stands for an attribute, but its concept is none.
    NotAnAttribute(String),
    WrongTerm {
        code: String,
        term: String,
        display: String,
    },
    Exhausted(BudgetExhausted),
}

impl fmt::Display for ExpressionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, expected } => write!(f, "{expected} at character {}", at + 1),
            Self::UnknownConcept(code) => write!(f, "the code system has no code '{code}'; correct it"),
            Self::NotAnAttribute(code) => {
                write!(f, "'{code}' is not an attribute; use a descendant of 410662002 before '='")
            }
            Self::WrongTerm { code, term, display } => {
                write!(f, "'{term}' is not a term of {code}; leave it out, or write '{display}'")
            }
            Self::Exhausted(exhausted) => exhausted.fmt(f),
        }
    }
}

impl From<BudgetExhausted> for ExpressionFault {
    fn from(exhausted: BudgetExhausted) -> Self {
        Self::Exhausted(exhausted)
    }
}
