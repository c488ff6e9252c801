//! Files of exports: written in chunks, in one of the formats, and sent in chunks.

pub(crate) mod export_files;
pub(crate) mod file_stream;
pub mod format;
pub(crate) mod gzip;
#[cfg(feature = "parquet")]
pub(crate) mod parquet_rows;
