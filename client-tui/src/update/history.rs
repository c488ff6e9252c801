//! Updates of the history: answers are added, and earlier questions are restored.

use ratatui::crossterm::event::KeyEvent;

use super::completion;
use crate::api::{
    Expansion, HierarchyConcept, HierarchyPath, LookupAnswer, SubsumesAnswer, ValidationAnswer,
};
use crate::history::{self, PastQuestion};
use crate::model::answer::Answer;
use crate::model::search_list::ListKey;
use crate::model::{
    Model, Operation, OperationState, Overlay, Question, Screen, SearchList, SentQuestion, TreeContent,
    matching_questions,
};
use crate::msg::RuntimeEffect;

/// An answer that can be described in a few words.
trait ShortAnswer {
    fn in_short(&self) -> String;
}

impl ShortAnswer for ValidationAnswer {
    fn in_short(&self) -> String {
        match &self.message {
            Some(message) => format!("{}: {message}", self.result),
            None => self.result.to_string(),
        }
    }
}

impl ShortAnswer for SubsumesAnswer {
    fn in_short(&self) -> String {
        self.outcome.clone()
    }
}

impl ShortAnswer for LookupAnswer {
    fn in_short(&self) -> String {
        self.display.clone().unwrap_or_default()
    }
}

impl ShortAnswer for Expansion {
    fn in_short(&self) -> String {
        match self.total {
            Some(total) => format!("{} of {total} codes", self.codes.len()),
            None => format!("{} codes", self.codes.len()),
        }
    }
}

impl ShortAnswer for HierarchyConcept {
    fn in_short(&self) -> String {
        self.display.clone().unwrap_or_default()
    }
}

impl ShortAnswer for HierarchyPath {
    fn in_short(&self) -> String {
        self.sentence()
    }
}

/// Adds the last question of an operation after its answer was received.
pub(super) fn add_operation(model: &mut Model, id: u64, operation: Operation) -> Vec<RuntimeEffect> {
    fn last<Q: Question, A: ShortAnswer>(state: &OperationState<Q, A>, id: u64) -> Option<PastQuestion> {
        state.sent.as_ref().filter(|question| question.id == id).and_then(past)
    }
    let codes = &model.codes;
    let question = match operation {
        Operation::ValidateCode => last(&codes.validate, id),
        Operation::Subsumes => last(&codes.subsumes, id),
        Operation::Lookup => last(&codes.lookup, id),
        Operation::Expand => last(&codes.expand, id),
    };
    add(model, question)
}

/// Adds the last question of the hierarchy browser after its answer was received.
pub(super) fn add_tree(model: &mut Model, id: u64) -> Vec<RuntimeEffect> {
    let question = match &model.tree.shown {
        TreeContent::Concept(sent) if sent.id == id => past(sent),
        TreeContent::Path(sent) if sent.id == id => past(sent),
        _ => None,
    };
    add(model, question)
}

fn past<Q: Question, A: ShortAnswer>(question: &SentQuestion<Q, A>) -> Option<PastQuestion> {
    let response = match &question.answer {
        Answer::Done(answer) => answer.in_short(),
        Answer::Failed(reason) => format!("Error: {reason}"),
        Answer::Waiting { .. } | Answer::None => return None,
    };
    let options = question.question.options();
    Some(PastQuestion::new(question.sent_at, &question.token.server, Q::COMMAND, &options, &response))
}

fn add(model: &mut Model, question: Option<PastQuestion>) -> Vec<RuntimeEffect> {
    let Some(question) = question else { return Vec::new() };
    history::add(&mut model.history, question.clone());
    vec![RuntimeEffect::AddToHistory(question)]
}

/// Processes a key of the open list.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Vec<RuntimeEffect> {
    let keys = model.keys;
    let Some(Overlay::Recall(recall)) = &model.overlay else { return Vec::new() };
    let questions: Vec<_> = matching_questions(model, recall.field.text()).into_iter().cloned().collect();
    let Some(Overlay::Recall(recall)) = &mut model.overlay else { return Vec::new() };
    let pressed = recall.on_key(key, keys, questions.len());
    if pressed != ListKey::Handled {
        model.overlay = None;
    }
    if let ListKey::Chosen(at) = pressed {
        restore(model, &questions[at]);
    }
    Vec::new()
}

pub(super) fn open(model: &mut Model) {
    model.overlay = Some(Overlay::Recall(SearchList::new("search")));
}

/// Opens the form of a question with its values.
pub(super) fn restore(model: &mut Model, question: &PastQuestion) {
    model.typing = false;
    let operation = Operation::ALL.into_iter().find(|operation| operation.name() == question.operation);
    let form = match operation {
        Some(operation) => {
            model.screen = Screen::Codes;
            model.batch.open = false;
            model.codes.operation = operation;
            model.codes.scroll = 0;
            model.codes.form()
        }
        None => {
            model.screen = Screen::Tree;
            &mut model.tree.form
        }
    };
    for field in &mut form.fields {
        let name = completion::option_of(&question.operation, field.name);
        field.set(question.option(&name));
    }
}
