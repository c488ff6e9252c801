//! The concepts that have a value of a property, or that a value of a relationship defines: the way back
//! from values to concepts. Made for one property when a question needs it, and not part of the saved index.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use super::concept_set::ConceptSet;

/// A property with values of its own, by the number of its name, or a type of relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SourceColumn {
    Property(u32),
    Relationship(u32),
}

/// The concepts with each value of one property: adjacent in `concepts`, sorted by the number of the value.
#[derive(Debug, Default)]
pub(crate) struct ValueSources {
    values: Vec<u32>,
    /// End of the concepts of each value.
    ends: Vec<u32>,
    concepts: Vec<u32>,
}

impl ValueSources {
    /// The sources of pairs of value and concept.
    fn new(mut pairs: Vec<(u32, u32)>) -> Self {
        pairs.sort_unstable();
        // A concept may have the value in several groups.
        pairs.dedup();
        let mut out =
            Self { concepts: pairs.iter().map(|(_, concept)| *concept).collect(), ..Self::default() };
        for same in pairs.chunk_by(|one, next| one.0 == next.0) {
            out.values.push(same[0].0);
            out.ends.push(out.end(out.ends.len()) + same.len() as u32);
        }
        out
    }

    /// The end of the concepts of the first `count` values.
    fn end(&self, count: usize) -> u32 {
        count.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// The concepts of adjacent values. One with several of them occurs several times.
    fn of_values(&self, values: Range<usize>) -> &[u32] {
        &self.concepts[self.end(values.start) as usize..self.end(values.end) as usize]
    }

    /// Calls `each` with the concepts that have a value of a set. A concept with several of them occurs
    /// several times.
    pub(crate) fn for_each_of<E>(
        &self,
        values: &ConceptSet,
        mut each: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        // The intervals ascend, and the next one is usually near.
        let mut start = 0;
        for interval in values.intervals() {
            start += leading(&self.values[start..], interval.start);
            let end = start + leading(&self.values[start..], interval.end);
            each(self.of_values(start..end))?;
            start = end;
        }
        Ok(())
    }

    /// Each value in an interval with its concepts, in ascending order.
    pub(super) fn by_value(&self, values: Range<u32>) -> impl Iterator<Item = (u32, &[u32])> {
        let start = self.values.partition_point(|value| *value < values.start);
        let inside = self.values[start..].iter().take_while(move |value| **value < values.end);
        inside.enumerate().map(move |(at, value)| (*value, self.of_values(start + at..start + at + 1)))
    }

    /// The approximate size in memory, in bytes.
    fn memory_bytes(&self) -> usize {
        4 * (self.concepts.len() + 2 * self.values.len())
    }
}

/// The number of values at the beginning that are below a bound.
fn leading(values: &[u32], bound: u32) -> usize {
    let mut reach = 1;
    while values.get(reach - 1).is_some_and(|value| *value < bound) {
        reach *= 2;
    }
    let (from, to) = (reach / 2, reach.min(values.len()));
    from + values[from..to].partition_point(|value| *value < bound)
}

/// The sources of the columns that were asked for. They have at most twelve bytes for each property and
/// relationship of a concept.
#[derive(Debug, Default)]
pub(super) struct SourceColumns(RwLock<HashMap<SourceColumn, Arc<ValueSources>>>);

impl SourceColumns {
    /// The approximate size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let columns = self.0.read().unwrap_or_else(PoisonError::into_inner);
        columns.values().map(|sources| sources.memory_bytes()).sum()
    }

    /// The sources of a column, which are made from pairs of value and concept at the first question.
    ///
    /// # Errors
    /// The error of `pairs`.
    pub(super) fn get_or_make<E>(
        &self,
        column: SourceColumn,
        pairs: impl FnOnce() -> Result<Vec<(u32, u32)>, E>,
    ) -> Result<Arc<ValueSources>, E> {
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&column).cloned();
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let sources = Arc::new(ValueSources::new(pairs()?));
        let mut columns = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(columns.entry(column).or_insert(sources).clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_concepts_with_a_value_of_a_set_are_found(
            pairs in prop::collection::vec((0..300_u32, 0..50_u32), 0..100),
            wanted in prop::collection::btree_set(0..300_u32, 0..60),
        ) {
            let mut set = ConceptSet::default();
            wanted.iter().rev().for_each(|value| set.insert(*value));
            let sources = ValueSources::new(pairs.clone());
            let mut columns = Vec::new();
            sources.for_each_of(&set, |concepts| { columns.extend_from_slice(concepts); Ok::<_, ()>(()) }).unwrap();
            let mut pairs = pairs;
            pairs.sort_unstable();
            pairs.dedup();
            let expected: Vec<u32> =
                pairs.iter().filter(|(value, _)| wanted.contains(value)).map(|(_, concept)| *concept).collect();
            prop_assert_eq!(columns, expected);
        }
    }
}
