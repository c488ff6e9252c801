//! The data folder of a server.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use store::folder::make_folder;

/// Creates the data folder and its subfolders, accessible only by their owner. An existing folder keeps its
/// mode; keys, records and exports inside it are private regardless.
///
/// # Errors
/// An error if a folder cannot be created.
pub fn make_data_folder(data: &Path) -> Result<()> {
    for dir in [data.to_owned(), data.join("store"), data.join("exports"), data.join("tls")] {
        make_folder(&dir, 0o700).with_context(|| format!("failed to make the folder {}", dir.display()))?;
    }
    Ok(())
}

/// Reserves the data folder of a node on a database until the returned file is dropped. A store on files has
/// a lock of its own.
///
/// # Errors
/// An error if another process has reserved it.
pub fn lock_data_folder(data: &Path) -> Result<File> {
    let path = data.join("lock");
    let lock = File::create(&path).with_context(|| format!("failed to create {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "another server uses the data folder {}; start this one with a folder of its own (--data)",
            data.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("failed to lock {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_reserved_once() {
        let data = tempfile::tempdir().unwrap();
        let first = lock_data_folder(data.path()).unwrap();
        let refused = lock_data_folder(data.path()).unwrap_err().to_string();
        assert!(refused.starts_with("another server uses the data folder "), "{refused}");
        drop(first);
        lock_data_folder(data.path()).unwrap();
    }
}
