//! SNOMED CT as RF2 snapshot (SNOMED International, Release File Specification): concepts, descriptions, inferred
//! relationships with groups and concrete values, and reference sets, of one edition.
//!
//! An edition is one package that holds all modules it builds on, as the national editions do, or an extension with
//! the packages beneath it. It is known by the module that the others are there for, and by its date.
//!
//! | file | what lives there |
//! |---|---|
//! | `package` | what a package holds and builds on |
//! | `layers` | which row counts where several packages have one |
//! | here | the rows that count, told to the builder |

mod layers;
mod package;

use std::collections::HashMap;

use self::layers::Layers;
pub(super) use self::package::Package;

use super::source::base;
use super::table::{Fields, Table};
use super::{LoadError, Reading, SNOMED_CT as URL, Source, only};
use crate::code_system::INACTIVE;
use crate::code_system::builder::{Builder, Designation};
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

/// How the names of the files that are read begin.
const READ: [&str; 6] = [
    "sct2_Concept_",
    "sct2_Description_",
    "sct2_TextDefinition_",
    "sct2_Relationship_",
    "sct2_RelationshipConcreteValues_",
    "der2_",
];
/// What a release of this kind is told as.
pub(super) const NAME: &str = "SNOMED CT RF2";
const CORE_MODULE: &str = "900000000000207008";
const MODEL_MODULE: &str = "900000000000012004";
const IS_A: &str = "116680003";
const INFERRED: &str = "900000000000011006";
const FULLY_DEFINED: &str = "900000000000073002";
const FULLY_SPECIFIED_NAME: &str = "900000000000003001";
const SYNONYM: &str = "900000000000013009";
pub(crate) const DEFINITION: &str = "900000000000550004";
const PREFERRED: &str = "900000000000548007";
const US_ENGLISH: &str = "900000000000509007";
const GB_ENGLISH: &str = "900000000000508004";

/// Is it a package with an RF2 snapshot, and not a folder of several?
pub(super) fn key(source: &Source) -> Option<String> {
    only(source.named(|name| is_snapshot(name, "sct2_Concept_")))
}

/// The files that are read: `Full` and `Delta` are not, nor what is stated and not inferred.
pub(super) fn reads(source: &Source) -> Vec<String> {
    source.named(|name| READ.iter().any(|prefix| is_snapshot(name, prefix)))
}

/// Is this a snapshot file whose name begins so? Trial releases write an `x` before it.
fn is_snapshot(name: &str, prefix: &str) -> bool {
    let base = base(name);
    base.strip_prefix('x').unwrap_or(base).starts_with(prefix)
        && base.contains("Snapshot")
        && base.ends_with(".txt")
}

/// Reads the package.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_, '_>) -> Result<Builder, LoadError> {
    let version = Package::read(reading.source)?.version;
    let mut builder = Builder::new(&header(version)).map_err(|why| LoadError::in_file("", why))?;
    concepts(reading, &mut builder)?;
    let preferred = preferred_terms(reading)?;
    descriptions(reading, &mut builder, &preferred)?;
    drop(preferred);
    definitions(reading, &mut builder)?;
    relationships(reading, &mut builder)?;
    concrete_values(reading, &mut builder)?;
    reference_sets(reading, &mut builder)?;
    Ok(builder)
}

fn header(version: String) -> Header {
    let property = |code: &str, kind: &str, description: &str| PropertyDefinition {
        code: code.to_owned(),
        r#type: Some(kind.to_owned()),
        description: Some(description.to_owned()),
        ..PropertyDefinition::default()
    };
    Header {
        resource_type: "CodeSystem".to_owned(),
        url: Some(URL.to_owned()),
        name: Some("SNOMED_CT".to_owned()),
        title: Some("SNOMED CT".to_owned()),
        status: Some("active".to_owned()),
        date: date(&version),
        version: Some(version),
        content: Some(Content::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(Meaning::IsA),
        language: Some("en".to_owned()),
        property: vec![
            property("inactive", "boolean", "Is the concept out of use?"),
            property(
                "sufficientlyDefined",
                "boolean",
                "Do its relationships say all that makes the concept?",
            ),
            property("moduleId", "code", "The module that the concept belongs to."),
            property("effectiveTime", "string", "When this state of the concept began, as YYYYMMDD."),
        ],
        ..Header::default()
    }
}

/// The date that a version URI ends with, as FHIR writes it.
fn date(version: &str) -> Option<String> {
    let digits = version.rsplit('/').next()?;
    Some(format!("{}-{}-{}", digits.get(..4)?, digits.get(4..6)?, digits.get(6..)?))
}

/// Calls `row` for each active line of the snapshot files with this prefix.
fn active_rows(
    reading: &mut Reading<'_, '_>,
    test: impl Fn(&str) -> bool + Copy,
    least: usize,
    mut row: impl FnMut(&Table<'_>, &Fields) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    all_rows(reading, test, least, |table, fields| match fields.get(2) {
        "1" => row(table, fields),
        _ => Ok(()),
    })
}

fn all_rows(
    reading: &mut Reading<'_, '_>,
    test: impl Fn(&str) -> bool + Copy,
    least: usize,
    mut row: impl FnMut(&Table<'_>, &Fields) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let mut layers = Layers::read(reading, test, least)?;
    for (layer, source) in reading.packages().enumerate() {
        rows(source, test, least, |table, fields| {
            if !matches!(fields.get(2), "0" | "1") {
                return Err(table.wrong(format_args!("active is '{}', not 0 or 1", fields.get(2))));
            }
            match layers.counts(layer, table, fields)? {
                true => row(table, fields),
                false => Ok(()),
            }
        })?;
    }
    Ok(())
}

/// Calls `row` for each line of some files of one package, but for the first, which names the columns: `least` at least.
fn rows(
    source: &mut Source,
    test: impl Fn(&str) -> bool,
    least: usize,
    mut row: impl FnMut(&Table<'_>, &Fields) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let files: Vec<String> = source.names().iter().filter(|name| test(name)).cloned().collect();
    let mut fields = Fields::default();
    for file in files {
        let mut table = Table::open(source, &file, '\t')?;
        let width = table.heading(&mut fields, least)?;
        while table.row(&mut fields, width)?.is_some() {
            row(&table, &fields)?;
        }
    }
    Ok(())
}

fn concepts(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    all_rows(
        reading,
        |name| is_snapshot(name, "sct2_Concept_"),
        5,
        |table, fields| {
            let told = || -> Result<(), String> {
                let (number, is_new) = builder.concept(fields.get(0))?;
                if !is_new {
                    return Err(format!("concept {} stands there twice", fields.get(0)));
                }
                if fields.get(2) == "0" {
                    builder.mark(number, INACTIVE);
                }
                builder.property(number, "inactive", if fields.get(2) == "0" { "true" } else { "false" })?;
                let defined = fields.get(4) == FULLY_DEFINED;
                builder.property(number, "sufficientlyDefined", if defined { "true" } else { "false" })?;
                builder.property(number, "moduleId", fields.get(3))?;
                builder.property(number, "effectiveTime", fields.get(1))
            };
            let mut told = told;
            told().map_err(|why| table.wrong(why))
        },
    )?;
    match builder.len() {
        0 => Err(LoadError::in_file(&reading.source.path().display().to_string(), "it holds no concepts")),
        _ => Ok(()),
    }
}

/// How much a description is wanted as the display: 3 for what is preferred in the USA, 2 in Great Britain, 1
/// elsewhere.
fn preferred_terms(reading: &mut Reading<'_, '_>) -> Result<HashMap<u64, u8>, LoadError> {
    let mut preferred = HashMap::new();
    active_rows(
        reading,
        |name| is_snapshot(name, "der2_cRefset_Language"),
        7,
        |table, fields| {
            if fields.get(6) != PREFERRED {
                return Ok(());
            }
            let description = identifier(table, fields.get(5))?;
            let wanted = match fields.get(4) {
                US_ENGLISH => 3,
                GB_ENGLISH => 2,
                _ => 1,
            };
            let best = preferred.entry(description).or_insert(wanted);
            *best = wanted.max(*best);
            Ok(())
        },
    )?;
    Ok(preferred)
}

fn identifier(table: &Table<'_>, text: &str) -> Result<u64, LoadError> {
    text.parse().map_err(|_| table.wrong(format_args!("'{text}' is no SNOMED CT identifier")))
}

fn descriptions(
    reading: &mut Reading<'_, '_>,
    builder: &mut Builder,
    preferred: &HashMap<u64, u8>,
) -> Result<(), LoadError> {
    // By concept: how good its display is so far.
    let mut best = vec![0_u8; builder.len()];
    active_rows(
        reading,
        |name| is_snapshot(name, "sct2_Description_"),
        9,
        |table, fields| {
            let Some(concept) = builder.find(fields.get(4)) else {
                return Err(table.wrong(format_args!("there is no concept {}", fields.get(4))));
            };
            let (language, kind, term) = (fields.get(5), fields.get(6), fields.get(7));
            let is_name = kind == FULLY_SPECIFIED_NAME;
            let wanted = preferred.get(&identifier(table, fields.get(0))?).copied().unwrap_or_default();
            // English first, as the language that every edition has; a name with its tag is better than nothing.
            let rank = 1 + u8::from(!is_name && wanted > 0) * (wanted + 3 * u8::from(language == "en"));
            if rank > best[concept as usize] {
                best[concept as usize] = rank;
                builder.display(concept, term).map_err(|why| table.wrong(why))?;
            }
            let usage = if is_name {
                [URL, FULLY_SPECIFIED_NAME, "Fully specified name"]
            } else {
                [URL, SYNONYM, "Synonym"]
            };
            let said =
                Designation { language: Some(language), usage: Some(usage), value: term, status: None };
            builder.designation(concept, said).map_err(|why| table.wrong(why))
        },
    )
}

fn definitions(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    active_rows(
        reading,
        |name| is_snapshot(name, "sct2_TextDefinition_"),
        9,
        |table, fields| {
            let Some(concept) = builder.find(fields.get(4)) else { return Ok(()) };
            let usage = Some([URL, DEFINITION, "Definition"]);
            let said =
                Designation { language: Some(fields.get(5)), usage, value: fields.get(7), status: None };
            builder.designation(concept, said).map_err(|why| table.wrong(why))
        },
    )
}

fn relationships(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    active_rows(
        reading,
        |name| is_snapshot(name, "sct2_Relationship_"),
        10,
        |table, fields| {
            if fields.get(8) != INFERRED {
                return Ok(());
            }
            let find = |what: &str, id: &str| {
                builder
                    .find(id)
                    .ok_or_else(|| table.wrong(format_args!("{what} {id} is no concept of this edition")))
            };
            let (source, destination) =
                (find("the source", fields.get(4))?, find("the destination", fields.get(5))?);
            if fields.get(7) == IS_A {
                builder.link(source, destination);
                return Ok(());
            }
            let kind = find("the type", fields.get(7))?;
            builder.attribute(source, group(table, fields.get(6))?, kind, destination);
            Ok(())
        },
    )
}

fn group(table: &Table<'_>, text: &str) -> Result<u32, LoadError> {
    text.parse().map_err(|_| table.wrong(format_args!("'{text}' is no number of a group")))
}

/// Numbers and texts as values: `#5`, `"text"`.
fn concrete_values(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    let test = |name: &str| is_snapshot(name, "sct2_RelationshipConcreteValues_");
    active_rows(reading, test, 10, |table, fields| {
        if fields.get(8) != INFERRED {
            return Ok(());
        }
        let (Some(source), Some(kind)) = (builder.find(fields.get(4)), builder.find(fields.get(7))) else {
            return Err(table.wrong("its source or type is no concept of this edition"));
        };
        let group = group(table, fields.get(6))?;
        builder.literal(source, group, kind, fields.get(5)).map_err(|why| table.wrong(why))
    })
}

/// Reference sets of concepts; those of descriptions and of the release's own bookkeeping hold none.
fn reference_sets(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    let test = |name: &str| is_snapshot(name, "der2_") && !base(name).contains("_Language");
    active_rows(reading, test, 6, |table, fields| {
        let Some(member) = builder.find(fields.get(5)) else { return Ok(()) };
        builder.member(fields.get(4), member).map_err(|why| table.wrong(why))
    })
}
