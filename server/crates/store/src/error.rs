//! What can go wrong in the store. Every engine speaks in these words.

use std::path::PathBuf;

/// A request that the store could not carry out. Nothing of it was written, except where it says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The condition on this key did not hold: someone else was faster. Read again and decide again.
    #[error("condition on '{key}' does not hold: it was written, added or removed meanwhile")]
    Conflict {
        /// The ledger key, or `Type/id`.
        key: String,
    },
    /// Another process has the folder open.
    #[error("{} is in use by {holder}: stop it, or choose another folder", dir.display())]
    Locked {
        /// The store's folder.
        dir: PathBuf,
        /// Who may hold it, for people.
        holder: String,
    },
    /// The disk is nearly full, or a write failed and the store could not be opened again yet. Reads go on, and
    /// writes come back by themselves.
    #[error("the store only reads at the moment: {reason}; free space on its disk or mend it")]
    ReadOnly {
        /// The part that fails, for callers that must not learn more: `disk`, `engine`, `descriptors`.
        part: &'static str,
        /// Why, for the log.
        reason: String,
    },
    /// The wall clock has jumped ahead. Times of writes never go back, so that a wrong one would stay for ever.
    #[error(
        "the clock of this machine has jumped {ahead_s} s ahead; set it right, or accept it with `trefoil clock accept`"
    )]
    Clock {
        /// How far, in seconds.
        ahead_s: i64,
    },
    /// A key, kind, id or compartment that no engine can hold.
    #[error("'{key}' cannot be a key: {reason}")]
    Key {
        /// The text as it was given.
        key: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A draft whose splice offsets lie outside its bytes.
    #[error("draft of '{key}' has splice offsets outside its {length} bytes")]
    Draft {
        /// `Type/id`.
        key: String,
        /// Length of the draft in bytes.
        length: usize,
    },
    /// Stored bytes that this program did not write.
    #[error("the store is damaged: {what}")]
    Corrupt {
        /// What was found, and where.
        what: String,
    },
    /// The engine or the operating system refused.
    #[error("failed to {action}: {reason}")]
    Engine {
        /// What was tried.
        action: &'static str,
        /// The engine's own words.
        reason: String,
    },
}
