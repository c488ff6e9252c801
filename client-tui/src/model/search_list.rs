//! An open list with a field whose text limits it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::form::{FormField, types_a_character};
use crate::keys::KeyTable;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchList {
    /// Text that the items must match.
    pub field: FormField,
    /// Index of the selected item among the matching ones.
    pub selected: usize,
}

/// Effect of a key on an open list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKey {
    /// The item at this index was chosen.
    Chosen(usize),
    Closed,
    Handled,
}

impl SearchList {
    pub fn new(name: &'static str) -> Self {
        Self { field: FormField::new(name, "", ""), selected: 0 }
    }

    /// Processes a key. `count` is the number of matching items.
    pub fn on_key(&mut self, key: KeyEvent, keys: &KeyTable, count: usize) -> ListKey {
        match key.code {
            KeyCode::Enter if self.selected < count => return ListKey::Chosen(self.selected),
            KeyCode::Enter | KeyCode::Esc => return ListKey::Closed,
            KeyCode::Char('c') if key.modifiers == KeyModifiers::CONTROL => return ListKey::Closed,
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(count.saturating_sub(1)),
            _ if let Some(edit) = keys.field_edit(key) => {
                self.field.edit(edit);
                self.selected = 0;
            }
            KeyCode::Char(c) if types_a_character(key) => {
                self.field.insert(c.encode_utf8(&mut [0; 4]));
                self.selected = 0;
            }
            _ => {}
        }
        ListKey::Handled
    }
}
