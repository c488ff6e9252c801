//! Search parameters of FHIR R4: for each type and code, the paths of the values and their data types.
//!
//! `cargo xtask gen-fhir-tables` generates the table from HL7's search parameters and structure definitions
//! 4.0.1. Below the line `[ResourceType]`, each line has the form `code type path:DataType …`.
//! `path:Reference=Patient` means that only references to Patients are compared; `telecom:ContactPoint=email`
//! means that only values of that system are, and `relatedArtifact:RelatedArtifact=depends-on` only artifacts
//! of that type. `gender:code@URL` means that the codes are of the code system with this URL. Paths consist
//! of JSON member names, so a choice of data types is listed with each of its members.
//!
//! The table omits composite and special parameters, those of whole texts (`_text`, `_content`), data types
//! without an implemented comparison, and parameters of elements that FHIR R4 does not have.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The way in which values of a parameter are compared.
#[expect(missing_docs, reason = "the names are those of FHIR's types of search parameters")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueComparison {
    Date,
    Number,
    Quantity,
    Reference,
    String,
    Token,
    Uri,
}

/// A path to values of a search parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementPath {
    /// JSON member names from the root of the resource to the values.
    pub path: Vec<&'static str>,
    /// Data type of the values.
    pub data: &'static str,
    /// The code system of the values, which have none of their own.
    pub system: Option<&'static str>,
    /// If set, only references to this type, only values of this system, or only artifacts of this type are
    /// compared.
    pub only: Option<&'static str>,
}

/// A search parameter of one resource type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchParameter {
    /// Code of the parameter, as used in a query.
    pub code: &'static str,
    /// The way in which its values are compared.
    pub comparison: ValueComparison,
    /// The paths to its values.
    pub places: Vec<ElementPath>,
}

const TABLE: &str = include_str!("../data/search-parameters.txt");

/// The search parameter with this code for this type. Parameters of all types are found too.
pub fn find(kind: &str, code: &str) -> Option<SearchParameter> {
    [kind, "Resource"]
        .into_iter()
        .flat_map(rows)
        .find(|row| row.split(' ').next() == Some(code))
        .and_then(read)
}

/// The search parameters of a resource type, or those of all types for `Resource`.
pub fn parameters(kind: &str) -> impl Iterator<Item = SearchParameter> {
    rows(kind).filter_map(read)
}

/// Returns code and type of the search parameters of a resource type, such as `("birthdate", "date")`.
/// Parameters of all types are returned for the type `Resource`.
pub fn of_type(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    rows(kind).filter_map(|row| {
        let mut words = row.split(' ');
        Some((words.next()?, words.next()?))
    })
}

/// The lines of each resource type.
static SECTIONS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| TABLE.split('[').filter_map(|section| section.split_once("]\n")).collect());

/// The lines of a resource type.
fn rows(kind: &str) -> impl Iterator<Item = &'static str> {
    SECTIONS.get(kind).copied().unwrap_or_default().lines()
}

fn read(row: &'static str) -> Option<SearchParameter> {
    let mut words = row.split(' ');
    let code = words.next()?;
    let comparison = match words.next()? {
        "date" => ValueComparison::Date,
        "number" => ValueComparison::Number,
        "quantity" => ValueComparison::Quantity,
        "reference" => ValueComparison::Reference,
        "string" => ValueComparison::String,
        "token" => ValueComparison::Token,
        "uri" => ValueComparison::Uri,
        _ => return None,
    };
    let place = |word: &'static str| {
        let (path, data) = word.split_once(':')?;
        let (data, only) = data.split_once('=').map_or((data, None), |(data, only)| (data, Some(only)));
        let (data, system) = data.split_once('@').map_or((data, None), |(data, url)| (data, Some(url)));
        Some(ElementPath { path: path.split('.').collect(), data, system, only })
    };
    Some(SearchParameter { code, comparison, places: words.map(place).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_parsed() {
        let mut count = 0;
        for kind in TABLE.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')) {
            assert!(kind == "Resource" || crate::resource_type(kind).is_some(), "{kind}");
            for row in rows(kind) {
                let parameter = read(row).unwrap_or_else(|| panic!("{kind}: {row}"));
                assert!(!parameter.places.is_empty(), "{row}");
                count += 1;
            }
        }
        assert!(count > 1_400, "{count}");
    }

    #[test]
    fn parameters_are_found_by_type_and_code() {
        let patient = find("Observation", "patient").unwrap();
        assert_eq!(
            patient.places,
            [ElementPath { path: vec!["subject"], data: "Reference", system: None, only: Some("Patient") }]
        );
        let gender = find("Patient", "gender").unwrap();
        assert_eq!(gender.places[0].system, Some("http://hl7.org/fhir/administrative-gender"));
        assert_eq!(find("Observation", "_id").unwrap().comparison, ValueComparison::Token);
        assert_eq!(find("Observation", "date").unwrap().places.len(), 4);
        assert_eq!(find("Observation", "code-value-quantity"), None);
        assert_eq!(find("Observation", ""), None);
        assert_eq!(find("Pony", "name"), None);
    }
}
