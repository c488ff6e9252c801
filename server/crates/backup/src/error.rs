//! Errors of backups and restores.

use store::StoreError;

/// Why a backup, a restore or a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder or bucket failed.
    #[error("failed to {action} {object}: {error}")]
    Location {
        /// The attempted action.
        action: &'static str,
        /// Path of the object.
        object: String,
        /// The error of the folder or bucket.
        error: object_store::Error,
    },
    /// An object of a backup is not as it was written.
    #[error("{object} is damaged: {what}; use another backup")]
    Damaged {
        /// Path of the object.
        object: String,
        /// The damage.
        what: String,
    },
    /// The request cannot be carried out. The text has the reason and the remedy.
    #[error("{0}")]
    Refused(String),
    /// The work was interrupted, because the process ends.
    #[error("the work was interrupted, because the process ends; start it again")]
    Interrupted,
}

impl BackupError {
    pub(crate) fn damaged(object: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { object: object.into(), what: what.into() }
    }
}
