//! Formats of output files (`_outputFormat`), and the writer of a file in one of them.
//!
//! In every format, files are split by the length of their lines as NDJSON, so that a file contains the same resources
//! in each format.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::abort_on_drop::AbortOnDrop;
use crate::files::export_files::WriteError;
use crate::files::file_writer::FileWriter;
#[cfg(feature = "parquet")]
use crate::files::parquet_rows::ParquetRows;

/// Format of output files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// NDJSON, one resource per line.
    #[default]
    Ndjson,
    /// Apache Parquet, one resource per row. Requires the cargo feature `parquet`.
    Parquet,
}

/// The three names of NDJSON that the specification requires.
pub(crate) const NDJSON: [&str; 3] = ["application/fhir+ndjson", "application/ndjson", "ndjson"];

const PARQUET: &str = "application/vnd.apache.parquet";

impl Format {
    /// Returns the format named by a value of `_outputFormat`, if this server supports it.
    pub fn read(value: &str) -> Option<Self> {
        match value {
            // A literal `+` in a query is decoded as a space.
            _ if NDJSON.contains(&value.replace(' ', "+").as_str()) => Some(Self::Ndjson),
            PARQUET if Self::Parquet.is_offered() => Some(Self::Parquet),
            _ => None,
        }
    }

    /// Returns `true` if this server can write the format.
    pub fn is_offered(self) -> bool {
        self == Self::Ndjson || cfg!(feature = "parquet")
    }

    /// Returns the value of the header `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => NDJSON[0],
            Self::Parquet => PARQUET,
        }
    }

    /// Returns the file name extension.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
        }
    }

    /// Returns the format of a file with this name.
    pub(crate) fn of_file(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        [Self::Ndjson, Self::Parquet].into_iter().find(|format| format.extension() == extension)
    }

    /// Starts a file in this format.
    pub(crate) fn begin(self, writing: FileWriter) -> OutputWriter {
        #[cfg(feature = "parquet")]
        let rows = (self == Self::Parquet).then(Box::default);
        OutputWriter {
            writing,
            bytes: 0,
            #[cfg(feature = "parquet")]
            rows,
        }
    }
}

/// A file of resources that is being written.
pub(crate) struct OutputWriter {
    writing: FileWriter,
    /// Length of the content so far, in bytes of NDJSON.
    pub bytes: u64,
    #[cfg(feature = "parquet")]
    rows: Option<Box<ParquetRows>>,
}

impl OutputWriter {
    /// Adds lines of NDJSON.
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

    /// Completes the file. Returns its length as NDJSON, and a task that resolves to the hash when the file is complete
    /// and synced.
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
