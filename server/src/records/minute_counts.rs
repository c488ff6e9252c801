//! Events that strangers can cause without limit: the first of a minute is written at once, and further equal
//! ones are counted. The count is written when the minute has ended.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// Counts equal events of the current minute.
#[derive(Debug)]
pub struct MinuteCounts<K> {
    counts: Mutex<HashMap<(i64, K), u64>>,
    /// Maximum number of different events in memory.
    most: usize,
}

/// The decision about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// It is one of the first of its minute, and is written.
    Written,
    /// It was counted.
    Further,
    /// There are too many different events, so that it was not counted under its key. Use a more general key.
    TooMany,
}

/// The further events of a minute that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedCount<K> {
    /// The key of the events.
    pub key: K,
    /// Begin of the minute.
    pub minute: Timestamp,
    /// Number of events that were not written.
    pub further: u64,
}

impl<K: Eq + Hash + Ord + Clone> MinuteCounts<K> {
    /// An empty count of at most `most` different events.
    pub fn new(most: usize) -> Self {
        Self { counts: Mutex::default(), most }
    }

    /// Counts an event. `lines` is the number of equal events in a minute that are written.
    pub fn count(&self, key: &K, lines: u64, now: Timestamp) -> Counted {
        let minute = now.as_second().div_euclid(60);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // A stranger with many addresses must not fill the memory.
        if counts.len() >= self.most && !counts.contains_key(&(minute, key.clone())) {
            return Counted::TooMany;
        }
        let count = counts.entry((minute, key.clone())).or_default();
        *count += 1;
        if *count <= lines { Counted::Written } else { Counted::Further }
    }

    /// Removes and returns the counts of the minutes that have ended, in order.
    pub fn take_ended(&self, lines: u64, now: Timestamp) -> Vec<EndedCount<K>> {
        self.take(lines, |minute| minute != now.as_second().div_euclid(60))
    }

    /// Removes and returns all counts.
    pub fn take_all(&self, lines: u64) -> Vec<EndedCount<K>> {
        self.take(lines, |_| true)
    }

    fn take(&self, lines: u64, is_taken: impl Fn(i64) -> bool) -> Vec<EndedCount<K>> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut minutes: Vec<_> = counts.extract_if(|(minute, _), _| is_taken(*minute)).collect();
        drop(counts);
        minutes.sort_unstable();
        let minutes = minutes.into_iter().filter(|(_, count)| *count > lines);
        minutes
            .map(|((minute, key), count)| EndedCount {
                key,
                minute: Timestamp::from_second(minute * 60).unwrap_or(Timestamp::MIN),
                further: count - lines,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_events_are_counted_by_minute() {
        let counts = MinuteCounts::new(2);
        let time = |second: i64| Timestamp::from_second(60_000 + second).unwrap();
        let count = |key: &'static str, second| counts.count(&key, 1, time(second));
        assert_eq!(count("a", 0), Counted::Written);
        assert_eq!(count("a", 1), Counted::Further);
        assert_eq!(count("b", 2), Counted::Written);
        assert_eq!(count("c", 3), Counted::TooMany);
        assert_eq!(count("a", 59), Counted::Further);
        assert_eq!(counts.take_ended(1, time(59)), []);
        let minute = EndedCount { key: "a", minute: time(0), further: 2 };
        assert_eq!(counts.take_ended(1, time(60)), [minute]);
        assert_eq!(count("a", 61), Counted::Written);
        assert_eq!(counts.take_all(1), []);
    }
}
