//! The language reference sets that contain each description, which also decide on the display of a concept.

use std::collections::HashMap;

use super::rows::{is_snapshot, parse_identifier};
use crate::error::ImportError;
use crate::release_reader::ReleaseReader;
use crate::rf2::row_precedence::for_each_active_row;

const PREFERRED: &str = "900000000000548007";
const US_ENGLISH: &str = "900000000000509007";
const GB_ENGLISH: &str = "900000000000508004";

/// Language reference sets with acceptabilities, which many descriptions share.
#[derive(Debug, Default)]
pub(super) struct DialectSet {
    /// The reference sets, sorted and separated by spaces: `ID+` if preferred, `ID-` if acceptable.
    pub text: String,
    /// Preference as the display: 3 if preferred in the USA, 2 in Great Britain, 1 elsewhere.
    pub rank: u8,
}

pub(super) struct DescriptionDialects {
    /// Number of the set of each description.
    numbers: HashMap<u64, u32>,
    /// All sets; the first is empty.
    sets: Vec<DialectSet>,
}

impl DescriptionDialects {
    /// Reads the language reference sets.
    ///
    /// # Errors
    /// [`ImportError`] if a file is not valid.
    pub(super) fn read(reader: &mut ReleaseReader<'_, '_>) -> Result<Self, ImportError> {
        let mut dialects = Self { numbers: HashMap::new(), sets: vec![DialectSet::default()] };
        // Number of the set that results if a reference set is added to a set.
        let mut larger: HashMap<(u32, u64, bool), u32> = HashMap::new();
        for_each_active_row(
            reader,
            |name| is_snapshot(name, "der2_cRefset_Language"),
            7,
            |table, fields| {
                let description = parse_identifier(table, fields.get(5))?;
                let reference_set = parse_identifier(table, fields.get(4))?;
                let is_preferred = fields.get(6) == PREFERRED;
                let number = dialects.numbers.entry(description).or_default();
                let sets = &mut dialects.sets;
                let smaller = *number;
                *number = *larger.entry((smaller, reference_set, is_preferred)).or_insert_with(|| {
                    let sign = if is_preferred { '+' } else { '-' };
                    sets.push(sets[smaller as usize].with(&format!("{reference_set}{sign}")));
                    sets.len() as u32 - 1
                });
                Ok(())
            },
        )?;
        Ok(dialects)
    }

    pub(super) fn of(&self, description: u64) -> &DialectSet {
        &self.sets[self.numbers.get(&description).copied().unwrap_or_default() as usize]
    }
}

impl DialectSet {
    /// The set with a further reference set.
    fn with(&self, item: &str) -> Self {
        let mut items: Vec<&str> = self.text.split(' ').filter(|candidate| !candidate.is_empty()).collect();
        items.push(item);
        items.sort_unstable();
        items.dedup();
        let rank = match item.strip_suffix('+') {
            Some(US_ENGLISH) => 3,
            Some(GB_ENGLISH) => 2,
            Some(_) => 1,
            None => 0,
        };
        Self { text: items.join(" "), rank: rank.max(self.rank) }
    }
}
