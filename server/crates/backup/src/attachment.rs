//! Files that belong to a store besides its records: indexes of imported releases, and files of exports.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, WriteMultipart};
use sha2::{Digest as _, Sha256};

use crate::manifest::AttachedFile;
use crate::segments::hex;
use crate::{BackupError, BackupLocation};

/// Length of a part of a file that is written to a bucket.
const PART: usize = 8 << 20;

/// A file that belongs to the store.
#[derive(Clone)]
pub struct Attachment {
    /// Name in the backup.
    pub name: String,
    /// Folder or bucket with the file.
    pub objects: Arc<dyn ObjectStore>,
    /// The file.
    pub meta: ObjectMeta,
}

/// A place for a file of a backup.
#[derive(Clone)]
pub struct AttachmentTarget {
    /// Folder or bucket.
    pub objects: Arc<dyn ObjectStore>,
    /// Path in it.
    pub path: Path,
}

impl Attachment {
    /// Adds the file to a location, unless it is there. Returns `None` if the file has been removed
    /// meanwhile. `known` are the files of the backup before.
    pub(crate) async fn add_to(
        &self,
        location: &BackupLocation,
        known: &[AttachedFile],
    ) -> Result<Option<AttachedFile>, BackupError> {
        let meta = &self.meta;
        let modified = Timestamp::from_millisecond(meta.last_modified.timestamp_millis()).unwrap_or_default();
        let is_same = |file: &&AttachedFile| {
            file.name == self.name && file.bytes == meta.size && file.modified == modified
        };
        let failed = location.failed("read", &self.name);
        let (sha256, bytes) = match known.iter().find(is_same) {
            Some(file) => (file.sha256.clone(), file.bytes),
            None => match digest(&self.objects, &meta.location).await {
                Ok(digest) => digest,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(failed(error)),
            },
        };
        let file = AttachedFile { name: self.name.clone(), bytes, sha256, modified };
        let object = file.object();
        if !location.has(&object, bytes).await? {
            let target =
                AttachmentTarget { objects: location.objects().clone(), path: location.path(&object) };
            match transfer(&self.objects, &meta.location, &target).await {
                Ok(digest) if digest == (file.sha256.clone(), bytes) => {}
                Ok(_) => {
                    drop(target.objects.delete(&target.path).await);
                    let changed =
                        format!("the file {} changed while it was read; start the backup again", self.name);
                    return Err(BackupError::Refused(changed));
                }
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Some(file))
    }
}

impl Attachment {
    /// Copies the file to a place. Returns whether it was still there.
    ///
    /// # Errors
    /// Returns [`BackupError::Location`] if the file cannot be read or the place not written.
    pub async fn copy_to(&self, target: &AttachmentTarget) -> Result<bool, BackupError> {
        match transfer(&self.objects, &self.meta.location, target).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(BackupError::Location { action: "copy", object: self.name.clone(), error }),
        }
    }
}

impl AttachedFile {
    /// Writes the file to its place.
    pub(crate) async fn restore(
        &self,
        location: &BackupLocation,
        target: &AttachmentTarget,
    ) -> Result<(), BackupError> {
        let object = self.object();
        let written = transfer(location.objects(), &location.path(&object), target).await;
        let (sha256, bytes) = written.map_err(location.failed("restore", &self.name))?;
        if (&sha256, bytes) == (&self.sha256, self.bytes) {
            return Ok(());
        }
        drop(target.objects.delete(&target.path).await);
        Err(BackupError::damaged(object, "its SHA-256 differs from its name"))
    }

    /// Compares the content with its digest.
    pub(crate) async fn check(&self, location: &BackupLocation) -> Result<(), BackupError> {
        let object = self.object();
        let (sha256, _) = digest(location.objects(), &location.path(&object))
            .await
            .map_err(location.failed("read", &object))?;
        match sha256 == self.sha256 {
            true => Ok(()),
            false => Err(BackupError::damaged(object, "its SHA-256 differs from its name")),
        }
    }
}

/// The SHA-256 of an object, and its length.
async fn digest(objects: &Arc<dyn ObjectStore>, path: &Path) -> object_store::Result<(String, u64)> {
    let mut pieces = objects.get(path).await?.into_stream();
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    while let Some(piece) = pieces.try_next().await? {
        hasher.update(&piece);
        bytes += piece.len() as u64;
    }
    Ok((hex(&hasher.finalize()), bytes))
}

/// Copies an object, and returns the SHA-256 and the length of what was copied.
async fn transfer(
    objects: &Arc<dyn ObjectStore>,
    from: &Path,
    to: &AttachmentTarget,
) -> object_store::Result<(String, u64)> {
    let mut pieces = objects.get(from).await?.into_stream();
    let upload = to.objects.put_multipart(&to.path).await?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    loop {
        let next = match upload.wait_for_capacity(2).await {
            Ok(()) => pieces.try_next().await,
            Err(error) => Err(error),
        };
        match next {
            Ok(Some(piece)) => {
                hasher.update(&piece);
                bytes += piece.len() as u64;
                upload.write(&piece);
            }
            Ok(None) => break,
            Err(error) => {
                drop(upload.abort().await);
                return Err(error);
            }
        }
    }
    upload.finish().await?;
    Ok((hex(&hasher.finalize()), bytes))
}
