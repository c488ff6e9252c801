//! Files of exports. They are written and synced in chunks outside of the async threads and hashed in the same pass. A
//! file gets its name only when it is complete and synced.
//!
//! The path of a file is `{job}/{attempt}.{name}`. Each attempt at a job writes under its own number, so that a worker
//! that has lost its lease without noticing never modifies the files of the current worker.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetResultPayload, MultipartUpload, ObjectStoreExt as _, PutPayload};
use store::folder::{make_folder, sync_folder};
use store::space::{DiskSpace, NoSpace, WritePurpose};
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::Xxh3;

use crate::abort_on_drop::AbortOnDrop;
use crate::files::file_stream::{DownloadLimits, DownloadPermit, PIECE};
use crate::files::gzip;

/// Number of bytes that are collected before they are written. A file holds up to two such chunks in memory. With
/// smaller chunks, the transfer between threads would cost more.
const CHUNK: usize = 4 << 20;
/// Mode of the folder of exports, if it is created here.
const FOLDER_MODE: u32 = 0o777;
/// Name suffix of the file with the length and hash of a gzip.
pub(crate) const GZIP_SUM: &str = "gzip1.sum";

/// Storage of export files.
#[derive(Clone)]
pub(crate) struct ExportFiles {
    store: Arc<LocalFileSystem>,
    folder: PathBuf,
    /// Store id, which is part of the name of each job's folder. Folders with another id belong to another store.
    store_id: String,
    disk: DiskSpace,
    downloads: DownloadLimits,
    /// Files whose bytes are known to match their hash, because this process has written or verified them, with the
    /// state of the file at that time.
    sound: Arc<Mutex<HashMap<Path, FileStamp>>>,
}

/// State of a file, to detect changes since its bytes were compared with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    length: u64,
    modified: Option<SystemTime>,
}

impl FileStamp {
    fn of(found: &std::fs::Metadata) -> Self {
        Self { length: found.len(), modified: found.modified().ok() }
    }
}

/// Reasons why an export file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The free disk space is below the reserve.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    #[error(transparent)]
    Files(#[from] object_store::Error),
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
    fn in_folder(self) -> String {
        let dot = if self.made.is_empty() { "" } else { "." };
        format!("{}.{}{dot}{}", self.attempt, self.name, self.made)
    }
}

impl ExportFiles {
    /// Reserves a descriptor for a download. Returns `None` if too many files are open.
    pub fn admit_download(&self) -> Option<DownloadPermit> {
        self.downloads.admit()
    }

    /// Opens the storage in a folder, and creates the folder if it does not exist.
    pub fn open(
        folder: PathBuf,
        store_id: String,
        disk: DiskSpace,
        downloads: DownloadLimits,
    ) -> io::Result<Self> {
        make_folder(&folder, FOLDER_MODE)?;
        // A process that was killed may have created the folder of a job without its fsync.
        sync_folder(&folder)?;
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(io::Error::other)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), folder, store_id, disk, downloads, sound: Arc::default() })
    }

    /// Returns the name of a job's folder.
    fn folder_of(&self, job: &str) -> String {
        format!("{job}-{}", self.store_id)
    }

    fn path(&self, at: AttemptFile<'_>) -> Path {
        Path::from_iter([self.folder_of(at.job), at.in_folder()])
    }

    /// Checks that the disk space reserved for the store is still free.
    pub fn check_space(&self) -> Result<(), NoSpace> {
        self.disk.check(0, WritePurpose::Export)
    }

    /// Returns a writer for a new file. The file is created when the first bytes are written.
    pub fn create(&self, at: AttemptFile<'_>) -> FileWriter {
        FileWriter {
            store: self.store.clone(),
            disk: self.disk.clone(),
            file: self.folder.join(self.folder_of(at.job)).join(at.in_folder()),
            path: self.path(at),
            gathered: Vec::new(),
            length: 0,
            hasher: Box::default(),
            sound: Arc::clone(&self.sound),
            under_way: None,
            bytes: 0,
        }
    }

    /// Opens a complete file. Returns the file and its length.
    pub async fn open_file(&self, at: AttemptFile<'_>) -> object_store::Result<(std::fs::File, u64)> {
        let found = self.store.get(&self.path(at)).await?;
        let length = found.meta.size;
        match found.payload {
            GetResultPayload::File(file, _) => Ok((file, length)),
            GetResultPayload::Stream(_) => unreachable!("object_store returns a file for a local path"),
        }
    }

    /// Returns `true` if the bytes of a file match its hash. A file that this process wrote is not read. Any other file
    /// is read once, and again after it has changed.
    pub async fn is_sound(&self, at: AttemptFile<'_>, file: &std::fs::File, hash: &str) -> io::Result<bool> {
        let path = self.path(at);
        let stamp = FileStamp::of(&file.metadata()?);
        if !FileHasher::made(hash) || known(&self.sound).get(&path) == Some(&stamp) {
            return Ok(true);
        }
        let mut file = file.try_clone()?;
        let found = spawn_blocking(move || {
            let (mut hasher, mut piece) = (FileHasher::default(), vec![0; PIECE]);
            file.rewind()?;
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    length => hasher.update(&piece[..length]),
                }
            }
            file.rewind()?;
            io::Result::Ok(hasher.finish())
        });
        let is_sound = found.await.map_err(io::Error::other)?? == hash;
        if is_sound {
            known(&self.sound).insert(path, stamp);
        }
        Ok(is_sound)
    }

    /// Writes the length and hash of a file to a second file.
    pub async fn write_sum(&self, at: AttemptFile<'_>, length: u64, hash: &str) -> object_store::Result<()> {
        self.store.put(&self.path(at), PutPayload::from(format!("{length} {hash}\n"))).await.map(|_| ())
    }

    /// Reads the file that [`ExportFiles::write_sum`] wrote. Returns `None` if it does not exist or is invalid.
    pub async fn read_sum(&self, at: AttemptFile<'_>) -> Option<(u64, String)> {
        let bytes = self.store.get(&self.path(at)).await.ok()?.bytes().await.ok()?;
        let (length, hash) = str::from_utf8(&bytes).ok()?.strip_suffix('\n')?.split_once(' ')?;
        let hash = Some(hash).filter(|hash| FileHasher::made(hash))?;
        Some((length.parse().ok()?, hash.to_owned()))
    }

    /// Returns `true` if the file exists and has this length.
    pub async fn has(&self, at: AttemptFile<'_>, length: u64) -> bool {
        self.store.head(&self.path(at)).await.is_ok_and(|meta| meta.size == length)
    }

    /// Returns the ids of the jobs of this store that have files, and the names of folders that belong to other stores.
    pub fn jobs(&self) -> (Vec<String>, Vec<String>) {
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

    /// Returns `true` if a job has a folder.
    pub fn has_any(&self, job: &str) -> bool {
        self.folder.join(self.folder_of(job)).exists()
    }

    /// Removes the files of a job.
    pub async fn remove(&self, job: &str) {
        let name = self.folder_of(job);
        known(&self.sound).retain(|path, _| path.parts().next().is_none_or(|of| of.as_ref() != name));
        let folder = self.folder.join(name);
        // A worker that is still writing a chunk can create a file again, so the removal is repeated.
        for _ in 0..3 {
            match tokio::fs::remove_dir_all(&folder).await {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => {
                    tracing::warn!(%error, folder = %folder.display(), "files of an export could not be removed");
                }
            }
        }
    }

    /// Removes the files of a job except those in `keep` and the files derived from them.
    pub async fn remove_others(&self, job: &str, keep: impl Iterator<Item = AttemptFile<'_>>) {
        let keep: HashSet<String> = keep.map(AttemptFile::in_folder).collect();
        let folder = self.folder.join(self.folder_of(job));
        let removed = spawn_blocking(move || -> io::Result<()> {
            for file in std::fs::read_dir(folder)?.flatten() {
                let name = file.file_name();
                let name = name.to_string_lossy();
                let of = [gzip::VERSION, GZIP_SUM]
                    .into_iter()
                    .find_map(|made| name.strip_suffix(made)?.strip_suffix('.'));
                let of = of.unwrap_or(&name);
                if keep.contains(of) {
                    continue;
                }
                match std::fs::remove_file(file.path()) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        });
        if let Ok(Err(error)) = removed.await
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, job, "unfinished files of an export could not be removed");
        }
    }
}

fn known(sound: &Mutex<HashMap<Path, FileStamp>>) -> MutexGuard<'_, HashMap<Path, FileStamp>> {
    sound.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is being written.
pub(crate) struct FileWriter {
    store: Arc<LocalFileSystem>,
    disk: DiskSpace,
    /// Path of the complete file.
    file: PathBuf,
    path: Path,
    gathered: Vec<Bytes>,
    /// Hash of all bytes added so far.
    length: usize,
    /// Length of all bytes added so far.
    hasher: Box<FileHasher>,
    sound: Arc<Mutex<HashMap<Path, FileStamp>>>,
    under_way: Option<AbortOnDrop<object_store::Result<Box<dyn MultipartUpload>>>>,
    /// Length so far, in bytes.
    pub bytes: u64,
}

impl FileWriter {
    /// Adds bytes without copying them. They are hashed on this thread, because hashing a page takes less time than
    /// passing it to another thread and back.
    pub fn add(&mut self, bytes: Bytes) {
        self.hasher.update(&bytes);
        self.length += bytes.len();
        self.bytes += bytes.len() as u64;
        self.gathered.push(bytes);
    }

    /// Writes the collected bytes if they fill a chunk. Waits until the previous chunk is written.
    pub async fn flush_if_large(&mut self) -> Result<(), WriteError> {
        if self.length >= CHUNK { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), WriteError> {
        // The previous chunk may not be on the disk yet, so the check counts two chunks.
        self.disk.check(2 * self.length as u64, WritePurpose::Export)?;
        let mut upload = match self.under_way.take() {
            Some(before) => before.await?,
            None => self.store.put_multipart(&self.path).await?,
        };
        self.length = 0;
        let chunk = PutPayload::from_iter(std::mem::take(&mut self.gathered));
        let written = upload.put_part(chunk);
        self.under_way = Some(AbortOnDrop::of(async move { written.await.map(|()| upload) }));
        Ok(())
    }

    /// Completes the file in the background. The returned task resolves to the hash when the file is complete and
    /// synced.
    pub async fn finish(mut self) -> Result<AbortOnDrop<object_store::Result<String>>, WriteError> {
        self.flush().await?;
        let last = self.under_way.take().expect("`flush` starts a write, even for an empty chunk");
        Ok(AbortOnDrop(tokio::spawn(async move {
            last.await?.complete().await?;
            if let Ok(found) = tokio::fs::metadata(&self.file).await {
                known(&self.sound).insert(self.path, FileStamp::of(&found));
            }
            Ok(self.hasher.finish())
        })))
    }
}

/// Hash of a file's bytes for its `ETag`. XXH3 takes a twentieth of the time of a cryptographic hash. It does not
/// protect against manipulation: an attacker who could choose exported bytes could also change the content itself.
#[derive(Default)]
pub(crate) struct FileHasher(Xxh3);

impl FileHasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash as text. The first letter names the algorithm.
    pub fn finish(&self) -> String {
        format!("x{:032x}", self.0.digest128())
    }

    /// Returns the hash without the letter of the algorithm.
    pub fn digits(hash: &str) -> &str {
        hash.trim_start_matches('x')
    }

    /// Returns `true` if this version of the server computes hashes with the same algorithm, so that `hash` can be
    /// compared.
    pub fn made(hash: &str) -> bool {
        hash.starts_with('x')
    }
}
