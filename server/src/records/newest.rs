//! The newest entries of something without end, for `trefoil status` and the pages.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The newest entries, the newest first.
#[derive(Debug)]
pub struct Newest<T> {
    entries: Mutex<VecDeque<T>>,
    /// Maximum number of entries; the oldest one gives way.
    most: usize,
}

impl<T: Clone> Newest<T> {
    /// No entries yet, and at most this number.
    pub const fn new(most: usize) -> Self {
        Self { entries: Mutex::new(VecDeque::new()), most }
    }

    /// Adds an entry.
    pub fn add(&self, entry: T) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.truncate(self.most - 1);
        entries.push_front(entry);
    }

    /// The entries, the newest first.
    pub fn list(&self) -> Vec<T> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
