//! Keys of the open search in the visible list.

use ratatui::crossterm::event::KeyEvent;

use crate::model::search_list::ListKey;
use crate::model::{Model, Overlay};

/// Processes a key. Returns the position of the row that was chosen, if one was.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Option<usize> {
    let keys = model.keys;
    let Some(Overlay::Find(search)) = &model.overlay else { return None };
    let rows = model.matching_rows(search.field.text());
    let Some(Overlay::Find(search)) = &mut model.overlay else { return None };
    let pressed = search.on_key(key, keys, rows.len());
    if pressed != ListKey::Handled {
        model.overlay = None;
    }
    match pressed {
        ListKey::Chosen(index) => Some(rows[index].0),
        ListKey::Closed | ListKey::Handled => None,
    }
}
