//! The files of exports: written in chunks off the async threads, hashed on the way, and there under their name only
//! when they are whole and on the disk.
//!
//! A file lies at `{job}/{attempt}.{name}`. Each run of a job writes under an attempt number of its own, so that one
//! that was overtaken and does not know it yet never touches a file that counts.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetResultPayload, MultipartUpload, ObjectStoreExt as _, PutPayload};
use store::space::{Disk, NoSpace, Purpose};
use tokio::task::spawn_blocking;
use xxhash_rust::xxh3::Xxh3;

use crate::file_stream::{DownloadLimits, DownloadPermit, PIECE};
use crate::gzip;
use crate::task::Task;

/// Bytes that are gathered before they are written; two such chunks are held for a file. Smaller ones cost more in
/// handing them from thread to thread.
const CHUNK: usize = 4 << 20;
/// Beside the gzip of a file: the length and hash of its bytes.
pub(crate) const GZIP_SUM: &str = "gzip1.sum";

/// Where the files of exports are kept.
#[derive(Clone)]
pub(crate) struct Files {
    store: Arc<LocalFileSystem>,
    folder: PathBuf,
    /// Follows the job in the name of a folder. Other folders belong to another store, or to somebody else.
    store_id: String,
    disk: Disk,
    downloads: DownloadLimits,
    /// Files that this process wrote or has read from end to end, as they were then, so that their bytes are known to be
    /// right.
    sound: Arc<Mutex<HashMap<Path, Stamp>>>,
}

/// Tells whether a file may have changed since its bytes were compared with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(found: &std::fs::Metadata) -> Self {
        Self { length: found.len(), modified: found.modified().ok() }
    }
}

/// Why a file of an export could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The disk is nearly full.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    #[error(transparent)]
    Files(#[from] object_store::Error),
}

/// Names a file of one attempt at a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileAt<'a> {
    pub job: &'a str,
    pub attempt: u32,
    pub name: &'a str,
    /// What was made of it: `""` for the file itself.
    pub made: &'static str,
}

impl FileAt<'_> {
    fn in_folder(self) -> String {
        let dot = if self.made.is_empty() { "" } else { "." };
        format!("{}.{}{dot}{}", self.attempt, self.name, self.made)
    }
}

impl Files {
    /// Admits one more download; `None` if too many files are open.
    pub fn admit_download(&self) -> Option<DownloadPermit> {
        self.downloads.admit()
    }

    /// Files of a store in a folder, which is made where there is none.
    pub fn open(
        folder: PathBuf,
        store_id: String,
        disk: Disk,
        downloads: DownloadLimits,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(io::Error::other)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), folder, store_id, disk, downloads, sound: Arc::default() })
    }

    /// The name of a job's folder.
    fn folder_of(&self, job: &str) -> String {
        format!("{job}-{}", self.store_id)
    }

    fn path(&self, at: FileAt<'_>) -> Path {
        Path::from_iter([self.folder_of(at.job), at.in_folder()])
    }

    /// Checks that what is kept free for the store is not touched yet.
    pub fn check_space(&self) -> Result<(), NoSpace> {
        self.disk.check(0, Purpose::Export)
    }

    /// A file that is to be written. Nothing happens before the first bytes come.
    pub fn create(&self, at: FileAt<'_>) -> Writing {
        Writing {
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

    /// Opens a whole file; gives its length too.
    pub async fn open_file(&self, at: FileAt<'_>) -> object_store::Result<(std::fs::File, u64)> {
        let found = self.store.get(&self.path(at)).await?;
        let length = found.meta.size;
        match found.payload {
            GetResultPayload::File(file, _) => Ok((file, length)),
            GetResultPayload::Stream(_) => unreachable!("a local store gives files"),
        }
    }

    /// Are the bytes of a file those of its hash? It is read once in the life of a process, not at all if the process
    /// wrote it, and again if it has changed since.
    pub async fn is_sound(&self, at: FileAt<'_>, file: &std::fs::File, hash: &str) -> io::Result<bool> {
        let path = self.path(at);
        let stamp = Stamp::of(&file.metadata()?);
        if !Hasher::made(hash) || known(&self.sound).get(&path) == Some(&stamp) {
            return Ok(true);
        }
        let mut file = file.try_clone()?;
        let found = spawn_blocking(move || {
            let (mut hasher, mut piece) = (Hasher::default(), vec![0; PIECE]);
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

    /// Writes the length and hash of a file beside it.
    pub async fn write_sum(&self, at: FileAt<'_>, length: u64, hash: &str) -> object_store::Result<()> {
        self.store.put(&self.path(at), PutPayload::from(format!("{length} {hash}\n"))).await.map(|_| ())
    }

    /// Reads what [`Files::write_sum`] wrote; `None` if it is not there or not what was written.
    pub async fn read_sum(&self, at: FileAt<'_>) -> Option<(u64, String)> {
        let bytes = self.store.get(&self.path(at)).await.ok()?.bytes().await.ok()?;
        let (length, hash) = str::from_utf8(&bytes).ok()?.strip_suffix('\n')?.split_once(' ')?;
        let hash = Some(hash).filter(|hash| Hasher::made(hash))?;
        Some((length.parse().ok()?, hash.to_owned()))
    }

    /// Is there a whole file of this length?
    pub async fn has(&self, at: FileAt<'_>, length: u64) -> bool {
        self.store.head(&self.path(at)).await.is_ok_and(|meta| meta.size == length)
    }

    /// The jobs of this store that have files here, and the names of what is not of this store.
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

    /// Does a job have a folder here?
    pub fn has_any(&self, job: &str) -> bool {
        self.folder.join(self.folder_of(job)).exists()
    }

    /// Takes away what a job has here.
    pub async fn remove(&self, job: &str) {
        let name = self.folder_of(job);
        known(&self.sound).retain(|path, _| path.parts().next().is_none_or(|of| of.as_ref() != name));
        let folder = self.folder.join(name);
        // A chunk that is being written at this moment can put a file back.
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

    /// Takes away what a job has here but for these and what was made of them.
    pub async fn remove_others(&self, job: &str, keep: impl Iterator<Item = FileAt<'_>>) {
        let keep: HashSet<String> = keep.map(FileAt::in_folder).collect();
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

fn known(sound: &Mutex<HashMap<Path, Stamp>>) -> MutexGuard<'_, HashMap<Path, Stamp>> {
    sound.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file as it grows.
pub(crate) struct Writing {
    store: Arc<LocalFileSystem>,
    disk: Disk,
    /// Where it will be.
    file: PathBuf,
    path: Path,
    gathered: Vec<Bytes>,
    /// Bytes that are gathered.
    length: usize,
    /// Of all bytes so far.
    hasher: Box<Hasher>,
    sound: Arc<Mutex<HashMap<Path, Stamp>>>,
    under_way: Option<Task<object_store::Result<Box<dyn MultipartUpload>>>>,
    /// How long it is by now.
    pub bytes: u64,
}

impl Writing {
    /// Adds bytes; nobody copies them again. They are hashed here: a page of them takes less than to hand it to another
    /// thread and back.
    pub fn add(&mut self, bytes: Bytes) {
        self.hasher.update(&bytes);
        self.length += bytes.len();
        self.bytes += bytes.len() as u64;
        self.gathered.push(bytes);
    }

    /// Passes on what is gathered, where it is enough; waits for what was passed on before.
    pub async fn flush_if_large(&mut self) -> Result<(), WriteError> {
        if self.length >= CHUNK { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), WriteError> {
        // The chunk before it may not be on the disk yet.
        self.disk.check(2 * self.length as u64, Purpose::Export)?;
        let mut upload = match self.under_way.take() {
            Some(before) => before.await?,
            None => self.store.put_multipart(&self.path).await?,
        };
        self.length = 0;
        let chunk = PutPayload::from_iter(std::mem::take(&mut self.gathered));
        let written = upload.put_part(chunk);
        self.under_way = Some(Task::of(async move { written.await.map(|()| upload) }));
        Ok(())
    }

    /// Ends the file behind the caller's back: the task gives its hash when it is whole and on the disk.
    pub async fn finish(mut self) -> Result<Task<object_store::Result<String>>, WriteError> {
        self.flush().await?;
        let last = self.under_way.take().expect("flush has begun a write");
        Ok(Task(tokio::spawn(async move {
            last.await?.complete().await?;
            if let Ok(found) = tokio::fs::metadata(&self.file).await {
                known(&self.sound).insert(self.path, Stamp::of(&found));
            }
            Ok(self.hasher.finish())
        })))
    }
}

/// The hash of a file's bytes, for an `ETag`: XXH3, which costs a twentieth of a cryptographic hash. Who could make two
/// exports with one hash could as well write what they hold.
#[derive(Default)]
pub(crate) struct Hasher(Xxh3);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As text; the letter says which hash it is.
    pub fn finish(&self) -> String {
        format!("x{:032x}", self.0.digest128())
    }

    /// Without that letter.
    pub fn digits(hash: &str) -> &str {
        hash.trim_start_matches('x')
    }

    /// Can it be compared? Earlier versions of this program took another hash.
    pub fn made(hash: &str) -> bool {
        hash.starts_with('x')
    }
}
