//! The width of prose: comments wrap at the width of rustfmt, documents at 120 columns. Only a line that
//! could be broken is too long: code spans, links and tables are not broken.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use xtask::workspace::root;

/// Maximum width of a document, in columns.
const DOCUMENT_COLUMNS: usize = 120;

/// Checks the comments of all sources and the paragraphs of all documents.
///
/// # Errors
/// An error if the configuration of rustfmt has no `max_width`.
pub fn check(
    sources: &BTreeMap<String, String>,
    documents: &BTreeMap<String, String>,
    faults: &mut Vec<String>,
) -> Result<()> {
    let rustfmt: toml::Table = toml::from_str(&std::fs::read_to_string(root().join(".rustfmt.toml"))?)?;
    let columns = rustfmt.get("max_width").and_then(toml::Value::as_integer);
    let columns = columns.context(".rustfmt.toml must have max_width")? as usize;
    for (file, text) in sources {
        let comments = |line: &&str| line.trim_start().starts_with("//");
        find(file, text, comments, columns, faults);
    }
    for (file, text) in documents {
        find(file, text, |_| true, DOCUMENT_COLUMNS, faults);
    }
    Ok(())
}

fn find(file: &str, text: &str, prose: impl Fn(&&str) -> bool, columns: usize, faults: &mut Vec<String>) {
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| prose(line)) {
        if words(line).starts_with("```") {
            in_code = !in_code;
        } else if !in_code && is_too_long(line, columns) {
            faults
                .push(format!("{file}:{number}: the line has more than {columns} columns; break it before"));
        }
    }
}

/// The content of a line without the marks of comments and lists.
fn words(line: &str) -> &str {
    line.trim_start()
        .trim_start_matches('/')
        .trim_start_matches('!')
        .trim_start_matches(['-', '*'])
        .trim_start()
}

fn is_too_long(line: &str, columns: usize) -> bool {
    let content = words(line);
    if line.chars().count() <= columns || content.starts_with(['|', '#', '<', '[']) {
        return false;
    }
    let start = line.len() - content.len();
    let (mut in_span, mut in_link) = (false, false);
    for (column, (offset, character)) in line.char_indices().enumerate() {
        match character {
            '`' => in_span = !in_span,
            '[' if !in_span => in_link = true,
            ')' if !in_span => in_link = false,
            ' ' if !in_span && !in_link && offset > start && column <= columns => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_could_be_broken_are_too_long() {
        for (line, expected) in [
            ("// one two", false),
            ("// one two three", true),
            ("// `one two three four`", false),
            ("// | one | two | three |", false),
            ("- [one two](https://three.example)", false),
            ("    // one two three", true),
        ] {
            assert_eq!(is_too_long(line, 12), expected, "{line}");
        }
    }
}
