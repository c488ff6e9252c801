//! The data folder of a server.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use identity::model::nearest_name::nearest_name;
use store::folder::make_folder;

use crate::config::StoreEngine;

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

/// Returns whether a data folder contains a store on files.
pub fn has_store(data: &Path) -> bool {
    std::fs::read_dir(data.join("store")).is_ok_and(|mut entries| entries.next().is_some())
}

/// The engine for a command that reads or changes an existing store, and so must not create one: tables of a
/// database are not created either.
///
/// # Errors
/// An error that names the folders with a store, if the folder has none.
pub fn require_store(engine: StoreEngine, data: &Path) -> Result<StoreEngine> {
    match engine {
        StoreEngine::Postgres { url, .. } => Ok(StoreEngine::Postgres { url, migrate: false }),
        StoreEngine::File if !has_store(data) => {
            let meant = match &stores_near(data)[..] {
                [] => "start the server or import something first, or name the folder with --data".to_owned(),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            bail!("{} contains no store; {meant}", data.display())
        }
        engine => Ok(engine),
    }
}

/// Maximum number of folders that an error suggests.
const MAX_SUGGESTED: usize = 3;

/// The folders with a store in the current folder, and the one beside this folder whose name is nearest.
fn stores_near(data: &Path) -> Vec<String> {
    let stores = |folder: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| folder.join(entry.file_name())).filter(|path| has_store(path));
        paths.map(|path| path.display().to_string()).collect()
    };
    let mut near = stores(Path::new("."));
    if let Some(parent) = data.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let neighbours: Vec<String> = stores(parent).iter().map(|path| name(Path::new(path))).collect();
        let nearest = nearest_name(&name(data), neighbours.iter().map(String::as_str));
        near.extend(nearest.map(|nearest| parent.join(nearest).display().to_string()));
    }
    near.into_iter().take(MAX_SUGGESTED).collect()
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
        let error = lock_data_folder(data.path()).unwrap_err().to_string();
        assert!(error.starts_with("another server uses the data folder "), "{error}");
        drop(first);
        lock_data_folder(data.path()).unwrap();
    }
}
