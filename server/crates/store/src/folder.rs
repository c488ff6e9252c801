//! Folders that outlive a power cut.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Creates a folder with its missing parents, and syncs the folder that contains each of them. Without this,
/// a power cut could remove a new folder together with all synced files in it. The direct parent is also
/// synced if the folder exists, because the process that created it may have been killed before its fsync.
///
/// # Errors
/// Returns the error of the operating system.
pub fn make_folder(dir: &Path, mode: u32) -> io::Result<()> {
    let missing = dir.ancestors().skip(1).take_while(|parent| !parent.exists()).count();
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    for parent in dir.ancestors().skip(1).take(missing + 1) {
        // The parent of a relative path may be the empty path.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        sync_folder(parent)?;
    }
    Ok(())
}

/// Makes the names in a folder durable. A folder that the process may not read is skipped with a warning.
///
/// # Errors
/// Returns the error of the operating system.
pub fn sync_folder(dir: &Path) -> io::Result<()> {
    match File::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(dir = %dir.display(), "the folder cannot be synced, because it cannot be read");
            Ok(())
        }
        folder => folder?.sync_all(),
    }
}

/// Makes the names in a folder and in all folders below it durable. A missing folder contains no names.
///
/// # Errors
/// Returns the error of the operating system.
pub fn sync_folders(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(dir)
}
