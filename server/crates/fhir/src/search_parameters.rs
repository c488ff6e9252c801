//! Search parameters of FHIR R4: for each type and code, the paths of its values and their data types.
//!
//! `cargo xtask gen-fhir-tables` generates the table from HL7's search parameters and structure definitions 4.0.1. A line
//! is `code type path:DataType …`, below the line `[ResourceType]`. `path:Reference=Patient` counts only references to
//! Patients, `telecom:ContactPoint=email` only values of that system. Paths are members of JSON, so a choice of types is
//! listed as each of its members.
//!
//! Composite and special parameters are left out, and data types for which no comparison is implemented. So are
//! parameters with an expression that the generator does not support (`where(type='depends-on')`), and choices of types
//! within a data type (`useContext.value`).

/// How values of a parameter are compared.
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

/// A path to values of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementPath {
    /// The members to go down.
    pub path: Vec<&'static str>,
    /// Data type of the values.
    pub data: &'static str,
    /// The only type of target, or the only system, that counts.
    pub only: Option<&'static str>,
}

/// A search parameter of one resource type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchParameter {
    /// Its code, as in a query.
    pub code: &'static str,
    /// How its values are compared.
    pub comparison: ValueComparison,
    /// The paths of its values.
    pub places: Vec<ElementPath>,
}

const TABLE: &str = include_str!("../data/search-parameters.txt");

/// Returns the search parameter of this code for this type, or for all types.
pub fn find(kind: &str, code: &str) -> Option<SearchParameter> {
    [kind, "Resource"]
        .into_iter()
        .flat_map(rows)
        .find(|row| row.split(' ').next() == Some(code))
        .and_then(read)
}

/// Returns code and type of the search parameters of a type, such as `("birthdate", "date")`. Those of all types are
/// the search parameters of `Resource`.
pub fn of_type(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    rows(kind).filter_map(|row| {
        let mut words = row.split(' ');
        Some((words.next()?, words.next()?))
    })
}

/// The lines of a type.
fn rows(kind: &str) -> impl Iterator<Item = &'static str> {
    let start = TABLE.find(&format!("[{kind}]\n")).map_or(TABLE.len(), |at| at + kind.len() + 3);
    TABLE[start..].lines().take_while(|line| !line.starts_with('['))
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
        Some(ElementPath { path: path.split('.').collect(), data, only })
    };
    Some(SearchParameter { code, comparison, places: words.map(place).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read() {
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
            [ElementPath { path: vec!["subject"], data: "Reference", only: Some("Patient") }]
        );
        assert_eq!(find("Observation", "_id").unwrap().comparison, ValueComparison::Token);
        assert_eq!(find("Observation", "date").unwrap().places.len(), 4);
        assert_eq!(find("Observation", "code-value-quantity"), None);
        assert_eq!(find("Observation", ""), None);
        assert_eq!(find("Pony", "name"), None);
    }
}
