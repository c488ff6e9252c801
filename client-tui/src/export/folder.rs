//! The folder of one export. Only the user may read it, because it contains patient data.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::job::ExportJob;
use crate::private_files::{create_private_folder, private_file, replace_private_file};

/// Name of the record of the export.
const RECORD: &str = "job.json";
/// File that a process locks while it works on the export.
const LOCK: &str = ".lock";

/// A folder that this process has locked.
#[derive(Debug)]
pub struct ExportFolder {
    path: PathBuf,
    /// Holds the lock until it is dropped.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder of a new export contains files.
    #[error("the folder {} is not empty; name a new folder, or resume an export with --resume", .0.display())]
    NotEmpty(PathBuf),
    /// The folder contains no record of an export.
    #[error("{} contains no export that can be resumed: {reason}", path.display())]
    NoExport { path: PathBuf, reason: String },
    /// Another process works on the export.
    #[error("another process is working on the export in {}", .0.display())]
    Locked(PathBuf),
    /// A file or folder cannot be written.
    #[error("failed to write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

impl ExportFolder {
    /// Creates the folder of a new export. An empty folder is also accepted.
    ///
    /// # Errors
    /// [`FolderError`] if the folder contains files or cannot be written.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Write { path: path.to_owned(), error };
        let contains_files = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        if contains_files {
            return Err(FolderError::NotEmpty(path.to_owned()));
        }
        create_private_folder(path).map_err(failed)?;
        Self::lock(path)
    }

    /// Opens the folder of an earlier export and reads its record.
    ///
    /// # Errors
    /// [`FolderError`] if the folder contains no valid record, or if another process is using it.
    pub fn open(path: &Path) -> Result<(Self, ExportJob), FolderError> {
        let job = Self::read(path)?;
        Ok((Self::lock(path)?, job))
    }

    /// Reads the record in a folder without locking the folder.
    ///
    /// # Errors
    /// [`FolderError::NoExport`] if there is no valid record.
    pub fn read(path: &Path) -> Result<ExportJob, FolderError> {
        let failed = |reason: String| FolderError::NoExport { path: path.to_owned(), reason };
        let text = fs::read(path.join(RECORD)).map_err(|error| failed(format!("{RECORD}: {error}")))?;
        serde_json::from_slice(&text).map_err(|error| failed(format!("{RECORD}: {error}")))
    }

    fn lock(path: &Path) -> Result<Self, FolderError> {
        let lock_path = path.join(LOCK);
        let failed = |error| FolderError::Write { path: lock_path.clone(), error };
        let lock = private_file(&lock_path, false).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(FolderError::Locked(path.to_owned())),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Returns whether a process works on the export in a folder.
    pub fn is_in_use(path: &Path) -> bool {
        matches!(Self::lock(path), Err(FolderError::Locked(_)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the record of the export. A crash leaves the old or the new record.
    ///
    /// # Errors
    /// [`FolderError::Write`].
    pub fn save(&self, job: &ExportJob) -> Result<(), FolderError> {
        let text = serde_json::to_vec_pretty(job).expect("all keys of a record are strings");
        self.write(RECORD, &text)
    }

    /// Writes a file. A crash leaves the old or the new content.
    ///
    /// # Errors
    /// [`FolderError::Write`].
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        replace_private_file(&path, content).map_err(|error| FolderError::Write { path: path.clone(), error })
    }

    /// Removes the record, and the folder if it contains nothing else.
    pub(super) fn remove(&self) {
        for name in [RECORD, LOCK, "log.ndjson"] {
            // A file that remains prevents the removal of the folder, which is not an error.
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// The path of a file whose subfolder exists.
    ///
    /// # Errors
    /// [`FolderError::Write`] if the subfolder cannot be created.
    pub fn file(&self, name: &str) -> Result<PathBuf, FolderError> {
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            create_private_folder(parent)
                .map_err(|error| FolderError::Write { path: parent.to_owned(), error })?;
        }
        Ok(path)
    }
}
