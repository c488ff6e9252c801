//! SNOMED CT as an RF2 snapshot (SNOMED International, Release File Specification): concepts, descriptions,
//! inferred relationships with groups and concrete values, and reference sets of one edition.
//!
//! An edition is either one package that contains all modules on which it depends, as national editions do,
//! or an extension with the packages on which it depends. Its version consists of its date and of the module
//! on which no other module depends.
//!
//! | module | contents |
//! |---|---|
//! | `dialects` | the language reference sets of each description |
//! | `package` | the modules that a package contains and those on which it depends |
//! | `rows` | the rows of the files of a release |
//! | `reference_sets` | members of reference sets, and historical associations |
//! | `row_precedence` | the choice of a row if several packages contain the same component |
//! | here | from rows to the index builder |

mod dialects;
mod package;
mod reference_sets;
mod row_precedence;
mod rows;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use terminology::indexing::{
    ConceptDesignation, ConceptNumber, ContentMode, DescriptionFacts, HeaderExtensions, HierarchyMeaning,
    IndexBuilder, PropertyDefinition, ResourceHeader, SNOMED_CT as URL, SNOMED_CT_DEFINITION as DEFINITION,
    SNOMED_CT_NAME as FULLY_SPECIFIED_NAME, SNOMED_CT_SYNONYM as SYNONYM, SNOMED_CT_UNPUBLISHED,
};

use self::dialects::DescriptionDialects;
pub(super) use self::package::Rf2Package;
use self::rows::{for_each_row, is_snapshot, parse_identifier};
use crate::error::ImportError;
use crate::release_reader::{ReleaseReader, only};
use crate::release_source::ReleaseSource;
use crate::rf2::row_precedence::{for_each_active_row, for_each_effective_row};
use crate::stated_release::StatedRelease;
use crate::table_reader::{DelimitedTable, FieldBuffer};

/// Prefixes of the names of the input files.
const READ: [&str; 7] = [
    "sct2_Concept_",
    "sct2_Description_",
    "sct2_TextDefinition_",
    "sct2_Relationship_",
    "sct2_RelationshipConcreteValues_",
    IDENTIFIER_FILE,
    "der2_",
];
/// Prefix of the names of the files of alternate identifiers.
const IDENTIFIER_FILE: &str = "sct2_Identifier_";
pub(super) const NAME: &str = "SNOMED CT RF2";
const IS_A: &str = "116680003";
const INFERRED: &str = "900000000000011006";
const FULLY_DEFINED: &str = "900000000000073002";

/// The file of the concepts, if the source contains exactly one package with an RF2 snapshot.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    only(source.files_named(|name| is_snapshot(name, "sct2_Concept_")))
}

/// The input files. `Full`, `Delta` and stated relationships are not read.
pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    source.files_named(|name| READ.iter().any(|prefix| is_snapshot(name, prefix)))
}

/// Reads the package.
///
/// # Errors
/// [`ImportError`] if a file is not valid.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let package = Rf2Package::inspect(reader.source, reader.stated)?;
    let mut base = package.international_base();
    for dependency in &mut *reader.dependencies {
        if base.is_none() {
            base = Rf2Package::inspect(dependency, &StatedRelease::default())?.international_base();
        }
    }
    let header = code_system_header(package.version, base);
    let mut builder = IndexBuilder::new(&header).map_err(|reason| ImportError::in_file("", reason))?;
    read_concepts(reader, &mut builder)?;
    let dialects = DescriptionDialects::read(reader)?;
    read_descriptions(reader, &mut builder, &dialects)?;
    read_definitions(reader, &mut builder, &dialects)?;
    drop(dialects);
    read_relationships(reader, &mut builder)?;
    read_concrete_values(reader, &mut builder)?;
    reference_sets::read_members(reader, &mut builder)?;
    reference_sets::read_historical_associations(reader, &mut builder)?;
    read_alternate_identifiers(reader, &mut builder)?;
    Ok(builder)
}

fn code_system_header(version: String, international_base: Option<String>) -> ResourceHeader {
    let property = |code: &str, kind: &str, description: &str| PropertyDefinition {
        code: code.to_owned(),
        r#type: Some(kind.to_owned()),
        description: Some(description.to_owned()),
        ..PropertyDefinition::default()
    };
    ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        url: Some(URL.to_owned()),
        name: Some("SNOMED_CT".to_owned()),
        title: Some("SNOMED CT".to_owned()),
        // A release for trial does not win over a published one.
        status: Some(if version.starts_with(SNOMED_CT_UNPUBLISHED) { "draft" } else { "active" }.to_owned()),
        date: version_date(&version),
        content: Some(ContentMode::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        language: Some("en".to_owned()),
        // The International Edition is not composed of another release.
        extensions: HeaderExtensions {
            international_base: international_base.filter(|base| !version.ends_with(base.as_str())),
            ..HeaderExtensions::default()
        },
        version: Some(version),
        property: vec![
            property("inactive", "boolean", "True if the concept is inactive."),
            property(
                "sufficientlyDefined",
                "boolean",
                "True if the relationships define the concept completely.",
            ),
            property("moduleId", "code", "Module of the concept."),
            property("effectiveTime", "string", "Date of the current state of the concept, as YYYYMMDD."),
        ],
        ..ResourceHeader::default()
    }
}

/// The date at the end of a version URI, as FHIR writes it.
fn version_date(version: &str) -> Option<String> {
    let digits = version.rsplit('/').next()?;
    Some(format!("{}-{}-{}", digits.get(..4)?, digits.get(4..6)?, digits.get(6..)?))
}

fn read_concepts(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    for_each_effective_row(
        reader,
        |name| is_snapshot(name, "sct2_Concept_"),
        5,
        |table, fields| {
            let added = || -> Result<(), String> {
                let (number, is_new) = builder.add_concept(fields.get(0))?;
                if !is_new {
                    // Its rows could contradict each other, and the order of files would decide.
                    return Err(format!("concept {} occurs twice", fields.get(0)));
                }
                if fields.get(2) == "0" {
                    builder.mark_inactive(number);
                }
                builder.add_property(
                    number,
                    "inactive",
                    if fields.get(2) == "0" { "true" } else { "false" },
                )?;
                let defined = fields.get(4) == FULLY_DEFINED;
                builder.add_property(
                    number,
                    "sufficientlyDefined",
                    if defined { "true" } else { "false" },
                )?;
                builder.add_property(number, "moduleId", fields.get(3))?;
                builder.add_property(number, "effectiveTime", fields.get(1))
            };
            let mut added = added;
            added().map_err(|reason| table.line_error(reason))
        },
    )?;
    match builder.concept_count() {
        0 => Err(ImportError::in_file(
            &reader.source.path().display().to_string(),
            "the release has no concepts",
        )),
        _ => Ok(()),
    }
}

fn read_descriptions(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
    dialects: &DescriptionDialects,
) -> Result<(), ImportError> {
    // Highest rank so far among the texts of each concept; the text with the highest rank becomes the
    // display.
    let mut best = vec![0_u8; builder.concept_count()];
    let mut active = 0;
    for_each_effective_row(
        reader,
        |name| is_snapshot(name, "sct2_Description_"),
        9,
        |table, fields| {
            let is_active = fields.get(2) == "1";
            active += usize::from(is_active);
            let Some(concept) = builder.find_concept(fields.get(4)) else {
                return match is_active {
                    true => {
                        Err(table.line_error(format_args!("the release has no concept {}", fields.get(4))))
                    }
                    false => Ok(()),
                };
            };
            let (language, kind, term) = (fields.get(5), fields.get(6), fields.get(7));
            let is_name = kind == FULLY_SPECIFIED_NAME;
            let description = description_facts(table, fields, dialects)?;
            // A fully specified name is used only if there is no other text. An edition without any language
            // reference set has its English terms, which every edition has.
            let rank = match is_name {
                true => 1,
                false => 2 + 2 * dialects.display_rank(description.id) + u8::from(language == "en"),
            };
            if is_active && rank > best[concept as usize] {
                best[concept as usize] = rank;
                builder.set_display(concept, term).map_err(|reason| table.line_error(reason))?;
            }
            let usage = if is_name {
                [URL, FULLY_SPECIFIED_NAME, "Fully specified name"]
            } else {
                [URL, SYNONYM, "Synonym"]
            };
            let designation = ConceptDesignation {
                language: Some(language),
                usage: Some(usage),
                value: term,
                // An inactive term stays valid in old records, with a comment.
                status: (!is_active).then_some("withdrawn"),
                description: Some(description),
                ..ConceptDesignation::default()
            };
            builder.add_designation(concept, designation).map_err(|reason| table.line_error(reason))
        },
    )?;
    match active {
        0 => Err(ImportError::in_file(
            &reader.source.path().display().to_string(),
            "the release has no active descriptions (sct2_Description_Snapshot…), so its concepts would have no texts; \
             copy it again",
        )),
        _ => Ok(()),
    }
}

/// The data of the description in a row.
fn description_facts<'f>(
    table: &DelimitedTable<'_>,
    fields: &'f FieldBuffer,
    dialects: &'f DescriptionDialects,
) -> Result<DescriptionFacts<'f>, ImportError> {
    let id = parse_identifier(table, fields.get(0))?;
    Ok(DescriptionFacts {
        id,
        module: fields.get(3),
        effective_time: fields.get(1),
        dialects: &dialects.of(id).text,
    })
}

fn read_definitions(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
    dialects: &DescriptionDialects,
) -> Result<(), ImportError> {
    for_each_active_row(
        reader,
        |name| is_snapshot(name, "sct2_TextDefinition_"),
        9,
        |table, fields| {
            let Some(concept) = builder.find_concept(fields.get(4)) else { return Ok(()) };
            let usage = Some([URL, DEFINITION, "Definition"]);
            let designation = ConceptDesignation {
                language: Some(fields.get(5)),
                usage,
                value: fields.get(7),
                description: Some(description_facts(table, fields, dialects)?),
                ..ConceptDesignation::default()
            };
            builder.add_designation(concept, designation).map_err(|reason| table.line_error(reason))
        },
    )
}

fn read_relationships(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    for_each_active_row(
        reader,
        |name| is_snapshot(name, "sct2_Relationship_"),
        10,
        |table, fields| {
            if fields.get(8) != INFERRED {
                return Ok(());
            }
            let find = |what: &str, id: &str| {
                builder.find_concept(id).ok_or_else(|| {
                    table.line_error(format_args!("{what} {id} is not a concept of this edition"))
                })
            };
            let (source, destination) =
                (find("the source", fields.get(4))?, find("the destination", fields.get(5))?);
            if fields.get(7) == IS_A {
                builder.add_parent(source, destination);
                return Ok(());
            }
            let kind = find("the type", fields.get(7))?;
            builder.add_attribute(source, parse_group(table, fields.get(6))?, kind, destination);
            Ok(())
        },
    )
}

fn parse_group(table: &DelimitedTable<'_>, text: &str) -> Result<u32, ImportError> {
    text.parse().map_err(|_| table.line_error(format_args!("'{text}' is not the number of a group")))
}

/// Reads numbers and texts as values, in the form `#5` or `"text"`.
fn read_concrete_values(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    let test = |name: &str| is_snapshot(name, "sct2_RelationshipConcreteValues_");
    for_each_active_row(reader, test, 10, |table, fields| {
        if fields.get(8) != INFERRED {
            return Ok(());
        }
        let (Some(source), Some(kind)) =
            (builder.find_concept(fields.get(4)), builder.find_concept(fields.get(7)))
        else {
            return Err(table.line_error("its source or type is not a concept of this edition"));
        };
        let group = parse_group(table, fields.get(6))?;
        builder
            .add_literal_attribute(source, group, kind, fields.get(5))
            .map_err(|reason| table.line_error(reason))
    })
}

/// Reads the alternate identifiers of concepts. Their rows have no identifier of their own: within a scheme,
/// the row with the latest time is in effect, and of two with the same time the one of the upper package.
fn read_alternate_identifiers(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    struct State {
        since: String,
        concept: Option<ConceptNumber>,
    }
    let mut identifiers: BTreeMap<[String; 2], State> = BTreeMap::new();
    for source in reader.sources() {
        for_each_row(
            source,
            |name| is_snapshot(name, IDENTIFIER_FILE),
            6,
            |table, fields| {
                if !matches!(fields.get(2), "0" | "1") {
                    return Err(table.line_error(format_args!("active is '{}', not 0 or 1", fields.get(2))));
                }
                let key = [fields.get(4).to_owned(), fields.get(0).to_owned()];
                let concept = builder.find_concept(fields.get(5)).filter(|_| fields.get(2) == "1");
                let state = State { since: fields.get(1).to_owned(), concept };
                match identifiers.entry(key) {
                    Entry::Occupied(mut known) if known.get().since <= state.since => {
                        drop(known.insert(state))
                    }
                    Entry::Occupied(_) => {}
                    Entry::Vacant(free) => drop(free.insert(state)),
                }
                Ok(())
            },
        )?;
    }
    for ([scheme, identifier], state) in identifiers {
        let Some(concept) = state.concept else { continue };
        let added = builder.add_identifier(&scheme, &identifier, concept);
        added.map_err(|reason| ImportError::in_file(IDENTIFIER_FILE, reason))?;
    }
    Ok(())
}
