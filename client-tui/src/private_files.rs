//! Files and folders that only the user may read: exported data, tokens, keys, profiles.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

/// Creates a folder that only the user may read, and its parents. An existing folder keeps its permissions.
///
/// # Errors
/// The error of the operating system.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Opens a file for writing that only the user may read.
///
/// # Errors
/// The error of the operating system.
pub fn private_file(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).write(true).truncate(truncate);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Replaces the content of a file that only the user may read. A crash leaves the old or the new content, and
/// concurrent processes do not mix theirs.
///
/// # Errors
/// The error of the operating system.
pub fn replace_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The temporary file has the mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
