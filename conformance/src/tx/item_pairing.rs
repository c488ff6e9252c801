//! Pairs the items of an expected array with those of an answer, so that as many as possible match.

use std::collections::{BTreeSet, HashMap};

/// A maximum matching of expected and actual items (augmenting paths).
pub(super) struct ItemPairing<F> {
    fits: F,
    known: HashMap<(usize, usize), bool>,
    /// Actual item of each expected item.
    pub(super) partner: Vec<Option<usize>>,
    /// Expected item of each actual item.
    pub(super) taken: Vec<Option<usize>>,
}

impl<F: Fn(usize, usize) -> bool> ItemPairing<F> {
    pub(super) fn new(expected: usize, answered: usize, fits: F) -> Self {
        Self { fits, known: HashMap::new(), partner: vec![None; expected], taken: vec![None; answered] }
    }

    fn fits(&mut self, index: usize, of: usize) -> bool {
        if let Some(cached) = self.known.get(&(index, of)) {
            return *cached;
        }
        let fits = (self.fits)(index, of);
        self.known.insert((index, of), fits);
        fits
    }

    fn pair(&mut self, index: usize, of: usize) {
        self.partner[index] = Some(of);
        self.taken[of] = Some(index);
    }

    /// Pairs items with the same position. Most answers have the order of the expectation, so this saves
    /// time.
    pub(super) fn pair_same_position(&mut self, index: usize) {
        if index < self.taken.len() && self.taken[index].is_none() && self.fits(index, index) {
            self.pair(index, index);
        }
    }

    /// Finds an actual item for an expected item. Existing pairs may be rearranged.
    pub(super) fn place_expected(&mut self, index: usize) -> bool {
        self.partner[index].is_some() || self.seek_answer(index, &mut BTreeSet::new())
    }

    fn seek_answer(&mut self, index: usize, visited: &mut BTreeSet<usize>) -> bool {
        for of in 0..self.taken.len() {
            if visited.contains(&of) || !self.fits(index, of) {
                continue;
            }
            visited.insert(of);
            let free = match self.taken[of] {
                None => true,
                Some(other) => self.seek_answer(other, visited),
            };
            if free {
                self.pair(index, of);
                return true;
            }
        }
        false
    }

    /// Finds an expected item for an actual item. Expected items that have a pair keep one.
    pub(super) fn place_answer(&mut self, of: usize) -> bool {
        self.taken[of].is_some() || self.seek_expected(of, &mut BTreeSet::new())
    }

    fn seek_expected(&mut self, of: usize, visited: &mut BTreeSet<usize>) -> bool {
        for index in 0..self.partner.len() {
            if visited.contains(&index) || !self.fits(index, of) {
                continue;
            }
            visited.insert(index);
            let free = match self.partner[index] {
                None => true,
                Some(other) => self.seek_expected(other, visited),
            };
            if free {
                self.pair(index, of);
                return true;
            }
        }
        false
    }
}
