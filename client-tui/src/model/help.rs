//! State of the help screen.

use crate::form::{Form, FormField};
use crate::keys::KeyRow;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpScreen {
    /// Number of lines by which the keys are scrolled.
    pub scroll: u16,
    /// Field for the words that the keys must match.
    pub search: Form,
}

impl Default for HelpScreen {
    fn default() -> Self {
        Self { scroll: 0, search: Form::new(vec![FormField::new("search", "words like export or copy", "")]) }
    }
}

impl HelpScreen {
    /// The words that are searched.
    pub fn text(&self) -> String {
        self.search.value("search")
    }

    /// Returns whether a key has all words in its description, its name or its place.
    pub fn matches(&self, row: &KeyRow) -> bool {
        let text =
            format!("{} {} {} {}", row.label(), row.does, row.action.name(), row.place()).to_lowercase();
        self.text().to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}
