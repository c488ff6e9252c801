//! Keys of the open command palette.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::types_a_character;
use crate::commands;
use crate::form::FormField;
use crate::keys::Action;
use crate::model::{Model, Palette};

pub(super) fn opened() -> Palette {
    Palette { field: FormField::new("command", "", ""), selected: 0 }
}

/// Processes a key. Returns the action that was chosen, if one was.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Option<Action> {
    let palette = model.palette.as_ref()?;
    let rows = commands::matching(model, palette);
    let chosen = rows.get(palette.selected).map(|row| row.action);
    let last = rows.len().saturating_sub(1);
    let palette = model.palette.as_mut()?;
    match key.code {
        KeyCode::Enter => {
            model.palette = None;
            return chosen;
        }
        KeyCode::Esc => model.palette = None,
        KeyCode::Char('c') if key.modifiers == KeyModifiers::CONTROL => model.palette = None,
        KeyCode::Up => palette.selected = palette.selected.saturating_sub(1),
        KeyCode::Down => palette.selected = (palette.selected + 1).min(last),
        KeyCode::Backspace => edit(palette, FormField::backspace),
        KeyCode::Left => palette.field.go(-1),
        KeyCode::Right => palette.field.go(1),
        KeyCode::Char(c) if types_a_character(key) => {
            edit(palette, |field| field.insert(c.encode_utf8(&mut [0; 4])));
        }
        _ => {}
    }
    None
}

/// Changes the text, which changes the list.
fn edit(palette: &mut Palette, change: impl FnOnce(&mut FormField)) {
    change(&mut palette.field);
    palette.selected = 0;
}
