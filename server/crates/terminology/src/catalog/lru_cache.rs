//! A small cache with limits for the number and the size of its entries.
//!
//! It is our own because two limits hold at the same time, and because entries grow after they were inserted:
//! their indexes are built when they are first needed. quick_cache bounds one sum of weights. A map with the
//! time of the last use is enough here, because the caches have at most about a thousand entries.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLimit {
    pub(super) items: usize,
    pub(super) bytes: usize,
}

/// A small cache that evicts the least recently used entry first.
#[derive(Debug)]
pub(super) struct LruCache<K, V> {
    items: HashMap<K, LruEntry<V>>,
    bytes: usize,
    /// Logical clock, incremented with every use of an entry.
    clock: u64,
}

#[derive(Debug)]
struct LruEntry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K, V> Default for LruCache<K, V> {
    fn default() -> Self {
        Self { items: HashMap::new(), bytes: 0, clock: 0 }
    }
}

impl<K: Hash + Eq + Clone, V> LruCache<K, V> {
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        self.clock += 1;
        let item = self.items.get_mut(key)?;
        item.used = self.clock;
        Some(&item.value)
    }

    /// Inserts a value of `bytes` bytes, unless its size alone exceeds the limit.
    pub(super) fn put(&mut self, limit: CacheLimit, key: K, value: V, bytes: usize) {
        self.clock += 1;
        if let Some(old) = self.items.remove(&key) {
            self.bytes -= old.bytes;
        }
        if bytes > limit.bytes {
            return;
        }
        self.make_room(limit, 1, bytes);
        self.bytes += bytes;
        self.items.insert(key, LruEntry { value, bytes, used: self.clock });
    }

    /// Sets the size of a cached value, and evicts entries if the cache then exceeds the limit.
    pub(super) fn set_size(&mut self, limit: CacheLimit, key: &K, bytes: usize) {
        let Some(item) = self.items.get_mut(key) else { return };
        self.bytes = self.bytes - item.bytes + bytes;
        item.bytes = bytes;
        self.make_room(limit, 0, 0);
    }

    /// Evicts entries until `more` new entries with a total size of `bytes` fit.
    fn make_room(&mut self, limit: CacheLimit, more: usize, bytes: usize) {
        while self.items.len() + more > limit.items || self.bytes + bytes > limit.bytes {
            let Some(oldest) =
                self.items.iter().min_by_key(|(_, item)| item.used).map(|(key, _)| key.clone())
            else {
                break;
            };
            if let Some(old) = self.items.remove(&oldest) {
                self.bytes -= old.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let limit = CacheLimit { items: 3, bytes: 10 };
        let mut lru = LruCache::default();
        for key in 1..=3 {
            lru.put(limit, key, key * 10, 2);
        }
        assert_eq!(lru.get(&1), Some(&10));
        lru.put(limit, 4, 40, 2);
        assert_eq!(lru.get(&2), None);
        assert_eq!(lru.get(&1), Some(&10));
        lru.put(limit, 5, 50, 9);
        assert_eq!((lru.items.len(), lru.bytes), (1, 9), "a large entry evicts several");
        lru.put(limit, 6, 60, 11);
        assert_eq!(lru.get(&6), None, "an entry over the limit is not inserted");
        lru.put(limit, 5, 51, 1);
        assert_eq!(lru.get(&5), Some(&51));
        assert_eq!(lru.bytes, 1);
        lru.put(limit, 7, 70, 1);
        lru.set_size(limit, &7, 10);
        assert_eq!(lru.get(&5), None, "a larger entry evicts others");
        assert_eq!(lru.get(&7), Some(&70));
        lru.set_size(limit, &7, 11);
        assert_eq!((lru.items.len(), lru.bytes), (0, 0), "an entry over the limit is evicted");
    }
}
