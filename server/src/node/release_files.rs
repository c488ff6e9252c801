//! The indexes of imported releases as files that other servers download.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use store::blocking::run_blocking;
use terminology::IndexDescription;

use crate::node::saved_indexes::SavedIndexes;

/// The file of a release. It stays open, so that a later import of the same release does not change it.
#[derive(Debug)]
pub struct ReleaseFile {
    /// Id of the release.
    pub id: String,
    /// The code system.
    pub description: IndexDescription,
    /// The file.
    pub file: File,
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// Time of the import.
    pub imported: Timestamp,
}

/// The files of all releases.
#[derive(Debug, Clone)]
pub struct ReleaseFiles {
    indexes: SavedIndexes,
    /// The checksums that were computed, which takes half a second for a file of 200 MB.
    checksums: Arc<Mutex<HashMap<String, Checksum>>>,
}

/// The checksum of a file with this time and length.
#[derive(Debug, Clone)]
struct Checksum {
    modified: SystemTime,
    length: u64,
    sha256: String,
}

impl ReleaseFiles {
    /// The files of the releases in this folder.
    pub fn new(indexes: SavedIndexes) -> Self {
        Self { indexes, checksums: Arc::default() }
    }

    /// The files of all complete releases, in the order of their ids.
    ///
    /// # Errors
    /// An error if the folder or a file cannot be read.
    pub async fn list(&self) -> io::Result<Vec<ReleaseFile>> {
        let files = self.clone();
        let list = move || {
            let complete =
                files.indexes.local_releases()?.into_iter().filter(|release| release.source.is_some());
            let mut ids: Vec<String> = complete.map(|release| release.id).collect();
            ids.sort();
            // One that is removed meanwhile is left out.
            ids.into_iter().filter_map(|id| files.open_now(id).transpose()).collect()
        };
        run_blocking(list).await.map_err(io::Error::other)?
    }

    /// The file of a release; `None` if there is none with this id.
    ///
    /// # Errors
    /// An error if the file cannot be read.
    pub async fn open(&self, id: String) -> io::Result<Option<ReleaseFile>> {
        let files = self.clone();
        run_blocking(move || files.open_now(id)).await.map_err(io::Error::other)?
    }

    fn open_now(&self, id: String) -> io::Result<Option<ReleaseFile>> {
        if !fhir::is_id(&id) {
            return Ok(None);
        }
        let path = self.indexes.release_path(&id);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let description = IndexDescription::read(&file)?;
        let metadata = file.metadata()?;
        let (modified, length) = (metadata.modified()?, metadata.len());
        let sha256 = self.checksum(&id, &file, modified, length)?;
        let imported = modified.try_into().map_err(io::Error::other)?;
        Ok(Some(ReleaseFile { id, description, file, length, sha256, imported }))
    }

    /// The checksum of a file. One request computes it, and the others wait.
    fn checksum(&self, id: &str, mut file: &File, modified: SystemTime, length: u64) -> io::Result<String> {
        let mut checksums = self.checksums.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(checksum) = checksums.get(id)
            && (checksum.modified, checksum.length) == (modified, length)
        {
            return Ok(checksum.sha256.clone());
        }
        let mut hasher = Sha256::new();
        io::Seek::rewind(&mut file)?;
        io::copy(&mut file, &mut hasher)?;
        let sha256 = format!("{:x}", hasher.finalize());
        checksums.insert(id.to_owned(), Checksum { modified, length, sha256: sha256.clone() });
        Ok(sha256)
    }
}
