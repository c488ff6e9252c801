//! The table of search parameters: one line `code type path:DataType …` for each, below the line
//! `[ResourceType]`.
//!
//! A parameter is omitted if a part of its expression is not supported, because a search would not find all
//! resources. Composite and special parameters are omitted, and so are values of data types that the server
//! does not compare.

use std::collections::BTreeMap;

use super::definitions::FhirDefinitions;
use super::search_paths::{self, SearchPath};

/// Data types that the server compares, by the type of the parameter.
const COMPARED_TYPES: [(&str, &[&str]); 7] = [
    ("date", &["Period", "Timing", "date", "dateTime", "instant"]),
    ("number", &["decimal", "integer"]),
    ("quantity", &["Money", "Quantity", "Range"]),
    ("reference", &["Reference", "RelatedArtifact", "canonical", "uri"]),
    ("string", &["Address", "HumanName", "markdown", "string"]),
    (
        "token",
        &[
            "CodeableConcept",
            "Coding",
            "ContactPoint",
            "Identifier",
            "boolean",
            "code",
            "id",
            "string",
            "uri",
        ],
    ),
    ("uri", &["canonical", "uri", "url"]),
];

/// Type and paths of a search parameter of one resource type.
pub struct SearchRow {
    kind: String,
    pub paths: Vec<SearchPath>,
}

/// Search parameters by resource type and code.
pub type SearchRows = BTreeMap<String, BTreeMap<String, SearchRow>>;

/// All search parameters that can be resolved to paths.
pub fn collect(definitions: &FhirDefinitions) -> SearchRows {
    let mut rows = SearchRows::new();
    for parameter in &definitions.search_parameters {
        let compared = COMPARED_TYPES.iter().find(|(kind, _)| *kind == parameter.kind);
        let (Some((kind, compared)), Some(expression)) = (compared, &parameter.expression) else { continue };
        for base in &parameter.base {
            let paths = search_paths::resolve(definitions, base, expression).unwrap_or_default();
            let compared_paths: Vec<_> =
                paths.into_iter().filter(|path| compared.contains(&path.data_type.as_str())).collect();
            if !compared_paths.is_empty() {
                let row = SearchRow { kind: (*kind).to_owned(), paths: compared_paths };
                rows.entry(base.clone()).or_default().insert(parameter.code.clone(), row);
            }
        }
    }
    // Its expression is a condition: a Patient is deceased if an element says so or has a date.
    let deceased = SearchPath::new("deceasedBoolean", "boolean");
    let died = SearchPath::new("deceasedDateTime", "dateTime");
    let row = SearchRow { kind: "token".to_owned(), paths: vec![deceased, died] };
    rows.entry("Patient".to_owned()).or_default().insert("deceased".to_owned(), row);
    // It has no expression: the text of the narrative.
    let narrative =
        SearchRow { kind: "string".to_owned(), paths: vec![SearchPath::new("text.div", "xhtml")] };
    rows.entry("Resource".to_owned()).or_default().insert("_text".to_owned(), narrative);
    rows
}

pub fn table(rows: &SearchRows) -> String {
    let mut table = String::new();
    for (kind, parameters) in rows {
        table.push_str(&format!("[{kind}]\n"));
        for (code, row) in parameters {
            let paths: Vec<_> = row.paths.iter().map(SearchPath::to_string).collect();
            table.push_str(&format!("{code} {} {}\n", row.kind, paths.join(" ")));
        }
    }
    table
}
