//! The words of all texts of a code system, by which `$expand` filters: codes, displays and designations.
//!
//! A word begins at a letter or digit that follows neither, and at the begin of a text. It is stored up to the next
//! character that is neither, in lower case, with the ordinals of its concepts. The word at the begin of a code is not
//! stored, since most codes have only that one and no two are alike: the codes are sorted instead.

use std::borrow::Cow;
use std::collections::HashMap;

use super::CodeSystem;
use super::columns::{Texts, columns, group};
use super::ends::Ends;
use crate::Budget;
use crate::budget::Exhausted;
use crate::value_set::bits::Bits;

/// Bytes of ordinals that are read in one step.
const BYTES_PER_STEP: usize = 16;

/// Words and where they occur.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The words, sorted. The empty one is that of texts that begin with neither a letter nor a digit.
    words: Texts,
    /// Where the ordinals of each word end.
    ends: Ends,
    /// Ordinals of each word, rising, each as the distance from the one before in base 128, least digit first.
    ordinals: Vec<u8>,
    /// All ordinals, sorted by their codes in lower case.
    by_code: Vec<u32>,
}

columns!(Words: words, ends, ordinals, by_code);

/// A text in lower case, letter by letter.
fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return text.into();
    }
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Where words begin in a text.
fn starts(text: &str) -> impl Iterator<Item = usize> {
    let mut before: Option<char> = None;
    text.char_indices().filter_map(move |(at, letter)| {
        let starts = before.is_none_or(|before| letter.is_alphanumeric() && !before.is_alphanumeric());
        before = Some(letter);
        starts.then_some(at)
    })
}

/// Does some word of the text begin with this one, which is in lower case?
pub(crate) fn begins_word(text: &str, word: &str) -> bool {
    starts(text).any(|at| {
        let mut letters = text[at..].chars().flat_map(char::to_lowercase);
        word.chars().all(|wanted| letters.next() == Some(wanted))
    })
}

impl Words {
    /// The words of a code system whose other columns are there.
    ///
    /// # Errors
    /// When there is too much text.
    pub(super) fn build(system: &CodeSystem) -> Result<Self, String> {
        let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
        let mut last: Vec<u32> = Vec::new();
        let (mut of, mut ordinals) = (Vec::new(), Vec::new());
        for at in 0..system.len() as u32 {
            let mut add = |text: &str, skip: usize| {
                for start in starts(text).skip(skip) {
                    let rest = &text[start..];
                    let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
                    let word = lower(&rest[..end]);
                    let number = match numbers.get(&*word) {
                        Some(number) => *number,
                        None => {
                            last.push(u32::MAX);
                            let number = last.len() as u32 - 1;
                            numbers.insert(word.into(), number);
                            number
                        }
                    };
                    if std::mem::replace(&mut last[number as usize], at) != at {
                        of.push(number);
                        ordinals.push(at);
                    }
                }
            };
            add(system.code(at), 1);
            system.displays(at).for_each(|display| add(display.text, 0));
        }
        let (rows, places) = group(numbers.len(), &of);
        drop(of);
        let mut sorted: Vec<_> = numbers.into_iter().collect();
        sorted.sort_unstable();
        let mut out = Self::default();
        let mut begin;
        for (word, number) in sorted {
            out.words.push(&word)?;
            begin = 0;
            for place in &places[rows.range(number)] {
                let at = ordinals[*place as usize];
                let mut distance = at - begin;
                begin = at;
                while distance >= 128 {
                    out.ordinals.push(distance as u8 | 128);
                    distance >>= 7;
                }
                out.ordinals.push(distance as u8);
            }
            out.ends.push(u32::try_from(out.ordinals.len()).map_err(|_| "more than 4 GiB of words")?);
        }
        out.words.shrink();
        out.ends.shrink();
        out.ordinals.shrink_to_fit();
        let mut by_code: Vec<_> = (0..system.len() as u32).map(|at| (lower(system.code(at)), at)).collect();
        by_code.sort_unstable();
        out.by_code = by_code.into_iter().map(|(_, at)| at).collect();
        Ok(out)
    }

    /// Bytes that it takes in memory.
    pub(super) fn weight(&self) -> usize {
        self.words.bytes() + 5 * self.words.len() + self.ordinals.len() + 4 * self.by_code.len()
    }

    /// The concepts of which a text has a word that begins with this one, which is in lower case and not empty.
    ///
    /// # Errors
    /// When the budget ends.
    pub(crate) fn find(
        &self,
        system: &CodeSystem,
        word: &str,
        budget: &Budget<'_>,
    ) -> Result<Bits, Exhausted> {
        let mut out = Bits::empty(system.len());
        budget.words(out.words(), true)?;
        let code = |at: &u32| lower(system.code(*at));
        let begin = self.by_code.partition_point(|at| *code(at) < *word);
        let codes = &self.by_code[begin..];
        let codes = &codes[..codes.partition_point(|at| code(at).starts_with(word))];
        budget.spend(codes.len() / BYTES_PER_STEP)?;
        codes.iter().for_each(|at| out.insert(*at));

        let mut number = self.place(word);
        while number < self.words.len() as u32 && self.words.get(number).starts_with(word) {
            budget.spend(1 + self.ends.range(number).len() / BYTES_PER_STEP)?;
            self.ordinals(number).for_each(|at| out.insert(at));
            number += 1;
        }
        // A word of the filter may go on behind a whole word, as "type-2" does.
        for (end, _) in word.char_indices().filter(|(_, letter)| !letter.is_alphanumeric()) {
            let number = self.place(&word[..end]);
            if number == self.words.len() as u32 || self.words.get(number) != &word[..end] {
                continue;
            }
            for at in self.ordinals(number) {
                budget.spend(1)?;
                if !out.has(at) && self.verify(system, at, word, budget)? {
                    out.insert(at);
                }
            }
        }
        Ok(out)
    }

    fn verify(
        &self,
        system: &CodeSystem,
        at: u32,
        word: &str,
        budget: &Budget<'_>,
    ) -> Result<bool, Exhausted> {
        for text in std::iter::once(system.code(at)).chain(system.displays(at).map(|display| display.text)) {
            budget.spend(1 + text.len() / BYTES_PER_STEP)?;
            if begins_word(text, word) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Number of the first word that is not before this one.
    fn place(&self, word: &str) -> u32 {
        let (mut low, mut high) = (0, self.words.len() as u32);
        while low < high {
            let middle = low.midpoint(high);
            match self.words.get(middle) < word {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The ordinals of a word.
    fn ordinals(&self, number: u32) -> impl Iterator<Item = u32> {
        let mut bytes = self.ordinals[self.ends.range(number)].iter();
        let mut at = 0;
        std::iter::from_fn(move || {
            let (mut distance, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                distance |= u32::from(byte & 127) << shift;
                if byte < 128 {
                    break;
                }
                shift += 7;
            }
            at += distance;
            Some(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Header;

    fn system(texts: &[Vec<String>]) -> CodeSystem {
        let concept = |texts: &Vec<String>| {
            let designations: Vec<_> =
                texts[2..].iter().map(|text| serde_json::json!({ "value": text })).collect();
            serde_json::json!({ "code": format!("{}{}", texts[0], texts.len()), "display": texts[1],
                "designation": designations })
        };
        let concepts: Vec<_> = texts.iter().map(concept).collect();
        let json =
            serde_json::json!({ "resourceType": "CodeSystem", "content": "complete", "concept": concepts });
        let header: Header = serde_json::from_value(json.clone()).unwrap();
        CodeSystem::compile(&header, json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_no_letter_does_not_become_one_in_lower_case() {
        // `find` relies on it: a word ends where the next character of the filter is neither letter nor digit.
        let others = ('\0'..=char::MAX).filter(|letter| !letter.is_alphanumeric());
        for letter in others {
            assert!(!letter.to_lowercase().next().is_some_and(char::is_alphanumeric), "{letter:?}");
        }
    }

    proptest! {
        #[test]
        fn the_index_answers_as_a_scan_does(
            texts in prop::collection::vec(prop::collection::vec("[aAbBİßẞΣσς1̇ (-]{0,7}", 2..5), 1..12),
            word in "[aAbBİßẞΣσς1̇(-]{1,5}",
        ) {
            let system = system(&texts);
            let mut file = Vec::new();
            system.save(&mut file).unwrap();
            let read = CodeSystem::read(&*file).unwrap();
            let word = word.to_lowercase();
            for system in [&system, &read] {
                let found = system.words().find(system, &word, &Budget::default()).unwrap();
                for at in 0..system.len() as u32 {
                    let mut all = std::iter::once(system.code(at)).chain(system.displays(at).map(|one| one.text));
                    let expected = all.any(|text| begins_word(text, &word));
                    prop_assert_eq!(found.has(at), expected, "{} in {}", word, system.code(at));
                }
            }
        }
    }
}
