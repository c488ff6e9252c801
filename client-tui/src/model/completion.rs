//! The completion of the focused field: values that the user may mean.

/// Maximum number of visible values.
pub const COMPLETIONS_SHOWN: usize = 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Values in the order of display; there is at least one.
    pub items: Vec<CompletionItem>,
    /// Index of the selected value; `None` until the user selects one.
    pub selected: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionItem {
    pub value: String,
    /// Explanation, such as the display of a code.
    pub note: String,
}

impl Completion {
    /// The list, or `None` if it is empty.
    pub fn of(mut items: Vec<CompletionItem>) -> Option<Self> {
        items.truncate(COMPLETIONS_SHOWN);
        (!items.is_empty()).then_some(Self { items, selected: None })
    }

    /// Selects the next or the previous value. Before the first one, no value is selected.
    pub fn step(&mut self, down: bool) {
        self.selected = match (self.selected, down) {
            (None, true) => Some(0),
            (Some(selected), true) => Some((selected + 1).min(self.items.len() - 1)),
            (None | Some(0), false) => None,
            (Some(selected), false) => Some(selected - 1),
        };
    }

    pub fn chosen(&self) -> Option<&str> {
        self.selected.and_then(|index| self.items.get(index)).map(|item| item.value.as_str())
    }
}
