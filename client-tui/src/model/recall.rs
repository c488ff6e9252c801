//! The open list of earlier questions.

use super::Model;
use crate::fuzzy;
use crate::history::PastQuestion;

/// The earlier questions that match a text, the best matches first.
pub fn matching_questions<'m>(model: &'m Model, text: &str) -> Vec<&'m PastQuestion> {
    fuzzy::matching(text, &model.history, |question| {
        let options = question.options.values().cloned().collect::<Vec<_>>().join(" ");
        format!("{} {options} {} {}", question.operation, question.answer, question.server)
    })
}
