//! Updates of the hierarchy browser.

use super::navigation;
use crate::api::{ConceptSearch, ExpandedCode, HierarchyQuery};
use crate::model::{Completion, CompletionItem, Model, Screen};
use crate::msg::{Answered, RuntimeEffect, TreeAnswer, TreeQuestion};

/// Opens the concept or the path of the form while a field has the focus, or else the selected concept.
pub(super) fn send(model: &mut Model) -> Vec<RuntimeEffect> {
    if !model.typing
        && let Some(query) = model.tree.selected_query()
    {
        return open(model, query, true);
    }
    if model.tree.form.focused().name == "path to" && !model.tree.form.value("path to").is_empty() {
        return open_path(model);
    }
    let query = model.tree.concept_query();
    open(model, query, true)
}

/// Asks for a concept. The concept that was shown is added to the history if `keep` is true.
fn open(model: &mut Model, query: HierarchyQuery, keep: bool) -> Vec<RuntimeEffect> {
    let token = model.token_choice();
    let bearer = token.bearer.clone();
    model.typing = false;
    let id = model.tree.send_concept(query.clone(), token, model.now, keep);
    vec![RuntimeEffect::Tree(id, TreeQuestion::Concept(query), bearer)]
}

fn open_path(model: &mut Model) -> Vec<RuntimeEffect> {
    let token = model.token_choice();
    let bearer = token.bearer.clone();
    model.typing = false;
    let (id, query) = model.tree.send_path(token, model.now);
    vec![RuntimeEffect::Tree(id, TreeQuestion::Path(query), bearer)]
}

/// Opens the selected concept below or above the shown one, or the first one there.
pub(super) fn open_neighbour(model: &mut Model, below: bool) -> Vec<RuntimeEffect> {
    match model.tree.neighbour(below) {
        Some(query) => open(model, query, true),
        None => Vec::new(),
    }
}

/// Returns to the concept that was shown before.
pub(super) fn back(model: &mut Model) -> Vec<RuntimeEffect> {
    match model.tree.history.pop() {
        Some(query) => open(model, query, false),
        None => Vec::new(),
    }
}

/// Opens the selected concept of the Home screen.
pub(super) fn open_from_home(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(concept) = model.home.selected_concept() else { return Vec::new() };
    navigation::open(model, Screen::Tree);
    model.bearer = model.contents_bearer();
    model.tree.form.set("path to", "");
    open(model, concept.query(), true)
}

/// Opens the code of the Codes form, or the path between its two codes.
pub(super) fn open_from_codes(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some((query, other)) = model.codes.concept_in_hierarchy() else { return Vec::new() };
    model.screen = Screen::Tree;
    let form = &mut model.tree.form;
    form.set("path to", &other);
    if other.is_empty() {
        return open(model, query, true);
    }
    for (name, value) in [("system", &query.system), ("version", &query.version), ("code", &query.code)] {
        form.set(name, value);
    }
    open_path(model)
}

/// Returns whether a field for a code has the focus.
pub(super) fn is_code_focused(model: &mut Model) -> bool {
    let is_code = matches!(model.tree.form.focused().name, "code" | "path to");
    model.screen == Screen::Tree && model.typing && is_code
}

/// Searches for the text of the focused field after a change.
pub(super) fn search(model: &mut Model) -> Vec<RuntimeEffect> {
    // The answer to an earlier search does not belong to the new text.
    let id = model.tree.next_id();
    let HierarchyQuery { system, version, .. } = model.tree.concept_query();
    let text = model.tree.form.focused().text().trim().to_owned();
    model.take_completion();
    if text.is_empty() || system.is_empty() {
        return vec![RuntimeEffect::CancelSearch];
    }
    let search = ConceptSearch { system, version, text };
    vec![RuntimeEffect::Tree(id, TreeQuestion::Search(search), model.bearer.clone())]
}

pub(super) fn on_answer(model: &mut Model, id: u64, result: TreeAnswer) {
    match result {
        TreeAnswer::Concept(answer) => model.tree.receive_concept(id, answer.into()),
        TreeAnswer::Path(answer) => model.tree.receive_path(id, answer.into()),
        TreeAnswer::Search(answer) => on_found(model, id, answer),
    }
}

/// Shows the concepts that a search found, if their text is still being typed.
fn on_found(model: &mut Model, id: u64, concepts: Answered<Vec<ExpandedCode>>) {
    if !is_code_focused(model) || !model.tree.is_last(id) {
        return;
    }
    match concepts {
        Ok(codes) => {
            let item = |code: ExpandedCode| CompletionItem {
                value: code.code,
                note: code.display.unwrap_or_default(),
            };
            model.set_completion(Completion::of(codes.into_iter().map(item).collect()));
        }
        Err(reason) => model.notice = Some(format!("Error: the search failed: {reason}")),
    }
}

pub(super) fn select(model: &mut Model, selected: usize) {
    model.tree.selected = selected.min(model.tree.rows().len().saturating_sub(1));
}
