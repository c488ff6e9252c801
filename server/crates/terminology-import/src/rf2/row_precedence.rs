//! The choice of a row if several packages of an edition contain rows of the same component.
//!
//! The row with the latest `effectiveTime` is used. If the times are equal, the row of the package that
//! depends on the other one is used. Only the identifiers of the packages above the base are in memory; the
//! base, which is large, is streamed.

use std::collections::HashMap;

use crate::error::ImportError;
use crate::release_reader::ReleaseReader;
use crate::rf2::rows::for_each_row;
use crate::table_reader::{DelimitedTable, FieldBuffer};

/// For each component in a package above the base: the time from which its state is in effect, and the number
/// of the package with this state. The base has the number 0.
#[derive(Debug, Default)]
pub(super) struct RowPrecedence(HashMap<u128, (u32, u8)>);

impl RowPrecedence {
    /// Reads the components in some files of the packages above the base.
    ///
    /// # Errors
    /// Returns [`ImportError`] if a file cannot be read, or if an identifier or date is not valid.
    pub fn of_upper_packages(
        reader: &mut ReleaseReader<'_, '_>,
        test: impl Fn(&str) -> bool + Copy,
        least: usize,
    ) -> Result<Self, ImportError> {
        let mut precedence = Self::default();
        for (layer, source) in reader.sources().enumerate().skip(1) {
            let layer =
                u8::try_from(layer).map_err(|_| ImportError::in_file("", "more than 255 packages"))?;
            for_each_row(source, test, least, |table, fields| {
                let (component, since) = row_state(table, fields)?;
                let counts = precedence.0.entry(component).or_insert((since, layer));
                if since >= counts.0 {
                    *counts = (since, layer);
                }
                Ok(())
            })?;
        }
        Ok(precedence)
    }

    /// Returns whether a row is used. The rows of the base must be tested first.
    ///
    /// # Errors
    /// Returns [`ImportError`] if an identifier or date is not valid.
    pub fn takes_effect(
        &mut self,
        layer: usize,
        table: &DelimitedTable<'_>,
        fields: &FieldBuffer,
    ) -> Result<bool, ImportError> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let (component, since) = row_state(table, fields)?;
        Ok(match self.0.get_mut(&component) {
            None => true,
            Some(counts) if layer == 0 && since > counts.0 => {
                *counts = (since, 0);
                true
            }
            Some(counts) => usize::from(counts.1) == layer,
        })
    }
}

/// The identifier of a component, which is a number or a UUID, and the time from which the state in a row is
/// in effect.
fn row_state(table: &DelimitedTable<'_>, fields: &FieldBuffer) -> Result<(u128, u32), ImportError> {
    let (id, since) = (fields.get(0), fields.get(1));
    let number = match id.contains('-') {
        true => u128::from_str_radix(&id.replace('-', ""), 16).ok(),
        false => id.parse().ok(),
    };
    let number = number
        .ok_or_else(|| table.line_error(format_args!("'{id}' is not the identifier of a component")))?;
    let date =
        since.parse().map_err(|_| table.line_error(format_args!("effectiveTime '{since}' is not a date")))?;
    Ok((number, date))
}

pub(super) fn for_each_effective_row(
    reader: &mut ReleaseReader<'_, '_>,
    test: impl Fn(&str) -> bool + Copy,
    least: usize,
    mut row: impl FnMut(&DelimitedTable<'_>, &FieldBuffer) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mut precedence = RowPrecedence::of_upper_packages(reader, test, least)?;
    for (layer, source) in reader.sources().enumerate() {
        for_each_row(source, test, least, |table, fields| {
            if !matches!(fields.get(2), "0" | "1") {
                return Err(table.line_error(format_args!("active is '{}', not 0 or 1", fields.get(2))));
            }
            match precedence.takes_effect(layer, table, fields)? {
                true => row(table, fields),
                false => Ok(()),
            }
        })?;
    }
    Ok(())
}

/// Calls `row` for each active line of the snapshot files whose names pass a test.
pub(super) fn for_each_active_row(
    reader: &mut ReleaseReader<'_, '_>,
    test: impl Fn(&str) -> bool + Copy,
    least: usize,
    mut row: impl FnMut(&DelimitedTable<'_>, &FieldBuffer) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    for_each_effective_row(reader, test, least, |table, fields| match fields.get(2) {
        "1" => row(table, fields),
        _ => Ok(()),
    })
}
