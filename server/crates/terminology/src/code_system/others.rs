//! Rows of ancestors, as bits: what [`Hierarchy`](super::hierarchy::Hierarchy) keeps beside its tree.
//!
//! A row begins with how many ranks it holds. They follow falling, each as its distance from the one before (the first
//! one from the number of all ranks). Low ranks have many below them and lie close together in a row, so a distance
//! is small against the rank it starts from: it is written in a Rice code with four bits less than that rank has.

/// Bits of the number of ranks where it is small; else they are all set and [`LARGE_BITS`] more follow.
const COUNT_BITS: u32 = 8;
const LARGE_BITS: u32 = 32;
/// Zero bytes behind the last row, so that each code can be read as part of a word.
const PADDING: usize = 8;

/// Rows end to end, each from a whole byte on.
#[derive(Debug)]
pub(super) struct Others(pub(super) Vec<u8>);

impl Default for Others {
    fn default() -> Self {
        Self(vec![0; PADDING])
    }
}

impl Others {
    /// Appends a row of falling ranks below `end` and says where it starts; `None` where that number would be too
    /// large.
    pub(super) fn push(&mut self, ranks: &[u32], end: u32) -> Option<u32> {
        self.0.truncate(self.0.len() - PADDING);
        let start = u32::try_from(self.0.len()).ok();
        let mut bits = Writer { out: &mut self.0, word: 0, free: 64 };
        let large = (1 << COUNT_BITS) - 1;
        if ranks.len() < large {
            bits.write(ranks.len() as u64, COUNT_BITS);
        } else {
            bits.write(large as u64, COUNT_BITS);
            bits.write(ranks.len() as u64, LARGE_BITS);
        }
        let mut before = end;
        for &rank in ranks {
            let (distance, low) = (before - rank - 1, low_bits(before));
            // As many zeros as the high part says, a one, and the low part.
            bits.write(1, (distance >> low) + 1);
            bits.write(u64::from(distance) & ((1 << low) - 1), low);
            before = rank;
        }
        bits.end();
        self.0.extend([0; PADDING]);
        start
    }

    /// Does a row hold a rank? What is asked for is near its begin, as a rule.
    pub(super) fn hold(&self, start: u32, rank: u32, end: u32) -> bool {
        self.ranks(start, end).find(|at| *at <= rank) == Some(rank)
    }

    /// The ranks of a row.
    #[inline]
    pub(super) fn ranks(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let mut at = u64::from(start) * 8;
        let mut left = self.word(at) >> (64 - COUNT_BITS);
        at += u64::from(COUNT_BITS);
        if left == (1 << COUNT_BITS) - 1 {
            left = self.word(at) >> (64 - LARGE_BITS);
            at += u64::from(LARGE_BITS);
        }
        let mut before = end;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (word, low) = (self.word(at), low_bits(before));
            let high = word.leading_zeros();
            let low_part = (word << (high + 1)) >> 1 >> (63 - low);
            before = before.wrapping_sub((high << low | low_part as u32) + 1);
            at += u64::from(high + 1 + low);
            Some(before)
        })
    }

    /// The bits from here on; at least 57 of them.
    fn word(&self, at: u64) -> u64 {
        let from = (at / 8) as usize;
        let bytes = self.0.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_be_bytes(bytes.unwrap_or_default()) << (at % 8)
    }
}

/// Bits of the low part of a distance from this rank. The high part is 16 at most then, and a code has less than 57
/// bits.
fn low_bits(before: u32) -> u32 {
    (32 - before.leading_zeros()).saturating_sub(4)
}

/// Writes bits, the highest of each byte first.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    free: u32,
}

impl Writer<'_> {
    /// At most 32 bits.
    fn write(&mut self, number: u64, bits: u32) {
        self.free -= bits;
        // No bits at all may meet a word that is all free.
        self.word |= number.checked_shl(self.free).unwrap_or_default();
        while self.free <= 56 {
            self.out.push((self.word >> 56) as u8);
            self.word <<= 8;
            self.free += 8;
        }
    }

    fn end(self) {
        if self.free < 64 {
            self.out.push((self.word >> 56) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ranks below `end`: some close together, some far apart.
    fn sets(end: u32) -> impl Strategy<Value = Vec<std::collections::BTreeSet<u32>>> {
        let set = prop::collection::btree_set(prop_oneof![0..400.min(end), 0..end], 0..300);
        prop::collection::vec(set, 1..4)
    }

    proptest! {
        #[test]
        fn a_row_holds_what_was_written((end, sets) in prop_oneof![Just(400), Just(1 << 20), Just(u32::MAX)]
            .prop_flat_map(|end| (Just(end), sets(end))))
        {
            let mut others = Others::default();
            let rows: Vec<Vec<u32>> = sets.iter().map(|set| set.iter().rev().copied().collect()).collect();
            let starts: Vec<u32> = rows.iter().filter_map(|row| others.push(row, end)).collect();
            for ((set, row), start) in sets.iter().zip(&rows).zip(starts) {
                prop_assert_eq!(&others.ranks(start, end).collect::<Vec<_>>(), row);
                for rank in (0..450.min(end)).chain(row.iter().flat_map(|at| [at.saturating_sub(1), *at])) {
                    prop_assert_eq!(others.hold(start, rank, end), set.contains(&rank), "{}", rank);
                }
            }
        }
    }
}
