//! Members of reference sets, and historical associations.

use terminology::indexing::{IndexBuilder, MemberFacts};

use super::rows::{is_snapshot, parse_identifier};
use crate::error::ImportError;
use crate::release_reader::ReleaseReader;
use crate::release_source::base_name;
use crate::rf2::row_precedence::{for_each_active_row, for_each_effective_row};

/// Number of columns that all reference sets have.
const COMMON_COLUMNS: usize = 6;

/// Reads the rows of reference sets whose members are concepts, and of these also rows that are not in
/// effect, because constraints can select them.
pub(super) fn read_members(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    let test = |name: &str| is_snapshot(name, "der2_") && !base_name(name).contains("_Language");
    for_each_effective_row(reader, test, COMMON_COLUMNS, |table, fields| {
        let Some(member) = builder.find_concept(fields.get(5)) else { return Ok(()) };
        let is_active = fields.get(2) == "1";
        let facts = MemberFacts { is_active, module: fields.get(3), effective_time: fields.get(1) };
        let headings = table.headings().iter().enumerate().skip(COMMON_COLUMNS);
        let values = headings.map(|(index, name)| (name.as_str(), fields.get(index)));
        let mut added = builder.add_member_row(fields.get(4), member, facts, values);
        if is_active {
            added = added.and_then(|()| builder.add_subset_member(fields.get(4), member));
        }
        added.map_err(|reason| table.line_error(reason))
    })
}

/// Reads the associations of concepts with those that replace them, for the history supplements of ECL. Each
/// one is a property whose name is the id of the reference set.
pub(super) fn read_historical_associations(
    reader: &mut ReleaseReader<'_, '_>,
    builder: &mut IndexBuilder,
) -> Result<(), ImportError> {
    let test = |name: &str| is_snapshot(name, "der2_cRefset_Association");
    for_each_active_row(reader, test, 7, |table, fields| {
        // Descriptions have associations, too.
        let Some(concept) = builder.find_concept(fields.get(5)) else { return Ok(()) };
        parse_identifier(table, fields.get(4))?;
        builder.add_property(concept, fields.get(4), fields.get(6)).map_err(|reason| table.line_error(reason))
    })
}
