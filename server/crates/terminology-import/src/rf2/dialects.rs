//! The language reference sets that contain each description, which also decide on the display of a concept.
//!
//! An edition has a language reference set of its own if modules other than SNOMED International's have rows
//! in one: the one with most of these rows. Its preferred terms are the displays, before those of the USA and
//! of Great Britain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::package::{CORE_MODULE, MODEL_MODULE};
use super::rows::{is_snapshot, parse_identifier};
use crate::error::ImportError;
use crate::release_reader::ReleaseReader;
use crate::rf2::row_precedence::for_each_active_row;

const PREFERRED: &str = "900000000000548007";
const US_ENGLISH: u64 = 900_000_000_000_509_007;
const GB_ENGLISH: u64 = 900_000_000_000_508_004;

/// Language reference sets with acceptabilities, which many descriptions share.
#[derive(Debug, Default)]
pub(super) struct DialectSet {
    /// The reference sets, sorted and separated by spaces: `ID+` if preferred, `ID-` if acceptable.
    pub text: String,
    /// Reference sets in which the description is preferred.
    preferred: Vec<u64>,
}

pub(super) struct DescriptionDialects {
    /// Number of the set of each description.
    numbers: HashMap<u64, u32>,
    /// All sets; the first is empty.
    sets: Vec<DialectSet>,
    /// The language reference set of the edition itself.
    own: Option<u64>,
}

impl DescriptionDialects {
    /// Reads the language reference sets.
    ///
    /// # Errors
    /// [`ImportError`] if a file is not valid.
    pub(super) fn read(reader: &mut ReleaseReader<'_, '_>) -> Result<Self, ImportError> {
        let mut dialects = Self { numbers: HashMap::new(), sets: vec![DialectSet::default()], own: None };
        let mut national_rows: BTreeMap<u64, usize> = BTreeMap::new();
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
                if is_preferred && !matches!(fields.get(3), CORE_MODULE | MODEL_MODULE) {
                    *national_rows.entry(reference_set).or_default() += 1;
                }
                let number = dialects.numbers.entry(description).or_default();
                let sets = &mut dialects.sets;
                let smaller = *number;
                *number = *larger.entry((smaller, reference_set, is_preferred)).or_insert_with(|| {
                    sets.push(sets[smaller as usize].with(reference_set, is_preferred));
                    sets.len() as u32 - 1
                });
                Ok(())
            },
        )?;
        // Of reference sets of the same size the first one, so that each import has the same result.
        dialects.own =
            national_rows.into_iter().max_by_key(|(id, rows)| (*rows, Reverse(*id))).map(|(id, _)| id);
        Ok(dialects)
    }

    pub(super) fn of(&self, description: u64) -> &DialectSet {
        &self.sets[self.numbers.get(&description).copied().unwrap_or_default() as usize]
    }

    /// The rank of a description as the display of its concept, of which the highest is best: preferred in
    /// the edition's own dialect, in the USA, in Great Britain, elsewhere; then acceptable somewhere.
    pub(super) fn display_rank(&self, description: u64) -> u8 {
        let set = self.of(description);
        let is_preferred = |id| set.preferred.contains(&id);
        match () {
            () if self.own.is_some_and(is_preferred) => 5,
            () if is_preferred(US_ENGLISH) => 4,
            () if is_preferred(GB_ENGLISH) => 3,
            () if !set.preferred.is_empty() => 2,
            () => u8::from(!set.text.is_empty()),
        }
    }
}

impl DialectSet {
    /// The set with a further reference set.
    fn with(&self, reference_set: u64, is_preferred: bool) -> Self {
        let item = format!("{reference_set}{}", if is_preferred { '+' } else { '-' });
        let mut items: Vec<&str> = self.text.split(' ').filter(|candidate| !candidate.is_empty()).collect();
        items.push(&item);
        items.sort_unstable();
        items.dedup();
        let text = items.join(" ");
        let mut preferred = self.preferred.clone();
        preferred.extend(is_preferred.then_some(reference_set));
        Self { text, preferred }
    }
}
