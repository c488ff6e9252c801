//! Files that belong to a store besides its records: indexes of imported releases, and files of exports.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, WriteMultipart};
use sha2::{Digest as _, Sha256};

use crate::manifest::AttachedFile;
use crate::seal::{PieceOpener, PieceSealer, hex};
use crate::{BackupError, BackupKey, BackupLocation};

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
    /// meanwhile. `earlier` are the files of the backup before.
    pub(crate) async fn add_to(
        &self,
        location: &BackupLocation,
        earlier: &[AttachedFile],
    ) -> Result<Option<AttachedFile>, BackupError> {
        let meta = &self.meta;
        let modified = Timestamp::from_millisecond(meta.last_modified.timestamp_millis()).unwrap_or_default();
        let is_same = |file: &&AttachedFile| {
            file.name == self.name && file.bytes == meta.size && file.modified == modified
        };
        let failed = location.failed("read", &self.name);
        // An unchanged file is not read again: exports and releases have gigabytes.
        let (sha256, bytes) = match earlier.iter().find(is_same) {
            Some(file) => (file.sha256.clone(), file.bytes),
            None => match digest(&self.objects, &meta.location, Coding::None).await {
                Ok(digest) => digest,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(failed(error)),
            },
        };
        let file = AttachedFile { name: self.name.clone(), bytes, sha256, modified };
        let key = location.key();
        let object = file.object(key.is_some());
        let length = key.map_or(bytes, |_| BackupKey::sealed_length(bytes));
        if !location.has(&object, length).await? {
            let target =
                AttachmentTarget { objects: location.objects().clone(), path: location.path(&object) };
            location.make_folder_of(&object)?;
            let coding = key.map_or(Coding::None, |key| Coding::Seal(PieceSealer::new(key, &object)));
            match transfer(&self.objects, &meta.location, &target, coding).await {
                // The object is named by the digest, so that another content must not get this name.
                Ok(digest) if digest == (file.sha256.clone(), bytes) => location.make_private(&object)?,
                Ok(_) => {
                    drop(target.objects.delete(&target.path).await);
                    let change_message =
                        format!("the file {} changed while it was read; start the backup again", self.name);
                    return Err(BackupError::Refused(change_message));
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
        match transfer(&self.objects, &self.meta.location, target, Coding::None).await {
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
        let key = location.key();
        let object = self.object(key.is_some());
        let coding = key.map_or(Coding::None, |key| Coding::Open(PieceOpener::new(key, &object)));
        let transfer_result = transfer(location.objects(), &location.path(&object), target, coding).await;
        let (sha256, bytes) = transfer_result.map_err(location.failed("restore", &self.name))?;
        if (&sha256, bytes) == (&self.sha256, self.bytes) {
            return Ok(());
        }
        drop(target.objects.delete(&target.path).await);
        Err(BackupError::damaged(object, "its SHA-256 differs from its name"))
    }

    /// Compares the content with its digest.
    pub(crate) async fn check(&self, location: &BackupLocation) -> Result<(), BackupError> {
        let key = location.key();
        let object = self.object(key.is_some());
        let coding = key.map_or(Coding::None, |key| Coding::Open(PieceOpener::new(key, &object)));
        let read = digest(location.objects(), &location.path(&object), coding).await;
        let (sha256, _) = read.map_err(location.failed("read", &object))?;
        match sha256 == self.sha256 {
            true => Ok(()),
            false => Err(BackupError::damaged(object, "its SHA-256 differs from its name")),
        }
    }
}

/// How the content of a file changes on its way.
enum Coding<'a> {
    None,
    Seal(PieceSealer<'a>),
    Open(PieceOpener<'a>),
}

/// Changes the parts of a file, and computes the digest of its plain content.
struct FileCoder<'a> {
    coding: Coding<'a>,
    hasher: Sha256,
    bytes: u64,
}

impl<'a> FileCoder<'a> {
    fn new(coding: Coding<'a>) -> Self {
        Self { coding, hasher: Sha256::new(), bytes: 0 }
    }

    fn count(&mut self, plain: &[u8]) {
        self.hasher.update(plain);
        self.bytes += plain.len() as u64;
    }

    fn push(&mut self, part: Bytes) -> object_store::Result<Bytes> {
        let mut out = Vec::new();
        match &mut self.coding {
            Coding::None => {
                self.count(&part);
                return Ok(part);
            }
            Coding::Seal(sealer) => {
                sealer.push(&part, &mut out);
                self.count(&part);
            }
            Coding::Open(opener) => {
                opener.push(&part, &mut out).ok_or_else(not_sealed)?;
                self.count(&out);
            }
        }
        Ok(out.into())
    }

    /// The last part, with the digest and the length of the plain content.
    fn finish(mut self) -> object_store::Result<(Bytes, String, u64)> {
        let mut out = Vec::new();
        match std::mem::replace(&mut self.coding, Coding::None) {
            Coding::None => {}
            Coding::Seal(sealer) => sealer.finish(&mut out),
            Coding::Open(opener) => {
                opener.finish(&mut out).ok_or_else(not_sealed)?;
                self.count(&out);
            }
        }
        Ok((out.into(), hex(&self.hasher.finalize()), self.bytes))
    }
}

fn not_sealed() -> object_store::Error {
    object_store::Error::Generic { store: "backup", source: "it is not as it was encrypted".into() }
}

/// The SHA-256 of the plain content of an object, and its length.
async fn digest(
    objects: &Arc<dyn ObjectStore>,
    path: &Path,
    coding: Coding<'_>,
) -> object_store::Result<(String, u64)> {
    let mut parts = objects.get(path).await?.into_stream();
    let mut coder = FileCoder::new(coding);
    while let Some(part) = parts.try_next().await? {
        coder.push(part)?;
    }
    coder.finish().map(|(_, sha256, bytes)| (sha256, bytes))
}

/// Copies an object, and returns the SHA-256 and the length of its plain content.
async fn transfer(
    objects: &Arc<dyn ObjectStore>,
    from: &Path,
    to: &AttachmentTarget,
    coding: Coding<'_>,
) -> object_store::Result<(String, u64)> {
    let mut parts = objects.get(from).await?.into_stream();
    let upload = to.objects.put_multipart(&to.path).await?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
    let mut coder = FileCoder::new(coding);
    let copied = async {
        while let Some(part) = parts.try_next().await? {
            upload.wait_for_capacity(2).await?;
            upload.write(&coder.push(part)?);
        }
        let (last, sha256, bytes) = coder.finish()?;
        upload.write(&last);
        Ok((sha256, bytes))
    };
    match copied.await {
        Ok(digest) => {
            upload.finish().await?;
            Ok(digest)
        }
        Err(error) => {
            drop(upload.abort().await);
            Err(error)
        }
    }
}
