//! Writes one file of an export in the format of its kick-off.

use bytes::Bytes;

use crate::abort_on_drop::AbortOnDrop;
use crate::files::file_writer::FileWriter;
use crate::files::format::Format;
#[cfg(feature = "parquet")]
use crate::files::parquet_rows::ParquetRows;
use crate::files::write_error::WriteError;

/// A file of resources that is being written.
pub(crate) struct OutputWriter {
    pub(super) writing: FileWriter,
    /// Length of the content so far, in bytes of NDJSON.
    pub bytes: u64,
    #[cfg(feature = "parquet")]
    pub(super) rows: Option<Box<ParquetRows>>,
}

impl OutputWriter {
    /// Starts a file in this format.
    pub(crate) fn begin(format: Format, writing: FileWriter) -> Self {
        #[cfg(not(feature = "parquet"))]
        let _ = format;
        #[cfg(feature = "parquet")]
        let rows = (format == Format::Parquet).then(Box::default);
        Self {
            writing,
            bytes: 0,
            #[cfg(feature = "parquet")]
            rows,
        }
    }

    pub fn add(&mut self, text: Bytes) {
        self.bytes += text.len() as u64;
        #[cfg(feature = "parquet")]
        if let Some(rows) = &mut self.rows {
            let lines = text.split_inclusive(|byte| *byte == b'\n');
            return lines.for_each(|line| rows.add(line.trim_ascii_end()));
        }
        self.writing.add(text);
    }

    /// Writes the collected bytes if they fill a chunk.
    pub async fn flush_if_large(&mut self) -> Result<(), WriteError> {
        #[cfg(feature = "parquet")]
        if let Some(rows) = &mut self.rows {
            while let Some(group) = rows.next_group().await? {
                self.writing.add(group.into());
                self.writing.flush_if_large().await?;
            }
            return Ok(());
        }
        self.writing.flush_if_large().await
    }

    /// Completes the file. Returns its length as NDJSON, and a task that resolves to the hash when the file
    /// is complete and synced.
    #[cfg_attr(not(feature = "parquet"), expect(unused_mut, reason = "only rows have an end"))]
    pub async fn finish(mut self) -> Result<(u64, AbortOnDrop<Result<String, WriteError>>), WriteError> {
        #[cfg(feature = "parquet")]
        if self.rows.is_some() {
            self.flush_if_large().await?;
            if let Some(rows) = self.rows.take() {
                self.writing.add(rows.end().await?.into());
            }
        }
        let bytes = self.writing.bytes;
        Ok((bytes, self.writing.finish().await?))
    }
}
