//! What is made when it is first asked for and kept from then on; who looks for it waits only while something new is put
//! in. It only grows; who holds it puts a fresh one in its place when it is full.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use elsa::sync::FrozenMap;

/// Bytes of values with which it is full, however few they are.
const BYTES: usize = 16 << 20;

/// Values by name; full with so many.
pub(crate) struct Kept<T, const ENOUGH: usize> {
    map: FrozenMap<String, Box<T>>,
    bytes: AtomicUsize,
    /// Asked for at every question, where counting the map would take its lock.
    count: AtomicUsize,
}

impl<T, const ENOUGH: usize> Kept<T, ENOUGH> {
    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.map.get(name)
    }

    /// Keeps a value of this many bytes under a name, unless there is one: that is returned then.
    pub(crate) fn insert(&self, name: String, value: T, bytes: usize) -> &T {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.map.insert(name, Box::new(value))
    }

    /// Is a fresh one due?
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= ENOUGH || self.bytes.load(Ordering::Relaxed) >= BYTES
    }
}

impl<T, const ENOUGH: usize> Default for Kept<T, ENOUGH> {
    fn default() -> Self {
        Self { map: FrozenMap::default(), bytes: AtomicUsize::new(0), count: AtomicUsize::new(0) }
    }
}

impl<T, const ENOUGH: usize> fmt::Debug for Kept<T, ENOUGH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {ENOUGH}", self.count.load(Ordering::Relaxed))
    }
}
