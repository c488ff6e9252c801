//! The columns of an index, and their file format.

use std::io::{self, Read, Write};

use bytemuck::Pod;
use crc32fast::Hasher;

use super::row_offsets::RowOffsets;

/// First bytes of a saved index.
const MAGIC: &[u8; 8] = b"TREFOIL\n";
/// Version of the file format. It increases with every change of the columns or of their content, and an index of
/// another format is rebuilt from its source.
const FORMAT: u32 = 11;
/// Byte order mark: a machine with the other byte order reads a different number.
const ORDER: u32 = 0x0102_0304;
/// Size of the pieces in which a column is read, in bytes, so that a corrupt length does not allocate memory for data
/// that the file does not contain.
const PIECE_BYTES: usize = 16 << 20;

/// Data that is saved to a file and loaded from it.
pub(crate) trait IndexColumn {
    /// Writes the column.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be written.
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()>;

    /// Replaces the content with the column that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be read, of the kind `InvalidData` if the content is not valid for this
    /// column.
    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()>;
}

/// Implements [`IndexColumn`] for a struct by saving and loading these fields in this order.
macro_rules! columns {
    ($name:ident: $($field:tt),+) => {
        impl $crate::code_system::columns::IndexColumn for $name {
            fn save<W: std::io::Write>(
                &self,
                to: &mut $crate::code_system::columns::IndexWriter<W>,
            ) -> std::io::Result<()> {
                $($crate::code_system::columns::IndexColumn::save(&self.$field, to)?;)+
                Ok(())
            }

            fn load<R: std::io::Read>(
                &mut self,
                from: &mut $crate::code_system::columns::IndexReader<R>,
            ) -> std::io::Result<()> {
                $($crate::code_system::columns::IndexColumn::load(&mut self.$field, from)?;)+
                Ok(())
            }
        }
    };
}
pub(crate) use columns;

/// Writes columns, followed by a checksum.
pub(crate) struct IndexWriter<W> {
    out: W,
    sum: Hasher,
}

impl<W: Write> IndexWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be written.
    pub(crate) fn begin(out: W) -> io::Result<Self> {
        let mut recorder = Self { out, sum: Hasher::new() };
        recorder.write(MAGIC)?;
        recorder.write(bytemuck::bytes_of(&[FORMAT, ORDER]))?;
        Ok(recorder)
    }

    /// Completes the file with the checksum.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be written.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let sum = self.sum.finalize();
        self.out.write_all(&sum.to_ne_bytes())?;
        self.out.flush()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Reads the columns that an [`IndexWriter`] wrote, and verifies the checksum.
pub(crate) struct IndexReader<R> {
    input: R,
    sum: Hasher,
}

impl<R: Read> IndexReader<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be read, of the kind `InvalidData` if it is not an index, or is an
    /// index of another format or byte order.
    pub(crate) fn begin(input: R) -> io::Result<Self> {
        let mut player = Self { input, sum: Hasher::new() };
        let mut magic = [0; 8];
        player.fill(&mut magic)?;
        let mut numbers = [0_u32; 2];
        player.fill(bytemuck::bytes_of_mut(&mut numbers))?;
        match (&magic, numbers) {
            (MAGIC, [FORMAT, ORDER]) => Ok(player),
            (MAGIC, _) => Err(invalid("the index has another format; import its source again")),
            _ => Err(invalid("the file is not an index of Trefoil")),
        }
    }

    /// Verifies the checksum after all columns are read.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be read, of the kind `InvalidData` if the checksum is wrong.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let mut sum = [0; 4];
        self.input.read_exact(&mut sum)?;
        match u32::from_ne_bytes(sum) == self.sum.finalize() {
            true => Ok(()),
            false => Err(invalid("the checksum is wrong; import its source again")),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes)?;
        self.sum.update(bytes);
        Ok(())
    }
}

impl<T: Pod> IndexColumn for Vec<T> {
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(self);
        to.write(&(bytes.len() as u64).to_ne_bytes())?;
        to.write(bytes)
    }

    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()> {
        let mut length = [0; 8];
        from.fill(&mut length)?;
        let length =
            usize::try_from(u64::from_ne_bytes(length)).map_err(|_| invalid("a column is too long"))?;
        if !length.is_multiple_of(size_of::<T>()) {
            return Err(invalid("a column has an incomplete item"));
        }
        let (items, piece) = (length / size_of::<T>(), PIECE_BYTES / size_of::<T>());
        *self = Self::new();
        // A wrong length reserves address space only: pages that are not written need no memory.
        self.try_reserve_exact(items).map_err(|_| invalid("a column is larger than the memory"))?;
        while self.len() < items {
            let begin = self.len();
            let end = items.min(begin + piece);
            self.resize(end, T::zeroed());
            from.fill(bytemuck::cast_slice_mut(&mut self[begin..]))?;
        }
        Ok(())
    }
}

impl<T: IndexColumn + Default> IndexColumn for Option<T> {
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()> {
        vec![u8::from(self.is_some())].save(to)?;
        self.as_ref().map_or(Ok(()), |column| column.save(to))
    }

    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()> {
        let mut is_there = Vec::<u8>::new();
        is_there.load(from)?;
        *self = (is_there == [1]).then(T::default);
        self.as_mut().map_or(Ok(()), |column| column.load(from))
    }
}

impl IndexColumn for String {
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()> {
        let bytes = self.as_bytes();
        to.write(&(bytes.len() as u64).to_ne_bytes())?;
        to.write(bytes)
    }

    fn load<R: Read>(&mut self, from: &mut IndexReader<R>) -> io::Result<()> {
        let mut bytes = Vec::<u8>::new();
        bytes.load(from)?;
        *self = Self::from_utf8(bytes).map_err(|_| invalid("a text is not UTF-8"))?;
        Ok(())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Rows of variable length in two flat columns.
#[derive(Debug)]
pub(crate) struct RowColumn<T> {
    ends: RowOffsets,
    items: Vec<T>,
}

impl<T> Default for RowColumn<T> {
    fn default() -> Self {
        Self { ends: RowOffsets::default(), items: Vec::new() }
    }
}

impl<T> RowColumn<T> {
    /// Returns an empty column with this capacity of rows and of items in all rows.
    pub(crate) fn with_capacity(rows: usize, items: usize) -> Self {
        Self { ends: RowOffsets::with_capacity(rows), items: Vec::with_capacity(items) }
    }

    /// Appends the next row.
    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = T>) {
        self.items.extend(row);
        self.ends.push(self.items.len() as u32);
    }

    /// Returns the row at a position, or an empty row if the position is past the end.
    pub(crate) fn row(&self, at: u32) -> &[T] {
        &self.items[self.range(at)]
    }

    /// Returns the range of a row among all items.
    pub(crate) fn range(&self, at: u32) -> std::ops::Range<usize> {
        self.ends.range(at)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of items in all rows.
    pub(crate) fn items(&self) -> usize {
        self.items.len()
    }

    /// Returns whether all rows are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Releases unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.ends.shrink();
        self.items.shrink_to_fit();
    }
}

impl<T: Pod> RowColumn<T> {
    /// Builds rows from items in any order. `of` contains the row of each item. Items of one row keep their order.
    pub(crate) fn grouped(rows: usize, of: &[u32], items: &[T]) -> Self {
        let (ends, order) = group(rows, of);
        Self { ends, items: order.iter().map(|at| items[*at as usize]).collect() }
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
    for (at, row) in of.iter().enumerate() {
        let place = &mut ends[*row as usize];
        order[*place as usize] = at as u32;
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
    arena: String,
    ends: RowOffsets,
}

impl TextColumn {
    /// Returns an empty column with this capacity of bytes and texts.
    pub(crate) fn with_capacity(bytes: usize, texts: usize) -> Self {
        Self { arena: String::with_capacity(bytes), ends: RowOffsets::with_capacity(texts) }
    }

    /// Appends the text of the next ordinal.
    ///
    /// # Errors
    /// Returns a message if the texts need more than 4 GiB.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), String> {
        self.arena.push_str(text);
        let end = u32::try_from(self.arena.len()).map_err(|_| "more than 4 GiB of text".to_owned())?;
        self.ends.push(end);
        Ok(())
    }

    /// Returns the text of an ordinal.
    pub(crate) fn get(&self, at: u32) -> &str {
        &self.arena[self.ends.range(at)]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Releases unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.arena.shrink_to_fit();
        self.ends.shrink();
    }

    /// Returns the size of all texts in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.len()
    }
}

columns!(TextColumn: arena, ends);

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
        for at in 0..file.len() {
            let mut other = file.clone();
            other[at] ^= 1;
            assert!(read(&other).is_err(), "flipped a bit of byte {at}");
            assert!(read(&file[..at]).is_err(), "truncated at byte {at}");
        }
    }
}
