//! An append-only cache: values are created on first use, and lookups block only while a new value is inserted. A full
//! cache is not emptied; its owner replaces it with a new one.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use elsa::sync::FrozenMap;

/// Size of the values at which the cache is full, in bytes.
const BYTES: usize = 16 << 20;

/// Values by name. The cache is full with `ENOUGH` values.
pub(crate) struct AppendCache<T, const ENOUGH: usize> {
    map: FrozenMap<String, Box<T>>,
    bytes: AtomicUsize,
    /// Read by every request. Counting the map would take its lock.
    count: AtomicUsize,
}

impl<T, const ENOUGH: usize> AppendCache<T, ENOUGH> {
    /// Returns the value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.map.get(name)
    }

    /// Inserts a value of this size in bytes. If the name already has a value, returns that one.
    pub(crate) fn insert(&self, name: String, value: T, bytes: usize) -> &T {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.map.insert(name, Box::new(value))
    }

    /// Returns whether the cache should be replaced.
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= ENOUGH || self.bytes.load(Ordering::Relaxed) >= BYTES
    }
}

impl<T, const ENOUGH: usize> Default for AppendCache<T, ENOUGH> {
    fn default() -> Self {
        Self { map: FrozenMap::default(), bytes: AtomicUsize::new(0), count: AtomicUsize::new(0) }
    }
}

impl<T, const ENOUGH: usize> fmt::Debug for AppendCache<T, ENOUGH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {ENOUGH}", self.count.load(Ordering::Relaxed))
    }
}
