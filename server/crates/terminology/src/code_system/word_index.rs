//! The words of all codes, displays and current designations of a code system, for the text filter of
//! `$expand`.
//!
//! Texts are folded first: case, accents and widths do not matter. A word starts at the beginning of a text,
//! at a letter or digit that follows a character that is neither, and, in scripts without spaces, at each
//! letter. It is stored with the ordinals of its concepts, up to the next character that is neither a letter
//! nor a digit; in scripts without spaces, two letters of it. The first word of a code is not stored, because
//! most codes consist of a single, unique word. The codes are sorted instead.

use std::collections::HashMap;

use super::CodeSystem;
use super::columns::columns;
use super::concept_set::ConceptSet;
use super::row_column::TextColumn;
use super::row_offsets::RowOffsets;
use crate::model::Budget;
use crate::model::budget::BudgetExhausted;
use crate::model::text_folding::fold;

/// Number of bytes of ordinals that count as one step.
const BYTES_PER_STEP: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct WordIndex {
    /// The words, sorted. The empty word belongs to texts that start with neither a letter nor a digit.
    words: TextColumn,
    /// End of the ordinals of each word.
    ends: RowOffsets,
    /// Ordinals of each word, ascending. Each is stored as the difference from the previous one in base 128,
    /// the lowest digit first.
    ordinals: Vec<u8>,
    /// All ordinals, sorted by their folded codes.
    by_code: Vec<u32>,
}

columns!(WordIndex: words, ends, ordinals, by_code);

/// The texts of a concept that are searched: its display and its designations that are not withdrawn.
fn current_texts(system: &CodeSystem, concept: u32) -> impl Iterator<Item = &str> {
    system.displays(concept).filter(|display| display.retired.is_none()).map(|display| display.text)
}

/// Returns whether a letter is of a script that has no spaces between words: Chinese and Japanese, and the
/// first letter of a syllable of Korean, in which compounds are common.
fn is_unspaced(letter: char) -> bool {
    matches!(
        letter,
        '\u{1100}'..='\u{115f}'
            | '\u{3005}'
            | '\u{3041}'..='\u{3096}'
            | '\u{30a1}'..='\u{30ff}'
            | '\u{31f0}'..='\u{31ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// Returns whether a letter of a folded text belongs to a word. The marks are those of Japanese syllables.
fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '\u{3099}' | '\u{309a}')
}

/// The positions where words of a folded text start.
fn word_starts(text: &str) -> impl Iterator<Item = usize> {
    let mut before: Option<char> = None;
    text.char_indices().filter_map(move |(offset, letter)| {
        let starts = before.is_none_or(|before| {
            let is_other_script = is_unspaced(before) && letter.is_ascii_alphanumeric();
            letter.is_alphanumeric() && (!is_of_word(before) || is_other_script) || is_unspaced(letter)
        });
        before = Some(letter);
        starts.then_some(offset)
    })
}

/// The part of a folded text that is stored for the word at its beginning. It depends only on the letters up
/// to its end, so that a text that begins with another one has the same part, if that one is longer than the
/// part.
fn stored_part(text: &str) -> &str {
    let mut unspaced = 0;
    let limit = if text.starts_with(is_unspaced) { 2 } else { 0 };
    let end = text.find(|letter: char| {
        unspaced += usize::from(is_unspaced(letter));
        !is_of_word(letter) || unspaced > limit
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns whether a word of the text starts with `word`, which is folded.
pub(crate) fn begins_word(text: &str, word: &str) -> bool {
    if text.is_ascii() {
        let begins = |index| {
            let rest = &text.as_bytes()[index..];
            rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word.as_bytes())
        };
        return word_starts(text).any(begins);
    }
    let text = fold(text);
    word_starts(&text).any(|index| text[index..].starts_with(word))
}

/// All ordinals, sorted by their folded codes.
fn sort_by_code(system: &CodeSystem) -> Vec<u32> {
    let mut by_code: Vec<_> =
        (0..system.len() as u32).map(|concept| (fold(system.code(concept)), concept)).collect();
    by_code.sort_unstable();
    by_code.into_iter().map(|(_, concept)| concept).collect()
}

/// Ordinals in rows: one row for each number of a word.
struct Occurrences {
    ends: Vec<usize>,
    ordinals: Vec<u32>,
}

impl Occurrences {
    fn row(&self, number: u32) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.ordinals[start..self.ends[number as usize]]
    }
}

/// The number of each word, and the ordinals of the concepts in which it occurs, ascending.
fn occurrences(system: &CodeSystem) -> (HashMap<Box<str>, u32>, Occurrences) {
    let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
    // The last concept of each word, the numbers of the words of all concepts, and the end of those of each
    // concept.
    let (mut last, mut words, mut word_ends) = (Vec::new(), Vec::new(), Vec::with_capacity(system.len()));
    for concept in 0..system.len() as u32 {
        let mut add = |text: &str, skip: usize| {
            let text = fold(text);
            for start in word_starts(&text).skip(skip) {
                let word = stored_part(&text[start..]);
                let number = match numbers.get(word) {
                    Some(number) => *number,
                    None => {
                        last.push(u32::MAX);
                        let number = last.len() as u32 - 1;
                        numbers.insert(word.into(), number);
                        number
                    }
                };
                if std::mem::replace(&mut last[number as usize], concept) != concept {
                    words.push(number);
                }
            }
        };
        add(system.code(concept), 1);
        current_texts(system, concept).for_each(|text| add(text, 0));
        word_ends.push(words.len());
    }
    // Each word's count, then the start of its row, and at last the end of its row.
    let mut ends = vec![0; numbers.len()];
    words.iter().for_each(|number| ends[*number as usize] += 1);
    let mut start = 0;
    for end in &mut ends {
        start += std::mem::replace(end, start);
    }
    let mut ordinals = vec![0; words.len()];
    let mut begin = 0;
    for (concept, end) in word_ends.into_iter().enumerate() {
        for number in &words[begin..end] {
            let place = &mut ends[*number as usize];
            ordinals[*place] = concept as u32;
            *place += 1;
        }
        begin = end;
    }
    (numbers, Occurrences { ends, ordinals })
}

impl WordIndex {
    /// Builds the index from the other columns of a code system.
    ///
    /// # Errors
    /// A message if there is more text than an index can hold.
    pub(super) fn build(system: &CodeSystem) -> Result<Self, String> {
        let mut out = Self { by_code: sort_by_code(system), ..Self::default() };
        let (numbers, ordinals) = occurrences(system);
        let mut sorted: Vec<_> = numbers.into_iter().collect();
        sorted.sort_unstable();
        for (word, number) in sorted {
            out.words.push(&word)?;
            let mut begin = 0;
            for index in ordinals.row(number) {
                let mut distance = index - begin;
                begin = *index;
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
        Ok(out)
    }

    /// The size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.words.bytes() + 5 * self.words.len() + self.ordinals.len() + 4 * self.by_code.len()
    }

    /// The concepts that have a word starting with `word`, which is folded and not empty.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn find_concepts(
        &self,
        system: &CodeSystem,
        word: &str,
        budget: &Budget<'_>,
    ) -> Result<ConceptSet, BudgetExhausted> {
        let mut out = ConceptSet::empty(system.len());
        budget.spend_words(out.words(), true)?;
        let code = |index: &u32| fold(system.code(*index));
        let begin = self.by_code.partition_point(|index| *code(index) < *word);
        let codes = &self.by_code[begin..];
        let codes = &codes[..codes.partition_point(|index| code(index).starts_with(word))];
        budget.spend(codes.len() / BYTES_PER_STEP)?;
        codes.iter().for_each(|index| out.insert(*index));

        let part = stored_part(word);
        let mut number = self.first_at_least(part);
        if part.len() == word.len() {
            while number < self.words.len() as u32 && self.words.get(number).starts_with(word) {
                budget.spend(1 + self.ends.range(number).len() / BYTES_PER_STEP)?;
                self.ordinals(number).for_each(|index| out.insert(index));
                number += 1;
            }
        } else if number < self.words.len() as u32 && self.words.get(number) == part {
            // The word continues after the stored part, as in "type-2".
            for index in self.ordinals(number) {
                budget.spend(1)?;
                if !out.has(index) && self.has_word(system, index, word, budget)? {
                    out.insert(index);
                }
            }
        }
        Ok(out)
    }

    fn has_word(
        &self,
        system: &CodeSystem,
        concept: u32,
        word: &str,
        budget: &Budget<'_>,
    ) -> Result<bool, BudgetExhausted> {
        for text in std::iter::once(system.code(concept)).chain(current_texts(system, concept)) {
            budget.spend(1 + text.len() / BYTES_PER_STEP)?;
            if begins_word(text, word) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of the first word that is not less than this one.
    fn first_at_least(&self, word: &str) -> u32 {
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

    fn ordinals(&self, number: u32) -> impl Iterator<Item = u32> {
        let mut bytes = self.ordinals[self.ends.range(number)].iter();
        let mut index = 0;
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
            index += distance;
            Some(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::resource_json::ResourceHeader;

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
        let header: ResourceHeader = serde_json::from_value(json.clone()).unwrap();
        CodeSystem::compile(&header, json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn words_of_all_scripts_are_found() {
        let begins = |text: &str, word: &str| begins_word(text, &fold(word));
        for (text, word) in [
            ("Fièvre jaune", "fievre"),
            ("Fievre jaune", "Fièvre"),
            ("１１β-hydroxylase", "11β"),
            ("ビタミンD欠損症", "欠損症"),
            ("ビタミンD欠損症", "D欠損"),
            ("ビタミンD欠損症", "d"),
            ("ﾋﾞﾀﾐﾝ", "ビタミン"),
            ("심근경색증", "경색"),
            ("A型肝炎", "A型"),
            ("A型肝炎", "肝炎"),
            ("Ménière's disease", "meniere's"),
        ] {
            assert!(begins(text, word), "{word} in {text}");
            let system = system(&[vec!["x".to_owned(), text.to_owned()]]);
            let index = system.word_index().find_concepts(&system, &fold(word), &Budget::default()).unwrap();
            assert!(index.has(0), "{word} in the index of {text}");
        }
        for (text, word) in [("Fièvre", "ievre"), ("欠損症", "損欠"), ("type-2", "ype")] {
            assert!(!begins(text, word), "{word} in {text}");
        }
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_a_scan(
            texts in prop::collection::vec(prop::collection::vec("[aAbBİßẞΣσς1̇é\u{301}½´欠損がｶﾞ가 (-]{0,7}", 2..5), 1..12),
            word in "[aAbBİßẞΣσς1̇é½欠損がｶﾞ가(-]{1,5}",
        ) {
            let system = system(&texts);
            let mut file = Vec::new();
            system.save(&mut file).unwrap();
            let read = CodeSystem::read(&*file).unwrap();
            let word = fold(&word);
            prop_assume!(!word.is_empty() && !word.contains(' '));
            for system in [&system, &read] {
                let concepts = system.word_index().find_concepts(system, &word, &Budget::default()).unwrap();
                for concept in 0..system.len() as u32 {
                    let mut all = std::iter::once(system.code(concept)).chain(current_texts(system, concept));
                    let expected = all.any(|text| begins_word(text, &word));
                    prop_assert_eq!(concepts.has(concept), expected, "{} in {}", word, system.code(concept));
                }
            }
        }
    }
}
