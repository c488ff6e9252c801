//! Streams of export files. Files are read outside of the async threads, one chunk ahead. The number of bytes in memory
//! and of open descriptors is limited for all downloads together.

use std::io::{self, Read as _, Seek as _};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::abort_on_drop::AbortOnDrop;

/// Length of a chunk in bytes. The next chunk is read while the current one is sent.
pub(crate) const PIECE: usize = 256 * 1024;
/// Length of a chunk in bytes while other downloads hold the maximum number of large chunks.
const SMALL_PIECE: usize = 16 * 1024;
/// Maximum number of large chunks in memory: 64 MiB.
const MAX_PIECES: usize = 256;

/// Limits shared by all downloads.
#[derive(Debug, Clone)]
pub(crate) struct DownloadLimits {
    files: Arc<Semaphore>,
    pieces: Arc<Semaphore>,
}

impl DownloadLimits {
    /// Limits the downloads to `files` open files.
    pub fn new(files: usize) -> Self {
        let files = files.clamp(1, Semaphore::MAX_PERMITS);
        Self { files: Arc::new(Semaphore::new(files)), pieces: Arc::new(Semaphore::new(MAX_PIECES)) }
    }

    /// Reserves a descriptor for a download. Returns `None` if too many files are open.
    pub fn admit(&self) -> Option<DownloadPermit> {
        let file = Arc::clone(&self.files).try_acquire_owned().ok()?;
        Some(DownloadPermit { _file: file, pieces: Arc::clone(&self.pieces) })
    }
}

/// The permission to hold one file open. Dropping it releases the descriptor.
pub(crate) struct DownloadPermit {
    _file: OwnedSemaphorePermit,
    pieces: Arc<Semaphore>,
}

/// Bytes of a chunk. A large chunk counts against the maximum until the connection has sent it.
struct Piece {
    bytes: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A stream of a range of a file, read outside of the async threads in chunks that are not copied again.
pub struct FileStream {
    /// The file, unless a read is in progress.
    file: Option<std::fs::File>,
    reading: Option<AbortOnDrop<io::Result<(std::fs::File, Bytes)>>>,
    left: u64,
    permit: DownloadPermit,
}

impl FileStream {
    /// Returns a stream of a range of the file.
    pub(crate) fn new(file: std::fs::File, range: Range<u64>, permit: DownloadPermit) -> Self {
        let mut stream = Self { file: Some(file), reading: None, left: range.end - range.start, permit };
        stream.read_ahead(Some(range.start));
        stream
    }

    fn read_ahead(&mut self, seek: Option<u64>) {
        let Some(mut file) = self.file.take().filter(|_| self.left > 0) else { return };
        let permit = Arc::clone(&self.permit.pieces).try_acquire_owned().ok();
        let most = if permit.is_some() { PIECE } else { SMALL_PIECE };
        let length = self.left.min(most as u64);
        self.left -= length;
        self.reading = Some(AbortOnDrop(spawn_blocking(move || {
            if let Some(at) = seek {
                file.seek(io::SeekFrom::Start(at))?;
            }
            let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(most));
            (&mut file).take(length).read_to_end(&mut bytes)?;
            if (bytes.len() as u64) < length {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file was truncated while it was being read",
                ));
            }
            Ok((file, Bytes::from_owner(Piece { bytes, _permit: permit })))
        })));
    }
}

impl Stream for FileStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = std::task::ready!(Pin::new(reading).poll(context));
        self.reading = None;
        Poll::Ready(Some(read.map(|(file, piece)| {
            self.file = Some(file);
            self.read_ahead(None);
            piece
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn slow_downloads_leave_large_pieces_for_others() {
        let limits = DownloadLimits::new(2 * MAX_PIECES + 1);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 4 * PIECE]).unwrap();
        let range = 0..4 * PIECE as u64;
        // Each slow download holds two chunks: the one being sent and the one being read ahead.
        let mut slow = Vec::new();
        for _ in 0..2 * MAX_PIECES {
            let mut stream =
                FileStream::new(file.try_clone().unwrap(), range.clone(), limits.admit().unwrap());
            let piece = stream.next().await.unwrap();
            slow.push((stream, piece));
        }
        assert_eq!(limits.pieces.available_permits(), 0);
        // Clones of a file share its read position, so this test checks only the length.
        let mut other = FileStream::new(file.try_clone().unwrap(), 0..PIECE as u64, limits.admit().unwrap());
        assert_eq!(other.next().await.unwrap().unwrap().len(), SMALL_PIECE);
        assert!(limits.admit().is_none(), "the maximum number of files is open");
        drop((slow, other));
        assert_eq!(limits.pieces.available_permits(), MAX_PIECES);
        assert!(limits.admit().is_some());
    }
}
