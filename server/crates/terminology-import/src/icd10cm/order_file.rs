//! The order file: one code per line, in fixed columns.
//!
//! | columns | content |
//! |---|---|
//! | 7 to 13 | the code without its point |
//! | 15 | 1 if the code is billable, 0 for a heading |
//! | 17 to 76 | short description |
//! | from 78 | long description |
//!
//! The parent of a code that is not in the index yet is the preceding code that is its longest prefix.

use std::collections::HashSet;

use terminology::indexing::{ConceptDesignation, ConceptNumber, IndexBuilder};

use crate::error::ImportError;
use crate::release_source::ReleaseSource;
use crate::table_reader::{DelimitedTable, FieldBuffer};

/// Reads the file.
///
/// # Errors
/// [`ImportError`] if a line is not valid.
pub(super) fn read_order_file(
    source: &mut ReleaseSource<'_>,
    file: &str,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    let mut table = DelimitedTable::open(source, file, '\0')?;
    let mut fields = FieldBuffer::default();
    let mut codes = HashSet::new();
    while let Some(line) = table.next_line(&mut fields)?.map(|fields| fields.get(0).to_owned()) {
        let part = |from: usize, to: usize| line.get(from..to.min(line.len())).unwrap_or_default().trim();
        let (code, flag) = (part(6, 13), part(14, 15));
        let long = part(77, usize::MAX);
        if code.len() < 3 || !matches!(flag, "0" | "1") || part(16, 76).is_empty() {
            return Err(table.line_error("expected a line of an order file: a code in columns 7 to 13, 0 or 1 in column 15, then descriptions"));
        }
        let added = add_code(builder, code, flag, part(16, 76), long);
        if !codes.insert(added.map_err(|reason| table.line_error(reason))?) {
            return Err(table.line_error(format_args!("{} occurs twice", with_point(code))));
        }
    }
    Ok(())
}

fn with_point(code: &str) -> String {
    match code.split_at_checked(3) {
        Some((category, rest)) if !rest.is_empty() => format!("{category}.{rest}"),
        _ => code.to_owned(),
    }
}

fn add_code(
    builder: &mut IndexBuilder,
    code: &str,
    flag: &str,
    short: &str,
    long: &str,
) -> Result<ConceptNumber, String> {
    let (number, is_new) = builder.add_concept(&with_point(code))?;
    builder.set_display(number, if long.is_empty() { short } else { long })?;
    if !long.is_empty() && long != short {
        let designation =
            ConceptDesignation { language: Some("en"), value: short, ..ConceptDesignation::default() };
        builder.add_designation(number, designation)?;
    }
    builder.add_property(number, "billable", if flag == "1" { "true" } else { "false" })?;
    // A heading precedes the codes that it groups.
    let above = |end: usize| builder.find_concept(&with_point(code.get(..end)?));
    if let Some(parent) = (3..code.len()).rev().find_map(above).filter(|_| is_new) {
        builder.add_parent(number, parent);
    }
    Ok(number)
}
