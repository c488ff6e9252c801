//! Errors of the store, the same for every engine.

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
        /// Likely holder of the lock, for messages.
        holder: String,
    },
    /// The disk is nearly full, or a write failed and the store could not be reopened yet. Reads continue, and writes
    /// resume automatically.
    #[error("the store is read-only at the moment: {reason}; free space on its disk or repair the disk")]
    ReadOnly {
        /// The part that fails, for callers that must not learn more: `disk`, `engine`, `descriptors`.
        part: &'static str,
        /// Why, for the log.
        reason: String,
    },
    /// The wall clock has jumped forward. Times of writes never decrease, so a wrong time would persist.
    #[error(
        "the clock of this machine has jumped {ahead_s} s ahead; correct it, or accept it with `trefoil clock accept`"
    )]
    Clock {
        /// Difference in seconds.
        ahead_s: i64,
    },
    /// A key, kind, id or compartment that no engine can hold.
    #[error("'{key}' cannot be a key: {reason}")]
    Key {
        /// The rejected text.
        key: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// The splice offsets of a draft are outside its bytes.
    #[error("draft of '{key}' has splice offsets outside its {length} bytes")]
    Draft {
        /// `Type/id`.
        key: String,
        /// Length of the draft in bytes.
        length: usize,
    },
    /// Stored bytes that this program did not write.
    #[error("the store is corrupt: {what}")]
    Corrupt {
        /// The corrupt data and their place.
        what: String,
    },
    /// The engine or the operating system refused.
    #[error("failed to {action}: {reason}")]
    Engine {
        /// The action that failed.
        action: &'static str,
        /// The engine's own words.
        reason: String,
    },
}
