//! Columns whose rows have several values.

use std::io;
use std::io::{Read, Write};

use bytemuck::Pod;

use super::columns::{IndexColumn, IndexReader, IndexWriter};
use super::row_offsets::RowOffsets;

/// Rows of variable length in two flat columns.
#[derive(Debug)]
pub(crate) struct RowColumn<T> {
    pub(super) ends: RowOffsets,
    pub(super) items: Vec<T>,
}

impl<T> Default for RowColumn<T> {
    fn default() -> Self {
        Self { ends: RowOffsets::default(), items: Vec::new() }
    }
}

impl<T> RowColumn<T> {
    /// An empty column with this capacity of rows and of items in all rows.
    pub(crate) fn with_capacity(rows: usize, items: usize) -> Self {
        Self { ends: RowOffsets::with_capacity(rows), items: Vec::with_capacity(items) }
    }

    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = T>) {
        self.items.extend(row);
        self.ends.push(self.items.len() as u32);
    }

    /// The row at a position, or an empty row if the position is past the end.
    pub(crate) fn row(&self, index: u32) -> &[T] {
        &self.items[self.range(index)]
    }

    /// The items of adjacent rows.
    pub(crate) fn rows(&self, rows: std::ops::Range<u32>) -> &[T] {
        match rows.end.checked_sub(1).filter(|last| *last >= rows.start) {
            Some(last) => &self.items[self.range(rows.start).start..self.range(last).end],
            None => &[],
        }
    }

    /// The range of a row among all items.
    pub(crate) fn range(&self, index: u32) -> std::ops::Range<usize> {
        self.ends.range(index)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The number of items in all rows.
    pub(crate) fn items(&self) -> usize {
        self.items.len()
    }

    /// Returns whether all rows are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn shrink(&mut self) {
        self.ends.shrink();
        self.items.shrink_to_fit();
    }
}

impl<T: Pod> RowColumn<T> {
    /// Builds rows from items in any order. `of` contains the row of each item. Items of one row keep their
    /// order.
    pub(crate) fn grouped(rows: usize, of: &[u32], items: &[T]) -> Self {
        let (ends, order) = group(rows, of);
        Self { ends, items: order.iter().map(|index| items[*index as usize]).collect() }
    }
}

/// Sorts items by row. Returns the ends of the rows, and the number of the item at each position.
pub(crate) fn group(rows: usize, of: &[u32]) -> (RowOffsets, Vec<u32>) {
    let mut ends = vec![0_u32; rows];
    for row in of {
        ends[*row as usize] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        // `end` is first the start of the row. Placing the items of the row moves it to the end.
        sum += std::mem::replace(end, sum);
    }
    let mut order = vec![0_u32; of.len()];
    for (index, row) in of.iter().enumerate() {
        let place = &mut ends[*row as usize];
        order[*place as usize] = index as u32;
        *place += 1;
    }
    (ends.into_iter().collect(), order)
}

impl<T: Pod> IndexColumn for RowColumn<T> {
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()> {
        self.ends.save(to)?;
        self.items.save(to)
    }

    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()> {
        self.ends.load(from)?;
        self.items.load(from)
    }
}

/// Texts by ordinal, concatenated in one string.
#[derive(Debug, Default)]
pub(crate) struct TextColumn {
    pub(super) arena: String,
    pub(super) ends: RowOffsets,
}

impl TextColumn {
    /// An empty column with this capacity of bytes and texts.
    pub(crate) fn with_capacity(bytes: usize, texts: usize) -> Self {
        Self { arena: String::with_capacity(bytes), ends: RowOffsets::with_capacity(texts) }
    }

    /// Appends the text of the next ordinal.
    ///
    /// # Errors
    /// A message if the texts need more than 4 GiB.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), String> {
        self.arena.push_str(text);
        let end = u32::try_from(self.arena.len()).map_err(|_| "more than 4 GiB of text".to_owned())?;
        self.ends.push(end);
        Ok(())
    }

    pub(crate) fn get(&self, index: u32) -> &str {
        &self.arena[self.ends.range(index)]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn shrink(&mut self) {
        self.arena.shrink_to_fit();
        self.ends.shrink();
    }

    /// The size of all texts in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(rows: &RowColumn<u32>) -> Vec<u8> {
        let mut file = Vec::new();
        let mut recorder = IndexWriter::begin(&mut file).unwrap();
        rows.save(&mut recorder).unwrap();
        recorder.end().unwrap();
        file
    }

    fn read(file: &[u8]) -> io::Result<RowColumn<u32>> {
        let mut player = IndexReader::begin(file)?;
        let mut rows = RowColumn::default();
        rows.load(&mut player)?;
        player.end().map(|()| rows)
    }

    #[test]
    fn a_saved_column_is_loaded_and_a_corrupt_one_is_rejected() {
        let rows = RowColumn::grouped(3, &[2, 0, 2, 0], &[9_u32, 8, 7, 6]);
        let file = saved(&rows);
        let back = read(&file).unwrap();
        assert_eq!((back.row(0), back.row(1), back.row(2)), (&[8, 6][..], &[][..], &[9, 7][..]));
        for index in 0..file.len() {
            let mut other = file.clone();
            other[index] ^= 1;
            assert!(read(&other).is_err(), "flipped a bit of byte {index}");
            assert!(read(&file[..index]).is_err(), "truncated at byte {index}");
        }
    }
}
