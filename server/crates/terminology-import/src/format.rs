//! The table of the supported formats.

use std::io;

use terminology::CodeSystemIndex;
use terminology::indexing::IndexBuilder;

use crate::error::{ImportError, unreadable};
use crate::release_reader::ReleaseReader;
use crate::release_source::ReleaseSource;
use crate::stated_release::AcceptedOptions;
use crate::{claml, code_system_csv, icd10cm, icd11, loinc, meddra, ndc, omop, rf2, rxnorm, saved_index};
use ReadRelease::{Build, Load};

pub(crate) struct ReleaseFormat {
    pub(crate) name: &'static str,
    /// The options of the import that apply.
    pub(crate) options: AcceptedOptions,
    /// Returns the file that identifies the format, if the source contains it.
    pub(crate) key_file: fn(&ReleaseSource) -> Option<String>,
    /// Path of the folders that contain this file within a release.
    pub(crate) key_folder: &'static str,
    /// Returns the files that the import reads.
    pub(crate) input_files: fn(&ReleaseSource) -> Vec<String>,
    /// Returns the information that only the names of folders and files contain, such as the version.
    pub(crate) version_in_names: fn(&ReleaseSource) -> Option<String>,
    pub(crate) read: ReadRelease,
}

/// How a release becomes an index.
pub(crate) enum ReadRelease {
    /// Its rows are added to a builder.
    Build(fn(&mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError>),
    /// It is an index.
    Load(fn(&mut ReleaseReader<'_, '_>) -> Result<CodeSystemIndex, ImportError>),
}

pub(crate) const FORMATS: &[ReleaseFormat] = &[
    ReleaseFormat {
        name: rf2::NAME,
        options: AcceptedOptions::Edition,
        key_file: rf2::key_file,
        key_folder: "Snapshot/Terminology",
        input_files: rf2::input_files,
        version_in_names: no_version,
        read: Build(rf2::read_release),
    },
    ReleaseFormat {
        name: "LOINC",
        options: AcceptedOptions::Nothing,
        key_file: loinc::key_file,
        key_folder: "LoincTable",
        input_files: loinc::input_files,
        version_in_names: loinc::version_in_names,
        read: Build(loinc::read_release),
    },
    ReleaseFormat {
        name: "RxNorm RRF",
        options: AcceptedOptions::Nothing,
        key_file: rxnorm::key_file,
        key_folder: "rrf",
        input_files: rxnorm::input_files,
        version_in_names: rxnorm::version_in_names,
        read: Build(rxnorm::read_release),
    },
    ReleaseFormat {
        name: omop::NAME,
        options: AcceptedOptions::Nothing,
        key_file: omop::key_file,
        key_folder: "",
        input_files: omop::input_files,
        version_in_names: no_version,
        read: Build(omop::read_release),
    },
    ReleaseFormat {
        name: "ICD-11",
        options: AcceptedOptions::Nothing,
        key_file: icd11::key_file,
        key_folder: "",
        input_files: icd11::input_files,
        version_in_names: icd11::language_in_name,
        read: Build(icd11::read_release),
    },
    ReleaseFormat {
        name: "MedDRA",
        options: AcceptedOptions::Nothing,
        key_file: meddra::key_file,
        key_folder: "MedAscii",
        input_files: meddra::input_files,
        version_in_names: no_version,
        read: Build(meddra::read_release),
    },
    ReleaseFormat {
        name: "NDC directory",
        options: AcceptedOptions::Version,
        key_file: ndc::key_file,
        key_folder: "",
        input_files: ndc::input_files,
        version_in_names: ndc::version_in_names,
        read: Build(ndc::read_release),
    },
    ReleaseFormat {
        name: icd10cm::NAME,
        options: AcceptedOptions::Nothing,
        key_file: icd10cm::key_file,
        key_folder: "",
        input_files: icd10cm::input_files,
        version_in_names: icd10cm::version_in_names,
        read: Build(icd10cm::read_release),
    },
    ReleaseFormat {
        name: "ClaML",
        options: AcceptedOptions::Nothing,
        key_file: claml::key_file,
        key_folder: "",
        input_files: claml::input_files,
        version_in_names: no_version,
        read: Build(claml::read_release),
    },
    ReleaseFormat {
        name: code_system_csv::NAME,
        options: AcceptedOptions::Table,
        key_file: code_system_csv::key_file,
        key_folder: "",
        input_files: code_system_csv::input_files,
        version_in_names: no_version,
        read: Build(code_system_csv::read_release),
    },
    ReleaseFormat {
        name: code_system_csv::SPREADSHEET,
        options: AcceptedOptions::Table,
        key_file: code_system_csv::key_workbook,
        key_folder: "",
        input_files: code_system_csv::input_files,
        version_in_names: no_version,
        read: Build(code_system_csv::read_release),
    },
    ReleaseFormat {
        name: "index",
        options: AcceptedOptions::Nothing,
        key_file: saved_index::key_file,
        key_folder: "",
        input_files: saved_index::input_files,
        version_in_names: no_version,
        read: Load(saved_index::read_release),
    },
];

/// Returns nothing. Used for formats whose version is in the files or in names that are part of the content
/// hash.
fn no_version(_: &ReleaseSource) -> Option<String> {
    None
}

/// The format of a release, or `None` if it is not supported.
pub(crate) fn detect_format(source: &ReleaseSource) -> Option<&'static ReleaseFormat> {
    FORMATS.iter().find(|format| (format.key_file)(source).is_some())
}

/// The files that the import reads.
pub(crate) fn input_files(source: &ReleaseSource) -> Vec<String> {
    detect_format(source).map_or_else(Vec::new, |format| (format.input_files)(source))
}

/// The total size of the input files, where `size` measures each source.
pub(crate) fn total_bytes<'m>(
    sources: &mut [ReleaseSource<'m>],
    size: impl Fn(&mut ReleaseSource<'m>, &[String]) -> io::Result<u64>,
) -> Result<u64, ImportError> {
    let size = |source: &mut ReleaseSource<'m>| {
        let names = input_files(source);
        size(source, &names).map_err(unreadable(&source.path().display().to_string()))
    };
    sources.iter_mut().map(size).sum()
}
