//! Imports releases of code systems, in the layouts that their publishers use, into indexes of `terminology`.
//!
//! This crate reads files, and `terminology` does not. A release is imported completely or not at all: the
//! index is built in memory, and nothing is changed before it is complete. Errors name the file and the line.
//!
//! | module | contents |
//! |---|---|
//! | `error` | [`ImportError`], with file and line |
//! | `progress` | the bytes read so far, reported while a release is read |
//! | `release_source` | a folder, a zip archive or one file, as names and streams |
//! | `quote_reader` | quotes of CSV that are never closed |
//! | `table_reader` | lines split into fields: RF2 (tabs), RRF (bars), CSV |
//! | `xml_events` | XML as a stream of elements and texts with line numbers |
//! | `rf2` | SNOMED CT: RF2 snapshot |
//! | `loinc` | LOINC: its CSV tables |
//! | `rxnorm` | RxNorm: RRF |
//! | `omop` | OMOP: the tables of Athena |
//! | `icd11` | ICD-11: the table of a linearization |
//! | `meddra` | MedDRA: its ASCII files |
//! | `ndc` | NDC: the FDA's tables of products and packages |
//! | `icd10cm` | ICD-10-CM: order file and tabular list |
//! | `claml` | classifications in ClaML |
//! | `code_system_csv` | any code system as CSV or a spreadsheet, with headings |
//! | `saved_index` | the index of a release that another server has built |
//! | `release_header` | the description of a code system |
//! | `release_reader` | the sources that the reader of a format works with |
//! | `format` | the table of these formats |
//! | `release_import` | from the sources of a release to its index |
//! | `stated_release` | what the caller states about a release |
//! | [`syndication`] | Atom feeds of releases |
//! | `release_set` | which of the given releases are read together |

mod claml;
mod code_system_csv;
mod error;
mod format;
mod icd10cm;
mod icd11;
mod loinc;
mod meddra;
mod ndc;
mod omop;
mod progress;
mod quote_reader;
mod release_header;
mod release_import;
mod release_reader;
mod release_set;
mod release_source;
mod rf2;
mod rxnorm;
mod saved_index;
mod stated_release;
pub mod syndication;
mod table_reader;
mod xml_events;

use std::io;
use std::path::Path;

pub use self::error::ImportError;
use self::format::FORMATS;
pub use self::progress::ReleaseProgress;
pub use self::release_import::ImportedRelease;
use self::release_import::read_release;
pub use self::release_set::{Release, group_releases, group_releases_as};
use self::release_source::ReleaseSource;
pub use self::stated_release::StatedRelease;
pub use spreadsheet::{Column, ReadOptions as TableOptions, StatedEncoding};

/// Returns whether a path is a release of a code system, according to the names of its files.
///
/// A folder is a release if the root of the release is in it. A folder with several releases, or with other
/// files next to a release, is not. A zip archive that cannot be read is treated as a release, so that
/// [`import_release`] reports the error: no other input of this program is a zip archive.
pub fn is_release(path: &Path) -> bool {
    let source = match ReleaseSource::open(path) {
        Ok(source) => source,
        Err(error) => return error.kind() == io::ErrorKind::InvalidData,
    };
    let is_folder = path.is_dir();
    FORMATS.iter().any(|format| {
        (format.key_file)(&source).is_some_and(|key| {
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
            !is_folder || Path::new(format.key_folder).ends_with(folder)
        })
    })
}

/// Imports one release that does not depend on another one: a folder, a zip archive or a file.
///
/// # Errors
/// Returns [`ImportError`] if a file cannot be read or is invalid.
pub fn import_release(
    path: &Path,
    progress: &mut dyn FnMut(ReleaseProgress<'_>),
) -> Result<ImportedRelease, ImportError> {
    let [release]: [Release; 1] =
        group_releases(vec![path.to_owned()]).try_into().expect("one path yields one release");
    release.import(progress)
}

/// Imports a release whose files are in memory, as pairs of name and content.
///
/// # Errors
/// Returns [`ImportError`] if a file is invalid.
pub fn import_files(files: Vec<(String, Vec<u8>)>) -> Result<ImportedRelease, ImportError> {
    read_release(vec![ReleaseSource::in_memory(files)], &StatedRelease::default(), &mut |_| {})
}
