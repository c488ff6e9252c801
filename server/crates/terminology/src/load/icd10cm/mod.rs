//! ICD-10-CM as the National Center for Health Statistics publishes it, from one or both of its files, in one place or in
//! two.
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

use std::collections::BTreeSet;

use super::source::base;
use super::{LoadError, Reading, Source};
use crate::code_system::builder::Builder;
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

const URL: &str = "http://hl7.org/fhir/sid/icd-10-cm";

/// What a release of this kind is told as.
pub(super) const NAME: &str = "ICD-10-CM";

/// Is there an order file or a tabular list?
pub(super) fn key(source: &Source) -> Option<String> {
    reads(source).into_iter().next()
}

/// The files that are read.
pub(super) fn reads(source: &Source) -> Vec<String> {
    order_file(source).into_iter().chain(tabular_file(source)).collect()
}

/// The version, which stands in the names of the files.
pub(super) fn named_version(source: &Source) -> Option<String> {
    year(&key(source)?).ok()
}

/// One of the two files, where the other one may lie in another place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Half {
    year: String,
    is_order: bool,
}

impl Half {
    /// What there is, where it is not both.
    pub fn of(source: &Source) -> Option<Self> {
        let is_order = match (order_file(source), tabular_file(source)) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            _ => return None,
        };
        Some(Self { year: named_version(source)?, is_order })
    }
}

/// The places of the order file and the tabular list of one year, for each year of which there is one of each.
pub(super) fn pairs(halves: &[Option<&Half>]) -> Vec<(usize, usize)> {
    let places = |year: &str, is_order: bool| -> Vec<usize> {
        let is_it = |half: &Half| half.year == year && half.is_order == is_order;
        (0..halves.len()).filter(|at| halves[*at].is_some_and(is_it)).collect()
    };
    let years: BTreeSet<&str> = halves.iter().flatten().map(|half| half.year.as_str()).collect();
    let pair = |year: &str| match (&places(year, true)[..], &places(year, false)[..]) {
        ([order], [tabular]) => Some((*order, *tabular)),
        _ => None,
    };
    years.into_iter().filter_map(pair).collect()
}

fn order_file(source: &Source) -> Option<String> {
    file(source, "order", ".txt")
}

fn tabular_file(source: &Source) -> Option<String> {
    file(source, "tabular", ".xml")
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
    let mut find = |file: fn(&Source) -> Option<String>| reading.packages().find_map(|source| file(source));
    let (order, tabular) = (find(order_file), find(tabular_file));
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
        tabular::read(holder(reading, file), file, &mut builder, order.is_none())?;
    }
    if let Some(file) = &order {
        order::read(holder(reading, file), file, &mut builder)?;
    }
    Ok(builder)
}

/// Where a file lies.
fn holder<'a, 'm>(reading: &'a mut Reading<'_, 'm>, file: &String) -> &'a mut Source<'m> {
    reading.packages().find(|source| source.names().contains(file)).expect("it was found there")
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
