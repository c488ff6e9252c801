//! Files of the program in the state folder of the user: `$XDG_STATE_HOME/trefoil-tui`, or the folder that
//! the operating system uses instead.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::private_files::{create_private_folder, replace_private_file};

/// The folder, which need not exist.
///
/// # Errors
/// An error if the user has no home folder.
pub fn state_folder() -> io::Result<PathBuf> {
    let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
    Ok(base.state_dir().unwrap_or_else(|| base.data_dir()).join("trefoil-tui"))
}

/// A JSON document in a file that only the user may read.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Maximum size in bytes.
    max_size: u64,
}

impl StateFile {
    /// The file at this path, which need not exist.
    pub fn at(path: &Path, max_size: u64) -> Self {
        Self { path: path.to_owned(), max_size }
    }

    /// Reads the document; an empty one if there is no file.
    ///
    /// # Errors
    /// The reason why the file cannot be read.
    pub fn read<T: Default + DeserializeOwned>(&self) -> Result<T, String> {
        let failed = |reason: String| format!("failed to read {}: {reason}", self.path.display());
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
            Err(error) => return Err(failed(error.to_string())),
            Ok(file) if file.len() > self.max_size => {
                return Err(failed(format!("the file has more than {} bytes; delete it", self.max_size)));
            }
            Ok(_) => {}
        }
        let text = std::fs::read(&self.path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice(&text)
            .map_err(|error| failed(format!("{error}; delete the file to start with an empty one")))
    }

    /// Replaces the document.
    ///
    /// # Errors
    /// The reason why the file cannot be written.
    pub fn write<T: Serialize>(&self, document: &T) -> Result<(), String> {
        let text = serde_json::to_vec(document).map_err(|error| error.to_string())?;
        let folder = self.path.parent().map_or(Ok(()), create_private_folder);
        folder
            .and_then(|()| replace_private_file(&self.path, &text))
            .map_err(|error| format!("failed to write {}: {error}", self.path.display()))
    }
}
