//! The action of an entry of a Bundle.

/// The action of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryAction {
    /// POST: creates a resource with a new id.
    Create,
    /// PUT: updates or creates a resource.
    Update,
    /// DELETE: deletes a resource.
    Delete,
    /// GET: reads a resource.
    Read,
}
