//! Input fields: text, cursor and focus.

use ratatui::crossterm::event::{KeyEvent, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation as _;

/// Number of changes that can be undone.
const UNDO_LIMIT: usize = 100;

/// A change of a field or of its cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldEdit {
    /// Erases the character before the cursor.
    EraseBefore,
    /// Erases the character after the cursor.
    EraseAfter,
    /// Erases from the start of the word before the cursor.
    EraseWord,
    EraseToStart,
    EraseToEnd,
    Left,
    Right,
    WordLeft,
    WordRight,
    Start,
    End,
    /// Restores the text before the last change.
    Undo,
}

/// A named input field of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Name of the field, as in the standard.
    pub name: &'static str,
    /// Hint that is shown while the field is empty.
    pub hint: &'static str,
    text: String,
    /// Offset in bytes, between two grapheme clusters.
    cursor: usize,
    /// Earlier texts with their cursors, the latest last.
    undo: Vec<(String, usize)>,
}

impl FormField {
    /// A field that contains `text`.
    pub fn new(name: &'static str, hint: &'static str, text: &str) -> Self {
        Self { name, hint, text: text.to_owned(), cursor: text.len(), undo: Vec::new() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before and after the cursor.
    pub fn split_at_cursor(&self) -> (&str, &str) {
        self.text.split_at(self.cursor)
    }

    /// Inserts a text at the cursor. Control characters are omitted, because they would move the cursor of
    /// the terminal.
    pub fn insert(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        if !text.is_empty() {
            self.replace(self.cursor, self.cursor, &text);
        }
    }

    pub fn edit(&mut self, edit: FieldEdit) {
        let (cursor, end) = (self.cursor, self.text.len());
        match edit {
            FieldEdit::EraseBefore => self.replace(self.before(), cursor, ""),
            FieldEdit::EraseAfter => self.replace(cursor, self.after(), ""),
            FieldEdit::EraseWord => self.replace(self.word_before(), cursor, ""),
            FieldEdit::EraseToStart => self.replace(0, cursor, ""),
            FieldEdit::EraseToEnd => self.replace(cursor, end, ""),
            FieldEdit::Left => self.cursor = self.before(),
            FieldEdit::Right => self.cursor = self.after(),
            FieldEdit::WordLeft => self.cursor = self.word_before(),
            FieldEdit::WordRight => self.cursor = self.word_after(),
            FieldEdit::Start => self.cursor = 0,
            FieldEdit::End => self.cursor = end,
            FieldEdit::Undo => {
                if let Some((text, cursor)) = self.undo.pop() {
                    (self.text, self.cursor) = (text, cursor);
                }
            }
        }
    }

    pub fn clear(&mut self) {
        self.replace(0, self.text.len(), "");
    }

    /// Replaces the text, and moves the cursor to its end.
    pub fn set(&mut self, text: &str) {
        self.replace(0, self.text.len(), text);
    }

    /// Replaces a range of bytes, and moves the cursor behind the new text.
    fn replace(&mut self, start: usize, end: usize, text: &str) {
        if start == end && text.is_empty() {
            return;
        }
        if self.undo.len() == UNDO_LIMIT {
            self.undo.remove(0);
        }
        self.undo.push((self.text.clone(), self.cursor));
        self.text.replace_range(start..end, text);
        self.cursor = start + text.len();
        // A mark that was inserted may belong to the character before it.
        self.cursor = self.boundary_from(self.cursor);
    }

    /// The first boundary of a grapheme cluster at an offset or after it.
    fn boundary_from(&self, offset: usize) -> usize {
        let mut starts = self.text.grapheme_indices(true).map(|(start, _)| start);
        starts.find(|start| *start >= offset).unwrap_or(self.text.len())
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(start, _)| start)
    }

    fn after(&self) -> usize {
        self.text[self.cursor..].graphemes(true).next().map_or(self.cursor, |first| self.cursor + first.len())
    }

    /// The start of the word before the cursor. In addresses, words end at `/`, `|` and other punctuation.
    fn word_before(&self) -> usize {
        let words = self.text[..self.cursor].unicode_word_indices();
        let offset = words.map(|(start, _)| start).next_back().unwrap_or(0);
        // In some scripts a word begins within a grapheme cluster.
        let starts = self.text.grapheme_indices(true).map(|(start, _)| start);
        starts.take_while(|start| *start <= offset).last().unwrap_or(0)
    }

    fn word_after(&self) -> usize {
        let mut words = self.text[self.cursor..].unicode_word_indices();
        let end = words.next().map_or(self.text.len(), |(start, word)| self.cursor + start + word.len());
        self.boundary_from(end)
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

    /// The text with `^` at the cursor.
    fn shown(field: &FormField) -> String {
        let (before, after) = field.split_at_cursor();
        format!("{before}^{after}")
    }

    #[test]
    fn text_is_inserted_at_the_cursor() {
        let mut field = FormField::new("code", "", "né");
        field.edit(FieldEdit::Left);
        field.insert("x\r\n");
        assert_eq!(shown(&field), "nx^é");
        for _ in 0..3 {
            field.edit(FieldEdit::EraseBefore);
        }
        assert_eq!(shown(&field), "^é");
        field.clear();
        assert_eq!(shown(&field), "^");
    }

    #[test]
    fn characters_are_grapheme_clusters() {
        // A letter with a combining mark, a family of three, and a flag.
        let mut field = FormField::new("display", "", "e\u{301}👨‍👩‍👧🇩🇪");
        field.edit(FieldEdit::EraseBefore);
        assert_eq!(shown(&field), "e\u{301}👨‍👩‍👧^");
        field.edit(FieldEdit::Left);
        assert_eq!(shown(&field), "e\u{301}^👨‍👩‍👧");
        field.edit(FieldEdit::Left);
        field.edit(FieldEdit::EraseAfter);
        assert_eq!(shown(&field), "^👨‍👩‍👧");
    }

    proptest::proptest! {
        /// After any edits, the cursor is between two characters, and every change can be undone.
        #[test]
        fn edits_keep_the_cursor_between_characters(
            start in "\\PC{0,12}",
            edits in proptest::collection::vec(0..12_usize, 0..40),
        ) {
            use FieldEdit::*;
            const ALL: [FieldEdit; 12] = [
                EraseBefore, EraseAfter, EraseWord, EraseToStart, EraseToEnd, Left, Right, WordLeft,
                WordRight, Start, End, Undo,
            ];
            let mut field = FormField::new("a", "", &start);
            for edit in edits {
                field.edit(ALL[edit]);
                let is_boundary = field.cursor == field.text.len()
                    || field.text.grapheme_indices(true).any(|(start, _)| start == field.cursor);
                proptest::prop_assert!(is_boundary, "{:?} at {}", field.text, field.cursor);
            }
            while !field.undo.is_empty() {
                field.edit(Undo);
            }
            proptest::prop_assert_eq!(field.text(), &start);
        }
    }

    proptest::proptest! {
        /// The reference is a list of characters with a position.
        #[test]
        fn edits_are_those_of_a_list_of_characters(
            start in "[a-z éß/日]{0,12}",
            edits in proptest::collection::vec((0..9_usize, "[a-zé日 ]{1,3}"), 0..40),
        ) {
            use FieldEdit::*;
            let mut field = FormField::new("a", "", &start);
            let mut list: Vec<char> = start.chars().collect();
            let mut place = list.len();
            for (edit, text) in edits {
                const ALL: [FieldEdit; 8] =
                    [EraseBefore, EraseAfter, EraseToStart, EraseToEnd, Left, Right, Start, End];
                let Some(edit) = ALL.get(edit) else {
                    field.insert(&text);
                    list.splice(place..place, text.chars());
                    place += text.chars().count();
                    continue;
                };
                field.edit(*edit);
                match edit {
                    EraseBefore if place > 0 => {
                        place -= 1;
                        list.remove(place);
                    }
                    EraseAfter if place < list.len() => drop(list.remove(place)),
                    EraseToStart => {
                        list.drain(..place);
                        place = 0;
                    }
                    EraseToEnd => list.truncate(place),
                    Left => place = place.saturating_sub(1),
                    Right => place = (place + 1).min(list.len()),
                    Start => place = 0,
                    End => place = list.len(),
                    _ => {}
                }
                let (before, after) = list.split_at(place);
                let expected: (String, String) = (before.iter().collect(), after.iter().collect());
                proptest::prop_assert_eq!(field.split_at_cursor(), (&*expected.0, &*expected.1), "{:?}", edit);
            }
        }
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
