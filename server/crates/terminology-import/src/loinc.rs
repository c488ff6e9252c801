//! LOINC in Regenstrief's release format: the table, parts, answer lists, groups, the component hierarchy and
//! the linguistic variants.
//!
//! Terms, parts, answer lists, answers and groups are concepts. The hierarchy is from the file
//! `ComponentHierarchyBySystem` (before 2.74 `MultiAxialHierarchy`). Answer lists and groups are subsets,
//! which define the value sets `http://loinc.org/vs/LL…` and `…/LG…`.

use std::collections::HashMap;

use terminology::indexing::{
    ConceptDesignation, ConceptNumber, IndexBuilder, LOINC, PropertyDefinition, ResourceHeader,
    compare_versions,
};

use crate::error::ImportError;
use crate::release_header::release_header;
use crate::release_reader::{ReleaseReader, only};
use crate::release_source::{ReleaseSource, base_name};
use crate::table_reader::CsvTable;

/// The six axes, by their names in the table of part links.
const AXES: [&str; 6] = ["COMPONENT", "PROPERTY", "TIME_ASPCT", "SYSTEM", "SCALE_TYP", "METHOD_TYP"];
/// Column of the table with the notice of another owner of the copyright.
const NOTICE: &str = "EXTERNAL_COPYRIGHT_NOTICE";
/// Property with the owner of the copyright: `LOINC`, or `3rdParty` for a term with a notice (FHIR R4, Using
/// LOINC).
const COPYRIGHT: &str = "copyright";
/// Column of the table with the class of the term, and the type of the parts that are classes.
const CLASS: &str = "CLASS";
/// Other columns of the table that become properties.
const FACTS: [&str; 12] = [
    CLASS,
    "STATUS",
    "CLASSTYPE",
    "ORDER_OBS",
    "VersionLastChanged",
    "PanelType",
    "EXAMPLE_UCUM_UNITS",
    "EXAMPLE_UNITS",
    "UNITSREQUIRED",
    "RELATEDNAMES2",
    "AskAtOrderEntry",
    NOTICE,
];
/// Columns of the table with names of the term.
const NAMES: [&str; 3] = ["SHORTNAME", "CONSUMER_NAME", "DisplayName"];
const TERMS: &str = "Loinc.csv";
const PARTS: &str = "Part.csv";
const PART_LINKS: &str = "LoincPartLink_Primary.csv";
const ANSWERS: &str = "AnswerList.csv";
const ANSWER_LINKS: &str = "LoincAnswerListLink.csv";
const GROUPS: &str = "Group.csv";
const GROUP_TERMS: &str = "GroupLoincTerms.csv";
/// Column of the table with the definition of the term.
const MEANING: &str = "DefinitionDescription";

/// The file of LOINC's table, if there is exactly one.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    only(source.files_named(|name| name.eq_ignore_ascii_case("loinc.csv")))
}

/// The file with this name. Some folders contain copies for older layouts, so any file with the name is
/// accepted.
fn find_file(source: &ReleaseSource, name: &str) -> Option<String> {
    source.files_named(|file| file.eq_ignore_ascii_case(name)).into_iter().next()
}

/// The file of the hierarchy: the first of these names that exists.
fn hierarchy_file(source: &ReleaseSource) -> Option<String> {
    ["ComponentHierarchyBySystem.csv", "MultiAxialHierarchy.csv"]
        .iter()
        .find_map(|name| find_file(source, name))
}

/// The files with terms in other languages.
fn variant_files(source: &ReleaseSource) -> Vec<String> {
    source.files_named(|name| name.ends_with("LinguisticVariant.csv"))
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    let tables = [TERMS, PARTS, PART_LINKS, ANSWERS, ANSWER_LINKS, GROUPS, GROUP_TERMS];
    let tables = tables.iter().filter_map(|name| find_file(source, name));
    tables.chain(hierarchy_file(source)).chain(variant_files(source)).collect()
}

/// Reads the release.
///
/// # Errors
/// [`ImportError`] if a table is not valid.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let version = release_version(reader)?;
    let mut builder = IndexBuilder::new(&code_system_header(version))
        .map_err(|reason| ImportError::in_file(TERMS, reason))?;
    read_terms(reader, &mut builder)?;
    read_parts(reader, &mut builder)?;
    read_answers(reader, &mut builder)?;
    read_groups(reader, &mut builder)?;
    read_hierarchy(reader, &mut builder)?;
    read_variants(reader, &mut builder)?;
    Ok(builder)
}

fn code_system_header(version: String) -> ResourceHeader {
    let property = |code: &&str| PropertyDefinition {
        code: (*code).to_owned(),
        uri: Some(format!("{LOINC}/property/{code}")),
        // The value of an axis is a part, and so is a class.
        r#type: Some(if AXES.contains(code) || *code == CLASS { "Coding" } else { "string" }.to_owned()),
        ..PropertyDefinition::default()
    };
    ResourceHeader {
        case_sensitive: Some(false),
        language: Some("en-US".to_owned()),
        property: AXES.iter().chain(&FACTS).chain([&COPYRIGHT]).map(property).collect(),
        ..release_header(LOINC, &version, "LOINC", "LOINC")
    }
}

/// Calls `row` for each line of the file of this name, if it exists.
fn for_each_row(
    reader: &mut ReleaseReader<'_, '_>,
    name: &str,
    headings: &[&'static str],
    required: usize,
    mut row: impl FnMut(&[&str]) -> Result<(), String>,
) -> Result<(), ImportError> {
    match find_file(reader.source, name) {
        Some(file) => CsvTable::open(reader.source, &file, headings, required)?.for_each_row(&mut row),
        None => Ok(()),
    }
}

/// The version from the name of a folder (`Loinc_2.80`).
pub(super) fn version_in_names(source: &ReleaseSource) -> Option<String> {
    let path = source.path().to_string_lossy();
    source.file_names().iter().map(String::as_str).chain([&*path]).find_map(|name| {
        let offset = name.to_ascii_lowercase().find("loinc_")?;
        let rest = &name[offset + 6..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.contains('.').then(|| version.to_owned())
    })
}

/// The version from the name of a folder, or else the latest version in which a term changed.
fn release_version(reader: &mut ReleaseReader<'_, '_>) -> Result<String, ImportError> {
    if let Some(version) = version_in_names(reader.source) {
        return Ok(version);
    }
    let mut latest = String::new();
    for_each_row(reader, TERMS, &["VersionLastChanged"], 0, |fields| {
        if compare_versions(fields[0], &latest).is_gt() {
            latest = fields[0].to_owned();
        }
        Ok(())
    })?;
    match latest.is_empty() {
        true => Err(ImportError::in_file(
            TERMS,
            "no version found: a folder must have a name such as Loinc_2.80, or VersionLastChanged must contain the version",
        )),
        false => Ok(latest),
    }
}

/// The parts of each term: axis, part and name.
type PartLinks = HashMap<String, Vec<[String; 3]>>;

/// Reads the parts of the axes of all terms.
fn read_part_links(reader: &mut ReleaseReader<'_, '_>) -> Result<PartLinks, ImportError> {
    let mut links = PartLinks::new();
    let headings = ["LoincNumber", "PartNumber", "Property", "PartName"];
    for_each_row(reader, PART_LINKS, &headings, 3, |fields| {
        let axis = fields[2].rsplit('/').next().unwrap_or_default();
        let link = [axis, fields[1], fields[3]].map(str::to_owned);
        links.entry(fields[0].to_owned()).or_default().push(link);
        Ok(())
    })?;
    Ok(links)
}

/// The numbers of the parts that are classes, by their names.
fn read_classes(reader: &mut ReleaseReader<'_, '_>) -> Result<HashMap<String, String>, ImportError> {
    let mut classes = HashMap::new();
    for_each_row(reader, PARTS, &["PartNumber", "PartTypeName", "PartName"], 3, |fields| {
        if fields[1] == CLASS {
            classes.insert(fields[2].to_owned(), fields[0].to_owned());
        }
        Ok(())
    })?;
    Ok(classes)
}

fn read_terms(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    let parts = read_part_links(reader)?;
    let classes = read_classes(reader)?;
    let mut headings = vec!["LOINC_NUM", "LONG_COMMON_NAME"];
    headings.extend(AXES.iter().chain(&FACTS).chain(&NAMES).chain([&MEANING]));
    for_each_row(reader, TERMS, &headings, 2 + AXES.len(), |fields| {
        let (number, is_new) = builder.add_concept(fields[0])?;
        if !is_new {
            return Err(format!("{} occurs twice", fields[0]));
        }
        builder.set_display(number, fields[1])?;
        let has_notice =
            headings.iter().zip(fields).any(|(name, value)| *name == NOTICE && !value.is_empty());
        builder.add_property(number, COPYRIGHT, if has_notice { "3rdParty" } else { "LOINC" })?;
        // The table has the name of a part, and the link its number, so that each part is one value.
        let links = parts.get(fields[0]).map_or(&[][..], Vec::as_slice);
        for [axis, part, name] in links {
            builder.add_coding_property(number, axis, [LOINC, part, name])?;
        }
        let is_linked = |heading: &str| links.iter().any(|[axis, ..]| axis == heading);
        let designation = headings
            .iter()
            .zip(fields)
            .skip(2)
            .filter(|(heading, value)| !value.is_empty() && !is_linked(heading));
        for (heading, value) in designation {
            if NAMES.contains(heading) {
                let usage = Some([LOINC, *heading, *heading]);
                builder.add_designation(
                    number,
                    ConceptDesignation {
                        usage,
                        value,
                        language: Some("en-US"),
                        ..ConceptDesignation::default()
                    },
                )?;
            } else if AXES.contains(heading) {
                builder.add_coding_property(number, heading, ["", "", value])?;
            } else if *heading == CLASS
                && let Some(part) = classes.get(*value)
            {
                builder.add_coding_property(number, heading, [LOINC, part, value])?;
            } else if *heading == MEANING {
                builder.set_definition(number, value)?;
            } else {
                builder.add_property(number, heading, value)?;
            }
            if *heading == "STATUS" && *value == "DEPRECATED" {
                builder.mark_inactive(number);
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Finds or adds a concept, and sets its display if it has none.
fn named_concept(builder: &mut IndexBuilder, code: &str, display: &str) -> Result<ConceptNumber, String> {
    let (number, _) = builder.add_concept(code)?;
    if !display.is_empty() && !builder.has_display(number) {
        builder.set_display(number, display)?;
    }
    Ok(number)
}

fn read_parts(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    for_each_row(
        reader,
        PARTS,
        &["PartNumber", "PartTypeName", "PartName", "PartDisplayName", "Status"],
        3,
        |fields| {
            let display = if fields[3].is_empty() { fields[2] } else { fields[3] };
            let number = named_concept(builder, fields[0], display)?;
            builder.add_property(number, "PartTypeName", fields[1])?;
            builder.add_property(number, "STATUS", fields[4])?;
            if fields[4] == "DEPRECATED" {
                builder.mark_inactive(number);
            }
            Ok(())
        },
    )?;
    Ok(())
}

fn read_answers(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    let headings = ["AnswerListId", "AnswerListName", "AnswerStringId", "DisplayText"];
    for_each_row(reader, ANSWERS, &headings, 4, |fields| {
        named_concept(builder, fields[0], fields[1])?;
        if fields[2].is_empty() {
            // An external organization defines the list; its answers are not part of LOINC.
            return Ok(());
        }
        let concept = named_concept(builder, fields[2], fields[3])?;
        builder.add_subset_member(fields[0], concept)
    })?;
    for_each_row(reader, ANSWER_LINKS, &["LoincNumber", "AnswerListId"], 2, |fields| {
        let Some(term) = builder.find_concept(fields[0]) else { return Ok(()) };
        builder.add_property(term, "answer-list", fields[1])
    })?;
    Ok(())
}

fn read_groups(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    for_each_row(reader, GROUPS, &["GroupId", "Group"], 2, |fields| {
        named_concept(builder, fields[0], fields[1]).map(drop)
    })?;
    for_each_row(reader, GROUP_TERMS, &["GroupId", "LoincNumber"], 2, |fields| {
        let Some(term) = builder.find_concept(fields[1]) else { return Ok(()) };
        builder.add_subset_member(fields[0], term)
    })?;
    Ok(())
}

fn read_hierarchy(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    let headings = ["IMMEDIATE_PARENT", "CODE", "CODE_TEXT"];
    let mut link = |fields: &[&str]| {
        let child = named_concept(builder, fields[1], fields[2])?;
        if !fields[0].is_empty() {
            let parent = named_concept(builder, fields[0], "")?;
            builder.add_parent(child, parent);
        }
        Ok(())
    };
    match hierarchy_file(reader.source) {
        Some(file) => CsvTable::open(reader.source, &file, &headings, 2)?.for_each_row(&mut link),
        None => Ok(()),
    }
}

/// Reads files such as `deDE15LinguisticVariant.csv`, in whose names the language is encoded.
fn read_variants(reader: &mut ReleaseReader<'_, '_>, builder: &mut IndexBuilder) -> Result<(), ImportError> {
    for file in variant_files(reader.source) {
        let name = base_name(&file);
        let (Some(language), Some(region)) = (name.get(..2), name.get(2..4)) else { continue };
        let language = format!("{language}-{region}");
        let headings = ["LOINC_NUM", "LONG_COMMON_NAME", "LinguisticVariantDisplayName"];
        let mut row = |fields: &[&str]| {
            let Some(term) = builder.find_concept(fields[0]) else { return Ok(()) };
            for value in fields[1..].iter().filter(|value| !value.is_empty()) {
                let designation =
                    ConceptDesignation { language: Some(&language), value, ..ConceptDesignation::default() };
                builder.add_designation(term, designation)?;
            }
            Ok(())
        };
        CsvTable::open(reader.source, &file, &headings, 1)?.for_each_row(&mut row)?;
    }
    Ok(())
}
