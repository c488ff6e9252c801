//! Errors of the store, which are the same for every engine.

use std::path::PathBuf;

/// Reasons why the store could not carry out a request. Unless a variant says otherwise, nothing of the
/// request was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The condition on this key did not hold, because another request has changed it. The caller must read
    /// it again and decide again.
    #[error("condition on '{key}' does not hold: it was written, added or removed meanwhile")]
    Conflict {
        /// The ledger key, or `Type/id`.
        key: String,
    },
    /// The condition on the search index did not hold: another request has added a version with one of the
    /// terms. The caller must search again.
    #[error("'{key}' was not written: the result of the search before it has changed meanwhile")]
    IndexChanged {
        /// `Type/id` of the rejected write.
        key: String,
    },
    /// Another process has the folder open.
    #[error("{} is in use by {holder}: stop it, or choose another folder", dir.display())]
    Locked {
        /// The store's folder.
        dir: PathBuf,
        /// Process that probably holds the lock, for messages.
        holder: String,
    },
    /// The disk is nearly full, or a write failed and the store could not be reopened yet. Reads continue,
    /// and writes resume automatically.
    #[error("the store is read-only at the moment: {reason}; free space on its disk or repair the disk")]
    ReadOnly {
        /// The part that fails: `disk`, `engine` or `descriptors`. Callers without access to the log receive
        /// only this part.
        part: &'static str,
        /// Reason of the failure, for the log.
        reason: String,
    },
    /// The database cannot be reached at the moment. A write may have been done if `reason` says so.
    #[error("the database is unavailable: {reason}")]
    Unavailable {
        /// Reason of the failure, for the log.
        reason: String,
    },
    /// The wall clock has jumped forward. Times of writes never decrease, so a write with a wrong time would
    /// affect all later ones.
    #[error(
        "the clock of this machine has jumped {ahead_s} s ahead; correct it, or accept it with `trefoil clock accept`"
    )]
    Clock {
        /// Size of the jump in seconds.
        ahead_s: i64,
    },
    /// The text is not valid as a ledger key, type, id or compartment.
    #[error("'{key}' cannot be a key: {reason}")]
    Key {
        /// The rejected text.
        key: String,
        /// The rule that the text violates.
        reason: &'static str,
    },
    /// The insertion offsets of a draft are outside of its bytes.
    #[error("draft of '{key}' has splice offsets outside its {length} bytes")]
    Draft {
        /// `Type/id`.
        key: String,
        /// Length of the draft in bytes.
        length: usize,
    },
    /// The stored bytes are not in the format that this program writes.
    #[error("the store is corrupt: {what}")]
    Corrupt {
        /// The corrupt data, and where they are stored.
        what: String,
    },
    /// The engine or the operating system returned an error.
    #[error("failed to {action}: {reason}")]
    Engine {
        /// The action that failed.
        action: &'static str,
        /// The text of the error.
        reason: String,
    },
}
