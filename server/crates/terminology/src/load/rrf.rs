//! RxNorm as the National Library of Medicine publishes it: RRF files, fields cut at `|`.
//!
//! The concepts are RxNorm's own (`SAB=RXNORM`), each by its RXCUI. Relationships are properties by their name (`has_ingredient`,
//! `tradename_of`, …), as are term types (`TTY`) and semantic types (`STY`); `isa` makes the hierarchy.

use std::collections::HashMap;

use super::source::base;
use super::table::{Fields, Table};
use super::{LoadError, Reading, Source};
use crate::code_system::INACTIVE;
use crate::code_system::builder::{Builder, Designation};
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

const URL: &str = "http://www.nlm.nih.gov/research/umls/rxnorm";

/// A file and how many columns it has, each with a bar behind it (RxNorm Technical Documentation).
type File = (&'static str, usize);

const CONCEPTS: File = ("RXNCONSO.RRF", 18);
const RELATIONSHIPS: File = ("RXNREL.RRF", 16);
const SEMANTIC_TYPES: File = ("RXNSTY.RRF", 6);
/// The sources, of which RxNorm is one, with their versions.
const VERSIONS: File = ("RXNSAB.RRF", 25);

/// Term types that only say again what another one says.
const SYNONYMS: [&str; 4] = ["SY", "TMSY", "PSN", "ET"];

/// Is there RxNorm's file of concepts?
pub(super) fn key(source: &Source) -> Option<String> {
    file(source, CONCEPTS)
}

/// The file of this name; a full release has a smaller set of the same names in another folder.
fn file(source: &Source, (name, _): File) -> Option<String> {
    let is_it = |found: &&String| base(found).eq_ignore_ascii_case(name) && !found.contains("prescribe");
    source.names().iter().find(is_it).cloned()
}

/// The files that are read.
pub(super) fn reads(source: &Source) -> Vec<String> {
    let versions = named_version(source).is_none().then_some(VERSIONS);
    [CONCEPTS, RELATIONSHIPS, SEMANTIC_TYPES]
        .into_iter()
        .chain(versions)
        .filter_map(|of| file(source, of))
        .collect()
}

/// Reads the release.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_, '_>) -> Result<Builder, LoadError> {
    let version = version(reading)?;
    let property = |code: &str| PropertyDefinition { code: code.to_owned(), ..PropertyDefinition::default() };
    let header = Header {
        resource_type: "CodeSystem".to_owned(),
        url: Some(URL.to_owned()),
        version: Some(version),
        name: Some("RxNorm".to_owned()),
        title: Some("RxNorm".to_owned()),
        status: Some("active".to_owned()),
        content: Some(Content::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(Meaning::IsA),
        language: Some("en".to_owned()),
        property: ["TTY", "STY", "SAB"].map(property).to_vec(),
        ..Header::default()
    };
    let mut builder = Builder::new(&header).map_err(|why| LoadError::in_file(CONCEPTS.0, why))?;
    concepts(reading, &mut builder)?;
    relationships(reading, &mut builder)?;
    semantic_types(reading, &mut builder)?;
    Ok(builder)
}

/// Calls `row` for each line of a file, where it is there.
fn rows(
    reading: &mut Reading<'_, '_>,
    of: File,
    mut row: impl FnMut(&Fields) -> Result<(), String>,
) -> Result<(), LoadError> {
    let mut fields = Fields::default();
    if let Some(file) = file(reading.source, of) {
        let mut table = Table::open(reading.source, &file, '|')?;
        while table.row(&mut fields, of.1 + 1)?.is_some() {
            row(&fields).map_err(|why| table.wrong(why))?;
        }
    }
    Ok(())
}

/// The version as the name of the release says it (`RxNorm_full_01062025`).
pub(super) fn named_version(source: &Source) -> Option<String> {
    let path = source.path().to_string_lossy();
    let mut names = source.names().iter().map(String::as_str).chain([&*path]);
    names.find_map(|name| {
        let at = name.find("RxNorm_")?;
        let digits = name[at..].split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8)?;
        Some(digits.to_owned())
    })
}

/// The version from the name of the release, else as RxNorm's own row of `RXNSAB.RRF` says it (`RXNORM_20AA_250106F` is
/// known as 01062025).
fn version(reading: &mut Reading<'_, '_>) -> Result<String, LoadError> {
    if let Some(version) = named_version(reading.source) {
        return Ok(version);
    }
    let mut version = None;
    rows(reading, VERSIONS, |fields| {
        if fields.get(3) == "RXNORM" {
            version = Some(fields.get(6).to_owned()).filter(|version| !version.is_empty());
        }
        Ok(())
    })?;
    version.ok_or_else(|| {
        let path = reading.source.path().display().to_string();
        LoadError::in_file(&path, "neither its name (RxNorm_full_01062025) nor RXNSAB.RRF tells the version")
    })
}

fn concepts(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    rows(reading, CONCEPTS, |fields| {
        if fields.get(11) != "RXNORM" {
            return Ok(());
        }
        let (number, is_new) = builder.concept(fields.get(0))?;
        let (kind, text) = (fields.get(12), fields.get(14));
        let is_synonym = SYNONYMS.contains(&kind);
        if !is_synonym || !builder.has_display(number) {
            builder.display(number, text)?;
        }
        if is_synonym {
            let said = Designation { language: Some("en"), value: text, ..Designation::default() };
            builder.designation(number, said)?;
        } else {
            builder.property(number, "TTY", kind)?;
        }
        if is_new {
            builder.property(number, "SAB", "RXNORM")?;
        }
        // `O`: obsolete. Of several rows the one that gives the display says it.
        if !is_synonym && fields.get(16) == "O" {
            builder.mark(number, INACTIVE);
        }
        Ok(())
    })
}

/// A row says how its second concept stands to its first.
fn relationships(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    let mut seen: HashMap<(u32, u32), Vec<String>> = HashMap::new();
    rows(reading, RELATIONSHIPS, |fields| {
        if fields.get(10) != "RXNORM" || fields.get(2) != "CUI" {
            return Ok(());
        }
        let (Some(first), Some(second)) = (builder.find(fields.get(0)), builder.find(fields.get(4))) else {
            return Ok(());
        };
        let name = if fields.get(7).is_empty() { fields.get(3) } else { fields.get(7) };
        let said = seen.entry((first, second)).or_default();
        if said.iter().any(|known| known == name) {
            return Ok(());
        }
        said.push(name.to_owned());
        if name == "isa" {
            builder.link(second, first);
        }
        builder.property(second, name, fields.get(0))
    })
}

fn semantic_types(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    rows(reading, SEMANTIC_TYPES, |fields| {
        let Some(concept) = builder.find(fields.get(0)) else { return Ok(()) };
        builder.property(concept, "STY", fields.get(1))?;
        builder.property(concept, "STY", fields.get(3))
    })
}
