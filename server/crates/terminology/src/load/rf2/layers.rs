//! Several packages read as one edition: which row of a component counts where more than one of them has it.
//!
//! The later `effectiveTime` counts; of two that are equal, the row of the package that builds on the other. Only the
//! identifiers in the packages above the lowest are held, so that the lowest, which is the large one, streams through.

use std::collections::HashMap;

use super::rows;
use crate::load::table::{Fields, Table};
use crate::load::{LoadError, Reading};

/// For each component above the lowest package: since when the state that counts has been, and in which package that
/// stands. Packages are counted from the lowest, 0.
#[derive(Debug, Default)]
pub(super) struct Layers(HashMap<u128, (u32, u8)>);

impl Layers {
    /// Looks at the components in some files of the packages above the lowest.
    ///
    /// # Errors
    /// Of the files; an identifier or a date that is none.
    pub fn read(
        reading: &mut Reading<'_, '_>,
        test: impl Fn(&str) -> bool + Copy,
        least: usize,
    ) -> Result<Self, LoadError> {
        let mut layers = Self::default();
        for (layer, source) in reading.packages().enumerate().skip(1) {
            let layer = u8::try_from(layer).map_err(|_| LoadError::in_file("", "more than 255 packages"))?;
            rows(source, test, least, |table, fields| {
                let (component, since) = state(table, fields)?;
                let counts = layers.0.entry(component).or_insert((since, layer));
                if since >= counts.0 {
                    *counts = (since, layer);
                }
                Ok(())
            })?;
        }
        Ok(layers)
    }

    /// Does a row count? Those of the lowest package have to come first.
    ///
    /// # Errors
    /// An identifier or a date that is none.
    pub fn counts(&mut self, layer: usize, table: &Table<'_>, fields: &Fields) -> Result<bool, LoadError> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let (component, since) = state(table, fields)?;
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

/// The identifier of a row's component, a number or a UUID, and since when it has been in this state.
fn state(table: &Table<'_>, fields: &Fields) -> Result<(u128, u32), LoadError> {
    let (id, since) = (fields.get(0), fields.get(1));
    let number = match id.contains('-') {
        true => u128::from_str_radix(&id.replace('-', ""), 16).ok(),
        false => id.parse().ok(),
    };
    let number = number.ok_or_else(|| table.wrong(format_args!("'{id}' is no identifier of a component")))?;
    let date = since.parse().map_err(|_| table.wrong(format_args!("effectiveTime is '{since}', no date")))?;
    Ok((number, date))
}
