//! A set of concepts of one code system: one bit for each ordinal.

use std::ops::Range;

use super::hierarchy::ConceptHierarchy;
use crate::model::Budget;
use crate::model::budget::BudgetExhausted;

/// Number of ordinals of an interval that count as one step: those of one word.
const ORDINALS_PER_STEP: usize = 64;
/// Number of children in other branches that count as one step.
const CHILDREN_PER_STEP: usize = 8;

#[derive(Debug, Clone, Default)]
pub(crate) struct ConceptSet {
    /// Number of the first stored word. All words before it are zero.
    begin: usize,
    words: Vec<u64>,
}

impl ConceptSet {
    /// The set of all ordinals below `len`.
    pub(crate) fn full(len: usize) -> Self {
        let mut words = vec![u64::MAX; len / 64];
        words.extend((!len.is_multiple_of(64)).then(|| (1 << (len % 64)) - 1));
        Self { begin: 0, words }
    }

    /// An empty set with capacity for the ordinals below `len`.
    pub(crate) fn empty(len: usize) -> Self {
        Self { begin: 0, words: vec![0; len.div_ceil(64)] }
    }

    /// A concept with all its ancestors. The hierarchy must not have a cycle.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn ancestors(
        hierarchy: &ConceptHierarchy,
        from: u32,
        budget: &Budget<'_>,
    ) -> Result<Self, BudgetExhausted> {
        let mut out = Self::empty(hierarchy.len());
        budget.spend_words(out.words.len(), false)?;
        out.reach(hierarchy, vec![from], true, budget)?;
        out.trim();
        budget.spend_words(out.words.len(), true)?;
        Ok(out)
    }

    /// Adds the descendants of a concept. The hierarchy must not have a cycle.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn add_descendants(
        &mut self,
        hierarchy: &ConceptHierarchy,
        of: u32,
        budget: &Budget<'_>,
    ) -> Result<(), BudgetExhausted> {
        let Range { start, end } = hierarchy.interval(of);
        let mut below = start + 1..end;
        let mut waiting = hierarchy.non_tree_children(of..of + 1).to_vec();
        loop {
            let before = waiting.len();
            budget.spend(1 + below.len() / ORDINALS_PER_STEP)?;
            self.insert_interval(below, |new| waiting.extend(hierarchy.non_tree_children(new)));
            budget.spend((waiting.len() - before) / CHILDREN_PER_STEP)?;
            // The descendants in the tree of what was added are in the set. Only children in other branches
            // remain.
            let next = loop {
                match waiting.pop() {
                    None => return Ok(()),
                    Some(next) if self.has(next) => {}
                    Some(next) => break next,
                }
            };
            below = hierarchy.interval(next);
        }
    }

    /// Adds the ordinals of an interval. Calls `new` with each interval of those that were not in the set.
    fn insert_interval(&mut self, interval: Range<u32>, mut new: impl FnMut(Range<u32>)) {
        let Range { start, end } = interval;
        if start >= end {
            return;
        }
        let [first, last] = [start, end - 1].map(|index| index as usize / 64);
        self.cover(first);
        self.cover(last);
        for number in first..=last {
            let begin = number as u32 * 64;
            let above = u64::MAX << start.saturating_sub(begin);
            let within = above & (u64::MAX >> (begin + 63).saturating_sub(end - 1));
            let word = &mut self.words[number - self.begin];
            let mut added = within & !*word;
            *word |= within;
            while added != 0 {
                let from = added.trailing_zeros();
                let run = (added >> from).trailing_ones();
                new(begin + from..begin + from + run);
                added &= u64::MAX.checked_shl(from + run).unwrap_or(0);
            }
        }
    }

    /// Stores the word of this number, which may be new.
    fn cover(&mut self, word: usize) {
        if self.words.is_empty() {
            self.begin = word;
        } else if word < self.begin {
            self.words.splice(0..0, std::iter::repeat_n(0, self.begin - word));
            self.begin = word;
        }
        if word - self.begin >= self.words.len() {
            self.words.resize(word - self.begin + 1, 0);
        }
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        let word = (index as usize / 64).checked_sub(self.begin).and_then(|word| self.words.get(word));
        word.is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub(crate) fn insert(&mut self, index: u32) {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if let Some(word) = word.checked_sub(self.begin).and_then(|at| self.words.get_mut(at)) {
            *word |= bit;
            return;
        }
        self.cover(word);
        self.words[word - self.begin] |= bit;
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let word = (index as usize / 64).checked_sub(self.begin);
        if let Some(word) = word.and_then(|word| self.words.get_mut(word)) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Adds these concepts with all their ancestors or descendants. A concept that is already in the set is
    /// not followed.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn reach(
        &mut self,
        hierarchy: &ConceptHierarchy,
        mut waiting: Vec<u32>,
        up: bool,
        budget: &Budget<'_>,
    ) -> Result<(), BudgetExhausted> {
        while let Some(here) = waiting.pop() {
            budget.spend(1)?;
            if !self.has(here) {
                self.insert(here);
                waiting.extend(&*hierarchy.neighbours(here, up));
            }
        }
        Ok(())
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for (number, word) in (self.begin..).zip(&mut self.words) {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                if !keep(number as u32 * 64 + bit) {
                    *word &= !(1 << bit);
                }
                rest &= rest - 1;
            }
        }
    }

    fn word(&self, number: usize) -> u64 {
        number.checked_sub(self.begin).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    /// Keeps the ordinals that are also in the other set.
    pub(crate) fn intersect(&mut self, other: &Self) {
        for (number, word) in (self.begin..).zip(&mut self.words) {
            *word &= other.word(number);
        }
    }

    /// Removes the ordinals of the other set.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (number, word) in (self.begin..).zip(&mut self.words) {
            *word &= !other.word(number);
        }
    }

    /// Adds the ordinals of the other set.
    pub(crate) fn unite(&mut self, other: &Self) {
        let Some(last) = other.words.len().checked_sub(1) else { return };
        if self.words.is_empty() {
            self.clone_from(other);
            return;
        }
        let (begin, end) =
            (self.begin.min(other.begin), (other.begin + last + 1).max(self.begin + self.words.len()));
        if begin < self.begin {
            self.words.splice(0..0, std::iter::repeat_n(0, self.begin - begin));
            self.begin = begin;
        }
        self.words.resize(end - begin, 0);
        for (word, more) in self.words[other.begin - begin..].iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Releases the words at both ends that are zero.
    pub(crate) fn trim(&mut self) {
        let used = self.words.len() - self.words.iter().rev().take_while(|word| **word == 0).count();
        let unused = self.words[..used].iter().take_while(|word| **word == 0).count();
        if used - unused < self.words.len() {
            self.words = self.words[unused..used].to_vec();
            self.begin += unused;
        }
    }

    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The intervals of adjacent ordinals, in ascending order.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = Range<u32>> {
        let mut next = self.begin as u32 * 64;
        let end = next + self.words.len() as u32 * 64;
        std::iter::from_fn(move || {
            let start = self.next_with(next, end, true)?;
            next = self.next_with(start, end, false).unwrap_or(end);
            Some(start..next)
        })
    }

    /// The first ordinal from `from` and below `end` that is in the set, or not in it.
    fn next_with(&self, mut from: u32, end: u32, is_in: bool) -> Option<u32> {
        while from < end {
            let word = self.word(from as usize / 64);
            let bits = (if is_in { word } else { !word }) >> (from % 64);
            if bits != 0 {
                return Some(from + bits.trailing_zeros());
            }
            from = (from / 64 + 1) * 64;
        }
        None
    }

    /// The ordinals in ascending order, without the first `skip`.
    pub(crate) fn iter_after(&self, mut skip: usize) -> impl Iterator<Item = u32> {
        // Skips a word as a whole if all its ordinals are to be skipped.
        let passed = self.words.iter().take_while(|word| {
            let ones = word.count_ones() as usize;
            let pass = ones <= skip;
            skip -= if pass { ones } else { 0 };
            pass
        });
        let start = passed.count();
        let numbered = (self.begin + start..).zip(&self.words[start..]);
        let ordinals = numbered.flat_map(|(number, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(number as u32 * 64 + bit)
            })
        });
        ordinals.skip(skip)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn bits(ordinals: &BTreeSet<u32>) -> ConceptSet {
        let mut out = ConceptSet::default();
        ordinals.iter().rev().for_each(|index| out.insert(*index));
        out
    }

    proptest! {
        #[test]
        fn an_interval_adds_what_is_not_in_the_set(
            before in prop::collection::btree_set(0..300_u32, 0..100),
            start in 0..300_u32,
            len in 0..200_u32,
        ) {
            let (mut set, mut added) = (bits(&before), BTreeSet::new());
            let interval = start..start + len;
            set.insert_interval(interval.clone(), |new| added.extend(new));
            let inside: BTreeSet<u32> = interval.collect();
            prop_assert_eq!(added, &inside - &before);
            prop_assert!(set.iter_after(0).eq(&inside | &before));
        }

        #[test]
        fn sets_with_any_range_of_stored_words_behave_as_sets(
            a in prop::collection::btree_set(0..700_u32, 0..40),
            b in prop::collection::btree_set(0..700_u32, 0..40),
            skip in 0..50_usize,
        ) {
            let all = |bits: &ConceptSet| bits.iter_after(0).collect::<BTreeSet<_>>();
            let (mut one, other) = (bits(&a), bits(&b));
            prop_assert_eq!(all(&one), a.clone());
            prop_assert!(one.iter_after(skip).eq(a.iter().copied().skip(skip)));
            prop_assert!(one.intervals().flatten().eq(a.iter().copied()));
            prop_assert!(one.intervals().zip(one.intervals().skip(1)).all(|(one, next)| one.end < next.start));
            prop_assert_eq!((one.count(), one.is_empty()), (a.len(), a.is_empty()));
            one.unite(&other);
            prop_assert_eq!(all(&one), &a | &b);
            one.subtract(&bits(&a));
            one.trim();
            prop_assert_eq!(all(&one), &b - &a);
            let mut both = bits(&a);
            both.intersect(&other);
            both.trim();
            prop_assert_eq!(all(&both), &a & &b);
            prop_assert!((0..700).all(|index| both.has(index) == (a.contains(&index) && b.contains(&index))));
            for index in &b {
                both.remove(*index);
            }
            both.trim();
            prop_assert_eq!(both.words(), 0);
        }
    }
}
