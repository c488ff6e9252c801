//! Codes to ordinals and back: all codes in one arena, and an open-addressing table of ordinals
//! beside it. No code is stored twice.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Texts by ordinal, end to end in one string.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    arena: String,
    ends: Vec<u32>,
}

impl Texts {
    /// Appends the text of the next ordinal.
    ///
    /// # Errors
    /// When the arena would outgrow 4 GiB.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), String> {
        self.arena.push_str(text);
        let end = u32::try_from(self.arena.len()).map_err(|_| "more than 4 GiB of text".to_owned())?;
        self.ends.push(end);
        Ok(())
    }

    /// The text of an ordinal.
    pub(crate) fn get(&self, at: u32) -> &str {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.arena[start..self.ends[at] as usize]
    }

    /// How many texts there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

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
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
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
