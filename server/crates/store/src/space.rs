//! Free space on a disk, and the reserve that is kept free of large writes.
//!
//! | kind of write | keeps free |
//! |---|---|
//! | a file of an export | one and a half times the reserve |
//! | a large write to the store | the reserve, and what the engine needs to merge its files |
//! | a small write to the store: a sign-in, a job, a delete | an eighth of the reserve |

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Space that is kept free for small writes and for background tasks of the engine; a tenth of a small disk.
const RESERVE_BYTES: u64 = 48 << 20;

/// Space on the disk of a folder.
#[derive(Debug, Clone, Copy)]
pub struct FreeSpace {
    /// Bytes that this process may write.
    pub free: u64,
    /// Bytes of the disk.
    pub total: u64,
}

/// Asks for the space on the disk of a folder.
pub type SpaceProbe = Arc<dyn Fn(&Path) -> io::Result<FreeSpace> + Send + Sync>;

/// Kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePurpose {
    /// A small write to the store.
    Small,
    /// A large write to the store, with the bytes that the engine needs to merge its files.
    Large {
        /// Bytes of the files to be merged.
        merge: u64,
    },
    /// A file of an export.
    Export,
}

/// The disk of a folder.
#[derive(Clone)]
pub struct DiskSpace {
    dir: PathBuf,
    probe: SpaceProbe,
}

/// There is not enough space for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the disk has {} KiB left and a write needs {} KiB", free >> 10, needed >> 10)]
pub struct NoSpace {
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that have to be free.
    pub needed: u64,
}

impl fmt::Debug for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl DiskSpace {
    /// The disk of a folder, as the operating system reports it.
    pub fn of(dir: &Path) -> Self {
        Self::with_probe(dir, Arc::new(probe))
    }

    /// The disk of a folder, as `probe` reports it.
    pub fn with_probe(dir: &Path, probe: SpaceProbe) -> Self {
        Self { dir: dir.to_owned(), probe }
    }

    /// Checks that so many bytes can be written.
    ///
    /// # Errors
    /// [`NoSpace`] if what is kept free would be touched.
    pub fn check(&self, bytes: u64, purpose: WritePurpose) -> Result<(), NoSpace> {
        // If the free space cannot be determined, the write itself will fail.
        let Ok(FreeSpace { free, total }) = (self.probe)(&self.dir) else { return Ok(()) };
        let reserve = RESERVE_BYTES.min(total / 10);
        let kept = match purpose {
            WritePurpose::Small => reserve / 8,
            WritePurpose::Large { merge } => reserve + merge,
            WritePurpose::Export => reserve + reserve / 2,
        };
        let needed = kept.saturating_add(bytes);
        if free >= needed { Ok(()) } else { Err(NoSpace { free, needed }) }
    }
}

fn probe(dir: &Path) -> io::Result<FreeSpace> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(FreeSpace {
        free: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}
