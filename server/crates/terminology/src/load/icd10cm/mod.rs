//! ICD-10-CM as the National Center for Health Statistics publishes it, from one or both of its files in a folder.
//!
//! | file | what is in it |
//! |---|---|
//! | `icd10cm_order_2025.txt` | every code with short and long description, and whether it may be billed |
//! | `icd10cm_tabular_2025.xml` | chapters and sections, codes by nesting, inclusion terms, seventh characters |
//!
//! With both, the hierarchy is that of the tabular list, and the display what the order file says; with the tabular list
//! alone, codes with a seventh character are made by its rules.

mod order;
mod tabular;

use super::source::base;
use super::{LoadError, Reading, Source};
use crate::code_system::builder::Builder;
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

const URL: &str = "http://hl7.org/fhir/sid/icd-10-cm";

/// Is there an order file or a tabular list?
pub(super) fn key(source: &Source) -> Option<String> {
    file(source, "order", ".txt").or_else(|| file(source, "tabular", ".xml"))
}

/// The files that are read.
pub(super) fn reads(source: &Source) -> Vec<String> {
    file(source, "order", ".txt").into_iter().chain(file(source, "tabular", ".xml")).collect()
}

/// The file of this kind; some years have hyphens in the names.
fn file(source: &Source, kind: &str, end: &str) -> Option<String> {
    let is_one = |name: &str| {
        let name = name.to_ascii_lowercase().replace('-', "_");
        name.starts_with(&format!("icd10cm_{kind}_")) && name.ends_with(end) && !name.contains("addenda")
    };
    source.named(is_one).into_iter().next()
}

/// Reads the files.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_, '_>) -> Result<Builder, LoadError> {
    let order = file(reading.source, "order", ".txt");
    let tabular = file(reading.source, "tabular", ".xml");
    let mut years = Vec::new();
    for file in order.iter().chain(&tabular) {
        years.push((file, year(file)?));
    }
    let (first, year) = &years[0];
    if let Some((other, not_it)) = years.iter().find(|(_, other)| other != year) {
        let why =
            format!("it is of {not_it}, but {first} of {year}; put the files of one year into a folder");
        return Err(LoadError::in_file(other, why));
    }
    let mut builder = Builder::new(&header(year)).map_err(|why| LoadError::in_file(first, why))?;
    if let Some(file) = &tabular {
        tabular::read(reading.source, file, &mut builder, order.is_none())?;
    }
    if let Some(file) = &order {
        order::read(reading.source, file, &mut builder)?;
    }
    Ok(builder)
}

/// The year in the name of a file.
fn year(file: &str) -> Result<String, LoadError> {
    let name = base(file)["icd10cm".len()..].split(|c: char| !c.is_ascii_digit());
    let year = name.into_iter().find(|digits| digits.len() == 4);
    year.map(str::to_owned).ok_or_else(|| {
        LoadError::in_file(file, "its name does not tell the year, as in icd10cm_order_2025.txt")
    })
}

fn header(version: &str) -> Header {
    let property = |code: &str, description: &str| PropertyDefinition {
        code: code.to_owned(),
        r#type: Some("boolean".to_owned()),
        description: Some(description.to_owned()),
        ..PropertyDefinition::default()
    };
    Header {
        resource_type: "CodeSystem".to_owned(),
        url: Some(URL.to_owned()),
        version: Some(version.to_owned()),
        name: Some("ICD_10_CM".to_owned()),
        title: Some("ICD-10-CM".to_owned()),
        status: Some("active".to_owned()),
        content: Some(Content::Complete),
        case_sensitive: Some(false),
        hierarchy_meaning: Some(Meaning::IsA),
        language: Some("en".to_owned()),
        property: vec![
            property("billable", "May it stand on a claim, being no heading?"),
            property("notSelectable", "Is it a chapter or a section?"),
        ],
        ..Header::default()
    }
}
