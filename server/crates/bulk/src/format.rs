//! The formats of output files (`_outputFormat`), and a file as it grows in one of them.
//!
//! Files are cut by the length of their lines as NDJSON, whatever the format, so that a file holds the same resources in
//! each.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::files::{WriteError, Writing};
#[cfg(feature = "parquet")]
use crate::rows::Rows;
use crate::task::Task;

/// How output files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// One resource a line.
    #[default]
    Ndjson,
    /// Apache Parquet, one resource a row: see `rows`. Offered with the cargo feature `parquet`.
    Parquet,
}

/// The three spellings of NDJSON that a server must know.
pub(crate) const NDJSON: [&str; 3] = ["application/fhir+ndjson", "application/ndjson", "ndjson"];

const PARQUET: &str = "application/vnd.apache.parquet";

impl Format {
    /// The format that a value of `_outputFormat` names, where it is offered.
    pub fn read(value: &str) -> Option<Self> {
        match value {
            // A raw `+` in a query arrives as a space.
            _ if NDJSON.contains(&value.replace(' ', "+").as_str()) => Some(Self::Ndjson),
            PARQUET if Self::Parquet.is_offered() => Some(Self::Parquet),
            _ => None,
        }
    }

    /// Can this server write it?
    pub fn is_offered(self) -> bool {
        self == Self::Ndjson || cfg!(feature = "parquet")
    }

    /// For `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => NDJSON[0],
            Self::Parquet => PARQUET,
        }
    }

    /// How names of files end.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
        }
    }

    /// Begins a file.
    pub(crate) fn begin(self, writing: Writing) -> Lines {
        #[cfg(feature = "parquet")]
        let rows = (self == Self::Parquet).then(Box::default);
        Lines {
            writing,
            bytes: 0,
            #[cfg(feature = "parquet")]
            rows,
        }
    }
}

/// A file of resources as it grows.
pub(crate) struct Lines {
    writing: Writing,
    /// How long it is by now, as NDJSON.
    pub bytes: u64,
    #[cfg(feature = "parquet")]
    rows: Option<Box<Rows>>,
}

impl Lines {
    /// Adds resources, one a line.
    pub fn add(&mut self, text: Bytes) {
        self.bytes += text.len() as u64;
        #[cfg(feature = "parquet")]
        if let Some(rows) = &mut self.rows {
            let lines = text.split_inclusive(|byte| *byte == b'\n');
            return lines.for_each(|line| rows.add(line.trim_ascii_end()));
        }
        self.writing.add(text);
    }

    /// Passes on what is gathered, where it is enough.
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

    /// Ends the file: gives its length, and a task that gives its hash when it is whole and on the disk.
    #[cfg_attr(not(feature = "parquet"), expect(unused_mut, reason = "only rows have an end"))]
    pub async fn finish(mut self) -> Result<(u64, Task<object_store::Result<String>>), WriteError> {
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
