//! Codes to ordinals and back: all codes in one arena, and an open-addressing table of ordinals
//! beside it. No code is stored twice.

use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read, Write};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::columns::{Column, Player, Recorder, Texts};

/// Codes of one code system.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    texts: Texts,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    fold: bool,
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
        let (texts, hasher, fold) = (&self.texts, &self.hasher, self.fold);
        let hash = |code: &str| hash(hasher, code, fold);
        self.table.insert_unique(hash(code), ordinal, |at| hash(texts.get(*at)));
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
        let (texts, hasher, fold) = (&self.texts, &self.hasher, self.fold);
        let hash = |at: &u32| hash(hasher, texts.get(*at), fold);
        self.table = HashTable::with_capacity(texts.len());
        for ordinal in 0..texts.len() as u32 {
            self.table.insert_unique(hash(&ordinal), ordinal, hash);
        }
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
        let hash = hash(&self.hasher, code, self.fold);
        let exact = self.table.find(hash, |at| self.texts.get(*at) == code);
        match exact {
            None if self.fold => self.table.find(hash, |at| same_folded(self.texts.get(*at), code)),
            exact => exact,
        }
        .copied()
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
    fn where_case_does_not_matter_an_exact_match_still_wins() {
        let folded = codes(true, &["Abc", "abC", "ÄB"]);
        assert_eq!(folded.find("abC"), Some(1));
        assert!(folded.find("ABC").is_some());
        assert_eq!(folded.find("äb"), Some(2));
        assert_eq!(folded.find("abcd"), None);
    }
}
