//! The index of a release that another server of this program has built, as its feed contains it.
//!
//! The checksum of the file is verified. It protects against damage and not against a forger: an index must
//! come from a server that the operator trusts.

use terminology::CodeSystemIndex;

use crate::error::{ImportError, unreadable};
use crate::release_reader::ReleaseReader;
use crate::release_source::ReleaseSource;

/// End of the name of the file.
pub(crate) const ENDING: &str = ".index";

/// Returns the only file of the source if it is an index.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    input_files(source).pop()
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    match source.file_names() {
        [name] if name.ends_with(ENDING) => vec![name.clone()],
        _ => Vec::new(),
    }
}

/// Loads the index.
///
/// # Errors
/// Returns [`ImportError`] if the file is not an index, is corrupt, or has the format of another version of
/// the program.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<CodeSystemIndex, ImportError> {
    let name = key_file(reader.source).expect("the format was found by this file");
    let path = reader.source.path().display().to_string();
    let input = reader.source.read(&name).map_err(unreadable(&path))?;
    CodeSystemIndex::read(input).map_err(unreadable(&path))
}
