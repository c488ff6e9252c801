//! The first position of each key in a list. Short lists are searched by comparison, longer ones by hash.

use std::collections::HashMap;
use std::hash::Hash;

/// Maximum length of a list that is searched by comparison.
const SHORT: usize = 8;

/// The keys of a list, in its order.
#[derive(Debug)]
pub(crate) struct FirstPositions<K> {
    keys: Vec<K>,
    first: HashMap<K, usize>,
}

impl<K> Default for FirstPositions<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), first: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> FirstPositions<K> {
    /// The first position of a key.
    pub(crate) fn find(&self, key: K) -> Option<usize> {
        match self.keys.len() {
            0..=SHORT => self.keys.iter().position(|other| *other == key),
            _ => self.first.get(&key).copied(),
        }
    }

    /// Appends the key of the next item.
    pub(crate) fn push(&mut self, key: K) {
        self.keys.push(key);
        match self.keys.len() {
            0..=SHORT => {}
            len if len == SHORT + 1 => {
                for (index, key) in self.keys.iter().enumerate() {
                    self.first.entry(*key).or_insert(index);
                }
            }
            len => {
                self.first.entry(key).or_insert(len - 1);
            }
        }
    }

    /// Replaces the key of an item, which no other item may have.
    pub(crate) fn rename(&mut self, index: usize, key: K) {
        let old = std::mem::replace(&mut self.keys[index], key);
        if self.keys.len() > SHORT {
            self.first.remove(&old);
            let first = self.first.entry(key).or_insert(index);
            *first = index.min(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_position_is_found_in_lists_of_any_length(keys in prop::collection::vec(0..30_u8, 0..60)) {
            let mut places = FirstPositions::default();
            for (index, key) in keys.iter().enumerate() {
                prop_assert_eq!(places.find(*key), keys[..index].iter().position(|other| other == key));
                places.push(*key);
            }
            // A unique key becomes one that other items may have.
            let mut keys = keys;
            for (old, new) in [(3, 4), (17, 2)] {
                if keys.iter().filter(|key| **key == old).count() == 1 {
                    let index = keys.iter().position(|key| *key == old).unwrap();
                    keys[index] = new;
                    places.rename(index, new);
                }
            }
            for key in 0..30 {
                prop_assert_eq!(places.find(key), keys.iter().position(|other| *other == key));
            }
        }
    }
}
