//! `filter` of `$expand`: each word must start a word of the code, the display or a designation, in any
//! order.
//! Case, accents and widths do not matter. Texts of the value set and of supplements count too.

use std::collections::{HashMap, HashSet};

use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::code_system::word_index::begins_word;
use crate::membership::member_part::{MemberCode, MemberPart};
use crate::model::{Budget, TxError};
use crate::ops::concept_texts::{LoadedSupplement, supplements_of};

/// Number of bytes of a text that count as one step.
const BYTES_PER_STEP: usize = 16;

/// The words of a filter, with the matches in each code system so far.
pub(super) struct TextFilter<'a, 'r> {
    words: Vec<&'r str>,
    supplements: &'r [LoadedSupplement<'a>],
    budget: &'r Budget<'r>,
    found: HashMap<*const CodeSystem, WordMatches>,
}

/// Matches in a code system and its supplements.
struct WordMatches {
    each: Vec<ConceptSet>,
    all: ConceptSet,
}

impl<'a, 'r> TextFilter<'a, 'r> {
    pub(super) fn new(
        words: &'r [String],
        supplements: &'r [LoadedSupplement<'a>],
        budget: &'r Budget<'r>,
    ) -> Self {
        let mut distinct = HashSet::new();
        let words = words.iter().map(String::as_str).filter(|word| distinct.insert(*word)).collect();
        Self { words, supplements, budget, found: HashMap::new() }
    }

    /// Keeps the codes of a part that match.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn retain_matches(&mut self, part: &mut MemberPart<'a>) -> Result<(), TxError> {
        self.budget.set_activity("filtering the codes of a value set by text");
        if let Some(system) = part.system
            && !self.found.contains_key(&std::ptr::from_ref(system))
        {
            let matches = self.find_matches(system)?;
            self.found.insert(std::ptr::from_ref(system), matches);
        }
        let matches = part.system.and_then(|system| self.found.get(&std::ptr::from_ref(system)));
        let Some(items) = &part.listed else {
            if let Some(matches) = matches {
                self.budget.spend_words(part.bits.words(), false)?;
                part.bits.intersect(&matches.all);
                part.bits.trim();
            }
            return Ok(());
        };
        let mut matching = HashSet::new();
        for item in items {
            if self.is_match(item, matches)? {
                matching.insert(code_identity(item.concept, item.code));
            }
        }
        part.retain(|concept, code| matching.contains(&code_identity(concept, code)));
        Ok(())
    }

    /// Returns whether a code that the value set lists matches. The texts of its concept are looked up in the
    /// word index; the code, display and designations in the value set are tested one by one.
    fn is_match(&self, item: &MemberCode<'a>, matches: Option<&WordMatches>) -> Result<bool, TxError> {
        let list_code = item.listed.into_iter();
        let own = || {
            let designations = list_code.clone().flat_map(|code| &code.designations).map(|one| &*one.text);
            let display = list_code.clone().filter_map(|code| code.display.as_deref());
            std::iter::once(item.code).chain(display).chain(designations)
        };
        let bytes: usize = own().map(str::len).sum();
        for (number, word) in self.words.iter().enumerate() {
            self.budget.spend(1 + bytes / BYTES_PER_STEP)?;
            let in_matches =
                item.concept.zip(matches).is_some_and(|(index, matches)| matches.each[number].has(index));
            if !in_matches && !own().any(|text| begins_word(text, word)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn find_matches(&self, system: &'a CodeSystem) -> Result<WordMatches, TxError> {
        let mut each = Vec::with_capacity(self.words.len());
        let mut all = ConceptSet::full(system.len());
        self.budget.spend_words(all.words(), true)?;
        for word in &self.words {
            let mut bits = system.word_index().find_concepts(system, word, self.budget)?;
            for supplement in supplements_of(self.supplements, system) {
                let added = supplement.word_index().find_concepts(supplement, word, self.budget)?;
                add_supplement_matches(system, supplement, &added, &mut bits, self.budget)?;
            }
            self.budget.spend_words(bits.words(), false)?;
            all.intersect(&bits);
            each.push(bits);
        }
        Ok(WordMatches { each, all })
    }
}

/// Adds the concepts of a system that correspond to these concepts of a supplement.
fn add_supplement_matches(
    system: &CodeSystem,
    supplement: &CodeSystem,
    added: &ConceptSet,
    to: &mut ConceptSet,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    let is_exact = |system: &CodeSystem| system.case_sensitive != Some(false);
    if is_exact(system) && is_exact(supplement) {
        budget.spend(2 * added.count())?;
        added
            .iter_after(0)
            .filter_map(|concept| system.find(supplement.code(concept)))
            .for_each(|concept| to.insert(concept));
        return Ok(());
    }
    // Codes that differ by case may be equal in the other code system.
    budget.spend(2 * system.len())?;
    for concept in 0..system.len() as u32 {
        if supplement.find(system.code(concept)).is_some_and(|supplemented| added.has(supplemented)) {
            to.insert(concept);
        }
    }
    Ok(())
}

/// The identity of a code in a part: its concept, or else the code.
fn code_identity(concept: Option<u32>, code: &str) -> (Option<u32>, &str) {
    (concept, if concept.is_some() { "" } else { code })
}
