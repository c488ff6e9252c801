//! Sets of ordinals in the Elias-Fano encoding: the extra ancestors in
//! [`ConceptHierarchy`](super::hierarchy::ConceptHierarchy).
//!
//! A row starts with the number of its ordinals. Each ordinal is split in two. The low bits of all ordinals
//! are at the end of the row. The high parts form a bit string before them, in which a one is an ordinal and
//! a zero increments the high part. The position of a given ordinal is found by counting zeros, so the length
//! of the row does not matter.

use std::ops::Range;

/// First byte of a row with a large count, which is in the next four bytes.
const LARGE: u8 = u8::MAX;
/// Zero bytes after the last row, so that any bit can be read as part of a word.
const PADDING: usize = 8;

/// Rows in sequence, each starting at a whole byte.
#[derive(Debug)]
pub(super) struct EliasFanoRows(pub(super) Vec<u8>);

impl Default for EliasFanoRows {
    fn default() -> Self {
        Self(vec![0; PADDING])
    }
}

/// Positions of the parts of a row.
struct RowLayout {
    count: u32,
    /// Number of low bits of each ordinal.
    low_bits: u32,
    /// First byte of the high parts.
    high: usize,
    /// First byte of the low parts.
    low: usize,
}

impl RowLayout {
    /// The layout of a row with `count` ordinals below `end`, whose high parts start at the byte `high`.
    fn new(count: u32, end: u32, high: usize) -> Self {
        let low_bits = end.checked_div(count).unwrap_or(1).max(1).ilog2();
        let high_bits = count as usize + (end >> low_bits) as usize + 1;
        Self { count, low_bits, high, low: high + high_bits.div_ceil(8) }
    }
}

impl EliasFanoRows {
    /// Appends a row of ascending ordinals below `end` and returns its start; `None` if the start is too
    /// large for 32 bits.
    pub(super) fn push(&mut self, ordinals: &[u32], end: u32) -> Option<u32> {
        self.0.truncate(self.0.len() - PADDING);
        let start = u32::try_from(self.0.len()).ok();
        let count = ordinals.len() as u32;
        match u8::try_from(count) {
            Ok(small) if small != LARGE => self.0.push(small),
            _ => {
                self.0.push(LARGE);
                self.0.extend(count.to_le_bytes());
            }
        }
        let row = RowLayout::new(count, end, self.0.len());
        if count > 0 {
            self.0.resize(row.low + (ordinals.len() * row.low_bits as usize).div_ceil(8), 0);
        }
        self.0.extend([0; PADDING]);
        for (number, ordinal) in ordinals.iter().enumerate() {
            self.write_bits(row.high, number + (ordinal >> row.low_bits) as usize, 1);
            let low = ordinal & ((1 << row.low_bits) - 1);
            self.write_bits(row.low, number * row.low_bits as usize, low);
        }
        start
    }

    /// Writes a number at a bit position.
    fn write_bits(&mut self, from: usize, bit: usize, number: u32) {
        let index = from + bit / 8;
        let word = self.read_word(index) | u64::from(number) << (bit % 8);
        self.0[index..index + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Returns whether a row contains an ordinal in a range. The range must not be empty.
    #[inline]
    pub(super) fn intersects(&self, start: u32, range: Range<u32>, end: u32) -> bool {
        let row = self.layout(start, end);
        if row.count == 0 {
            return false;
        }
        let mut high = range.start >> row.low_bits;
        let mut bit = self.bit_after_zeros(row.high, high);
        // The first ordinal that is not below the range determines the result.
        for number in bit - high..row.count {
            while self.read_word(row.high + bit as usize / 8) >> (bit % 8) & 1 == 0 {
                bit += 1;
                high += 1;
            }
            bit += 1;
            let ordinal = self.ordinal(&row, number, high);
            if ordinal >= range.start {
                return ordinal < range.end;
            }
        }
        false
    }

    pub(super) fn ordinals(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let row = self.layout(start, end);
        let mut bit = 0;
        (0..row.count).map(move |number| {
            while self.read_word(row.high + bit / 8) >> (bit % 8) & 1 == 0 {
                bit += 1;
            }
            bit += 1;
            self.ordinal(&row, number, bit as u32 - 1 - number)
        })
    }

    fn layout(&self, start: u32, end: u32) -> RowLayout {
        let start = start as usize;
        match self.0[start] {
            LARGE => RowLayout::new(self.read_word(start + 1) as u32, end, start + 5),
            small => RowLayout::new(small.into(), end, start + 1),
        }
    }

    /// The ordinal with this number in its row, given its high part.
    fn ordinal(&self, row: &RowLayout, number: u32, high: u32) -> u32 {
        let bit = number as usize * row.low_bits as usize;
        let low = (self.read_word(row.low + bit / 8) >> (bit % 8)) as u32 & ((1 << row.low_bits) - 1);
        high << row.low_bits | low
    }

    /// The position of the bit after this number of zeros.
    #[inline]
    fn bit_after_zeros(&self, mut from: usize, mut zeros: u32) -> u32 {
        let mut bit = 0;
        if zeros == 0 {
            return 0;
        }
        loop {
            let mut word = !self.read_word(from);
            let here = word.count_ones();
            if here >= zeros {
                (1..zeros).for_each(|_| word &= word - 1);
                return bit + word.trailing_zeros() + 1;
            }
            zeros -= here;
            bit += 64;
            from += 8;
        }
    }

    /// Returns 64 bits starting at this byte, the lowest first.
    fn read_word(&self, from: usize) -> u64 {
        let bytes = self.0.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_of_any_length_are_stored_in_sequence() {
        for end in [0, 1, 254, 255, 256, 70_000, u32::MAX] {
            let mut encoded = EliasFanoRows::default();
            let lengths = [0, 1, 254, 255, 256, 70_000].into_iter().filter(|length| *length <= end);
            // Tests rows of the lowest ordinals and rows of the highest ordinals.
            let rows: Vec<Vec<u32>> =
                lengths.flat_map(|length| [(0..length).collect(), (end - length..end).collect()]).collect();
            let starts: Vec<u32> = rows.iter().map(|row| encoded.push(row, end).unwrap()).collect();
            for (row, start) in rows.iter().zip(starts) {
                assert_eq!(&encoded.ordinals(start, end).collect::<Vec<_>>(), row);
                for index in [0, 1, end / 2, end.saturating_sub(1)].into_iter().filter(|index| *index < end) {
                    let is_in = row.binary_search(&index).is_ok();
                    assert_eq!(
                        encoded.intersects(start, index..index + 1, end),
                        is_in,
                        "{index} of {} below {end}",
                        row.len()
                    );
                }
            }
        }
    }

    /// Sets of ordinals below `end`, some close together and some far apart.
    fn sets(end: u32) -> impl Strategy<Value = Vec<std::collections::BTreeSet<u32>>> {
        let set = prop::collection::btree_set(prop_oneof![0..400.min(end), 0..end], 0..300);
        prop::collection::vec(set, 1..4)
    }

    proptest! {
        #[test]
        fn a_row_contains_what_was_written((end, sets) in prop_oneof![Just(1), Just(400), Just(1 << 20), Just(u32::MAX)]
            .prop_flat_map(|end| (Just(end), sets(end))), widths in prop::collection::vec(1..100_000_u32, 8))
        {
            let mut encoded = EliasFanoRows::default();
            let rows: Vec<Vec<u32>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let starts: Vec<u32> = rows.iter().filter_map(|row| encoded.push(row, end)).collect();
            for ((set, row), start) in sets.iter().zip(&rows).zip(starts) {
                prop_assert_eq!(&encoded.ordinals(start, end).collect::<Vec<_>>(), row);
                let near = row.iter().flat_map(|index| [index.saturating_sub(1), *index, index + 1]);
                for from in (0..450).chain(near).chain([end - 1]).filter(|from| *from < end) {
                    for width in widths.iter().copied().chain([1, 2]) {
                        let range = from..end.min(from.saturating_add(width));
                        let expected = set.range(range.clone()).next().is_some();
                        prop_assert_eq!(encoded.intersects(start, range.clone(), end), expected, "{:?}", range);
                    }
                }
            }
        }
    }
}
