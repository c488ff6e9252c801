//! Keys of the open command palette.

use ratatui::crossterm::event::KeyEvent;

use crate::commands;
use crate::keys::Action;
use crate::model::Model;
use crate::model::search_list::ListKey;

/// Processes a key. Returns the action that was chosen, if one was.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Option<Action> {
    let rows = commands::matching(model, model.palette.as_ref()?.field.text());
    let pressed = model.palette.as_mut()?.on_key(key, rows.len());
    if pressed != ListKey::Handled {
        model.palette = None;
    }
    match pressed {
        ListKey::Chosen(at) => Some(rows[at].action),
        ListKey::Closed | ListKey::Handled => None,
    }
}
