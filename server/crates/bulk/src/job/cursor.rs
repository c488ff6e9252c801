//! A position in the resources of one type of an export.

use serde::{Deserialize, Serialize};
use store::LinePage;

/// A position between two pages. The snapshot fixes the order, so a position never changes its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ExportCursor {
    /// Index of the member whose compartment is being read; 0 at system level.
    #[serde(default)]
    pub(crate) member: usize,
    /// Id after which the next page begins.
    #[serde(default)]
    pub(crate) after: Option<String>,
    #[serde(default)]
    pub(crate) done: bool,
}

impl ExportCursor {
    /// Returns the beginning of a member's compartment.
    pub fn of_member(member: usize) -> Self {
        Self { member, ..Self::default() }
    }

    /// Moves the cursor past a page of lines.
    pub fn pass(&mut self, page: &LinePage, by_member: bool) {
        self.member += page.compartments;
        // An empty page of a whole type ends at its own start.
        if by_member || page.next.is_some() {
            self.after.clone_from(&page.next);
        }
    }
}
