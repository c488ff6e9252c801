//! A code that a grammar has accepted, and the rows of its tables.

/// A valid code of a grammar.
#[derive(Debug, Default)]
pub(crate) struct ParsedCode {
    /// Code in the spelling that the standard prefers.
    pub(crate) code: String,
    pub(crate) display: Option<String>,
    /// Other right displays.
    pub(crate) other_displays: Vec<String>,
    pub(crate) properties: Vec<(&'static str, String)>,
}

/// Splits the lines of a table at tabs. The first line may be a comment with the source of the table.
pub(crate) fn table_rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}
