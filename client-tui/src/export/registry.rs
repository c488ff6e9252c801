//! The list of the exports of this user: a file with the path of one folder on each line.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::folder::{ExportFolder, FolderError};
use super::job::{ExportJob, ExportPhase};
use crate::private_files::create_private_folder;
use crate::state_file::state_folder;

/// The file that contains the list.
#[derive(Clone, Debug)]
pub struct ExportRegistry {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredExport {
    pub folder: PathBuf,
    pub job: ExportJob,
}

impl RegisteredExport {
    /// The state of the export in one word. An export that is not complete, and on which no process works, is
    /// interrupted.
    pub fn state(&self) -> &'static str {
        let is_open =
            matches!(self.job.phase, ExportPhase::Starting | ExportPhase::Running | ExportPhase::Downloading);
        if is_open && !ExportFolder::is_in_use(&self.folder) { "interrupted" } else { self.job.phase.name() }
    }
}

impl ExportRegistry {
    /// The list in `$XDG_STATE_HOME/trefoil-tui/exports`, or in the folder that the operating system uses
    /// instead.
    ///
    /// # Errors
    /// An error if the user has no home folder.
    pub fn of_user() -> Result<Self, FolderError> {
        let failed = |error| FolderError::Write { path: "trefoil-tui/exports".into(), error };
        Ok(Self::at(&state_folder().map_err(failed)?.join("exports")))
    }

    /// The list in this file, which need not exist.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Adds the folder of an export.
    ///
    /// # Errors
    /// [`FolderError::Write`].
    pub fn add(&self, folder: &Path) -> Result<(), FolderError> {
        let append = || {
            if let Some(parent) = self.path.parent() {
                create_private_folder(parent)?;
            }
            let folder = std::path::absolute(folder)?;
            // A single write, so that the lines of concurrent processes are not mixed.
            fs::File::options()
                .create(true)
                .append(true)
                .open(&self.path)?
                .write_all(format!("{}\n", folder.display()).as_bytes())
        };
        append().map_err(|error| FolderError::Write { path: self.path.clone(), error })
    }

    /// The exports, the newest first. Folders that no longer exist are left out.
    pub fn list(&self) -> Vec<RegisteredExport> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let folders: BTreeSet<_> = text.lines().map(PathBuf::from).collect();
        let read =
            |folder: PathBuf| Some(RegisteredExport { job: ExportFolder::read(&folder).ok()?, folder });
        let mut exports: Vec<_> = folders.into_iter().filter_map(read).collect();
        exports.sort_by_key(|export| Reverse(export.job.started_at));
        exports
    }
}
