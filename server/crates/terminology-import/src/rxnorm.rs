//! RxNorm in the release format of the National Library of Medicine: RRF files, with fields separated by `|`.
//!
//! Only RxNorm's own concepts are read (`SAB=RXNORM`), identified by RXCUI. Relationships become properties
//! with their name (`has_ingredient`, `tradename_of`, …), as do term types (`TTY`) and semantic types
//! (`STY`). `isa` defines the hierarchy.

use std::collections::HashMap;

use terminology::indexing::{ConceptDesignation, IndexBuilder, PropertyDefinition, ResourceHeader};

use crate::error::ImportError;
use crate::release_header::release_header;
use crate::release_reader::ReleaseReader;
use crate::release_source::{ReleaseSource, base_name};
use crate::table_reader::{DelimitedTable, FieldBuffer};

const URL: &str = "http://www.nlm.nih.gov/research/umls/rxnorm";

/// A file and the number of its columns. A bar ends each column (RxNorm Technical Documentation).
type RrfFile = (&'static str, usize);

const CONCEPTS: RrfFile = ("RXNCONSO.RRF", 18);
const RELATIONSHIPS: RrfFile = ("RXNREL.RRF", 16);
const SEMANTIC_TYPES: RrfFile = ("RXNSTY.RRF", 6);
/// The table of the sources of the release, including RxNorm, with their versions.
const VERSIONS: RrfFile = ("RXNSAB.RRF", 25);

const SYNONYMS: [&str; 4] = ["SY", "TMSY", "PSN", "ET"];

/// Returns RxNorm's file of concepts, if there is one.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    find_file(source, CONCEPTS)
}

/// The file with this name. A full release contains, in another folder, a subset with the same names.
fn find_file(source: &ReleaseSource, (name, _): RrfFile) -> Option<String> {
    let is_it = |file: &&String| base_name(file).eq_ignore_ascii_case(name) && !file.contains("prescribe");
    source.file_names().iter().find(is_it).cloned()
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    let versions = version_in_names(source).is_none().then_some(VERSIONS);
    [CONCEPTS, RELATIONSHIPS, SEMANTIC_TYPES]
        .into_iter()
        .chain(versions)
        .filter_map(|of| find_file(source, of))
        .collect()
}

/// Reads the release.
///
/// # Errors
/// [`ImportError`] if a table is not valid.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let version = release_version(reader)?;
    let property = |code: &str| PropertyDefinition { code: code.to_owned(), ..PropertyDefinition::default() };
    let header = ResourceHeader {
        property: ["TTY", "STY", "SAB"].map(property).to_vec(),
        ..release_header(URL, &version, "RxNorm", "RxNorm")
    };
    let mut builder =
        IndexBuilder::new(&header).map_err(|reason| ImportError::in_file(CONCEPTS.0, reason))?;
    read_concepts(reader, &mut builder)?;
    read_relationships(reader, &mut builder)?;
    read_semantic_types(reader, &mut builder)?;
    Ok(builder)
}

/// Calls `row` for each line of a file, if it exists.
fn for_each_row(
    reader: &mut ReleaseReader<'_, '_>,
    of: RrfFile,
    mut row: impl FnMut(&FieldBuffer) -> Result<(), String>,
) -> Result<(), ImportError> {
    let mut fields = FieldBuffer::default();
    if let Some(file) = find_file(reader.source, of) {
        let mut table = DelimitedTable::open(reader.source, &file, '|')?;
        while table.next_row(&mut fields, of.1 + 1)?.is_some() {
            row(&fields).map_err(|reason| table.line_error(reason))?;
        }
    }
    Ok(())
}

/// The version from the name of the release (`RxNorm_full_01062025`).
pub(super) fn version_in_names(source: &ReleaseSource) -> Option<String> {
    let path = source.path().to_string_lossy();
    let mut names = source.file_names().iter().map(String::as_str).chain([&*path]);
    names.find_map(|name| {
        let offset = name.find("RxNorm_")?;
        let digits = name[offset..].split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8)?;
        Some(digits.to_owned())
    })
}

/// The version from the name of the release, or else from RxNorm's row in `RXNSAB.RRF` (`RXNORM_20AA_250106F`
/// is the version 01062025).
fn release_version(reader: &mut ReleaseReader<'_, '_>) -> Result<String, ImportError> {
    if let Some(version) = version_in_names(reader.source) {
        return Ok(version);
    }
    let mut version = None;
    for_each_row(reader, VERSIONS, |fields| {
        if fields.get(3) == "RXNORM" {
            version = Some(fields.get(6).to_owned()).filter(|version| !version.is_empty());
        }
        Ok(())
    })?;
    version.ok_or_else(|| {
        let path = reader.source.path().display().to_string();
        ImportError::in_file(
            &path,
            "no version found: the release must have a name such as RxNorm_full_01062025, or RXNSAB.RRF must contain the version",
        )
    })
}

fn read_concepts(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    for_each_row(reader, CONCEPTS, |fields| {
        if fields.get(11) != "RXNORM" {
            return Ok(());
        }
        let (number, is_new) = builder.add_concept(fields.get(0))?;
        let (kind, text) = (fields.get(12), fields.get(14));
        let is_synonym = SYNONYMS.contains(&kind);
        if !is_synonym || !builder.has_display(number) {
            builder.set_display(number, text)?;
        }
        if is_synonym {
            let designation =
                ConceptDesignation { language: Some("en"), value: text, ..ConceptDesignation::default() };
            builder.add_designation(number, designation)?;
        } else {
            builder.add_property(number, "TTY", kind)?;
        }
        if is_new {
            builder.add_property(number, "SAB", "RXNORM")?;
        }
        // `O` means obsolete. If a concept has several rows, the row with the display is used.
        if !is_synonym && fields.get(16) == "O" {
            builder.mark_inactive(number);
        }
        Ok(())
    })
}

/// Reads the relationships. A row states the relationship of its second concept to its first one.
fn read_relationships(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    let mut names: HashMap<(u32, u32), Vec<String>> = HashMap::new();
    for_each_row(reader, RELATIONSHIPS, |fields| {
        if fields.get(10) != "RXNORM" || fields.get(2) != "CUI" {
            return Ok(());
        }
        let (Some(first), Some(second)) =
            (builder.find_concept(fields.get(0)), builder.find_concept(fields.get(4)))
        else {
            return Ok(());
        };
        let name = if fields.get(7).is_empty() { fields.get(3) } else { fields.get(7) };
        let designation = names.entry((first, second)).or_default();
        if designation.iter().any(|candidate| candidate == name) {
            return Ok(());
        }
        designation.push(name.to_owned());
        if name == "isa" {
            builder.add_parent(second, first);
        }
        builder.add_property(second, name, fields.get(0))
    })
}

fn read_semantic_types(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    for_each_row(reader, SEMANTIC_TYPES, |fields| {
        let Some(concept) = builder.find_concept(fields.get(0)) else { return Ok(()) };
        builder.add_property(concept, "STY", fields.get(1))?;
        builder.add_property(concept, "STY", fields.get(3))
    })
}
