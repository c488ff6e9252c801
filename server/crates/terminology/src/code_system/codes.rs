//! Codes to ordinals and back: all codes in one arena, and a table of keys and ordinals beside it, five to a line, which
//! is two lines of the processor's cache. A code of up to 7 bytes, or a number of up to 18 digits, is its own key, so that
//! finding it reads one line as a rule; another one has a hash for a key and is then compared in the arena.

use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read, Write};

use hashbrown::DefaultHashBuilder;

use super::columns::{Column, Player, Recorder, Texts, columns};
use super::signature::Signature;

/// Codes of one code system.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    texts: Texts,
    table: Vec<Line>,
    /// While there is no table; then it stands there.
    above: Above,
    hasher: DefaultHashBuilder,
    fold: bool,
}

/// A concept as the table knows it. Nothing is said of what is above where the table holds other things than concepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Concept {
    /// Its ordinal.
    pub(crate) at: u32,
    /// Where the hierarchy's row of its further places begins.
    pub(crate) others: u32,
    /// What is above it.
    pub(crate) above: Signature,
}

/// What the table says of concepts, by ordinal.
#[derive(Debug, Default)]
pub(crate) struct Above {
    pub(crate) signatures: Vec<Signature>,
    pub(crate) others: Vec<u32>,
}

columns!(Above: signatures, others);

/// Places of the table that are read together: two lines of the cache, which come at the same time.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
struct Line {
    keys: [u64; PLACES],
    at: [u32; PLACES],
    above: [Signature; PLACES],
    others: [u32; PLACES],
}

/// Places of one line.
const PLACES: usize = 5;
/// So many places of 16 are taken at most. More would take less memory, and reach into the next line more often.
const TAKEN_OF_16: usize = 13;

impl Line {
    const FREE: Self = Self {
        keys: [FREE; PLACES],
        at: [0; PLACES],
        above: [Signature::NOTHING; PLACES],
        others: [0; PLACES],
    };

    /// The first place with this key, looked for without a jump that would have to be guessed.
    #[inline]
    fn position(&self, key: u64) -> Option<usize> {
        let hits = (0..PLACES).fold(0, |hits, at| hits | u32::from(self.keys[at] == key) << at);
        (hits != 0).then(|| hits.trailing_zeros() as usize)
    }

    /// Is the last place free, and so nothing in the next line that belongs here?
    fn is_last(&self) -> bool {
        self.keys[PLACES - 1] == FREE
    }

    fn concept(&self, place: usize) -> Concept {
        Concept { at: self.at[place], others: self.others[place], above: self.above[place] }
    }

    /// What stands under a key.
    fn under(&self, key: u64) -> impl Iterator<Item = Concept> {
        (0..PLACES).filter(move |place| self.keys[*place] == key).map(|place| self.concept(place))
    }
}

/// The key of no code.
const FREE: u64 = u64::MAX;
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
    let (first, rest) = bytes.split_first_chunk()?;
    let number = rest.iter().try_fold(eight_digits(*first)?, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    });
    Some(NUMBER | number?)
}

/// The number that eight digits write. All at once: neighbours are added to one another three times, since the next
/// step of a search waits for the key.
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
        if self.texts.len() * 16 > self.table.len() * PLACES * TAKEN_OF_16 {
            self.make_table(self.texts.len() * 2);
        } else {
            self.put(ordinal);
        }
        Ok(())
    }

    /// Codes of texts that are there already, and what is above each.
    pub(crate) fn of(texts: Texts, fold: bool, above: Above) -> Self {
        let mut codes = Self { texts, fold, above, ..Self::default() };
        codes.fill();
        codes
    }

    /// Makes the table, which is not saved: its order hangs on this process's secret. Only for texts whose file was found
    /// to be whole.
    pub(crate) fn fill(&mut self) {
        self.make_table(self.texts.len());
        self.above = Above::default();
    }

    /// A table with room for so many codes, with those that are there.
    fn make_table(&mut self, room: usize) {
        self.table = vec![Line::FREE; (room * 16).div_ceil(PLACES * TAKEN_OF_16) + 1];
        // In this order, so that the first of equal codes stays the first.
        (0..self.texts.len() as u32).for_each(|ordinal| self.put(ordinal));
    }

    /// The key of a code.
    fn key(&self, code: &str) -> u64 {
        // Two bits less, so that none is a number or has the key that marks a free place.
        packed(code, self.fold).unwrap_or_else(|| HASH | hash(&self.hasher, code, self.fold) >> 2)
    }

    /// The line in which a key is looked for first.
    fn home(&self, key: u64) -> usize {
        let high = self.hasher.hash_one(key) >> 32;
        ((high * self.table.len() as u64) >> 32) as usize
    }

    fn put(&mut self, ordinal: u32) {
        let key = self.key(self.texts.get(ordinal));
        let mut at = self.home(key);
        let (line, place) = loop {
            if let Some(free) = self.table[at].position(FREE) {
                break (&mut self.table[at], free);
            }
            at = if at + 1 == self.table.len() { 0 } else { at + 1 };
        };
        line.keys[place] = key;
        line.at[place] = ordinal;
        line.above[place] = self.above.signatures.get(ordinal as usize).copied().unwrap_or_default();
        line.others[place] = self.above.others.get(ordinal as usize).copied().unwrap_or_default();
    }

    /// What stands under a key, looked for from its home on; the first of equal codes first.
    fn under(&self, key: u64, home: usize) -> impl Iterator<Item = Concept> {
        let (end, begin) = self.table.split_at(home.min(self.table.len()));
        let mut is_over = false;
        let lines =
            begin.iter().chain(end).take_while(move |line| !std::mem::replace(&mut is_over, line.is_last()));
        lines.flat_map(move |line| line.under(key))
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
        self.locate(code).map(|concept| concept.at)
    }

    /// The concept of a code, by the same rule.
    #[inline]
    pub(crate) fn locate(&self, code: &str) -> Option<Concept> {
        let key = self.key(code);
        self.locate_at(code, key, self.home(key))
    }

    /// The concepts of several codes. Their places are known before the first is read, so that the processor waits for
    /// memory once.
    pub(crate) fn locate_all<const N: usize>(&self, codes: [&str; N]) -> [Option<Concept>; N] {
        let homes = codes.map(|code| {
            let key = self.key(code);
            (code, key, self.home(key))
        });
        homes.map(|(code, key, home)| self.locate_at(code, key, home))
    }

    #[inline]
    fn locate_at(&self, code: &str, key: u64, home: usize) -> Option<Concept> {
        if key & HASH == 0 {
            let line = self.table.get(home)?;
            return match line.position(key) {
                Some(place) => Some(line.concept(place)),
                None => self.under(key, home).next(),
            };
        }
        let exact = self.under(key, home).find(|concept| self.texts.get(concept.at) == code);
        match exact {
            None if self.fold => {
                self.under(key, home).find(|concept| same_folded(self.texts.get(concept.at), code))
            }
            exact => exact,
        }
    }

    /// How many codes differ from this one by case at most, where case does not matter: those that a search for it has to
    /// look at.
    pub(crate) fn alike(&self, code: &str) -> usize {
        let key = self.key(code);
        match self.fold {
            true => self
                .under(key, self.home(key))
                .filter(|concept| same_folded(self.texts.get(concept.at), code))
                .count(),
            false => 0,
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
        self.texts.save(to)?;
        let len = self.texts.len();
        let mut above = Above { signatures: vec![Signature::NOTHING; len], others: vec![0; len] };
        for line in &self.table {
            for place in (0..PLACES).filter(|place| line.keys[*place] != FREE) {
                let at = line.at[place] as usize;
                (above.signatures[at], above.others[at]) = (line.above[place], line.others[place]);
            }
        }
        above.save(to)
    }

    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()> {
        let mut fold = Vec::<u8>::new();
        fold.load(from)?;
        self.fold = fold == [1];
        self.texts.load(from)?;
        self.above.load(from)
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
            let again = Codes::of(std::mem::take(&mut many.texts), fold, Above::default());
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
