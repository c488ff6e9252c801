//! `filter` of `$expand`: all of its words must begin some word of the code, the display or a designation, in any order
//! and whatever the case. What the value set itself and supplements say counts too.

use std::collections::{HashMap, HashSet};

use crate::code_system::CodeSystem;
use crate::code_system::words::begins_word;
use crate::texts::{Supplement, adding};
use crate::value_set::bits::Bits;
use crate::value_set::members::{Item, Part};
use crate::{Budget, TxError};

/// Bytes of a text that are looked at in one step.
const BYTES_PER_STEP: usize = 16;

/// The words of a filter, and what each finds in each code system that was met.
pub(super) struct TextFilter<'a, 'r> {
    /// In lower case.
    words: Vec<&'r str>,
    supplements: &'r [Supplement<'a>],
    budget: &'r Budget<'r>,
    found: HashMap<*const CodeSystem, Found>,
}

/// What a code system and its supplements say.
struct Found {
    /// The concepts of each word.
    each: Vec<Bits>,
    /// The concepts of all words.
    all: Bits,
}

impl<'a, 'r> TextFilter<'a, 'r> {
    pub(super) fn new(
        words: &'r [String],
        supplements: &'r [Supplement<'a>],
        budget: &'r Budget<'r>,
    ) -> Self {
        let mut known = HashSet::new();
        let words = words.iter().map(String::as_str).filter(|word| known.insert(*word)).collect();
        Self { words, supplements, budget, found: HashMap::new() }
    }

    /// Keeps the codes of a part that pass.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn narrow(&mut self, part: &mut Part<'a>) -> Result<(), TxError> {
        self.budget.during("filtering the codes of a value set by text");
        if let Some(system) = part.system
            && !self.found.contains_key(&std::ptr::from_ref(system))
        {
            let found = self.find(system)?;
            self.found.insert(std::ptr::from_ref(system), found);
        }
        let found = part.system.and_then(|system| self.found.get(&std::ptr::from_ref(system)));
        let Some(items) = &part.listed else {
            if let Some(found) = found {
                self.budget.words(part.bits.words(), false)?;
                part.bits.intersect(&found.all);
                part.bits.trim();
            }
            return Ok(());
        };
        let mut kept = HashSet::new();
        for item in items {
            if self.passes(item, found)? {
                kept.insert(name(item.concept, item.code));
            }
        }
        part.retain(|concept, code| kept.contains(&name(concept, code)));
        Ok(())
    }

    /// Does a listed code pass? The code system knows the concept's own texts; those of the list are looked at here.
    fn passes(&self, item: &Item<'a>, found: Option<&Found>) -> Result<bool, TxError> {
        let listed = item.listed.into_iter();
        let own = || {
            let designations = listed.clone().flat_map(|listed| &listed.designations).map(|one| &*one.text);
            let display = listed.clone().filter_map(|listed| listed.display.as_deref());
            std::iter::once(item.code).chain(display).chain(designations)
        };
        let bytes: usize = own().map(str::len).sum();
        for (number, word) in self.words.iter().enumerate() {
            self.budget.spend(1 + bytes / BYTES_PER_STEP)?;
            let known = item.concept.zip(found).is_some_and(|(at, found)| found.each[number].has(at));
            if !known && !own().any(|text| begins_word(text, word)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn find(&self, system: &'a CodeSystem) -> Result<Found, TxError> {
        let mut each = Vec::with_capacity(self.words.len());
        let mut all = Bits::full(system.len());
        self.budget.words(all.words(), true)?;
        for word in &self.words {
            let mut bits = system.words().find(system, word, self.budget)?;
            for supplement in adding(self.supplements, system) {
                let added = supplement.words().find(supplement, word, self.budget)?;
                add(system, supplement, &added, &mut bits, self.budget)?;
            }
            self.budget.words(bits.words(), false)?;
            all.intersect(&bits);
            each.push(bits);
        }
        Ok(Found { each, all })
    }
}

/// Adds the concepts of a system to which a supplement adds one of these.
fn add(
    system: &CodeSystem,
    supplement: &CodeSystem,
    added: &Bits,
    to: &mut Bits,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    let is_exact = |system: &CodeSystem| system.case_sensitive != Some(false);
    if is_exact(system) && is_exact(supplement) {
        budget.spend(2 * added.count())?;
        added.iter_after(0).filter_map(|at| system.find(supplement.code(at))).for_each(|at| to.insert(at));
        return Ok(());
    }
    // Codes that differ by case may be one code to the other.
    budget.spend(2 * system.len())?;
    for at in 0..system.len() as u32 {
        if supplement.find(system.code(at)).is_some_and(|found| added.has(found)) {
            to.insert(at);
        }
    }
    Ok(())
}

/// What a code of a part is known by: its concept, or itself where there is none.
fn name(concept: Option<u32>, code: &str) -> (Option<u32>, &str) {
    (concept, if concept.is_some() { "" } else { code })
}
