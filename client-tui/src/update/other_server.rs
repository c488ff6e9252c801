//! Updates of the field that names the other server of comparisons.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::codes;
use crate::form::types_a_character;
use crate::model::Model;
use crate::msg::RuntimeEffect;

pub(super) fn open(model: &mut Model) {
    model.codes.naming_other = true;
}

/// Processes a key of the open field. Enter asks both servers; without a name, only this one is asked from
/// then on.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Vec<RuntimeEffect> {
    let keys = model.keys;
    let field = &mut model.codes.other_server;
    match (key.code, key.modifiers) {
        (KeyCode::Enter, _) => {
            model.codes.naming_other = false;
            return codes::send(model);
        }
        (KeyCode::Esc, _) | (KeyCode::Char('c'), KeyModifiers::CONTROL) => model.codes.naming_other = false,
        (KeyCode::Char(c), _) if types_a_character(key) => field.insert(c.encode_utf8(&mut [0; 4])),
        _ => {
            if let Some(edit) = keys.field_edit(key) {
                field.edit(edit);
            }
        }
    }
    Vec::new()
}
