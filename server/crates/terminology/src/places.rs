//! The first place of each key in a list: by comparison while the list is short, by hash from then on.

use std::collections::HashMap;
use std::hash::Hash;

/// Lists up to this length are searched from the beginning.
const SHORT: usize = 8;

/// The keys of a list, in its order.
#[derive(Debug)]
pub(crate) struct Places<K> {
    keys: Vec<K>,
    first: HashMap<K, usize>,
}

impl<K> Default for Places<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), first: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Places<K> {
    /// The first place of a key.
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
                for (at, key) in self.keys.iter().enumerate() {
                    self.first.entry(*key).or_insert(at);
                }
            }
            len => {
                self.first.entry(key).or_insert(len - 1);
            }
        }
    }

    /// Gives another key to an item whose key no other item has.
    pub(crate) fn rename(&mut self, at: usize, key: K) {
        let old = std::mem::replace(&mut self.keys[at], key);
        if self.keys.len() > SHORT {
            self.first.remove(&old);
            let first = self.first.entry(key).or_insert(at);
            *first = at.min(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_place_is_found_whatever_the_length(keys in prop::collection::vec(0..30_u8, 0..60)) {
            let mut places = Places::default();
            for (at, key) in keys.iter().enumerate() {
                prop_assert_eq!(places.find(*key), keys[..at].iter().position(|other| other == key));
                places.push(*key);
            }
            // A key that only one item has becomes one that others may have.
            let mut keys = keys;
            for (old, new) in [(3, 4), (17, 2)] {
                if keys.iter().filter(|key| **key == old).count() == 1 {
                    let at = keys.iter().position(|key| *key == old).unwrap();
                    keys[at] = new;
                    places.rename(at, new);
                }
            }
            for key in 0..30 {
                prop_assert_eq!(places.find(key), keys.iter().position(|other| *other == key));
            }
        }
    }
}
