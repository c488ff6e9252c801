//! A cursor in the resources of one type of an export.

use serde::{Deserialize, Serialize};
use store::LinePage;

/// A cursor between two pages. The snapshot fixes the order of the resources, so a stored cursor always
/// refers to the same position.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ExportCursor {
    /// Index of the Group member whose compartment is being read; 0 at system level.
    #[serde(default)]
    pub(crate) member: usize,
    /// Id of the last resource before the next page.
    #[serde(default)]
    pub(crate) after: Option<String>,
    #[serde(default)]
    pub(crate) done: bool,
}

impl ExportCursor {
    /// A cursor at the start of a member's compartment.
    pub fn of_member(member: usize) -> Self {
        Self { member, ..Self::default() }
    }

    /// Advances the cursor past a page of lines.
    pub fn pass(&mut self, page: &LinePage, by_member: bool) {
        self.member += page.compartments;
        // An empty page of a whole type has no next position, so the cursor does not move.
        if by_member || page.next.is_some() {
            self.after.clone_from(&page.next);
        }
    }
}
