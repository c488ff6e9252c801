//! Fields that a person types into: text, cursor, focus.

/// One line of text with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Name of the field, as in the standard.
    pub name: &'static str,
    /// Hint that is shown while the field is empty.
    pub hint: &'static str,
    text: String,
    /// Cursor position, in characters.
    cursor: usize,
}

impl FormField {
    /// A field that holds `text`.
    pub fn new(name: &'static str, hint: &'static str, text: &str) -> Self {
        Self { name, hint, text: text.to_owned(), cursor: text.chars().count() }
    }

    /// Returns the text of the field.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the cursor position, in characters.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Types into the field. Control characters, such as the line ends of pasted text, are left out.
    pub fn insert(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            let at = self.byte_at(self.cursor);
            self.text.insert(at, c);
            self.cursor += 1;
        }
    }

    /// Takes away the character before the cursor.
    pub fn backspace(&mut self) {
        if self.cursor > 0 {
            self.cursor -= 1;
            let at = self.byte_at(self.cursor);
            self.text.remove(at);
        }
    }

    /// Moves the cursor, as far as there is text.
    pub fn go(&mut self, by: isize) {
        self.cursor = self.cursor.saturating_add_signed(by).min(self.text.chars().count());
    }

    /// Empties the field.
    pub fn clear(&mut self) {
        self.text.clear();
        self.cursor = 0;
    }

    fn byte_at(&self, chars: usize) -> usize {
        self.text.char_indices().nth(chars).map_or(self.text.len(), |(at, _)| at)
    }
}

/// Fields in their order, one of which has the focus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The fields; there is always one.
    pub fields: Vec<FormField>,
    /// Index of the focused field.
    pub focus: usize,
}

impl Form {
    /// A form with the focus on its first field.
    pub fn new(fields: Vec<FormField>) -> Self {
        Self { fields, focus: 0 }
    }

    /// The field with the focus.
    pub fn focused(&mut self) -> &mut FormField {
        &mut self.fields[self.focus]
    }

    /// Moves the focus, round and round.
    pub fn step(&mut self, by: isize) {
        let count = self.fields.len() as isize;
        self.focus = (self.focus as isize + by).rem_euclid(count) as usize;
    }

    /// Returns the text of the field at this index, without surrounding spaces.
    pub fn value(&self, at: usize) -> String {
        self.fields[at].text().trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_goes_where_the_cursor_is() {
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
    fn focus_goes_round() {
        let mut form = Form::new(vec![FormField::new("a", "", ""), FormField::new("b", "", "")]);
        form.step(-1);
        assert_eq!(form.focused().name, "b");
        form.step(1);
        assert_eq!(form.focused().name, "a");
    }
}
