//! The table from codes to ordinals and back: all codes in one text column, and a hash table of keys and
//! ordinals.
//!
//! A bucket of the table has five slots and fills two cache lines. A code of up to 7 bytes, or a number of up
//! to 18 digits, is its own key, so that a lookup usually reads one bucket. The key of any other code is a
//! hash, and the code is then compared with the text column.

use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read, Write};

use hashbrown::DefaultHashBuilder;

use super::ancestor_filter::AncestorFilter;
use super::columns::{IndexColumn, IndexReader, IndexWriter, columns};
use super::row_column::TextColumn;
use crate::model::text_folding::same_folded;

/// The codes of one code system and their ordinals.
#[derive(Debug, Default)]
pub(crate) struct CodeTable {
    texts: TextColumn,
    table: Vec<CodeBucket>,
    /// Ancestor data until the table is built, which then contains it.
    above: AncestorColumns,
    hasher: DefaultHashBuilder,
    fold: bool,
}

/// A concept as the table stores it. The ancestor data is empty if the texts of the table are not codes of
/// concepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocatedConcept {
    pub(crate) at: u32,
    /// Start of its row in the extra ancestors of the hierarchy.
    pub(crate) extra_row: u32,
    pub(crate) above: AncestorFilter,
}

/// Ancestor data that the table stores, by ordinal.
#[derive(Debug, Default)]
pub(crate) struct AncestorColumns {
    pub(crate) filters: Vec<AncestorFilter>,
    pub(crate) extra_row: Vec<u32>,
}

columns!(AncestorColumns: filters, extra_row);

/// Slots that are read together: two adjacent cache lines, which are fetched at the same time.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
struct CodeBucket {
    keys: [u64; SLOTS],
    at: [u32; SLOTS],
    above: [AncestorFilter; SLOTS],
    extra_row: [u32; SLOTS],
}

/// Number of slots in a bucket.
const SLOTS: usize = 5;
/// Maximum number of used slots out of 16. A higher load would need less memory, but lookups would read the
/// next bucket more often.
const MAX_USED_OF_16: usize = 13;

impl CodeBucket {
    const FREE: Self = Self {
        keys: [FREE; SLOTS],
        at: [0; SLOTS],
        above: [AncestorFilter::NOTHING; SLOTS],
        extra_row: [0; SLOTS],
    };

    /// The first slot with this key. The search is free of branches.
    #[inline]
    fn find_slot(&self, key: u64) -> Option<usize> {
        let hits = (0..SLOTS).fold(0, |hits, at| hits | u32::from(self.keys[at] == key) << at);
        (hits != 0).then(|| hits.trailing_zeros() as usize)
    }

    /// Returns whether the last slot is free, in which case no later bucket has keys of this one.
    fn is_last_bucket(&self) -> bool {
        self.keys[SLOTS - 1] == FREE
    }

    fn slot_concept(&self, slot: usize) -> LocatedConcept {
        LocatedConcept { at: self.at[slot], extra_row: self.extra_row[slot], above: self.above[slot] }
    }

    fn with_key(&self, key: u64) -> impl Iterator<Item = LocatedConcept> {
        (0..SLOTS).filter(move |slot| self.keys[*slot] == key).map(|slot| self.slot_concept(slot))
    }
}

const FREE: u64 = u64::MAX;
/// Bit of a key that is a number.
const NUMBER: u64 = 1 << 62;
/// Bit of a key that is a hash.
const HASH: u64 = 1 << 63;

/// The code itself as a key, if it is short enough and `fold` cannot change it.
fn packed_key(code: &str, fold: bool) -> Option<u64> {
    let bytes = code.as_bytes();
    if bytes.len() > 18 || (fold && !bytes.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    if bytes.len() < 8 {
        let key = bytes.iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
        return Some((bytes.len() as u64) << 56 | key);
    }
    if bytes[0] == b'0' {
        return None;
    }
    // 10^18 is less than 2^60.
    let (first, rest) = bytes.split_first_chunk()?;
    let number = rest.iter().try_fold(eight_digits(*first)?, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    });
    Some(NUMBER | number?)
}

/// The number that eight digits represent. Neighbouring digits are added in three steps, because the next
/// step of a lookup waits for the key.
fn eight_digits(bytes: [u8; 8]) -> Option<u64> {
    const ONES: u64 = u64::MAX / 0xff;
    let word = u64::from_le_bytes(bytes);
    let is_digit = |word: u64| word & (0xf0 * ONES) == 0x30 * ONES;
    if !is_digit(word) || !is_digit(word + 6 * ONES) {
        return None;
    }
    let word = word & (0x0f * ONES);
    let word = (word * 10 + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let word = (word * 100 + (word >> 16)) & 0x0000_ffff_0000_ffff;
    Some((word * 10_000 + (word >> 32)) & 0xffff_ffff)
}

impl CodeTable {
    /// An empty table. With `fold`, codes that differ by case are equal.
    pub(crate) fn new(fold: bool) -> Self {
        Self { fold, ..Self::default() }
    }

    /// Appends a code with the next ordinal. Of two equal codes, lookups return the first.
    ///
    /// # Errors
    /// A message if the codes need more than 4 GiB.
    pub(crate) fn push(&mut self, code: &str) -> Result<(), String> {
        let ordinal = self.texts.len() as u32;
        self.texts.push(code)?;
        if self.texts.len() * 16 > self.table.len() * SLOTS * MAX_USED_OF_16 {
            self.rebuild_table(self.texts.len() * 2);
        } else {
            self.insert_ordinal(ordinal);
        }
        Ok(())
    }

    /// The table of existing texts, with the ancestor data of each.
    pub(crate) fn from_texts(texts: TextColumn, fold: bool, above: AncestorColumns) -> Self {
        let mut codes = Self { texts, fold, above, ..Self::default() };
        codes.build_table();
        codes
    }

    /// Builds the table, which is not saved because its order depends on a secret of the process. The
    /// checksum of the texts must be verified before.
    pub(crate) fn build_table(&mut self) {
        self.rebuild_table(self.texts.len());
        self.above = AncestorColumns::default();
    }

    /// Builds a table with this capacity from the existing codes.
    fn rebuild_table(&mut self, room: usize) {
        self.table = vec![CodeBucket::FREE; (room * 16).div_ceil(SLOTS * MAX_USED_OF_16) + 1];
        // In ascending order, so that the first of equal codes is the first in the table.
        (0..self.texts.len() as u32).for_each(|ordinal| self.insert_ordinal(ordinal));
    }

    fn code_key(&self, code: &str) -> u64 {
        // The two highest bits of the hash are cleared, so that the key differs from a number and from a free
        // slot.
        packed_key(code, self.fold).unwrap_or_else(|| HASH | hash_code(&self.hasher, code, self.fold) >> 2)
    }

    /// The bucket where the search for a key starts.
    fn home_bucket(&self, key: u64) -> usize {
        let high = self.hasher.hash_one(key) >> 32;
        ((high * self.table.len() as u64) >> 32) as usize
    }

    fn insert_ordinal(&mut self, ordinal: u32) {
        let key = self.code_key(self.texts.get(ordinal));
        let mut index = self.home_bucket(key);
        let (bucket, slot) = loop {
            if let Some(free) = self.table[index].find_slot(FREE) {
                break (&mut self.table[index], free);
            }
            index = if index + 1 == self.table.len() { 0 } else { index + 1 };
        };
        bucket.keys[slot] = key;
        bucket.at[slot] = ordinal;
        bucket.above[slot] = self.above.filters.get(ordinal as usize).copied().unwrap_or_default();
        bucket.extra_row[slot] = self.above.extra_row.get(ordinal as usize).copied().unwrap_or_default();
    }

    /// All concepts with this key, starting at its home bucket; the first of equal codes comes first.
    fn with_key(&self, key: u64, home: usize) -> impl Iterator<Item = LocatedConcept> {
        let (end, begin) = self.table.split_at(home.min(self.table.len()));
        let mut is_over = false;
        let buckets = begin
            .iter()
            .chain(end)
            .take_while(move |bucket| !std::mem::replace(&mut is_over, bucket.is_last_bucket()));
        buckets.flat_map(move |bucket| bucket.with_key(key))
    }

    /// Returns the number of a text. A new text is appended.
    ///
    /// # Errors
    /// A message if the texts need more than 4 GiB.
    pub(crate) fn intern(&mut self, text: &str) -> Result<u32, String> {
        match self.find(text) {
            Some(number) => Ok(number),
            None => {
                self.push(text)?;
                Ok(self.len() as u32 - 1)
            }
        }
    }

    /// The ordinal of a code. If case is ignored, an exact match takes precedence.
    pub(crate) fn find(&self, code: &str) -> Option<u32> {
        self.locate(code).map(|concept| concept.at)
    }

    /// The concept of a code. If case is ignored, an exact match takes precedence.
    #[inline]
    pub(crate) fn locate(&self, code: &str) -> Option<LocatedConcept> {
        let key = self.code_key(code);
        self.locate_at(code, key, self.home_bucket(key))
    }

    /// The concepts of several codes. All buckets are computed before the first one is read, so that their
    /// memory is fetched at the same time.
    pub(crate) fn locate_all<const N: usize>(&self, codes: [&str; N]) -> [Option<LocatedConcept>; N] {
        let homes = codes.map(|code| {
            let key = self.code_key(code);
            (code, key, self.home_bucket(key))
        });
        homes.map(|(code, key, home)| self.locate_at(code, key, home))
    }

    #[inline]
    fn locate_at(&self, code: &str, key: u64, home: usize) -> Option<LocatedConcept> {
        if key & HASH == 0 {
            let bucket = self.table.get(home)?;
            return match bucket.find_slot(key) {
                Some(slot) => Some(bucket.slot_concept(slot)),
                None => self.with_key(key, home).next(),
            };
        }
        let exact = self.with_key(key, home).find(|concept| self.texts.get(concept.at) == code);
        match exact {
            None if self.fold => {
                self.with_key(key, home).find(|concept| same_folded(self.texts.get(concept.at), code))
            }
            exact => exact,
        }
    }

    /// The number of codes that differ from this one by case only, if case is ignored. A lookup compares all
    /// of them.
    pub(crate) fn count_case_variants(&self, code: &str) -> usize {
        let key = self.code_key(code);
        match self.fold {
            true => self
                .with_key(key, self.home_bucket(key))
                .filter(|concept| same_folded(self.texts.get(concept.at), code))
                .count(),
            false => 0,
        }
    }

    pub(crate) fn get(&self, index: u32) -> &str {
        self.texts.get(index)
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Drops the table, and returns all codes by ordinal.
    pub(crate) fn into_texts(self) -> TextColumn {
        self.texts
    }

    pub(crate) fn texts(&self) -> &TextColumn {
        &self.texts
    }
}

impl IndexColumn for CodeTable {
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()> {
        vec![u8::from(self.fold)].save(to)?;
        self.texts.save(to)?;
        let len = self.texts.len();
        let mut above =
            AncestorColumns { filters: vec![AncestorFilter::NOTHING; len], extra_row: vec![0; len] };
        for bucket in &self.table {
            for slot in (0..SLOTS).filter(|slot| bucket.keys[*slot] != FREE) {
                let index = bucket.at[slot] as usize;
                (above.filters[index], above.extra_row[index]) = (bucket.above[slot], bucket.extra_row[slot]);
            }
        }
        above.save(to)
    }

    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()> {
        let mut fold = Vec::<u8>::new();
        fold.load(from)?;
        self.fold = fold == [1];
        self.texts.load(from)?;
        self.above.load(from)
    }
}

fn hash_code(hasher: &DefaultHashBuilder, code: &str, fold: bool) -> u64 {
    if !fold {
        return hasher.hash_one(code);
    }
    let mut state = hasher.build_hasher();
    for c in code.chars().flat_map(char::to_lowercase) {
        c.hash(&mut state);
    }
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(fold: bool, list: &[&str]) -> CodeTable {
        let mut codes = CodeTable::new(fold);
        for code in list {
            codes.push(code).unwrap();
        }
        codes
    }

    #[test]
    fn lookups_return_the_ordinals_of_codes() {
        let exact = codes(false, &["a", "", "B", "längere"]);
        assert_eq!(
            ["a", "", "B", "längere", "b", "x"].map(|c| exact.find(c)),
            [Some(0), Some(1), Some(2), Some(3), None, None]
        );
        assert_eq!(exact.get(3), "längere");
        assert_eq!(exact.len(), 4);
    }

    #[test]
    fn similar_codes_differ_and_lookups_return_the_first_of_equal_codes() {
        let list = [
            "0",
            "00",
            "",
            "1234567",
            "12345678",
            "012345678",
            "123456789012345678",
            "1234567890123456789",
            "1234567a",
            "+1234567",
            "abcdefg",
            "abcdefgh",
            "ab",
            "ab\0",
            "12345678",
        ];
        for fold in [false, true] {
            let mut many = codes(fold, &list);
            for index in 0..1_000 {
                many.push(&format!("{}", index as u64 * 7_654_321)).unwrap();
            }
            let again =
                CodeTable::from_texts(std::mem::take(&mut many.texts), fold, AncestorColumns::default());
            let first = |code: &str| (0..again.len() as u32).find(|index| again.get(*index) == code);
            for index in 0..again.len() as u32 {
                assert_eq!(again.find(again.get(index)), first(again.get(index)), "{}", again.get(index));
            }
            assert_eq!(again.find("1234567890"), None);
        }
    }

    #[test]
    fn an_exact_match_takes_precedence_if_case_is_ignored() {
        let folded = codes(true, &["Abc", "abC", "ÄB"]);
        assert_eq!(folded.find("abC"), Some(1));
        assert!(folded.find("ABC").is_some());
        assert_eq!(folded.find("äb"), Some(2));
        assert_eq!(folded.find("abcd"), None);
    }
}
