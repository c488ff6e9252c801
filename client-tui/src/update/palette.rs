//! Keys of the open command palette.

use ratatui::crossterm::event::KeyEvent;

use crate::commands;
use crate::keys::Action;
use crate::model::search_list::ListKey;
use crate::model::{Model, Overlay};

/// Processes a key. Returns the action that was chosen, if one was.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Option<Action> {
    let keys = model.keys;
    let Some(Overlay::Palette(palette)) = &model.overlay else { return None };
    let rows = commands::matching(model, palette.field.text());
    let Some(Overlay::Palette(palette)) = &mut model.overlay else { return None };
    let pressed = palette.on_key(key, keys, rows.len());
    if pressed != ListKey::Handled {
        model.overlay = None;
    }
    match pressed {
        ListKey::Chosen(at) => Some(rows[at].action),
        ListKey::Closed | ListKey::Handled => None,
    }
}
