//! An append-only cache: values are created on first use, and lookups block only while a new value is
//! inserted. A full cache is not emptied; its owner replaces it with a new one.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use elsa::sync::FrozenMap;

/// Total size of the values, in bytes, at which the cache is full.
const BYTES: usize = 16 << 20;

/// Values by name. The cache is also full when it contains `ENOUGH` values.
pub(crate) struct AppendCache<T, const ENOUGH: usize> {
    map: FrozenMap<String, Box<T>>,
    bytes: AtomicUsize,
    /// Number of values. Requests read this counter, because counting the map would take its lock.
    count: AtomicUsize,
}

impl<T, const ENOUGH: usize> AppendCache<T, ENOUGH> {
    /// The value with this name, if it is cached.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.map.get(name)
    }

    /// Inserts a value and adds `bytes` to the size of the cache. If the name already has a value, returns
    /// the existing one.
    pub(crate) fn insert(&self, name: String, value: T, bytes: usize) -> &T {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.map.insert(name, Box::new(value))
    }

    /// Returns whether the cache has reached a limit, so that its owner should replace it.
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
