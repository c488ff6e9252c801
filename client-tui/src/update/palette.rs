//! Keys of the open command palette.

use ratatui::crossterm::event::KeyEvent;

use super::history;
use crate::commands::{self, Command};
use crate::keys::Action;
use crate::model::search_list::ListKey;
use crate::model::{Model, Overlay, Screen};

/// Processes a key. Returns the action that was chosen, if one was, and its screen. A chosen question opens
/// its form.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Option<(Screen, Action)> {
    let keys = model.keys;
    let Some(Overlay::Palette(palette)) = &model.overlay else { return None };
    let mut commands = commands::matching(model, palette.field.text());
    let Some(Overlay::Palette(palette)) = &mut model.overlay else { return None };
    let pressed = palette.on_key(key, keys, commands.len());
    if pressed != ListKey::Handled {
        model.overlay = None;
    }
    let ListKey::Chosen(at) = pressed else { return None };
    match commands.swap_remove(at) {
        Command::Here(row) => Some((model.screen, row.action)),
        Command::On(screen, row) => Some((screen, row.action)),
        Command::Question(question) => {
            history::restore(model, &question);
            None
        }
    }
}
