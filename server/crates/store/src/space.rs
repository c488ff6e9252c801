//! Free space on a disk, and the reserve that large writes must not use.
//!
//! | kind of write | keeps free |
//! |---|---|
//! | a file of an export; an audit line that a stranger causes | one and a half times the reserve |
//! | a line of a log | the reserve |
//! | a large write to the store | the reserve, and what the engine needs to merge its files |
//! | a small write to the store: a sign-in, a job, a delete | an eighth of the reserve |

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Space in bytes that is reserved for small writes and for background tasks of the engine. On a small disk,
/// it is limited to a tenth of the disk.
const RESERVE_BYTES: u64 = 48 << 20;

/// Space on the disk that contains a folder.
#[derive(Debug, Clone, Copy)]
pub struct FreeSpace {
    /// Number of bytes that this process may still write.
    pub free: u64,
    /// Size of the disk in bytes.
    pub total: u64,
}

/// A function that returns the space on the disk of a folder.
pub type SpaceProbe = Arc<dyn Fn(&Path) -> io::Result<FreeSpace> + Send + Sync>;

/// The purpose of a write, which determines how much space must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePurpose {
    /// A small write to the store.
    Small,
    /// A large write to the store.
    Large {
        /// Number of bytes that the engine needs to merge its files.
        merge: u64,
    },
    /// A line of a log.
    Log,
    /// A file of an export, or a line of a log that can be refused first.
    Export,
}

/// The disk that contains a folder.
#[derive(Clone)]
pub struct DiskSpace {
    dir: PathBuf,
    probe: SpaceProbe,
}

/// The error for a write that needs more space than is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the disk has {} KiB left and a write needs {} KiB", free >> 10, needed >> 10)]
pub struct NoSpace {
    /// Number of free bytes.
    pub free: u64,
    /// Number of bytes that must be free for the write.
    pub needed: u64,
}

impl fmt::Debug for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl DiskSpace {
    /// The disk of a folder, whose space the operating system reports.
    pub fn of(dir: &Path) -> Self {
        Self::with_probe(dir, Arc::new(probe))
    }

    /// The disk of a folder, whose space `probe` reports.
    pub fn with_probe(dir: &Path, probe: SpaceProbe) -> Self {
        Self { dir: dir.to_owned(), probe }
    }

    /// Checks that `bytes` bytes can be written.
    ///
    /// # Errors
    /// Returns [`NoSpace`] if the write would use space that must stay free for its purpose.
    pub fn check(&self, bytes: u64, purpose: WritePurpose) -> Result<(), NoSpace> {
        // If the free space is unknown, the check succeeds; the write itself reports a full disk.
        let Ok(FreeSpace { free, total }) = (self.probe)(&self.dir) else { return Ok(()) };
        let reserve = RESERVE_BYTES.min(total / 10);
        let reserved = match purpose {
            WritePurpose::Small => reserve / 8,
            WritePurpose::Large { merge } => reserve + merge,
            WritePurpose::Log => reserve,
            WritePurpose::Export => reserve + reserve / 2,
        };
        let total = reserved.saturating_add(bytes);
        if free >= total { Ok(()) } else { Err(NoSpace { free, needed: total }) }
    }
}

/// The number of free bytes of the disk of a folder; `None` if the operating system does not report it.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    probe(dir).ok().map(|space| space.free)
}

fn probe(dir: &Path) -> io::Result<FreeSpace> {
    let space = rustix::fs::statvfs(dir)?;
    Ok(FreeSpace {
        free: space.f_bavail.saturating_mul(space.f_frsize),
        total: space.f_blocks.saturating_mul(space.f_frsize),
    })
}
