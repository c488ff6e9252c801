//! Why a file of an export is not written.

use store::space::NoSpace;

/// Reasons why an export file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The free disk space is below the reserve.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// The bucket did not answer or was overloaded, in spite of several attempts, or the process is ending.
    #[error("the files of the exports are unavailable: {0}")]
    Unavailable(object_store::Error),
    #[error(transparent)]
    Files(object_store::Error),
}
