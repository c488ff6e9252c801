//! Updates of the Home screen.

use super::{codes, export, navigation, other_server};
use crate::api::ContentKind;
use crate::model::{HomeRow, Model, Operation, Screen};
use crate::msg::{HomeAnswer, RuntimeEffect};

/// Requests the lists of the server.
pub(super) fn reload(model: &mut Model) -> Vec<RuntimeEffect> {
    let id = model.home.send_contents(model.now);
    let groups_bearer = model.export_bearer();
    vec![RuntimeEffect::Contents { id, bearer: model.contents_bearer(), groups_bearer }]
}

pub(super) fn on_answer(model: &mut Model, id: u64, outcome: HomeAnswer) -> Vec<RuntimeEffect> {
    let home = &mut model.home;
    match outcome {
        HomeAnswer::List(kind, result) => {
            home.receive_list(id, kind, result.into());
            // The text was typed before the code systems were known.
            if kind == ContentKind::CodeSystems && home.is_searching() && home.found.is_empty() {
                return search(model);
            }
        }
        HomeAnswer::Summary(result) => home.receive_summary(id, result.into()),
        HomeAnswer::Found(system, result) => home.receive_found(id, &system, result.into()),
        HomeAnswer::Titled(kind, result) => home.receive_titled(id, kind, result.into()),
        HomeAnswer::Place(result) => home.receive_place(id, result.into()),
    }
    follow_selection(model)
}

/// Searches for the text after a change.
pub(super) fn search(model: &mut Model) -> Vec<RuntimeEffect> {
    let (id, systems) = model.home.send_search(model.now);
    let kinds = model.home.titled.iter().map(|(kind, _)| *kind).collect();
    let (text, bearer) = (model.home.text(), model.contents_bearer());
    let mut effects = vec![RuntimeEffect::SearchSystems { id, text, systems, kinds, bearer }];
    effects.extend(follow_selection(model));
    effects
}

pub(super) fn select(model: &mut Model, selected: usize) -> Vec<RuntimeEffect> {
    model.home.selected = selected.min(model.home.rows().len().saturating_sub(1));
    follow_selection(model)
}

/// Looks up the place of the selected concept.
fn follow_selection(model: &mut Model) -> Vec<RuntimeEffect> {
    let bearer = model.contents_bearer();
    let place = model.home.send_place(model.now);
    place.map(|(id, query)| RuntimeEffect::Place(id, query, bearer)).into_iter().collect()
}

/// Removes the text, and after it the limit to a code system.
pub(super) fn leave(model: &mut Model) -> Vec<RuntimeEffect> {
    if model.home.text().is_empty() {
        model.home.scope = None;
    }
    model.home.first_code = None;
    model.home.search.set("search", "");
    search(model)
}

/// Opens the selected row: the description of a concept, the concepts of a code system, the expansion of a
/// value set, or the export of a group.
pub(super) fn open(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(row) = model.home.selected_row() else { return Vec::new() };
    model.typing = false;
    match row {
        HomeRow::Concept(concept) => {
            let values = [("system", concept.system), ("version", String::new()), ("code", concept.code)];
            ask(model, Operation::Lookup, &values)
        }
        HomeRow::Content(entry) => match entry.kind {
            ContentKind::CodeSystems => {
                model.home.search.set("search", "");
                model.home.scope = Some(entry);
                search(model)
            }
            ContentKind::ValueSets => {
                let values = [("url", entry.url), ("filter", String::new()), ("offset", String::new())];
                ask(model, Operation::Expand, &values)
            }
            ContentKind::Groups => {
                model.export.form.set("level", &format!("Group/{}", entry.id));
                navigation::open(model, Screen::Export);
                export::open_form(model);
                Vec::new()
            }
        },
    }
}

/// Validates the selected concept in its code system.
pub(super) fn validate(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(concept) = model.home.selected_concept() else { return Vec::new() };
    let none = String::new();
    let values = [
        ("url", none.clone()),
        ("id", none.clone()),
        ("system", concept.system),
        ("code", concept.code),
        ("display", none),
    ];
    ask(model, Operation::ValidateCode, &values)
}

/// Takes the selected concept as the first code of `$subsumes`, or sends the question if there is one.
pub(super) fn subsumes(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(second) = model.home.selected_concept() else { return Vec::new() };
    let Some(first) = model.home.first_code.take().filter(|first| first.system == second.system) else {
        model.home.first_code = Some(second);
        return Vec::new();
    };
    let none = String::new();
    let values = [
        ("system", first.system),
        ("id", none.clone()),
        ("version", none),
        ("codeA", first.code),
        ("codeB", second.code),
    ];
    ask(model, Operation::Subsumes, &values)
}

/// Opens the question about the selected concept, and the field for the other server of the comparison.
pub(super) fn compare(model: &mut Model) {
    let Some(concept) = model.home.selected_concept() else { return };
    let values = [("system", concept.system), ("version", String::new()), ("code", concept.code)];
    fill_in(model, Operation::Lookup, &values);
    other_server::open(model);
}

/// Opens the form of an operation with these values, and sends it.
fn ask(model: &mut Model, operation: Operation, values: &[(&'static str, String)]) -> Vec<RuntimeEffect> {
    fill_in(model, operation, values);
    codes::send(model)
}

fn fill_in(model: &mut Model, operation: Operation, values: &[(&'static str, String)]) {
    navigation::open(model, Screen::Codes);
    model.batch.open = false;
    model.bearer = model.contents_bearer();
    model.codes.operation = operation;
    for (name, value) in values {
        model.codes.form().set(name, value);
    }
}
