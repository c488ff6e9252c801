//! The place of backups: a folder, or a part of a bucket.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use store::folder::make_folder;

use crate::manifest::Manifest;
use crate::{BackupError, BackupKey};

/// Modes of folders and files that are created here, whatever the umask is: backups contain passwords, keys
/// and health data.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A place with any number of backups, of one store or of several.
#[derive(Clone)]
pub struct BackupLocation {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The folder; `None` for a bucket.
    folder: Option<PathBuf>,
    name: String,
    key: Option<Arc<BackupKey>>,
}

fn unusable(path: &FilePath, error: &io::Error) -> BackupError {
    BackupError::Refused(format!("{}: {error}", path.display()))
}

impl fmt::Debug for BackupLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupLocation").field("name", &self.name).finish_non_exhaustive()
    }
}

impl BackupLocation {
    /// The backups in a folder, which is created if it is missing and `creates` is set.
    ///
    /// # Errors
    /// Returns [`BackupError::Refused`] if the folder cannot be used.
    pub fn folder(folder: &FilePath, creates: bool) -> Result<Self, BackupError> {
        let refusal = |error: String| BackupError::Refused(format!("{}: {error}", folder.display()));
        match creates {
            true => make_folder(folder, FOLDER_MODE).map_err(|error| refusal(error.to_string()))?,
            false if !folder.is_dir() => {
                return Err(refusal(
                    "this folder does not exist; name the one that contains the backups".to_owned(),
                ));
            }
            false => {}
        }
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| refusal(error.to_string()))?;
        let name = folder.display().to_string();
        let objects = Arc::new(objects.with_fsync(true));
        Ok(Self { objects, prefix: Path::default(), folder: Some(folder.to_owned()), name, key: None })
    }

    /// The backups in a bucket, whose keys begin with `prefix`. `name` is for messages.
    pub fn bucket(objects: Arc<dyn ObjectStore>, prefix: Path, name: String) -> Self {
        Self { objects, prefix, folder: None, name, key: None }
    }

    /// Encrypts backups with this key, and reads those that are encrypted with it. Without a key, backups are
    /// not encrypted.
    #[must_use]
    pub fn with_key(mut self, key: Option<Arc<BackupKey>>) -> Self {
        self.key = key;
        self
    }

    pub(crate) fn key(&self) -> Option<&BackupKey> {
        self.key.as_deref()
    }

    /// The key for work on another thread.
    pub(crate) fn shared_key(&self) -> Option<Arc<BackupKey>> {
        self.key.clone()
    }

    /// The folder or bucket, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    pub(crate) fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// The error for an object, with what was attempted.
    pub(crate) fn failed<'a>(
        &'a self,
        action: &'static str,
        object: &'a str,
    ) -> impl Fn(object_store::Error) -> BackupError + 'a {
        move |error| BackupError::Location { action, object: format!("{}/{object}", self.name), error }
    }

    pub(crate) async fn put(&self, object: &str, bytes: Bytes) -> Result<(), BackupError> {
        self.make_folder_of(object)?;
        let result = self.objects.put(&self.path(object), PutPayload::from(bytes)).await;
        result.map_err(self.failed("write", object))?;
        self.make_private(object)
    }

    /// Makes the folder of an object, which only the owner may read.
    pub(crate) fn make_folder_of(&self, object: &str) -> Result<(), BackupError> {
        let (Some(root), Some((folder, _))) = (&self.folder, object.rsplit_once('/')) else { return Ok(()) };
        let folder = root.join(folder);
        if folder.is_dir() {
            return Ok(());
        }
        make_folder(&folder, FOLDER_MODE).map_err(|error| unusable(&folder, &error))
    }

    /// Permits only the owner to read the file of an object.
    pub(crate) fn make_private(&self, object: &str) -> Result<(), BackupError> {
        let Some(root) = &self.folder else { return Ok(()) };
        let file = root.join(object);
        let permissions = fs::set_permissions(&file, Permissions::from_mode(FILE_MODE));
        permissions.map_err(|error| unusable(&file, &error))
    }

    pub(crate) async fn get(&self, object: &str) -> Result<Bytes, BackupError> {
        let failed = self.failed("read", object);
        self.objects.get(&self.path(object)).await.map_err(&failed)?.bytes().await.map_err(failed)
    }

    /// Returns whether there is an object with this length.
    pub(crate) async fn has(&self, object: &str, bytes: u64) -> Result<bool, BackupError> {
        match self.objects.head(&self.path(object)).await {
            Ok(meta) => Ok(meta.size == bytes),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed("read", object)(error)),
        }
    }

    /// All complete backups, the oldest first.
    ///
    /// # Errors
    /// Returns [`BackupError::Location`] if the folder or bucket cannot be read, and [`BackupError::Damaged`]
    /// for a manifest that is not in the format of this program.
    pub async fn backups(&self) -> Result<Vec<Manifest>, BackupError> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let list = self.objects.list_with_delimiter(prefix).await.map_err(self.failed("list", ""))?;
        let mut backups = Vec::new();
        for folder in list.common_prefixes {
            let Some(id) = folder.filename().filter(|id| Manifest::is_id(id)) else { continue };
            let object = Manifest::object(id);
            let bytes = match self.objects.get(&self.path(&object)).await {
                Ok(manifest) => manifest.bytes().await.map_err(self.failed("read", &object))?,
                // A backup that was interrupted.
                Err(object_store::Error::NotFound { .. }) => continue,
                Err(error) => return Err(self.failed("read", &object)(error)),
            };
            backups.push(Manifest::read(&object, &bytes)?);
        }
        backups.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(backups)
    }

    /// Removes what an interrupted backup has left. A backup that is complete is kept.
    ///
    /// # Errors
    /// Returns [`BackupError`] if the location cannot be read or an object not removed.
    pub async fn remove_partial(&self, id: &str) -> Result<(), BackupError> {
        match self.backups().await?.iter().any(|backup| backup.id == id) {
            true => Ok(()),
            false => self.remove(id).await,
        }
    }

    /// Removes all objects below a folder.
    pub(crate) async fn remove(&self, folder: &str) -> Result<(), BackupError> {
        let failed = self.failed("remove", folder);
        let objects: Vec<_> =
            self.objects.list(Some(&self.path(folder))).try_collect().await.map_err(&failed)?;
        for object in objects {
            self.objects.delete(&object.location).await.map_err(&failed)?;
        }
        Ok(())
    }
}
