//! Files of exports: written in chunks, in one of the formats, and sent in chunks. They are kept in a folder
//! or in a bucket.

pub(crate) mod attachment_urls;
pub(crate) mod bucket_requests;
pub(crate) mod export_files;
pub(crate) mod file_hasher;
pub(crate) mod file_location;
pub(crate) mod file_source;
pub(crate) mod file_stream;
pub(crate) mod file_writer;
pub mod format;
pub(crate) mod gzip;
pub(crate) mod write_error;
