//! Files of exports. They are written in chunks off the async threads and hashed meanwhile, and get their name only
//! when they are complete and synced.
//!
//! The path of a file is `{job}/{attempt}.{name}`. Each run of a job writes under its own attempt number, so that a
//! run that has lost its lease without noticing never touches the files of the current run.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetResultPayload, MultipartUpload, ObjectStoreExt as _, PutPayload};
use store::space::{DiskSpace, NoSpace, WritePurpose};
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::Xxh3;

use crate::abort_on_drop::AbortOnDrop;
use crate::files::file_stream::{DownloadLimits, DownloadPermit, PIECE};
use crate::files::gzip;

/// Bytes collected before they are written; a file holds up to two such chunks. Smaller chunks cost more in handing
/// them between threads.
const CHUNK: usize = 4 << 20;
/// Suffix of the file with the length and hash of a gzip.
pub(crate) const GZIP_SUM: &str = "gzip1.sum";

/// Storage of export files.
#[derive(Clone)]
pub(crate) struct ExportFiles {
    store: Arc<LocalFileSystem>,
    folder: PathBuf,
    /// Follows the job's id in the name of its folder. Folders without it belong to another store.
    store_id: String,
    disk: DiskSpace,
    downloads: DownloadLimits,
    /// Files whose bytes are known to match their hash, because this process wrote or has read them, with their state
    /// at that time.
    sound: Arc<Mutex<HashMap<Path, FileStamp>>>,
}

/// State of a file, to detect that it may have changed since its bytes were compared with its hash.
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

/// Failure to write an export file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The disk is nearly full.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    #[error(transparent)]
    Files(#[from] object_store::Error),
}

/// Name of a file that one attempt at a job wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptFile<'a> {
    pub job: &'a str,
    pub attempt: u32,
    pub name: &'a str,
    /// Suffix of a derived file such as the gzip; `""` for the file itself.
    pub made: &'static str,
}

impl AttemptFile<'_> {
    fn in_folder(self) -> String {
        let dot = if self.made.is_empty() { "" } else { "." };
        format!("{}.{}{dot}{}", self.attempt, self.name, self.made)
    }
}

impl ExportFiles {
    /// Admits a download; returns `None` if too many files are open.
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
        std::fs::create_dir_all(&folder)?;
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

    /// Checks that the space reserved for the store is still free.
    pub fn check_space(&self) -> Result<(), NoSpace> {
        self.disk.check(0, WritePurpose::Export)
    }

    /// Returns a writer. No file is created before the first bytes are written.
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
            GetResultPayload::Stream(_) => unreachable!("a local store returns files"),
        }
    }

    /// Returns true if the bytes of a file match its hash. A file is read once per process, not at all if the process
    /// wrote it, and again after it has changed.
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

    /// Reads the file written by [`ExportFiles::write_sum`]; returns `None` if it does not exist or is not valid.
    pub async fn read_sum(&self, at: AttemptFile<'_>) -> Option<(u64, String)> {
        let bytes = self.store.get(&self.path(at)).await.ok()?.bytes().await.ok()?;
        let (length, hash) = str::from_utf8(&bytes).ok()?.strip_suffix('\n')?.split_once(' ')?;
        let hash = Some(hash).filter(|hash| FileHasher::made(hash))?;
        Some((length.parse().ok()?, hash.to_owned()))
    }

    /// Returns true if a file of this length exists.
    pub async fn has(&self, at: AttemptFile<'_>, length: u64) -> bool {
        self.store.head(&self.path(at)).await.is_ok_and(|meta| meta.size == length)
    }

    /// Returns the jobs of this store that have files, and the names of folders that belong to others.
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

    /// Returns true if a job has a folder.
    pub fn has_any(&self, job: &str) -> bool {
        self.folder.join(self.folder_of(job)).exists()
    }

    /// Removes the files of a job.
    pub async fn remove(&self, job: &str) {
        let name = self.folder_of(job);
        known(&self.sound).retain(|path, _| path.parts().next().is_none_or(|of| of.as_ref() != name));
        let folder = self.folder.join(name);
        // A chunk that is being written at this moment can create a file again.
        for _ in 0..3 {
            match tokio::fs::remove_dir_all(&folder).await {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => {
                    tracing::warn!(%error, folder = %folder.display(), "files of an export are left behind");
                }
            }
        }
    }

    /// Removes the files of a job except these and the files derived from them.
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
            tracing::warn!(%error, job, "unfinished files of an export are left behind");
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
    /// Final path.
    file: PathBuf,
    path: Path,
    gathered: Vec<Bytes>,
    /// Number of collected bytes.
    length: usize,
    /// Hash of all bytes so far.
    hasher: Box<FileHasher>,
    sound: Arc<Mutex<HashMap<Path, FileStamp>>>,
    under_way: Option<AbortOnDrop<object_store::Result<Box<dyn MultipartUpload>>>>,
    /// Length so far, in bytes.
    pub bytes: u64,
}

impl FileWriter {
    /// Adds bytes without copying them. They are hashed on this thread: to hash a page takes less than to hand it to
    /// another thread and back.
    pub fn add(&mut self, bytes: Bytes) {
        self.hasher.update(&bytes);
        self.length += bytes.len();
        self.bytes += bytes.len() as u64;
        self.gathered.push(bytes);
    }

    /// Writes the collected bytes if they amount to a chunk. Waits for the previous chunk.
    pub async fn flush_if_large(&mut self) -> Result<(), WriteError> {
        if self.length >= CHUNK { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), WriteError> {
        // The previous chunk may not be on the disk yet.
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

    /// Ends the file in the background. The returned task resolves to the hash when the file is complete and synced.
    pub async fn finish(mut self) -> Result<AbortOnDrop<object_store::Result<String>>, WriteError> {
        self.flush().await?;
        let last = self.under_way.take().expect("flush has begun a write");
        Ok(AbortOnDrop(tokio::spawn(async move {
            last.await?.complete().await?;
            if let Ok(found) = tokio::fs::metadata(&self.file).await {
                known(&self.sound).insert(self.path, FileStamp::of(&found));
            }
            Ok(self.hasher.finish())
        })))
    }
}

/// Hash of a file's bytes for its `ETag`: XXH3, at a twentieth of the cost of a cryptographic hash. An attacker who
/// could choose two exports with the same hash could as well change their content.
#[derive(Default)]
pub(crate) struct FileHasher(Xxh3);

impl FileHasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash as text; the first letter names the algorithm.
    pub fn finish(&self) -> String {
        format!("x{:032x}", self.0.digest128())
    }

    /// Returns the hash without the letter.
    pub fn digits(hash: &str) -> &str {
        hash.trim_start_matches('x')
    }

    /// Returns true if the hash is of this algorithm, so that it can be compared.
    pub fn made(hash: &str) -> bool {
        hash.starts_with('x')
    }
}
