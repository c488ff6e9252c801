//! Input fields: text, cursor and focus.

use ratatui::crossterm::event::{KeyEvent, KeyModifiers};

/// A named input field of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Name of the field, as in the standard.
    pub name: &'static str,
    /// Hint that is shown while the field is empty.
    pub hint: &'static str,
    text: String,
    cursor: usize,
}

impl FormField {
    /// A field that contains `text`.
    pub fn new(name: &'static str, hint: &'static str, text: &str) -> Self {
        Self { name, hint, text: text.to_owned(), cursor: text.chars().count() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// The text before and after the cursor.
    pub fn split_at_cursor(&self) -> (&str, &str) {
        self.text.split_at(self.byte_at(self.cursor))
    }

    /// Inserts a text at the cursor. Control characters, such as the line ends of pasted text, are omitted.
    pub fn insert(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            let offset = self.byte_at(self.cursor);
            self.text.insert(offset, c);
            self.cursor += 1;
        }
    }

    /// Deletes the character before the cursor.
    pub fn backspace(&mut self) {
        if self.cursor > 0 {
            self.cursor -= 1;
            let offset = self.byte_at(self.cursor);
            self.text.remove(offset);
        }
    }

    /// Moves the cursor within the text.
    pub fn go(&mut self, by: isize) {
        self.cursor = self.cursor.saturating_add_signed(by).min(self.text.chars().count());
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.cursor = 0;
    }

    /// Replaces the text, and moves the cursor to its end.
    pub fn set(&mut self, text: &str) {
        *self = Self::new(self.name, self.hint, text);
    }

    fn byte_at(&self, chars: usize) -> usize {
        self.text.char_indices().nth(chars).map_or(self.text.len(), |(offset, _)| offset)
    }
}

/// Input fields in the order of display. One of them has the focus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Fields of the form; there is at least one.
    pub fields: Vec<FormField>,
    pub focus: usize,
}

impl Form {
    /// A form with the focus on its first field.
    pub fn new(fields: Vec<FormField>) -> Self {
        Self { fields, focus: 0 }
    }

    pub fn focused(&mut self) -> &mut FormField {
        &mut self.fields[self.focus]
    }

    /// Replaces the text of a field.
    ///
    /// # Panics
    /// Panics if the form has no such field.
    pub fn set(&mut self, name: &str, text: &str) {
        let field = self.fields.iter_mut().find(|field| field.name == name);
        field.unwrap_or_else(|| panic!("the form has no field '{name}'")).set(text);
    }

    /// Moves the focus by this number of fields. The first field follows the last one.
    pub fn step(&mut self, by: isize) {
        let count = self.fields.len() as isize;
        self.focus = (self.focus as isize + by).rem_euclid(count) as usize;
    }

    /// The text of a field without surrounding spaces.
    ///
    /// # Panics
    /// Panics if the form has no such field.
    pub fn value(&self, name: &str) -> String {
        let field = self.fields.iter().find(|field| field.name == name);
        field.unwrap_or_else(|| panic!("the form has no field '{name}'")).text().trim().to_owned()
    }
}

/// Returns whether a key with a character types it. Some systems report AltGr as Ctrl and Alt; Ctrl or Alt
/// alone types nothing.
pub fn types_a_character(key: KeyEvent) -> bool {
    !matches!(key.modifiers & !KeyModifiers::SHIFT, KeyModifiers::CONTROL | KeyModifiers::ALT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_inserted_at_the_cursor() {
        let mut field = FormField::new("code", "", "né");
        field.go(-1);
        field.insert("x\r\n");
        assert_eq!((field.text(), field.cursor()), ("nxé", 2));
        field.backspace();
        field.backspace();
        field.backspace();
        assert_eq!((field.text(), field.cursor()), ("é", 0));
        field.go(99);
        assert_eq!(field.cursor(), 1);
        field.clear();
        assert_eq!((field.text(), field.cursor()), ("", 0));
    }

    #[test]
    fn the_focus_moves_from_the_last_field_to_the_first() {
        let mut form = Form::new(vec![FormField::new("a", "", ""), FormField::new("b", "", "")]);
        form.step(-1);
        assert_eq!(form.focused().name, "b");
        form.step(1);
        assert_eq!(form.focused().name, "a");
    }
}
