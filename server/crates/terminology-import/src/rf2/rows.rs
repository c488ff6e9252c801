//! The rows of the files of a release.

use crate::error::ImportError;
use crate::release_source::{ReleaseSource, base_name};
use crate::table_reader::{DelimitedTable, FieldBuffer};

/// Returns whether a file is a snapshot file with this prefix. In trial releases, an `x` precedes the prefix.
pub(super) fn is_snapshot(name: &str, prefix: &str) -> bool {
    let base = base_name(name);
    base.strip_prefix('x').unwrap_or(base).starts_with(prefix)
        && base.contains("Snapshot")
        && base.ends_with(".txt")
}

/// Calls `row` for each line of some files of one package, except the first line, which must name at least
/// `least` columns.
pub(super) fn for_each_row(
    source: &mut ReleaseSource,
    test: impl Fn(&str) -> bool,
    least: usize,
    mut row: impl FnMut(&DelimitedTable<'_>, &FieldBuffer) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let files: Vec<String> = source.file_names().iter().filter(|name| test(name)).cloned().collect();
    let mut fields = FieldBuffer::default();
    for file in files {
        let mut table = DelimitedTable::open(source, &file, '\t')?;
        let width = table.read_heading(&mut fields, least)?;
        while table.next_row(&mut fields, width)?.is_some() {
            row(&table, &fields)?;
        }
    }
    Ok(())
}

pub(super) fn parse_identifier(table: &DelimitedTable<'_>, text: &str) -> Result<u64, ImportError> {
    text.parse().map_err(|_| table.line_error(format_args!("'{text}' is not a SNOMED CT identifier")))
}
