//! The files of all exports: their names, and the operations on a file or on all files of a job, in a folder
//! or in a bucket.
//!
//! | place | path of a file |
//! |---|---|
//! | folder | `{job}-{store_id}/{attempt}.{name}` |
//! | bucket | `{prefix}/{store_id}/exports/{job}/{attempt}.{name}` |
//!
//! Each attempt at a job writes under its own number, so that a worker that has lost its lease without
//! noticing never modifies the files of the current worker. Nothing outside of the folders of this store is
//! listed or removed.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{
    Attribute, Attributes, GetResultPayload, ObjectStore, ObjectStoreExt as _, PutOptions, PutPayload,
};
use store::blocking::run_blocking;
use store::folder::{make_folder, sync_folder};
use store::space::{DiskSpace, NoSpace, WritePurpose};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::abort_on_drop::until_ended;
use crate::files::file_hasher::FileHasher;
use crate::files::file_location::{FileLocation, ObjectBucket};
use crate::files::file_source::FileSource;
use crate::files::file_stream::{DownloadLimits, DownloadPermit, PIECE};
use crate::files::format::Format;
use crate::files::gzip;
use crate::files::write_error::WriteError;

/// Number of bytes that are collected before they are written to a folder. With smaller chunks, the transfer
/// between threads would cost more.
const CHUNK: usize = 4 << 20;
/// Mode of the folder of exports, if it is created here.
const FOLDER_MODE: u32 = 0o777;
/// Length of a part of an upload to a bucket. Object stores accept up to 10,000 parts.
pub const PART: usize = 8 << 20;
/// Name suffix of the file with the length and hash of a gzip.
pub(crate) const GZIP_SUM: &str = "gzip1.sum";
/// Separates the name of a file from the number that [`LocalFileSystem`] adds until the file is complete.
pub(crate) const UNFINISHED: char = '#';

#[derive(Clone)]
pub(crate) struct ExportFiles {
    place: Place,
    downloads: DownloadLimits,
}

#[derive(Clone)]
enum Place {
    Folder(Arc<FolderPlace>),
    Bucket(Arc<BucketPlace>),
}

struct FolderPlace {
    store: Arc<dyn ObjectStore>,
    folder: PathBuf,
    /// Store id, which is part of the name of each job's folder. Folders with another id belong to another
    /// store.
    store_id: String,
    disk: DiskSpace,
    /// Files whose bytes are known to match their hash, because this process has written or verified them,
    /// with the state of the file at that time.
    sound: Mutex<HashMap<Path, FileStamp>>,
    /// For each folder of a job, a lock that writes share. The removal of the folder waits for them, because
    /// a write continues when its task is aborted, and creates the folder again.
    writes: Mutex<HashMap<String, Arc<RwLock<()>>>>,
}

struct BucketPlace {
    store: Arc<dyn ObjectStore>,
    /// Beginning of the keys of the exports of this store.
    exports: Path,
    signer: Option<Arc<dyn Signer>>,
}

/// Delays the removal of a job's files while one of them is written. In a bucket nothing is delayed: the
/// sweep removes what is left.
#[derive(Clone)]
pub(crate) struct WriteGuard(
    #[expect(dead_code, reason = "it is held")] Option<Arc<OwnedRwLockReadGuard<()>>>,
);

/// State of a file, to detect changes since its bytes were compared with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    length: u64,
    modified: Option<SystemTime>,
}

impl FileStamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self { length: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// Identifies a file that one attempt at a job wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptFile<'a> {
    pub job: &'a str,
    pub attempt: u32,
    pub name: &'a str,
    /// Suffix of a derived file such as the gzip; empty for the file itself.
    pub made: &'static str,
}

impl AttemptFile<'_> {
    pub fn in_folder(self) -> String {
        let dot = if self.made.is_empty() { "" } else { "." };
        format!("{}.{}{dot}{}", self.attempt, self.name, self.made)
    }
}

impl ExportFiles {
    /// Reserves a descriptor for a download. Returns `None` if too many files are open.
    pub fn admit_download(&self) -> Option<DownloadPermit> {
        self.downloads.admit()
    }

    /// Opens the storage. A folder is created if it does not exist; a bucket is not accessed.
    pub fn open(location: FileLocation, store_id: String, downloads: DownloadLimits) -> io::Result<Self> {
        let place = match location {
            FileLocation::Folder { path: folder, disk } => {
                make_folder(&folder, FOLDER_MODE)?;
                // A process that was killed may have created the folder of a job without its fsync.
                sync_folder(&folder)?;
                let store =
                    LocalFileSystem::new_with_prefix(&folder).map_err(io::Error::other)?.with_fsync(true);
                let (store, sound, writes) = (Arc::new(store), Mutex::default(), Mutex::default());
                Place::Folder(Arc::new(FolderPlace { store, folder, store_id, disk, sound, writes }))
            }
            FileLocation::Bucket(bucket) => {
                let exports = bucket.folder(&store_id, "exports");
                let ObjectBucket { store, signer, .. } = bucket;
                Place::Bucket(Arc::new(BucketPlace { store, exports, signer }))
            }
        };
        Ok(Self { place, downloads })
    }

    pub(super) fn store(&self) -> &Arc<dyn ObjectStore> {
        match &self.place {
            Place::Folder(place) => &place.store,
            Place::Bucket(place) => &place.store,
        }
    }

    pub(super) fn path(&self, file: AttemptFile<'_>) -> Path {
        match &self.place {
            Place::Folder(place) => Path::from_iter([place.folder_of(file.job), file.in_folder()]),
            Place::Bucket(place) => place.of_job(file.job).join(file.in_folder()),
        }
    }

    /// Number of bytes that a writer collects before it writes them.
    pub(super) fn chunk(&self) -> usize {
        self.part_length().unwrap_or(CHUNK)
    }

    /// Length of each part but the last; `None` if a chunk can have any length.
    pub(super) fn part_length(&self) -> Option<usize> {
        self.are_in_bucket().then_some(PART)
    }

    /// Maximum number of files of a job that are completed concurrently. Each holds up to two chunks.
    pub fn max_closing(&self) -> usize {
        match self.place {
            Place::Folder(_) => 16,
            Place::Bucket(_) => 4,
        }
    }

    /// The headers with which a bucket sends a file to clients with a signed address.
    pub(super) fn attributes(&self, path: &Path) -> Attributes {
        let mut attributes = Attributes::new();
        let (Place::Bucket(_), Some(name)) = (&self.place, path.filename()) else { return attributes };
        let (name, is_gzip) = match name.strip_suffix(gzip::VERSION).and_then(|name| name.strip_suffix('.')) {
            Some(name) => (name, true),
            None => (name, false),
        };
        if let Some(format) = Format::of_file(name) {
            attributes.insert(Attribute::ContentType, format.media_type().into());
        }
        if is_gzip {
            attributes.insert(Attribute::ContentEncoding, "gzip".into());
        }
        attributes
    }

    /// Classifies a failure: a bucket that cannot be reached may be reachable later, and a process that is
    /// ending is followed by another one.
    pub(super) fn write_error(&self, error: object_store::Error) -> WriteError {
        match (&self.place, &error) {
            (_, object_store::Error::JoinError { .. }) => WriteError::Unavailable(error),
            (Place::Bucket(_), object_store::Error::Generic { .. }) => WriteError::Unavailable(error),
            _ => WriteError::Files(error),
        }
    }

    /// Checks that the disk space reserved for the store is still free.
    pub fn check_space(&self) -> Result<(), NoSpace> {
        self.check_space_for(0)
    }

    pub(super) fn check_space_for(&self, bytes: u64) -> Result<(), NoSpace> {
        match &self.place {
            Place::Folder(place) => place.disk.check(bytes, WritePurpose::Export),
            Place::Bucket(_) => Ok(()),
        }
    }

    /// Opens a complete file. Returns the file and its length, or `None` if it does not exist.
    pub async fn open_file(&self, file: AttemptFile<'_>) -> Result<Option<(FileSource, u64)>, WriteError> {
        let path = self.path(file);
        let file_result = match &self.place {
            Place::Folder(place) => place.open(&path).await,
            Place::Bucket(place) => FileSource::of_object(&place.store, path).await,
        };
        match file_result {
            Ok(file) => Ok(Some(file)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.write_error(error)),
        }
    }

    /// `true` if the bytes of a file match its hash. A file that this process wrote is not read. Any other
    /// file is read once, and again after it has changed. An object is compared while it is sent instead.
    pub async fn is_sound(
        &self,
        attempt_file: AttemptFile<'_>,
        file: &FileSource,
        hash: &str,
    ) -> io::Result<bool> {
        match (&self.place, file) {
            (Place::Folder(place), FileSource::Disk(file)) => {
                place.is_sound(self.path(attempt_file), file, hash).await
            }
            _ => Ok(true),
        }
    }

    /// Notes that this process wrote a file, so that it is not compared with its hash.
    pub(super) async fn note_written(&self, path: &Path) {
        let Place::Folder(place) = &self.place else { return };
        if let Ok(metadata) = tokio::fs::metadata(place.folder.join(path.as_ref())).await {
            place.known().insert(path.clone(), FileStamp::of(&metadata));
        }
    }

    /// Delays the removal of a job's files until the returned guard and its clones are dropped.
    ///
    /// # Errors
    /// Returns an error if the files of the job are being removed.
    pub fn begin_write(&self, job: &str) -> Result<WriteGuard, WriteError> {
        let Place::Folder(place) = &self.place else { return Ok(WriteGuard(None)) };
        let folder = place.folder_of(job);
        let lock = Arc::clone(place.writes().entry(folder.clone()).or_default());
        match lock.try_read_owned() {
            Ok(guard) => Ok(WriteGuard(Some(Arc::new(guard)))),
            Err(_) => {
                let source = "the files of the export are being removed".into();
                Err(WriteError::Files(object_store::Error::NotFound { path: folder, source }))
            }
        }
    }

    /// Writes a whole file. In a folder, the write holds the guard until it has ended, also if the caller is
    /// dropped.
    pub(super) async fn put(
        &self,
        path: &Path,
        bytes: PutPayload,
        write: WriteGuard,
    ) -> object_store::Result<()> {
        let (store, path) = (Arc::clone(self.store()), path.clone());
        let options = PutOptions { attributes: self.attributes(&path), ..PutOptions::default() };
        let task = async move {
            let _write = write;
            store.put_opts(&path, bytes, options).await.map(drop)
        };
        match &self.place {
            Place::Folder(_) => until_ended(tokio::spawn(task)).await,
            Place::Bucket(_) => task.await,
        }
    }

    /// Writes the length and hash of a file to a second file.
    pub async fn write_sum(
        &self,
        file: AttemptFile<'_>,
        length: u64,
        hash: &str,
        write: WriteGuard,
    ) -> Result<(), WriteError> {
        let text = PutPayload::from(format!("{length} {hash}\n"));
        let result = self.put(&self.path(file), text, write).await;
        result.map_err(|error| self.write_error(error))
    }

    /// Reads the file that [`ExportFiles::write_sum`] wrote. Returns `None` if it does not exist or is
    /// invalid.
    pub async fn read_sum(&self, file: AttemptFile<'_>) -> Option<(u64, String)> {
        let bytes = self.store().get(&self.path(file)).await.ok()?.bytes().await.ok()?;
        let (length, hash) = str::from_utf8(&bytes).ok()?.strip_suffix('\n')?.split_once(' ')?;
        let hash = Some(hash).filter(|hash| FileHasher::made(hash))?;
        Some((length.parse().ok()?, hash.to_owned()))
    }

    /// `true` if the file exists and has this length.
    pub async fn has(&self, file: AttemptFile<'_>, length: u64) -> Result<bool, WriteError> {
        match self.store().head(&self.path(file)).await {
            Ok(meta) => Ok(meta.size == length),
            Err(error) => match self.write_error(error) {
                WriteError::Files(_) => Ok(false),
                error => Err(error),
            },
        }
    }

    /// `true` if clients can read files directly from the bucket.
    pub fn signs_urls(&self) -> bool {
        matches!(&self.place, Place::Bucket(place) if place.signer.is_some())
    }

    /// An address at which anyone can read the file for some time, directly from the bucket. Returns `None`
    /// if files are sent by this server only.
    pub async fn signed_url(
        &self,
        file: AttemptFile<'_>,
        time: Duration,
    ) -> Result<Option<String>, WriteError> {
        let Place::Bucket(place) = &self.place else { return Ok(None) };
        let Some(signer) = &place.signer else { return Ok(None) };
        let url = signer.signed_url(http::Method::GET, &self.path(file), time).await;
        url.map(|url| Some(url.into())).map_err(|error| self.write_error(error))
    }

    /// The ids of the jobs of this store that have files, and the names of folders that belong to other
    /// stores. Nothing is known about other stores in a bucket.
    pub async fn jobs(&self) -> object_store::Result<(Vec<String>, Vec<String>)> {
        match &self.place {
            Place::Folder(place) => Ok(place.jobs()),
            Place::Bucket(place) => {
                let listing = place.store.list_with_delimiter(Some(&place.exports)).await?;
                let jobs = listing.common_prefixes.iter().filter_map(|folder| folder.filename());
                Ok((jobs.map(str::to_owned).collect(), Vec::new()))
            }
        }
    }

    /// `true` if the files are in a bucket, which several nodes can share.
    pub fn are_in_bucket(&self) -> bool {
        matches!(self.place, Place::Bucket(_))
    }

    /// `false` if all files of a job were removed together with their folder. A bucket has no folders.
    pub fn has_any(&self, job: &str) -> bool {
        match &self.place {
            Place::Folder(place) => place.folder.join(place.folder_of(job)).exists(),
            Place::Bucket(_) => true,
        }
    }

    /// Removes the files of a job. Returns `false` if some are left.
    pub async fn remove(&self, job: &str) -> bool {
        match &self.place {
            Place::Folder(place) => place.remove(job).await,
            Place::Bucket(place) => place.remove(job, |_| true).await,
        }
    }

    /// Removes the files of a job except those in `keep` and the files derived from them, complete or not: a
    /// client may be waiting for a gzip that is being written. Returns `false` if some are left.
    pub async fn remove_others(&self, job: &str, keep: impl Iterator<Item = AttemptFile<'_>>) -> bool {
        let keep: HashSet<String> = keep.map(AttemptFile::in_folder).collect();
        let is_other = move |name: &str| {
            let name = name.split_once(UNFINISHED).map_or(name, |(name, _)| name);
            let of = [gzip::VERSION, GZIP_SUM]
                .into_iter()
                .find_map(|suffix| name.strip_suffix(suffix)?.strip_suffix('.'));
            !keep.contains(of.unwrap_or(name))
        };
        match &self.place {
            Place::Folder(place) => place.remove_some(job, is_other).await,
            Place::Bucket(place) => place.remove(job, is_other).await,
        }
    }
}

impl FolderPlace {
    /// The name of a job's folder.
    fn folder_of(&self, job: &str) -> String {
        format!("{job}-{}", self.store_id)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Path, FileStamp>> {
        self.sound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writes(&self) -> MutexGuard<'_, HashMap<String, Arc<RwLock<()>>>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, path: &Path) -> object_store::Result<(FileSource, u64)> {
        let object = self.store.get(path).await?;
        let length = object.meta.size;
        match object.payload {
            GetResultPayload::File(file, _) => Ok((FileSource::Disk(file), length)),
            GetResultPayload::Stream(_) => unreachable!("object_store returns a file for a local path"),
        }
    }

    async fn is_sound(&self, path: Path, file: &std::fs::File, hash: &str) -> io::Result<bool> {
        let stamp = FileStamp::of(&file.metadata()?);
        if !FileHasher::made(hash) || self.known().get(&path) == Some(&stamp) {
            return Ok(true);
        }
        let mut file = file.try_clone()?;
        let digest = run_blocking(move || {
            let (mut hasher, mut piece) = (FileHasher::default(), vec![0; PIECE]);
            file.rewind()?;
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    length => hasher.update(&piece[..length]),
                }
            }
            io::Result::Ok(hasher.finish())
        });
        let is_sound = digest.await.map_err(io::Error::other)?? == hash;
        if is_sound {
            self.known().insert(path, stamp);
        }
        Ok(is_sound)
    }

    fn jobs(&self) -> (Vec<String>, Vec<String>) {
        let Ok(folders) = std::fs::read_dir(&self.folder) else { return Default::default() };
        let (mut jobs, mut foreign) = (Vec::new(), Vec::new());
        for folder in folders.flatten() {
            let name = folder.file_name().to_string_lossy().into_owned();
            match name.strip_suffix(&self.store_id).and_then(|name| name.strip_suffix('-')) {
                Some(job) => jobs.push(job.to_owned()),
                None => foreign.push(name),
            }
        }
        foreign.sort_unstable();
        (jobs, foreign)
    }

    async fn remove(&self, job: &str) -> bool {
        let name = self.folder_of(job);
        self.known().retain(|path, _| path.parts().next().is_none_or(|of| of.as_ref() != name));
        let lock = self.writes().get(&name).cloned();
        let _writes = match &lock {
            Some(lock) => Some(lock.write().await),
            None => None,
        };
        let folder = self.folder.join(&name);
        // A worker that still runs can create a file again, so the removal is repeated.
        for _ in 0..3 {
            match tokio::fs::remove_dir_all(&folder).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, folder = %folder.display(), "files of an export could not be removed");
                }
                _ => {
                    self.writes().remove(&name);
                    return true;
                }
            }
        }
        false
    }

    async fn remove_some(&self, job: &str, is_chosen: impl Fn(&str) -> bool + Send + 'static) -> bool {
        let folder = self.folder.join(self.folder_of(job));
        let removed = run_blocking(move || -> io::Result<()> {
            for file in std::fs::read_dir(folder)?.flatten() {
                if !is_chosen(&file.file_name().to_string_lossy()) {
                    continue;
                }
                match std::fs::remove_file(file.path()) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        match removed.await {
            Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, job, "unfinished files of an export could not be removed");
                false
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }
}

impl BucketPlace {
    /// The beginning of the keys of a job's files.
    fn of_job(&self, job: &str) -> Path {
        self.exports.clone().join(job)
    }

    /// Removes the chosen files of a job. Returns `false` if some are left.
    async fn remove(&self, job: &str, is_chosen: impl Fn(&str) -> bool + Send + Sync + 'static) -> bool {
        let locations = self.store.list(Some(&self.of_job(job))).map_ok(|meta| meta.location);
        let selection = locations.try_filter(move |path| {
            let is_chosen = path.filename().is_some_and(&is_chosen);
            async move { is_chosen }
        });
        let removed = self.store.delete_stream(selection.boxed());
        let removed = removed.try_for_each(|_| async { Ok(()) }).await;
        if let Err(error) = &removed {
            // The next sweep removes what is left.
            tracing::warn!(%error, job, "files of an export could not be removed from the bucket");
        }
        removed.is_ok()
    }
}
