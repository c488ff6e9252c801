//! Updates of the batch view.

use std::path::PathBuf;

use crate::model::{BatchState, Model};
use crate::msg::{BatchEvent, RuntimeEffect};

pub(super) fn open(model: &mut Model) {
    model.batch.open = true;
    model.batch.form.focus = 0;
    model.typing = model.batch.form.value("file").is_empty();
}

/// Closes the view. A running batch continues.
pub(super) fn close(model: &mut Model) {
    model.batch.open = false;
}

/// Starts the batch of the form.
pub(super) fn send(model: &mut Model) -> Vec<RuntimeEffect> {
    let path = model.batch.form.value("file");
    // The screens read the keys from stdin.
    if matches!(path.as_str(), "" | "-") {
        model.notice = Some("Error: enter the name of a file with codes".to_owned());
        return Vec::new();
    }
    model.typing = false;
    let (id, defaults) = (model.batch.start(), model.batch.defaults());
    vec![RuntimeEffect::StartBatch { id, path: PathBuf::from(path), defaults, bearer: model.bearer.clone() }]
}

pub(super) fn stop(model: &mut Model) -> Vec<RuntimeEffect> {
    model.batch.state = BatchState::Stopped;
    vec![RuntimeEffect::StopBatch]
}

/// Applies an event of the last batch. Events of an earlier one are dropped.
pub(super) fn on_event(model: &mut Model, id: u64, event: BatchEvent) {
    let batch = &mut model.batch;
    if batch.id != id || !batch.is_running() {
        return;
    }
    match event {
        BatchEvent::Started(rows) => batch.rows = rows,
        BatchEvent::Row(result) => batch.add(result),
        BatchEvent::Ended(Ok(())) => batch.state = BatchState::Done,
        BatchEvent::Ended(Err(reason)) => batch.state = BatchState::Failed(reason),
    }
}

pub(super) fn filter(model: &mut Model) {
    model.batch.only_failures = !model.batch.only_failures;
    model.batch.selected = 0;
}

pub(super) fn select(model: &mut Model, selected: usize) {
    model.batch.selected = selected.min(model.batch.visible_count().saturating_sub(1));
}
