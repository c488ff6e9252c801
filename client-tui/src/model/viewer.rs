//! State of the viewer of exported files.

use std::path::PathBuf;

use crate::form::{Form, FormField};
use crate::ndjson::resource::Summary;

/// Maximum number of lines in one page of the list.
pub const PAGE_LINES: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub files: Vec<ViewedFile>,
    pub file: usize,
    /// Number of lines of the list: all lines of the file, or those that match the filter.
    pub lines: Option<u64>,
    /// Position of the selected line in the list.
    pub selected: u64,
    /// A part of the list around the selected line.
    pub page: ViewerPage,
    /// Field for the text that the lines must contain, or for a JSONPath.
    pub filter: Form,
    pub applied_filter: String,
    /// The selected resource, if it is shown.
    pub detail: Option<ResourceDetail>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewedFile {
    pub path: PathBuf,
    /// Name in the folder, without the ending.
    pub name: String,
    pub kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewerPage {
    /// Position of the first row in the list.
    pub first: u64,
    pub rows: Vec<Summary>,
}

/// A resource as formatted JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDetail {
    pub text: String,
    /// The values that the filter selects, if it is a JSONPath.
    pub selection: Option<String>,
    pub references: Vec<String>,
    pub selected_reference: usize,
    /// Results of the validation of the codes; `None` until it is asked for.
    pub codes: Option<Result<Vec<CodeCheck>, String>>,
    /// Number of lines by which the text is scrolled.
    pub scroll: u16,
}

/// Result of the validation of one code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeCheck {
    pub path: String,
    pub code: String,
    pub value_set: &'static str,
    /// Whether the code is in the value set, or the reason why that is unknown.
    pub result: Result<bool, String>,
}

impl Viewer {
    pub fn new(files: Vec<ViewedFile>) -> Self {
        Self {
            files,
            file: 0,
            lines: None,
            selected: 0,
            page: ViewerPage::default(),
            filter: Form::new(vec![FormField::new(
                "filter",
                "text that the lines must contain, or a JSONPath like $.code",
                "",
            )]),
            applied_filter: String::new(),
            detail: None,
        }
    }

    /// The position of the first row of a page that contains the selected line in its middle.
    pub fn page_start(&self) -> u64 {
        self.selected.saturating_sub(PAGE_LINES as u64 / 2)
    }

    /// Returns whether the page contains the rows around the selected line.
    pub fn page_is_near(&self, margin: u64) -> bool {
        let end = self.page.first + self.page.rows.len() as u64;
        let from = self.selected.saturating_sub(margin);
        let to = (self.selected + margin).min(self.lines.unwrap_or(0).saturating_sub(1));
        self.page.first <= from && to < end
    }
}
