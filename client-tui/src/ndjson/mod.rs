//! Exported NDJSON files: reading of any line of a large file, search, and facts about one resource.
//!
//! A file is never read as a whole: the position of every 64th line is kept, and a page of lines is read from
//! there.

pub mod bindings;
pub mod file;
pub mod resource;

pub use file::NdjsonFile;
