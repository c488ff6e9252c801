//! Files of rows: compressed with gzip, each small enough to be held in memory.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use sha2::{Digest as _, Sha256};
use store::blocking::run_blocking;

use crate::manifest::Segment;
use crate::rows::{Row, RowReader};
use crate::seal::hex;
use crate::{BackupError, BackupKey, BackupLocation};

/// Compressed length from which a segment ends.
const SEGMENT_BYTES: usize = 4 << 20;
/// Maximum length of the rows of a segment.
const MAX_ROWS_BYTES: usize = 1 << 30;

/// Writes the segments of one kind of rows.
pub(crate) struct SegmentWriter<'a> {
    location: &'a BackupLocation,
    /// Beginning of the names of the objects, such as `{id}/log`.
    stem: String,
    open: Option<OpenSegment>,
    written: Vec<Segment>,
}

struct OpenSegment {
    encoder: GzEncoder<Vec<u8>>,
    rows: u64,
}

impl<'a> SegmentWriter<'a> {
    pub fn new(location: &'a BackupLocation, stem: String) -> Self {
        Self { location, stem, open: None, written: Vec::new() }
    }

    /// Adds rows.
    pub async fn append<R: Row + Send + 'static>(&mut self, page: Vec<R>) -> Result<(), BackupError> {
        let open = self.open.take();
        let compressed = run_blocking(move || -> io::Result<OpenSegment> {
            let mut open = open.unwrap_or_else(|| OpenSegment {
                encoder: GzEncoder::new(Vec::new(), Compression::fast()),
                rows: 0,
            });
            open.rows += page.len() as u64;
            let mut text = Vec::new();
            page.into_iter().for_each(|row| row.append(&mut text));
            open.encoder.write_all(&text)?;
            Ok(open)
        });
        let open = compressed.await.map_err(|_| BackupError::Interrupted)?;
        let open = open.expect("memory can be written");
        let is_full = open.encoder.get_ref().len() >= SEGMENT_BYTES;
        self.open = Some(open);
        if is_full { self.end_segment().await } else { Ok(()) }
    }

    /// Ends the last segment and returns all of them.
    pub async fn finish(mut self) -> Result<Vec<Segment>, BackupError> {
        self.end_segment().await?;
        Ok(self.written)
    }

    async fn end_segment(&mut self) -> Result<(), BackupError> {
        let Some(OpenSegment { encoder, rows }) = self.open.take() else { return Ok(()) };
        let object = format!("{}-{:05}.gz", self.stem, self.written.len() + 1);
        let (key, sealed) = (self.location.shared_key(), object.clone());
        let hashed = run_blocking(move || {
            let bytes = encoder.finish().expect("memory can be written");
            let bytes = key.map_or_else(|| bytes.clone(), |key| key.seal(&sealed, &bytes));
            (hex(&Sha256::digest(&bytes)), bytes)
        });
        let (sha256, bytes) = hashed.await.map_err(|_| BackupError::Interrupted)?;
        self.written.push(Segment { object: object.clone(), bytes: bytes.len() as u64, sha256, rows });
        self.location.put(&object, Bytes::from(bytes)).await
    }
}

impl Segment {
    /// Reads the rows after comparing the digest. `each` returns whether to continue.
    pub(crate) fn read_rows<R: Row>(
        &self,
        bytes: &Bytes,
        key: Option<&BackupKey>,
        mut each: impl FnMut(R) -> Result<bool, BackupError>,
    ) -> Result<(), BackupError> {
        let damaged = |what: String| BackupError::damaged(&self.object, what);
        if hex(&Sha256::digest(bytes)) != self.sha256 {
            return Err(damaged("its SHA-256 differs from that of the manifest".to_owned()));
        }
        let plain = match key {
            Some(key) => key.open(&self.object, bytes),
            None => Some(bytes.clone()),
        };
        let bytes = plain.ok_or_else(|| damaged("it is not as it was encrypted".to_owned()))?;
        let mut decoder = GzDecoder::new(LimitedText::default());
        let text = decoder.write_all(&bytes).and_then(|()| decoder.finish());
        let text = text.map_err(|error| damaged(error.to_string()))?;
        let mut rows = RowReader::new(Bytes::from(text.0));
        let mut count = 0;
        while let Some(row) = rows.next::<R>().map_err(damaged)? {
            count += 1;
            if !each(row)? {
                return Ok(());
            }
        }
        if count == self.rows {
            return Ok(());
        }
        Err(damaged(format!("it has {count} rows, and the manifest states {}", self.rows)))
    }
}

/// Text that refuses to grow without bound.
#[derive(Default)]
struct LimitedText(Vec<u8>);

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_ROWS_BYTES {
            return Err(io::Error::other("its rows are larger than any that a backup writes"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
