//! The open list of earlier questions.

use super::Model;
use crate::form::FormField;
use crate::fuzzy;
use crate::history::PastQuestion;

/// State of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Text that the questions must match.
    pub field: FormField,
    /// Index of the selected question among the matching ones.
    pub selected: usize,
}

impl Recall {
    pub fn opened() -> Self {
        Self { field: FormField::new("search", "", ""), selected: 0 }
    }

    /// Returns the questions that match the text, the best matches first.
    pub fn matching<'m>(&self, model: &'m Model) -> Vec<&'m PastQuestion> {
        fuzzy::matching(self.field.text(), &model.history, |question| {
            let options = question.options.values().cloned().collect::<Vec<_>>().join(" ");
            format!("{} {options} {} {}", question.operation, question.answer, question.server)
        })
    }
}
