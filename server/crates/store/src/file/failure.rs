//! Errors of the file engine, and the format of its folder.

use std::fmt;
use std::path::Path;

use crate::StoreError;

/// Number of the store format that this program reads and writes.
pub(super) const FORMAT_NUMBER: &[u8] = b"3";

/// Name of a file in the store's folder. If it exists when the store is opened, damaged writes are discarded
/// and the remaining data are used.
pub(super) const ACCEPT_DAMAGE: &str = "accept-damage";

/// The error for a store of another version of the program.
pub(super) fn other_format(
    what_has: &str,
    actual: impl fmt::Display,
    supported: impl fmt::Display,
) -> StoreError {
    let reason = format!(
        "{what_has} format {actual}, and this program reads format {supported}; use the program that wrote it, or a new folder"
    );
    StoreError::Engine { action: "open the store", reason }
}

/// Converts an error of the engine or the operating system to a [`StoreError`].
pub(super) fn engine<E: fmt::Display>(action: &'static str) -> impl Fn(E) -> StoreError {
    move |error| StoreError::Engine { action, reason: error.to_string() }
}

/// Converts an error like [`engine`], and adds the folder to the message.
pub(super) fn of_folder<E: fmt::Display>(action: &'static str, dir: &Path) -> impl Fn(E) -> StoreError {
    move |error| engine(action)(format!("{}: {error}", dir.display()))
}

/// Converts an error of the engine. The engine verifies checksums, so damaged data are reported as
/// corruption.
pub(super) fn failure(action: &'static str, dir: &Path) -> impl Fn(fjall::Error) -> StoreError {
    use fjall::{Error, LsmError};
    move |error| {
        let is_damage = match &error {
            Error::Storage(LsmError::Io(error)) | Error::Io(error) => {
                matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::NotFound)
            }
            Error::Storage(_)
            | Error::InvalidTag(_)
            | Error::InvalidTrailer
            | Error::InvalidVersion(_)
            | Error::JournalRecovery(_)
            | Error::Unrecoverable => true,
            _ => false,
        };
        if is_damage { damaged(dir, &error) } else { of_folder(action, dir)(error) }
    }
}

pub(super) fn damaged(dir: &Path, reason: &impl fmt::Display) -> StoreError {
    let dir = dir.display();
    StoreError::Corrupt { what: format!("a file in {dir} is corrupt ({reason}); restore a backup") }
}

/// Converts an error that occurred while a table was read.
pub(super) fn read_failure(table: &fjall::Keyspace) -> impl Fn(fjall::Error) -> StoreError {
    failure("read the store", table.path())
}
