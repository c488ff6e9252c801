//! LOINC as Regenstrief publishes it: the table, parts, answer lists, groups, the component hierarchy and the linguistic
//! variants, from the folders and files of a release.
//!
//! Terms, parts, answer lists, answers and groups are concepts. The hierarchy is that of
//! the file `ComponentHierarchyBySystem` (before 2.74 `MultiAxialHierarchy`); answer lists and groups are subsets, by
//! which `http://loinc.org/vs/LL…` and `…/LG…` are answered.

use super::source::base;
use super::table::Sheet;
use super::{LOINC, LoadError, Reading, Source, only};
use crate::code_system::INACTIVE;
use crate::code_system::builder::{Builder, Designation, Number};
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

/// The six axes, with what a part link calls them.
const AXES: [&str; 6] = ["COMPONENT", "PROPERTY", "TIME_ASPCT", "SYSTEM", "SCALE_TYP", "METHOD_TYP"];
/// Other columns of the table that are kept as properties.
const FACTS: [&str; 8] = [
    "CLASS",
    "STATUS",
    "CLASSTYPE",
    "ORDER_OBS",
    "VersionLastChanged",
    "PanelType",
    "EXAMPLE_UCUM_UNITS",
    "AskAtOrderEntry",
];
/// Columns of the table that are names of the term.
const NAMES: [&str; 3] = ["SHORTNAME", "CONSUMER_NAME", "DisplayName"];
const TERMS: &str = "Loinc.csv";
const PARTS: &str = "Part.csv";
const PART_LINKS: &str = "LoincPartLink_Primary.csv";
const ANSWERS: &str = "AnswerList.csv";
const ANSWER_LINKS: &str = "LoincAnswerListLink.csv";
const GROUPS: &str = "Group.csv";
const GROUP_TERMS: &str = "GroupLoincTerms.csv";
/// The column of the table that says what the term means.
const MEANING: &str = "DefinitionDescription";

/// Is there LOINC's table?
pub(super) fn key(source: &Source) -> Option<String> {
    only(source.named(|name| name.eq_ignore_ascii_case("loinc.csv")))
}

/// The file of this name. Some folders hold the same one once more for older layouts; one is as good as the other.
fn file(source: &Source, name: &str) -> Option<String> {
    source.named(|found| found.eq_ignore_ascii_case(name)).into_iter().next()
}

/// The hierarchy, in the first of these files that is there.
fn hierarchy_file(source: &Source) -> Option<String> {
    ["ComponentHierarchyBySystem.csv", "MultiAxialHierarchy.csv"].iter().find_map(|name| file(source, name))
}

/// The files of terms in other languages.
fn variant_files(source: &Source) -> Vec<String> {
    source.named(|name| name.ends_with("LinguisticVariant.csv"))
}

/// The files that are read.
pub(super) fn reads(source: &Source) -> Vec<String> {
    let tables = [TERMS, PARTS, PART_LINKS, ANSWERS, ANSWER_LINKS, GROUPS, GROUP_TERMS];
    let tables = tables.iter().filter_map(|name| file(source, name));
    tables.chain(hierarchy_file(source)).chain(variant_files(source)).collect()
}

/// Reads the release.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_, '_>) -> Result<Builder, LoadError> {
    let version = version(reading)?;
    let mut builder = Builder::new(&header(version)).map_err(|why| LoadError::in_file(TERMS, why))?;
    terms(reading, &mut builder)?;
    parts(reading, &mut builder)?;
    answers(reading, &mut builder)?;
    groups(reading, &mut builder)?;
    hierarchy(reading, &mut builder)?;
    variants(reading, &mut builder)?;
    Ok(builder)
}

fn header(version: String) -> Header {
    let property = |code: &&str| PropertyDefinition {
        code: (*code).to_owned(),
        uri: Some(format!("{LOINC}/property/{code}")),
        r#type: Some("string".to_owned()),
        ..PropertyDefinition::default()
    };
    Header {
        resource_type: "CodeSystem".to_owned(),
        url: Some(LOINC.to_owned()),
        version: Some(version),
        name: Some("LOINC".to_owned()),
        title: Some("LOINC".to_owned()),
        status: Some("active".to_owned()),
        content: Some(Content::Complete),
        case_sensitive: Some(false),
        hierarchy_meaning: Some(Meaning::IsA),
        language: Some("en-US".to_owned()),
        property: AXES.iter().chain(&FACTS).map(property).collect(),
        ..Header::default()
    }
}

/// Calls `row` for each line of the one file of this name, where it is there.
fn rows(
    reading: &mut Reading<'_, '_>,
    name: &str,
    headings: &[&'static str],
    needed: usize,
    mut row: impl FnMut(&[&str]) -> Result<(), String>,
) -> Result<(), LoadError> {
    match file(reading.source, name) {
        Some(file) => Sheet::open(reading.source, &file, headings, needed)?.each(&mut row),
        None => Ok(()),
    }
}

/// The version as the name of a folder says it (`Loinc_2.80`).
pub(super) fn named_version(source: &Source) -> Option<String> {
    let path = source.path().to_string_lossy();
    source.names().iter().map(String::as_str).chain([&*path]).find_map(|name| {
        let at = name.to_ascii_lowercase().find("loinc_")?;
        let rest = &name[at + 6..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.contains('.').then(|| version.to_owned())
    })
}

/// The version: from the name of a folder (`Loinc_2.80`), else the latest that a term was changed in.
fn version(reading: &mut Reading<'_, '_>) -> Result<String, LoadError> {
    if let Some(version) = named_version(reading.source) {
        return Ok(version);
    }
    let mut latest = String::new();
    rows(reading, TERMS, &["VersionLastChanged"], 0, |fields| {
        if crate::version::compare(fields[0], &latest).is_gt() {
            latest = fields[0].to_owned();
        }
        Ok(())
    })?;
    match latest.is_empty() {
        true => Err(LoadError::in_file(
            TERMS,
            "neither a folder Loinc_2.80 nor VersionLastChanged tells the version",
        )),
        false => Ok(latest),
    }
}

fn terms(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    let mut headings = vec!["LOINC_NUM", "LONG_COMMON_NAME"];
    headings.extend(AXES.iter().chain(&FACTS).chain(&NAMES).chain([&MEANING]));
    rows(reading, TERMS, &headings, 2 + AXES.len(), |fields| {
        let (number, is_new) = builder.concept(fields[0])?;
        if !is_new {
            return Err(format!("{} stands there twice", fields[0]));
        }
        builder.display(number, fields[1])?;
        let said = headings.iter().zip(fields).skip(2).filter(|(_, value)| !value.is_empty());
        for (heading, value) in said {
            if NAMES.contains(heading) {
                let usage = Some([LOINC, *heading, *heading]);
                builder.designation(
                    number,
                    Designation { usage, value, language: Some("en-US"), status: None },
                )?;
            } else if *heading == MEANING {
                builder.definition(number, value)?;
            } else {
                builder.property(number, heading, value)?;
            }
            if *heading == "STATUS" && *value == "DEPRECATED" {
                builder.mark(number, INACTIVE);
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Adds or finds a concept and says what it is called, where nobody has yet.
fn concept(builder: &mut Builder, code: &str, display: &str) -> Result<Number, String> {
    let (number, _) = builder.concept(code)?;
    if !display.is_empty() && !builder.has_display(number) {
        builder.display(number, display)?;
    }
    Ok(number)
}

fn parts(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    rows(
        reading,
        PARTS,
        &["PartNumber", "PartTypeName", "PartName", "PartDisplayName", "Status"],
        3,
        |fields| {
            let display = if fields[3].is_empty() { fields[2] } else { fields[3] };
            let number = concept(builder, fields[0], display)?;
            builder.property(number, "PartTypeName", fields[1])?;
            builder.property(number, "STATUS", fields[4])?;
            if fields[4] == "DEPRECATED" {
                builder.mark(number, INACTIVE);
            }
            Ok(())
        },
    )?;
    // An axis is said by its part too, so that filters may name it either way.
    let headings = ["LoincNumber", "PartNumber", "Property"];
    rows(reading, PART_LINKS, &headings, 3, |fields| {
        let Some(term) = builder.find(fields[0]) else { return Ok(()) };
        let axis = fields[2].rsplit('/').next().unwrap_or_default();
        builder.property(term, axis, fields[1])
    })?;
    Ok(())
}

fn answers(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    let headings = ["AnswerListId", "AnswerListName", "AnswerStringId", "DisplayText"];
    rows(reading, ANSWERS, &headings, 4, |fields| {
        concept(builder, fields[0], fields[1])?;
        if fields[2].is_empty() {
            // The list stands in another place; its answers are not LOINC's.
            return Ok(());
        }
        let answer = concept(builder, fields[2], fields[3])?;
        builder.member(fields[0], answer)
    })?;
    rows(reading, ANSWER_LINKS, &["LoincNumber", "AnswerListId"], 2, |fields| {
        let Some(term) = builder.find(fields[0]) else { return Ok(()) };
        builder.property(term, "answer-list", fields[1])
    })?;
    Ok(())
}

fn groups(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    rows(reading, GROUPS, &["GroupId", "Group"], 2, |fields| {
        concept(builder, fields[0], fields[1]).map(drop)
    })?;
    rows(reading, GROUP_TERMS, &["GroupId", "LoincNumber"], 2, |fields| {
        let Some(term) = builder.find(fields[1]) else { return Ok(()) };
        builder.member(fields[0], term)
    })?;
    Ok(())
}

fn hierarchy(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    let headings = ["IMMEDIATE_PARENT", "CODE", "CODE_TEXT"];
    let mut link = |fields: &[&str]| {
        let child = concept(builder, fields[1], fields[2])?;
        if !fields[0].is_empty() {
            let parent = concept(builder, fields[0], "")?;
            builder.link(child, parent);
        }
        Ok(())
    };
    match hierarchy_file(reading.source) {
        Some(file) => Sheet::open(reading.source, &file, &headings, 2)?.each(&mut link),
        None => Ok(()),
    }
}

/// Files such as `deDE15LinguisticVariant.csv`: the language stands in the name.
fn variants(reading: &mut Reading<'_, '_>, builder: &mut Builder) -> Result<(), LoadError> {
    for file in variant_files(reading.source) {
        let name = base(&file);
        let (Some(language), Some(region)) = (name.get(..2), name.get(2..4)) else { continue };
        let language = format!("{language}-{region}");
        let headings = ["LOINC_NUM", "LONG_COMMON_NAME", "LinguisticVariantDisplayName"];
        let mut row = |fields: &[&str]| {
            let Some(term) = builder.find(fields[0]) else { return Ok(()) };
            for value in fields[1..].iter().filter(|value| !value.is_empty()) {
                let said = Designation { language: Some(&language), value, ..Designation::default() };
                builder.designation(term, said)?;
            }
            Ok(())
        };
        Sheet::open(reading.source, &file, &headings, 1)?.each(&mut row)?;
    }
    Ok(())
}
