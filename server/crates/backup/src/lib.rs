//! Backups of a store while it is used, restore into an empty store, and copies from one engine to another.
//!
//! | module | contents |
//! |---|---|
//! | [`error`] | [`BackupError`] |
//! | [`location`] | where backups are kept: a folder or a bucket |
//! | [`seal`] | encryption |
//! | `rows` | versions and records as lines |
//! | [`manifest`] | what a backup consists of |
//! | `segments` | files of rows: compressed, with their digests |
//! | [`attachment`] | files that belong to a store besides its records |
//! | [`write`](mod@write) | makes a backup |
//! | `content` | reads the content of backups, checked |
//! | [`restore`](mod@restore) | restores a store |
//! | [`verify`](mod@verify) | proves that backups can be restored |
//! | [`retention`] | removes old backups |
//! | [`succession`] | whether a restored store takes the place of the earlier one |
//! | [`copy`](mod@copy) | copies a store into another one |
//! | `receiver` | an empty store that is being filled, and cannot be used until it is complete |
//!
//! A backup is one moment: all versions of resources up to a sequence number, and the ledger as it was when
//! that was the last number. A backup that *follows* another one contains only the later versions, but the
//! whole ledger. The format does not depend on the engine:
//!
//! | object | contents |
//! |---|---|
//! | `{id}/manifest.json` | the [`Manifest`]; written last, so that an object without it is no backup |
//! | `{id}/log-00001.gz` … | versions in the order of their sequence numbers |
//! | `{id}/ledger-00001.gz` … | records in the order of their keys |
//! | `files/{sha256}` | a file of any of the backups |
//!
//! Each row is two lines: a JSON object with everything but the content, and the content. Its length in bytes
//! is the member `bytes` of the first line, so that it may contain line feeds.

pub mod attachment;
mod content;
pub mod copy;
pub mod error;
pub mod location;
pub mod manifest;
mod receiver;
pub mod restore;
pub mod retention;
mod rows;
pub mod seal;
mod segments;
pub mod succession;
pub mod verify;
pub mod write;

pub use attachment::{Attachment, AttachmentTarget};
pub use copy::{CopiedStore, copy_store};
pub use error::BackupError;
pub use location::BackupLocation;
pub use manifest::Manifest;
pub use receiver::{Unfinished, reuse_moved, unfinished};
pub use restore::{RestoreReport, RestoreSelection, restore};
pub use retention::remove_old;
pub use seal::BackupKey;
pub use succession::{StorePurpose, Succession};
pub use verify::{VerifiedBackup, verify};
pub use write::{BackupOptions, back_up};

/// The progress of a running backup, restore or copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Number of versions.
    pub versions: u64,
    /// Number of ledger records.
    pub records: u64,
    /// Number of files.
    pub files: u64,
}

/// Receives the progress after each page.
pub type ProgressSink<'a> = &'a mut (dyn FnMut(Progress) + Send);
