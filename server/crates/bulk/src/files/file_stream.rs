//! Streams of export files. Files are read outside of the async threads, and objects by range, one chunk
//! ahead. The number of bytes in memory and of open descriptors is limited for all downloads together.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::abort_on_drop::AbortOnDrop;
use crate::files::file_hasher::FileHasher;
use crate::files::file_source::FileSource;

/// Length of a chunk in bytes. The next chunk is read while the current one is sent.
pub(crate) const PIECE: usize = 256 * 1024;
/// Length of a chunk in bytes while other downloads hold the maximum number of large chunks.
const SMALL_PIECE: usize = 16 * 1024;
/// Length of a chunk of an object, in chunks of a local file.
const REMOTE_FACTOR: u32 = 4;
/// Maximum number of large chunks in memory: 64 MiB.
const MAX_PIECES: usize = 256;

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
    bytes: Bytes,
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
    file: Option<FileSource>,
    reading: Option<AbortOnDrop<io::Result<(FileSource, Bytes)>>>,
    left: Range<u64>,
    permit: DownloadPermit,
    /// Hash of the bytes sent so far, and the expected one, if the whole file is compared while it is sent.
    hash: Option<(Box<FileHasher>, String)>,
}

impl FileStream {
    /// A stream of a range of the file.
    pub(crate) fn new(file: FileSource, range: Range<u64>, permit: DownloadPermit) -> Self {
        let mut stream = Self { file: Some(file), reading: None, left: range, permit, hash: None };
        stream.read_ahead();
        stream
    }

    /// Compares the bytes with a hash. If they differ, the stream ends with an error instead of its last
    /// chunk, so that the client sees an incomplete response.
    pub(crate) fn comparing(mut self, hash: String) -> Self {
        self.hash = FileHasher::made(&hash).then(|| (Box::default(), hash));
        self
    }

    fn read_ahead(&mut self) {
        let Some(file) = self.file.take().filter(|_| !self.left.is_empty()) else { return };
        // Each chunk of an object takes a round trip, so that it is larger.
        let factor: u32 = if file.is_remote() { REMOTE_FACTOR } else { 1 };
        let permit = Arc::clone(&self.permit.pieces).try_acquire_many_owned(factor).ok();
        let most = if permit.is_some() { PIECE } else { SMALL_PIECE };
        let end = self.left.end.min(self.left.start + most as u64 * u64::from(factor));
        let range = self.left.start..end;
        self.left.start = end;
        self.reading = Some(AbortOnDrop::of(async move {
            let (file, bytes) = file.read(range).await?;
            Ok((file, Bytes::from_owner(Piece { bytes, _permit: permit })))
        }));
    }

    /// Includes a chunk in the comparison with the hash.
    fn compare(&mut self, piece: &[u8]) -> io::Result<()> {
        let Some((hasher, expected)) = &mut self.hash else { return Ok(()) };
        hasher.update(piece);
        if self.left.is_empty() && hasher.finish() != *expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of the file differs"));
        }
        Ok(())
    }
}

impl Stream for FileStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = std::task::ready!(Pin::new(reading).poll(context));
        self.reading = None;
        Poll::Ready(Some(read.and_then(|(file, piece)| {
            self.compare(&piece).inspect_err(|error| tracing::error!(%error, "a download was ended"))?;
            self.file = Some(file);
            self.read_ahead();
            Ok(piece)
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
        let disk = |file: &std::fs::File| FileSource::Disk(file.try_clone().unwrap());
        // Each slow download holds two chunks: the one being sent and the one being read ahead.
        let mut slow = Vec::new();
        for _ in 0..2 * MAX_PIECES {
            let mut stream = FileStream::new(disk(&file), range.clone(), limits.admit().unwrap());
            let piece = stream.next().await.unwrap();
            slow.push((stream, piece));
        }
        assert_eq!(limits.pieces.available_permits(), 0);
        // Clones of a file share its read position, so this test checks only the length.
        let mut other = FileStream::new(disk(&file), 0..PIECE as u64, limits.admit().unwrap());
        assert_eq!(other.next().await.unwrap().unwrap().len(), SMALL_PIECE);
        assert!(limits.admit().is_none(), "the maximum number of files is open");
        drop((slow, other));
        assert_eq!(limits.pieces.available_permits(), MAX_PIECES);
        assert!(limits.admit().is_some());
    }
}
