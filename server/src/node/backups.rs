//! The parts of a backup of this server besides its store: releases and files of exports.

use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use backup::manifest::AuditPosition;
use backup::{
    Attachment, AttachmentTarget, BackupError, BackupKey, BackupLocation, BackupOptions, Manifest,
    ProgressSink,
};
use bulk::serve::archive::ExportArchive;
use bulk::{FileLocation, ObjectBucket};
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use sha2::{Digest as _, Sha256};
use store::Store;
use store::folder::make_folder;
use store::space::DiskSpace;

use crate::config::backup::{BackupSchedule, KEY_FORM};
use crate::config::files::BucketAccess;
use crate::config::{Config, ServeFlags};
use crate::node::schedule_state::ScheduleState;
use crate::node::shared_releases::hex;

/// Beginning of the names of releases in a backup, and of files of exports.
const RELEASES: &str = "releases/";
const EXPORTS: &str = "exports/";
/// The parts of a server that a backup contains besides its store.
pub struct BackupSources {
    data: PathBuf,
    bucket: Option<ObjectBucket>,
    access: BucketAccess,
    key: Option<Arc<BackupKey>>,
    /// Backups by schedule.
    pub schedule: Option<BackupSchedule>,
    /// SHA-256 of the configuration file.
    configuration_sha256: Option<String>,
    /// The state of the backups by schedule.
    pub state: ScheduleState,
}

impl BackupSources {
    /// The parts of a server with this configuration.
    pub fn new(config: &Config, flags: &ServeFlags) -> Self {
        // A file that cannot be read any more was read before, so that only its digest is missing.
        let configuration = flags.config.as_ref().and_then(|path| fs::read(path).ok());
        Self {
            data: config.data.clone(),
            bucket: config.files.bucket.clone(),
            access: config.files.access.clone(),
            key: config.backup.key.clone(),
            schedule: config.backup.schedule.clone(),
            configuration_sha256: configuration.map(|text| hex(&Sha256::digest(text))),
            state: ScheduleState::default(),
        }
    }

    /// The location of backups with this name, or that of `[backup] to`. `creates` makes a missing folder.
    ///
    /// # Errors
    /// An error if there is none, or it cannot be used.
    pub fn location(&self, to: Option<&str>, creates: bool) -> Result<BackupLocation> {
        let scheduled = self.schedule.as_ref().map(|schedule| schedule.to.as_str());
        let to =
            to.or(scheduled).context("name a folder or s3://BUCKET/PREFIX with --to, or set [backup] to")?;
        let location = self.access.backups(to, creates).map_err(|reason| anyhow!(reason))?;
        Ok(location.with_key(self.key.clone()))
    }

    /// Uses the key in a file instead of that of the configuration.
    ///
    /// # Errors
    /// An error if the file cannot be read or has no key.
    pub fn use_key_file(&mut self, path: &FilePath) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let key = BackupKey::from_base64(&text);
        self.key = Some(Arc::new(key.with_context(|| format!("{}: {KEY_FORM}", path.display()))?));
        Ok(())
    }

    /// The bucket of `[files]`.
    pub fn bucket(&self) -> Option<&ObjectBucket> {
        self.bucket.as_ref()
    }

    /// Makes a backup.
    ///
    /// # Errors
    /// See [`backup::back_up`].
    pub async fn back_up(
        &self,
        store: &Store,
        location: &BackupLocation,
        full: bool,
        now: Timestamp,
        progress: ProgressSink<'_>,
    ) -> Result<Manifest, BackupError> {
        let options = BackupOptions {
            full,
            configuration_sha256: self.configuration_sha256.clone(),
            audit: audit_position(&self.data),
        };
        let attachments = async || self.attachments(&store.id()).await;
        backup::back_up(store, location, options, attachments, now, progress).await
    }

    async fn attachments(&self, store_id: &str) -> Result<Vec<Attachment>, BackupError> {
        let refusal = |error: io::Error| BackupError::Refused(error.to_string());
        let list_error =
            |error: object_store::Error| BackupError::Refused(format!("failed to list files: {error}"));
        let mut attachments = Vec::new();
        let releases = self.releases().map_err(refusal)?;
        let files: Vec<ObjectMeta> = releases.list(None).try_collect().await.map_err(list_error)?;
        for meta in files {
            // The note that all nodes share a release belongs to the bucket of this store.
            let name =
                meta.location.filename().filter(|name| name.ends_with(".index") || name.ends_with(".source"));
            if let Some(name) = name {
                let name = format!("{RELEASES}{name}");
                attachments.push(Attachment { name, objects: Arc::clone(&releases), meta });
            }
        }
        let exports = self.exports(store_id).map_err(refusal)?;
        for (name, meta) in exports.files().await.map_err(list_error)? {
            let (name, objects) = (format!("{EXPORTS}{name}"), Arc::clone(exports.objects()));
            attachments.push(Attachment { name, objects, meta });
        }
        Ok(attachments)
    }

    /// Returns where the files of a backup are restored for a store.
    ///
    /// # Errors
    /// An error if a folder cannot be created.
    pub fn targets(
        &self,
        store_id: &str,
    ) -> io::Result<impl FnMut(&str) -> Option<AttachmentTarget> + use<>> {
        let (releases, exports) = (self.releases()?, self.exports(store_id)?);
        Ok(move |name: &str| {
            if let Some(name) = name.strip_prefix(RELEASES) {
                let path = Path::parse(name).ok().filter(|path| path.parts().count() == 1)?;
                return Some(AttachmentTarget { objects: Arc::clone(&releases), path });
            }
            let path = exports.path(name.strip_prefix(EXPORTS)?)?;
            Some(AttachmentTarget { objects: Arc::clone(exports.objects()), path })
        })
    }

    /// Copies all files to other places. Releases stay where they are if the data folder is the same. Returns
    /// the number of files.
    ///
    /// # Errors
    /// See [`Attachment::copy_to`].
    pub async fn copy_to(
        &self,
        store_id: &str,
        is_same_folder: bool,
        mut target: impl FnMut(&str) -> Option<AttachmentTarget>,
    ) -> Result<u64, BackupError> {
        let mut count = 0;
        for attachment in self.attachments(store_id).await? {
            if is_same_folder && attachment.name.starts_with(RELEASES) {
                continue;
            }
            let Some(target) = target(&attachment.name) else { continue };
            count += u64::from(attachment.copy_to(&target).await?);
        }
        Ok(count)
    }

    fn releases(&self) -> io::Result<Arc<dyn ObjectStore>> {
        let folder = self.data.join("terminology").join("releases");
        make_folder(&folder, 0o700)?;
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(io::Error::other)?;
        Ok(Arc::new(objects.with_fsync(true)))
    }

    /// The files of the exports of a store.
    ///
    /// # Errors
    /// An error if the folder cannot be created.
    pub fn exports(&self, store_id: &str) -> io::Result<ExportArchive> {
        let location = match &self.bucket {
            Some(bucket) => FileLocation::Bucket(bucket.clone()),
            None => {
                let path = self.data.join("exports");
                make_folder(&path, 0o700)?;
                FileLocation::Folder { disk: DiskSpace::of(&path), path }
            }
        };
        ExportArchive::open(&location, store_id)
    }
}

/// How far the audit log is written. The names of its files sort by date.
fn audit_position(data: &FilePath) -> Option<AuditPosition> {
    let files = fs::read_dir(data.join("audit")).ok()?.flatten();
    let newest = files.max_by_key(fs::DirEntry::file_name)?;
    let bytes = newest.metadata().ok()?.len();
    Some(AuditPosition { file: newest.file_name().to_string_lossy().into_owned(), bytes })
}
