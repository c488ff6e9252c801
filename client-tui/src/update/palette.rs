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
    let mut pressed_list = palette.clone();
    let commands = commands::matching(model, palette.field.text());
    let pressed = pressed_list.on_key(key, keys, commands.len());
    let chosen = match pressed {
        ListKey::Chosen(at) => Some(commands[at]),
        ListKey::Closed | ListKey::Handled => None,
    };
    let question = match chosen {
        Some(Command::Question(question)) => Some(question.clone()),
        _ => None,
    };
    let action = match chosen {
        Some(Command::Here(row)) => Some((model.screen, row.action)),
        Some(Command::On(screen, row)) => Some((screen, row.action)),
        Some(Command::Question(_)) | None => None,
    };
    model.overlay = (pressed == ListKey::Handled).then_some(Overlay::Palette(pressed_list));
    if let Some(question) = question {
        history::restore(model, &question);
    }
    action
}
