//! Releases of code systems in the layouts that their makers publish, read into indexes.
//!
//! | file | what it reads |
//! |---|---|
//! | `source` | a folder, a zip archive or one file, as names and streams |
//! | `meter` | how much of it was read |
//! | `table` | lines cut into fields: RF2 (tabs), RRF (bars), CSV |
//! | `together` | which releases are read as one |
//! | `rf2` | SNOMED CT, RF2 snapshot |
//! | `loinc` | LOINC, its tables |
//! | `rrf` | RxNorm, RRF |
//! | `xml` | XML as a stream, told with its lines |
//! | `icd10cm` | ICD-10-CM, order file and tabular list |
//! | `claml` | classifications in ClaML |
//! | `csv` | any code system, as CSV that says what it is |
//!
//! A release goes in whole or not at all: an index is made in memory, and nothing is changed before it is
//! finished. What is wrong is told with the file and the line.

mod claml;
mod csv;
mod icd10cm;
mod loinc;
mod meter;
mod rf2;
mod rrf;
mod source;
mod table;
mod together;
mod xml;

use std::fmt;
use std::io::{self, BufRead};
use std::path::Path;

use self::meter::Meter;
use self::source::Source;
pub use self::together::{Release, arrange};
use crate::Index;
use crate::code_system::builder::Builder;

/// SNOMED CT's kind of description that says what a concept means.
pub(crate) use self::rf2::DEFINITION as SNOMED_CT_DEFINITION;

/// Canonical URL of SNOMED CT.
pub(crate) const SNOMED_CT: &str = "http://snomed.info/sct";
/// Canonical URL of LOINC.
pub(crate) const LOINC: &str = "http://loinc.org";

/// Why a release could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub struct LoadError {
    /// The file within the release, where it was one.
    pub file: String,
    /// The line, from 1, where it was one.
    pub line: Option<u64>,
    /// What was wrong.
    pub why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.why),
            None => write!(f, "{}: {}", self.file, self.why),
        }
    }
}

impl LoadError {
    fn in_file(file: &str, why: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: None, why: why.to_string() }
    }

    fn at_line(file: &str, line: u64, why: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: Some(line), why: why.to_string() }
    }
}

/// How far reading is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file that is being read, with its folders.
    pub file: &'a str,
    /// Bytes of the release that were read, packed where they are packed.
    pub bytes: u64,
    /// Bytes that there are to read.
    pub of: u64,
}

/// A release that was read.
#[derive(Debug)]
pub struct Loaded {
    /// Its index.
    pub index: Index,
    /// What the release was taken for, such as `SNOMED CT RF2`.
    pub format: &'static str,
}

/// A kind of release.
struct Format {
    name: &'static str,
    /// The file that it is known by, if it is this one.
    key: fn(&Source) -> Option<String>,
    /// The folders of the release that this file stands in.
    home: &'static str,
    /// The files that are read.
    reads: fn(&Source) -> Vec<String>,
    /// What the names of folders and files tell besides, such as the version.
    named: fn(&Source) -> Option<String>,
    read: fn(&mut Reading<'_, '_>) -> Result<Builder, LoadError>,
}

const FORMATS: &[Format] = &[
    Format {
        name: rf2::NAME,
        key: rf2::key,
        home: "Snapshot/Terminology",
        reads: rf2::reads,
        named: nothing,
        read: rf2::read,
    },
    Format {
        name: "LOINC",
        key: loinc::key,
        home: "LoincTable",
        reads: loinc::reads,
        named: loinc::named_version,
        read: loinc::read,
    },
    Format {
        name: "RxNorm RRF",
        key: rrf::key,
        home: "rrf",
        reads: rrf::reads,
        named: rrf::named_version,
        read: rrf::read,
    },
    Format {
        name: icd10cm::NAME,
        key: icd10cm::key,
        home: "",
        reads: icd10cm::reads,
        named: icd10cm::named_version,
        read: icd10cm::read,
    },
    Format {
        name: "ClaML",
        key: claml::key,
        home: "",
        reads: claml::reads,
        named: nothing,
        read: claml::read,
    },
    Format { name: "CSV", key: csv::key, home: "", reads: csv::reads, named: nothing, read: csv::read },
];

/// Of a format whose files say all in themselves, or in names that are among what is hashed.
fn nothing(_: &Source) -> Option<String> {
    None
}

/// The format of a release, where it is known here.
fn format(source: &Source) -> Option<&'static Format> {
    FORMATS.iter().find(|format| (format.key)(source).is_some())
}

/// The files that are read.
fn reads(source: &Source) -> Vec<String> {
    format(source).map_or_else(Vec::new, |format| (format.reads)(source))
}

/// Bytes of all files that are read, each source measured by `size`.
fn total<'m>(
    sources: &mut [Source<'m>],
    size: impl Fn(&mut Source<'m>, &[String]) -> io::Result<u64>,
) -> Result<u64, LoadError> {
    let size = |source: &mut Source<'m>| {
        let names = reads(source);
        size(source, &names).map_err(unreadable(&source.path().display().to_string()))
    };
    sources.iter_mut().map(size).sum()
}

/// What a reader of a format works with.
struct Reading<'a, 'm> {
    source: &'a mut Source<'m>,
    /// What it is read with, the lowest first: packages of RF2, or the tabular list of ICD-10-CM.
    beneath: &'a mut [Source<'m>],
}

impl<'m> Reading<'_, 'm> {
    /// All of them, the lowest first.
    fn packages(&mut self) -> impl Iterator<Item = &mut Source<'m>> {
        self.beneath.iter_mut().chain(std::iter::once(&mut *self.source))
    }
}

/// Is this path a release of a code system, by the names of the files in it? A folder is one where the release begins,
/// not where there are several or other things beside it. A zip archive that cannot be read counts as one, so that
/// [`load`] says what is wrong with it: nothing else here comes as zip.
pub fn is_release(path: &Path) -> bool {
    let source = match Source::open(path) {
        Ok(source) => source,
        Err(error) => return error.kind() == io::ErrorKind::InvalidData,
    };
    let is_folder = path.is_dir();
    FORMATS.iter().any(|format| {
        (format.key)(&source).is_some_and(|key| {
            let home = key.rsplit_once('/').map_or("", |(home, _)| home);
            !is_folder || Path::new(format.home).ends_with(home)
        })
    })
}

/// The file that a format is known by, where there is one and not several.
fn only(files: Vec<String>) -> Option<String> {
    let [file]: [String; 1] = files.try_into().ok()?;
    Some(file)
}

/// Reads a release that stands alone: a folder, a zip archive or a file.
///
/// # Errors
/// [`LoadError`]: nothing was changed.
pub fn load(path: &Path, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Loaded, LoadError> {
    let [release]: [Release; 1] = arrange(vec![path.to_owned()]).try_into().expect("one path is one release");
    release.load(progress)
}

/// Reads a release whose files are in memory, by name.
///
/// # Errors
/// [`LoadError`].
pub fn load_files(files: Vec<(String, Vec<u8>)>) -> Result<Loaded, LoadError> {
    read(vec![Source::in_memory(files)], &mut |_| {})
}

/// Reads a release, which stands last, over those that it builds on.
fn read<'m>(
    mut sources: Vec<Source<'m>>,
    progress: &'m mut dyn FnMut(Progress<'_>),
) -> Result<Loaded, LoadError> {
    let meter = Meter::new(total(&mut sources, Source::size)?, progress);
    sources.iter_mut().for_each(|source| source.tell(&meter));
    let (source, beneath) = sources.split_last_mut().expect("there is a release");
    let name = source.path().display().to_string();
    let format = format(source).ok_or_else(|| {
        LoadError::in_file(&name, "it is no release of a code system in a layout known here")
    })?;
    let mut reading = Reading { source, beneath };
    let builder = (format.read)(&mut reading)?;
    let system = builder.finish().map_err(|why| LoadError::in_file(&name, why))?;
    if let Some(circle) = system.circle() {
        let why = format!("its hierarchy runs in a circle: {}", circle.join(" > "));
        return Err(LoadError::in_file(&name, why));
    }
    Ok(Loaded { index: system.into(), format: format.name })
}

/// An error of the operating system or of an archive, as that of a file.
fn unreadable(file: &str) -> impl Fn(io::Error) -> LoadError {
    move |error| LoadError::in_file(file, error)
}

/// How many lines the reader of tables, which is about to read the headings, will count too few behind them: of a line
/// end of two characters it takes the second with the row that follows.
fn uncounted(input: &mut dyn BufRead) -> io::Result<u64> {
    let head = input.fill_buf()?;
    let end = head.iter().position(|byte| *byte == b'\n');
    Ok(u64::from(end.is_some_and(|end| head[..end].ends_with(b"\r"))))
}

/// An error of the reader of tables, whose own text counts lines without the `before` that stand above the table.
fn unreadable_row(file: &str, before: u64) -> impl Fn(::csv::Error) -> LoadError {
    move |error| {
        let line = error.position().map(|at| at.line() + before);
        let why = match error.kind() {
            ::csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("the row has {len} fields, the heading {expected_len}; is a quote not closed?")
            }
            ::csv::ErrorKind::Utf8 { err, .. } => format!("field {} is not UTF-8", err.field() + 1),
            _ => error.to_string(),
        };
        LoadError { file: file.to_owned(), line, why }
    }
}
