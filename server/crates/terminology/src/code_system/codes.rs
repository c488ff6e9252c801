//! Codes to ordinals and back: all codes in one arena, and an open-addressing table of keys and ordinals beside it.
//! A code of up to 7 bytes, or a number of up to 18 digits, is its own key, so that finding it looks at one place of
//! memory; another one has a hash for a key and is then compared in the arena.

use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read, Write};

use hashbrown::DefaultHashBuilder;

use super::columns::{Column, Player, Recorder, Texts};

/// Codes of one code system.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    texts: Texts,
    table: Vec<Place>,
    hasher: DefaultHashBuilder,
    fold: bool,
}

/// A place of the table, of 12 bytes: four in five are taken at most.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// High and low half.
    key: [u32; 2],
    ordinal: u32,
}

impl Place {
    const FREE: Self = Self { key: [0; 2], ordinal: u32::MAX };

    fn key(self) -> u64 {
        u64::from(self.key[0]) << 32 | u64::from(self.key[1])
    }
}

/// Marks the key that is a number.
const NUMBER: u64 = 1 << 62;
/// Marks the key that is a hash.
const HASH: u64 = 1 << 63;

/// The code itself as a key, where it fits and `fold` cannot make it another one.
fn packed(code: &str, fold: bool) -> Option<u64> {
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
    let number = bytes.iter().try_fold(0, |number: u64, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    });
    Some(NUMBER | number?)
}

impl Codes {
    /// No codes yet; with `fold`, codes that differ by case only find one another.
    pub(crate) fn new(fold: bool) -> Self {
        Self { fold, ..Self::default() }
    }

    /// Appends a code under the next ordinal. Of two equal codes the first is found.
    ///
    /// # Errors
    /// When the arena would outgrow 4 GiB.
    pub(crate) fn push(&mut self, code: &str) -> Result<(), String> {
        let ordinal = self.texts.len() as u32;
        self.texts.push(code)?;
        let taken = self.texts.len();
        if taken * 5 > self.table.len() * 4 {
            let smaller = std::mem::replace(&mut self.table, vec![Place::FREE; taken.max(8) * 2]);
            // In the order of their ordinals, so that the first of equal codes stays the first.
            let mut places: Vec<Place> = smaller.into_iter().filter(|p| p.ordinal != u32::MAX).collect();
            places.sort_unstable_by_key(|place| place.ordinal);
            places.into_iter().for_each(|place| self.put(place.key(), place.ordinal));
        }
        self.put(self.key(code), ordinal);
        Ok(())
    }

    /// Codes of texts that are there already.
    pub(crate) fn of(texts: Texts, fold: bool) -> Self {
        let mut codes = Self { texts, fold, ..Self::default() };
        codes.fill();
        codes
    }

    /// Makes the table, which is not saved: its order hangs on this process's secret. Only for texts whose file was found
    /// to be whole.
    pub(crate) fn fill(&mut self) {
        let len = self.texts.len();
        self.table = vec![Place::FREE; (len * 5).div_ceil(4) + 1];
        for ordinal in 0..len as u32 {
            self.put(self.key(self.texts.get(ordinal)), ordinal);
        }
    }

    /// The key of a code.
    fn key(&self, code: &str) -> u64 {
        packed(code, self.fold).unwrap_or_else(|| HASH | hash(&self.hasher, code, self.fold))
    }

    /// Where a key is looked for first.
    fn home(&self, key: u64) -> usize {
        let high = self.hasher.hash_one(key) >> 32;
        ((high * self.table.len() as u64) >> 32) as usize
    }

    fn put(&mut self, key: u64, ordinal: u32) {
        let mut at = self.home(key);
        while self.table[at].ordinal != u32::MAX {
            at = if at + 1 == self.table.len() { 0 } else { at + 1 };
        }
        self.table[at] = Place { key: [(key >> 32) as u32, key as u32], ordinal };
    }

    /// The ordinals under a key, looked for from its home on; the first of equal codes first.
    fn under(&self, key: u64, home: usize) -> impl Iterator<Item = u32> {
        let (end, begin) = self.table.split_at(home.min(self.table.len()));
        let run = begin.iter().chain(end).take_while(|place| place.ordinal != u32::MAX);
        run.filter(move |place| place.key() == key).map(|place| place.ordinal)
    }

    /// The number of a text, given to it now if it has none.
    ///
    /// # Errors
    /// When the arena would outgrow 4 GiB.
    pub(crate) fn number(&mut self, text: &str) -> Result<u32, String> {
        match self.find(text) {
            Some(number) => Ok(number),
            None => {
                self.push(text)?;
                Ok(self.len() as u32 - 1)
            }
        }
    }

    /// The ordinal of a code. Where case does not matter, an exact match is preferred.
    pub(crate) fn find(&self, code: &str) -> Option<u32> {
        let key = self.key(code);
        self.find_at(code, key, self.home(key))
    }

    /// The ordinals of several codes. Their places are known before the first is read, so that the processor waits for
    /// memory once.
    pub(crate) fn find_all<const N: usize>(&self, codes: [&str; N]) -> [Option<u32>; N] {
        let homes = codes.map(|code| {
            let key = self.key(code);
            (code, key, self.home(key))
        });
        homes.map(|(code, key, home)| self.find_at(code, key, home))
    }

    fn find_at(&self, code: &str, key: u64, home: usize) -> Option<u32> {
        if key & HASH == 0 {
            return self.under(key, home).next();
        }
        let exact = self.under(key, home).find(|at| self.texts.get(*at) == code);
        match exact {
            None if self.fold => self.under(key, home).find(|at| same_folded(self.texts.get(*at), code)),
            exact => exact,
        }
    }

    /// The code of an ordinal.
    pub(crate) fn get(&self, at: u32) -> &str {
        self.texts.get(at)
    }

    /// How many codes there are.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// All codes by ordinal.
    pub(crate) fn texts(&self) -> &Texts {
        &self.texts
    }
}

impl Column for Codes {
    fn save<W: Write>(&self, to: &mut Recorder<W>) -> io::Result<()> {
        vec![u8::from(self.fold)].save(to)?;
        self.texts.save(to)
    }

    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()> {
        let mut fold = Vec::<u8>::new();
        fold.load(from)?;
        self.fold = fold == [1];
        self.texts.load(from)
    }
}

/// Are two texts equal but for case?
pub(crate) fn same_folded(a: &str, b: &str) -> bool {
    a.chars().flat_map(char::to_lowercase).eq(b.chars().flat_map(char::to_lowercase))
}

fn hash(hasher: &DefaultHashBuilder, code: &str, fold: bool) -> u64 {
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

    fn codes(fold: bool, list: &[&str]) -> Codes {
        let mut codes = Codes::new(fold);
        for code in list {
            codes.push(code).unwrap();
        }
        codes
    }

    #[test]
    fn codes_find_their_ordinals() {
        let exact = codes(false, &["a", "", "B", "längere"]);
        assert_eq!(
            ["a", "", "B", "längere", "b", "x"].map(|c| exact.find(c)),
            [Some(0), Some(1), Some(2), Some(3), None, None]
        );
        assert_eq!(exact.get(3), "längere");
        assert_eq!(exact.len(), 4);
    }

    #[test]
    fn what_looks_alike_stays_apart_and_the_first_of_equals_is_found() {
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
            for at in 0..1_000 {
                many.push(&format!("{}", at as u64 * 7_654_321)).unwrap();
            }
            let again = Codes::of(std::mem::take(&mut many.texts), fold);
            let first = |code: &str| (0..again.len() as u32).find(|at| again.get(*at) == code);
            for at in 0..again.len() as u32 {
                assert_eq!(again.find(again.get(at)), first(again.get(at)), "{}", again.get(at));
            }
            assert_eq!(again.find("1234567890"), None);
        }
    }

    #[test]
    fn where_case_does_not_matter_an_exact_match_still_wins() {
        let folded = codes(true, &["Abc", "abC", "ÄB"]);
        assert_eq!(folded.find("abC"), Some(1));
        assert!(folded.find("ABC").is_some());
        assert_eq!(folded.find("äb"), Some(2));
        assert_eq!(folded.find("abcd"), None);
    }
}
