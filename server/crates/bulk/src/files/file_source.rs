//! An opened output file, read piece by piece: a file of the local disk, or an object of a bucket.

use std::io::{self, Read as _, Seek as _};
use std::ops::Range;
use std::sync::Arc;
use store::blocking::run_blocking;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use tokio::time::timeout;

use super::file_location::ObjectBucket;

pub(crate) enum FileSource {
    /// A file of the local disk.
    Disk(std::fs::File),
    Object(ObjectSource),
}

/// An object whose bytes are read by range. Each range requires the entity tag that the object had when it
/// was opened.
pub(crate) struct ObjectSource {
    store: Arc<dyn ObjectStore>,
    path: Path,
    e_tag: Option<String>,
}

impl FileSource {
    /// Opens an object, and returns it with its length.
    pub async fn of_object(store: &Arc<dyn ObjectStore>, path: Path) -> object_store::Result<(Self, u64)> {
        // The client itself waits longer for a server that accepts the connection and is silent.
        let meta = timeout(ObjectBucket::PATIENCE, store.head(&path)).await.map_err(|_| silent())??;
        Ok((Self::Object(ObjectSource { store: Arc::clone(store), path, e_tag: meta.e_tag }), meta.size))
    }

    /// `true` if the bytes come from another machine.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Reads exactly this range, and returns the source for the next read.
    pub async fn read(self, range: Range<u64>) -> io::Result<(Self, Bytes)> {
        match self {
            Self::Disk(mut file) => {
                let read = run_blocking(move || -> io::Result<_> {
                    let length = range.end - range.start;
                    file.seek(io::SeekFrom::Start(range.start))?;
                    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
                    (&mut file).take(length).read_to_end(&mut bytes)?;
                    check_length(bytes.len(), length)?;
                    Ok((Self::Disk(file), Bytes::from(bytes)))
                });
                read.await.map_err(io::Error::other)?
            }
            Self::Object(object) => {
                let length = range.end - range.start;
                let options = GetOptions {
                    range: Some(GetRange::Bounded(range)),
                    if_match: object.e_tag.clone(),
                    ..GetOptions::default()
                };
                let read = async { object.store.get_opts(&object.path, options).await?.bytes().await };
                let bytes = timeout(ObjectBucket::PATIENCE, read).await.map_err(|_| silent())?;
                let bytes = bytes.map_err(io::Error::other)?;
                check_length(bytes.len(), length)?;
                Ok((Self::Object(object), bytes))
            }
        }
    }
}

/// The error of a bucket that does not answer.
fn silent() -> object_store::Error {
    let seconds = ObjectBucket::PATIENCE.as_secs();
    object_store::Error::Generic { store: "S3", source: format!("no answer within {seconds} s").into() }
}

fn check_length(length: usize, expected: u64) -> io::Result<()> {
    if length as u64 == expected {
        return Ok(());
    }
    let what = "the file was truncated while it was being read";
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
}
