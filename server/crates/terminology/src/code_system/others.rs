//! Rows of places in the tree: what [`Hierarchy`](super::hierarchy::Hierarchy) keeps beside it.
//!
//! A row is a set of ordinals in the form of Elias and Fano. It begins with how many there are. Each ordinal is cut in
//! two: the low bits of all of them stand at the end; the high parts are one string of bits before that, where a one is
//! an ordinal and a zero goes on to the next high part. So where a given ordinal would stand is found by counting
//! zeros, whatever the length of the row.

use std::ops::Range;

/// A first byte of this value says that the count is large and stands in the four bytes behind it.
const LARGE: u8 = u8::MAX;
/// Zero bytes behind the last row, so that bits can be read as part of a word wherever they are.
const PADDING: usize = 8;

/// Rows end to end, each from a whole byte on.
#[derive(Debug)]
pub(super) struct Others(pub(super) Vec<u8>);

impl Default for Others {
    fn default() -> Self {
        Self(vec![0; PADDING])
    }
}

/// Where the parts of a row stand.
struct Row {
    count: u32,
    /// Bits of the low part of each ordinal.
    low_bits: u32,
    /// First byte of the high parts.
    high: usize,
    /// First byte of the low parts.
    low: usize,
}

impl Row {
    /// The row of so many ordinals below `end` that begins behind its count.
    fn new(count: u32, end: u32, high: usize) -> Self {
        let low_bits = end.checked_div(count).unwrap_or(1).max(1).ilog2();
        let high_bits = count as usize + (end >> low_bits) as usize + 1;
        Self { count, low_bits, high, low: high + high_bits.div_ceil(8) }
    }
}

impl Others {
    /// Appends a row of rising ordinals below `end` and says where it starts; `None` where that number would be too
    /// large.
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
        let row = Row::new(count, end, self.0.len());
        if count > 0 {
            self.0.resize(row.low + (ordinals.len() * row.low_bits as usize).div_ceil(8), 0);
        }
        self.0.extend([0; PADDING]);
        for (number, ordinal) in ordinals.iter().enumerate() {
            self.set(row.high, number + (ordinal >> row.low_bits) as usize, 1);
            let low = ordinal & ((1 << row.low_bits) - 1);
            self.set(row.low, number * row.low_bits as usize, low);
        }
        start
    }

    /// Sets the bits of a number from a bit on.
    fn set(&mut self, from: usize, bit: usize, number: u32) {
        let at = from + bit / 8;
        let word = self.word(at) | u64::from(number) << (bit % 8);
        self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Is any ordinal of a row in a range? The range is not empty.
    #[inline]
    pub(super) fn meet(&self, start: u32, range: Range<u32>, end: u32) -> bool {
        let row = self.row(start, end);
        if row.count == 0 {
            return false;
        }
        let mut high = range.start >> row.low_bits;
        let mut bit = self.behind_zeros(row.high, high);
        // The first ordinal that is not before the range decides.
        for number in bit - high..row.count {
            while self.word(row.high + bit as usize / 8) >> (bit % 8) & 1 == 0 {
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

    /// The ordinals of a row.
    pub(super) fn ordinals(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let row = self.row(start, end);
        let mut bit = 0;
        (0..row.count).map(move |number| {
            while self.word(row.high + bit / 8) >> (bit % 8) & 1 == 0 {
                bit += 1;
            }
            bit += 1;
            self.ordinal(&row, number, bit as u32 - 1 - number)
        })
    }

    fn row(&self, start: u32, end: u32) -> Row {
        let start = start as usize;
        match self.0[start] {
            LARGE => Row::new(self.word(start + 1) as u32, end, start + 5),
            small => Row::new(small.into(), end, start + 1),
        }
    }

    /// The ordinal of a number within its row, from its high part.
    fn ordinal(&self, row: &Row, number: u32, high: u32) -> u32 {
        let bit = number as usize * row.low_bits as usize;
        let low = (self.word(row.low + bit / 8) >> (bit % 8)) as u32 & ((1 << row.low_bits) - 1);
        high << row.low_bits | low
    }

    /// The bit behind so many zeros.
    #[inline]
    fn behind_zeros(&self, mut from: usize, mut zeros: u32) -> u32 {
        let mut bit = 0;
        if zeros == 0 {
            return 0;
        }
        loop {
            let mut word = !self.word(from);
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

    /// The bits from this byte on, the lowest first.
    fn word(&self, from: usize) -> u64 {
        let bytes = self.0.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_of_any_length_stand_side_by_side() {
        for end in [0, 1, 254, 255, 256, 70_000, u32::MAX] {
            let mut others = Others::default();
            let lengths = [0, 1, 254, 255, 256, 70_000].into_iter().filter(|length| *length <= end);
            // The lowest ones, and the highest.
            let rows: Vec<Vec<u32>> =
                lengths.flat_map(|length| [(0..length).collect(), (end - length..end).collect()]).collect();
            let starts: Vec<u32> = rows.iter().map(|row| others.push(row, end).unwrap()).collect();
            for (row, start) in rows.iter().zip(starts) {
                assert_eq!(&others.ordinals(start, end).collect::<Vec<_>>(), row);
                for at in [0, 1, end / 2, end.saturating_sub(1)].into_iter().filter(|at| *at < end) {
                    let is_in = row.binary_search(&at).is_ok();
                    assert_eq!(
                        others.meet(start, at..at + 1, end),
                        is_in,
                        "{at} of {} below {end}",
                        row.len()
                    );
                }
            }
        }
    }

    /// Ordinals below `end`: some close together, some far apart.
    fn sets(end: u32) -> impl Strategy<Value = Vec<std::collections::BTreeSet<u32>>> {
        let set = prop::collection::btree_set(prop_oneof![0..400.min(end), 0..end], 0..300);
        prop::collection::vec(set, 1..4)
    }

    proptest! {
        #[test]
        fn a_row_holds_what_was_written((end, sets) in prop_oneof![Just(1), Just(400), Just(1 << 20), Just(u32::MAX)]
            .prop_flat_map(|end| (Just(end), sets(end))), widths in prop::collection::vec(1..100_000_u32, 8))
        {
            let mut others = Others::default();
            let rows: Vec<Vec<u32>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let starts: Vec<u32> = rows.iter().filter_map(|row| others.push(row, end)).collect();
            for ((set, row), start) in sets.iter().zip(&rows).zip(starts) {
                prop_assert_eq!(&others.ordinals(start, end).collect::<Vec<_>>(), row);
                let near = row.iter().flat_map(|at| [at.saturating_sub(1), *at, at + 1]);
                for from in (0..450).chain(near).chain([end - 1]).filter(|from| *from < end) {
                    for width in widths.iter().copied().chain([1, 2]) {
                        let range = from..end.min(from.saturating_add(width));
                        let expected = set.range(range.clone()).next().is_some();
                        prop_assert_eq!(others.meet(start, range.clone(), end), expected, "{:?}", range);
                    }
                }
            }
        }
    }
}
