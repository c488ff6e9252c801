//! A file as it is sent: read off the async threads, one piece ahead.

use std::io::{self, Read as _, Seek as _};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio::task::spawn_blocking;

use crate::files::Task;

/// Bytes read at once of a file that is sent; the next ones are read while these are on their way.
pub(crate) const PIECE: usize = 256 * 1024;

/// A part of a file as it is read, off the async threads, into pieces that nobody copies again.
pub struct FileStream {
    /// The file, while nothing is read of it.
    file: Option<std::fs::File>,
    reading: Option<Task<io::Result<(std::fs::File, Bytes)>>>,
    left: u64,
}

impl FileStream {
    /// These bytes of the file.
    pub(crate) fn new(file: std::fs::File, range: Range<u64>) -> Self {
        let mut stream = Self { file: Some(file), reading: None, left: range.end - range.start };
        stream.read_ahead(Some(range.start));
        stream
    }

    fn read_ahead(&mut self, seek: Option<u64>) {
        let length = self.left.min(PIECE as u64);
        let Some(mut file) = self.file.take().filter(|_| length > 0) else { return };
        self.left -= length;
        self.reading = Some(Task(spawn_blocking(move || {
            if let Some(at) = seek {
                file.seek(io::SeekFrom::Start(at))?;
            }
            let mut piece = Vec::with_capacity(usize::try_from(length).unwrap_or(PIECE));
            (&mut file).take(length).read_to_end(&mut piece)?;
            if (piece.len() as u64) < length {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
            }
            Ok((file, Bytes::from(piece)))
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
