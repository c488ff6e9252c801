//! Offsets of the rows of a column, in about two bytes per row.
//!
//! A cache line stores the start of the first of thirty rows, and the distance from there to the end of each
//! row. If a distance does not fit in two bytes, all ends are stored as plain numbers.

use std::io::{self, Read, Write};
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::columns::{IndexColumn, IndexReader, IndexWriter};

/// Number of rows in a cache line.
const ROWS: usize = 30;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct OffsetLine {
    begin: u32,
    ends: [u16; ROWS],
}

/// Ends of consecutive rows, of which the first starts at 0.
#[derive(Debug, Default)]
pub(crate) struct RowOffsets {
    lines: Vec<OffsetLine>,
    /// All ends, if any row is too long for a cache line.
    plain: Vec<u32>,
    len: usize,
}

impl RowOffsets {
    /// An empty list with this capacity of rows.
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self { lines: Vec::with_capacity(rows.div_ceil(ROWS)), ..Self::default() }
    }

    /// Appends the end of the next row, which must not be below the previous end.
    pub(crate) fn push(&mut self, end: u32) {
        if self.plain.is_empty() {
            let index = self.len % ROWS;
            if index == 0 {
                self.lines.push(OffsetLine { begin: self.last(), ends: [0; ROWS] });
            }
            let line = &mut self.lines[self.len / ROWS];
            if let Ok(near) = u16::try_from(end - line.begin) {
                line.ends[index] = near;
                self.len += 1;
                return;
            }
            self.plain = (0..self.len as u32).map(|index| self.range(index).end as u32).collect();
            self.lines = Vec::new();
        }
        self.plain.push(end);
        self.len += 1;
    }

    /// The end of the last row.
    fn last(&self) -> u32 {
        self.len.checked_sub(1).map_or(0, |index| self.range(index as u32).end as u32)
    }

    /// The range of a row; an empty one past the last row.
    #[inline]
    pub(crate) fn range(&self, index: u32) -> Range<usize> {
        let index = index as usize;
        if index >= self.len {
            return 0..0;
        }
        if !self.plain.is_empty() {
            let begin = index.checked_sub(1).map_or(0, |before| self.plain[before]);
            return begin as usize..self.plain[index] as usize;
        }
        let (line, index) = (&self.lines[index / ROWS], index % ROWS);
        let begin = index.checked_sub(1).map_or(0, |before| line.ends[before]);
        let [begin, end] = [begin, line.ends[index]].map(|near| line.begin as usize + usize::from(near));
        begin..end
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn shrink(&mut self) {
        self.lines.shrink_to_fit();
        self.plain.shrink_to_fit();
    }
}

impl FromIterator<u32> for RowOffsets {
    fn from_iter<I: IntoIterator<Item = u32>>(ends: I) -> Self {
        let ends = ends.into_iter();
        let mut out = Self::with_capacity(ends.size_hint().0);
        ends.for_each(|end| out.push(end));
        out.shrink();
        out
    }
}

impl IndexColumn for RowOffsets {
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()> {
        vec![self.len as u64].save(to)?;
        self.lines.save(to)?;
        self.plain.save(to)
    }

    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()> {
        let mut len = Vec::<u64>::new();
        len.load(from)?;
        self.len = len.first().map_or(0, |len| *len as usize);
        self.lines.load(from)?;
        self.plain.load(from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_too_long_for_two_bytes_makes_all_ends_plain() {
        let most = u32::from(u16::MAX);
        for (ends, is_plain) in [
            (vec![], false),
            (vec![0, 0, most], false),
            (vec![0, 0, most + 1], true),
            (vec![most + 1, most + 1], true),
            (vec![u32::MAX, u32::MAX], true),
            // The next cache line starts at the end of this one.
            ([vec![most; ROWS], vec![2 * most; ROWS]].concat(), false),
            ([vec![most; ROWS], vec![2 * most + 1]].concat(), true),
        ] {
            let offsets: RowOffsets = ends.iter().copied().collect();
            assert_eq!((offsets.len(), !offsets.plain.is_empty()), (ends.len(), is_plain));
            let begins = std::iter::once(0).chain(ends.iter().copied());
            for (at, (begin, end)) in begins.zip(&ends).enumerate() {
                assert_eq!(offsets.range(at as u32), begin as usize..*end as usize, "{at} of {ends:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn rows_have_the_ends_that_were_pushed(
            lengths in prop::collection::vec(prop_oneof![9 => 0..40_u32, 1 => 0..3_000_u32], 0..200),
            long in proptest::option::of((any::<prop::sample::Index>(), 50_000..200_000_u32)),
        ) {
            let mut lengths = lengths;
            if let Some((row, length)) = long.filter(|_| !lengths.is_empty()) {
                let row = row.index(lengths.len());
                lengths[row] = length;
            }
            let ends: Vec<u32> = lengths.iter().scan(0, |end, length| { *end += length; Some(*end) }).collect();
            let offsets: RowOffsets = ends.iter().copied().collect();
            prop_assert_eq!(offsets.len(), ends.len());
            for (row, (end, length)) in ends.iter().zip(&lengths).enumerate() {
                prop_assert_eq!(offsets.range(row as u32), (end - length) as usize..*end as usize, "{}", row);
            }
            prop_assert_eq!(offsets.range(ends.len() as u32), 0..0);
        }
    }
}
