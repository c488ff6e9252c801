//! Updates of the completion of the focused field. The values are those of earlier questions and of the lists
//! of the server; in the fields for codes of the hierarchy browser, also those that the server finds.

use super::{home, tree};
use crate::api::ContentKind;
use crate::fuzzy;
use crate::history::{PastQuestion, last_segment};
use crate::model::answer::Answer;
use crate::model::{Completion, CompletionItem, Model, Overlay, Screen};
use crate::msg::RuntimeEffect;

/// Updates the list after the text of the focused field has changed.
pub(super) fn on_edit(model: &mut Model) -> Vec<RuntimeEffect> {
    if model.screen == Screen::Home {
        return home::search(model);
    }
    if tree::is_code_focused(model) {
        return tree::search(model);
    }
    if model.completion().is_some() {
        let completion = known_values(model).and_then(|(text, items)| of_text(&text, items));
        model.set_completion(completion);
    }
    Vec::new()
}

/// Selects the next or the previous value, or opens the list.
pub(super) fn step(model: &mut Model, down: bool) {
    if model.completion().is_none() && down {
        let Some((text, items)) = known_values(model) else { return };
        // A complete value is the start for another choice.
        let is_complete = items.iter().any(|item| item.value == text);
        model.set_completion(of_text(if is_complete { "" } else { &text }, items));
        if model.completion().is_none() {
            model.notice =
                Some("No earlier question and no list of the server has a matching value.".to_owned());
        }
    }
    if let Some(Overlay::Completion(completion)) = &mut model.overlay {
        completion.step(down);
    }
}

/// Moves the selected value into the field. Returns false if no value is selected.
pub(super) fn accept(model: &mut Model) -> bool {
    let Some(completion) = model.take_completion() else { return false };
    let (Some(value), Some(form)) = (completion.chosen(), model.form()) else { return false };
    form.focused().set(value);
    true
}

fn of_text(text: &str, items: Vec<CompletionItem>) -> Option<Completion> {
    Completion::of(fuzzy::matching(text, items, |item| format!("{} {}", item.value, item.note)))
}

/// The text of the focused field and the values for it: those of earlier questions, the last ones first, and
/// those of the lists of the server. Values for a code are those of the code system in the form.
fn known_values(model: &mut Model) -> Option<(String, Vec<CompletionItem>)> {
    let form = model.form()?;
    let system = form.fields.iter().find(|field| field.name == "system");
    let system = system.map(|field| field.text().trim().to_owned()).unwrap_or_default();
    let (name, text) = (form.focused().name, form.focused().text().trim().to_owned());
    let mut items: Vec<CompletionItem> = Vec::new();
    let mut add = |value: &str, note: &str| {
        if !value.is_empty() && !items.iter().any(|candidate| candidate.value == value) {
            items.push(CompletionItem { value: value.to_owned(), note: note.to_owned() });
        }
    };
    for question in &model.history {
        match name {
            "code" | "codeA" | "codeB" | "path to" => {
                let is_same = system.is_empty() || question.option("system") == system;
                for option in ["code", "code-a", "code-b"].into_iter().filter(|_| is_same) {
                    add(question.option(option), code_note(question));
                }
            }
            _ => add(question.option(&option_of("", name)), ""),
        }
    }
    let kind = match name {
        "system" => Some(ContentKind::CodeSystems),
        "url" => Some(ContentKind::ValueSets),
        _ => None,
    };
    if let Some(Answer::Done(list)) = kind.map(|kind| model.home.list(kind)) {
        list.entries.iter().for_each(|entry| add(&entry.url, &entry.title));
    }
    Some((text, items))
}

/// The explanation of a code: its display, or else its code system.
fn code_note(question: &PastQuestion) -> &str {
    match question.operation.as_str() {
        "lookup" | "tree" if !question.answer.starts_with("Error") => &question.answer,
        _ => last_segment(question.option("system")),
    }
}

/// The option of a subcommand to which a field of its form belongs.
pub(super) fn option_of(subcommand: &str, field: &str) -> String {
    match (subcommand, field) {
        ("path", "code") | (_, "codeA") => "code-a".to_owned(),
        (_, "path to" | "codeB") => "code-b".to_owned(),
        (_, name) => name.to_owned(),
    }
}
