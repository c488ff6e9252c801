//! Formats of output files (`_outputFormat`), and the writer of a file in one of them.
//!
//! In every format, files are split by the length of their lines as NDJSON, so that a file contains the same
//! resources in each format.

use serde::{Deserialize, Serialize};

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
    /// The format named by a value of `_outputFormat`, if this server supports it.
    pub fn read(value: &str) -> Option<Self> {
        match value {
            // A literal `+` in a query is decoded as a space.
            _ if NDJSON.contains(&value.replace(' ', "+").as_str()) => Some(Self::Ndjson),
            PARQUET if Self::Parquet.is_offered() => Some(Self::Parquet),
            _ => None,
        }
    }

    /// `true` if this server can write the format.
    pub fn is_offered(self) -> bool {
        self == Self::Ndjson || cfg!(feature = "parquet")
    }

    /// The value of the header `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => NDJSON[0],
            Self::Parquet => PARQUET,
        }
    }

    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
        }
    }

    /// The format of a file with this name.
    pub(crate) fn of_file(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        [Self::Ndjson, Self::Parquet].into_iter().find(|format| format.extension() == extension)
    }
}
