//! The vocabularies of OMOP as OHDSI publishes them (Athena): tables separated by tabs, without quotes.
//!
//! All concepts of the download are one code system, identified by `concept_id`. `Is a` defines the
//! hierarchy; other relationships, such as `Maps to`, become properties with their name. Concepts with an
//! `invalid_reason` are inactive, and relationships with one are left out.

use terminology::indexing::{ConceptDesignation, IndexBuilder, ResourceHeader};

use crate::error::ImportError;
use crate::release_header::{property, release_header};
use crate::release_reader::ReleaseReader;
use crate::release_source::ReleaseSource;
use crate::table_reader::for_each_headed_row;

/// The URL under which OHDSI publishes the vocabularies for FHIR.
const URL: &str = "https://fhir-terminology.ohdsi.org";

pub(super) const NAME: &str = "OMOP vocabularies";

/// A table with the columns that are read.
struct OmopTable<const N: usize> {
    file: &'static str,
    columns: [&'static str; N],
}

const CONCEPTS: OmopTable<8> = OmopTable {
    file: "CONCEPT.csv",
    columns: [
        "concept_id",
        "concept_name",
        "domain_id",
        "vocabulary_id",
        "concept_class_id",
        "standard_concept",
        "concept_code",
        "invalid_reason",
    ],
};
const RELATIONSHIPS: OmopTable<4> = OmopTable {
    file: "CONCEPT_RELATIONSHIP.csv",
    columns: ["concept_id_1", "concept_id_2", "relationship_id", "invalid_reason"],
};
const SYNONYMS: OmopTable<2> =
    OmopTable { file: "CONCEPT_SYNONYM.csv", columns: ["concept_id", "concept_synonym_name"] };
const VOCABULARIES: OmopTable<2> =
    OmopTable { file: "VOCABULARY.csv", columns: ["vocabulary_id", "vocabulary_version"] };

/// The vocabulary whose version is that of the whole release.
const OF_RELEASE: &str = "None";

/// Returns the file of concepts, if the table of vocabularies is beside it.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    source.file_named(VOCABULARIES.file)?;
    source.file_named(CONCEPTS.file)
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    let names = [CONCEPTS.file, RELATIONSHIPS.file, SYNONYMS.file, VOCABULARIES.file];
    names.into_iter().filter_map(|name| source.file_named(name)).collect()
}

/// Reads the release.
///
/// # Errors
/// [`ImportError`] if a table is not valid.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let version = release_version(reader)?;
    let texts = CONCEPTS.columns[2..].iter().map(|code| property(code, "string"));
    let header = ResourceHeader {
        property: texts.chain([property("Maps to", "code")]).collect(),
        ..release_header(URL, &version, "OMOP", "OMOP concepts")
    };
    let mut builder =
        IndexBuilder::new(&header).map_err(|reason| ImportError::in_file(CONCEPTS.file, reason))?;
    for_each_row(reader, &CONCEPTS, |[id, name, rest @ .., invalid]| {
        let (number, is_new) = builder.add_concept(id)?;
        if !is_new {
            return Err(format!("concept {id} occurs twice"));
        }
        builder.set_display(number, name)?;
        if !invalid.is_empty() {
            builder.mark_inactive(number);
        }
        let properties = CONCEPTS.columns[2..].iter().zip(rest.iter().chain([&invalid]));
        properties
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|(name, value)| builder.add_property(number, name, value))
    })?;
    for_each_row(reader, &RELATIONSHIPS, |[from, to, name, invalid]| {
        // The download contains each relationship in both directions, and only some vocabularies.
        if !invalid.is_empty() || from == to || name == "Subsumes" {
            return Ok(());
        }
        let (Some(own), Some(other)) = (builder.find_concept(from), builder.find_concept(to)) else {
            return Ok(());
        };
        if name == "Is a" {
            builder.add_parent(own, other);
            return Ok(());
        }
        builder.add_property(own, name, to)
    })?;
    for_each_row(reader, &SYNONYMS, |[id, value]| {
        let Some(concept) = builder.find_concept(id) else { return Ok(()) };
        builder.add_designation(concept, ConceptDesignation { value, ..ConceptDesignation::default() })
    })?;
    Ok(builder)
}

/// The version of the release, such as `v5.0 31-AUG-23`.
fn release_version(reader: &mut ReleaseReader<'_, '_>) -> Result<String, ImportError> {
    let mut version = None;
    for_each_row(reader, &VOCABULARIES, |[id, text]| {
        if id == OF_RELEASE {
            version = Some(text.to_owned()).filter(|text| !text.is_empty());
        }
        Ok(())
    })?;
    version.ok_or_else(|| {
        let reason = format!("no version found: the vocabulary '{OF_RELEASE}' must state that of the release; download it again");
        ImportError::in_file(VOCABULARIES.file, reason)
    })
}

/// Calls `row` with the columns of each line of a table, if it exists.
fn for_each_row<const N: usize>(
    reader: &mut ReleaseReader<'_, '_>,
    of: &OmopTable<N>,
    row: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<(), ImportError> {
    match reader.source.file_named(of.file) {
        Some(file) => for_each_headed_row(reader.source, &file, of.columns, row),
        None => Ok(()),
    }
}
