//! The columns of an index, and their file format.

use std::io::{self, Read, Write};

use bytemuck::Pod;
use crc32fast::Hasher;

use super::row_column::TextColumn;

/// First bytes of a saved index.
const MAGIC: &[u8; 8] = b"TREFOIL\n";
/// Version of the file format. It increases with every change of the columns or of their content. An index of
/// an older format from [`OLDEST_FORMAT`] on is read and updated; one of another format is rebuilt from its
/// source.
pub(super) const FORMAT: u32 = 12;
/// Oldest format that is read. Before format 12, the words of the word index had accents and widths.
const OLDEST_FORMAT: u32 = 11;
/// Byte order mark: a machine with the other byte order reads a different number.
const ORDER: u32 = 0x0102_0304;
/// Size of the pieces in which a column is read, in bytes, so that a corrupt length does not allocate memory
/// for data that the file does not contain.
const PIECE_BYTES: usize = 16 << 20;

/// Data that is saved to a file and loaded from it.
pub(crate) trait IndexColumn {
    /// Writes the column.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be written.
    fn save<W: Write>(&self, to: &mut IndexWriter<W>) -> io::Result<()>;

    /// Replaces the content with the column that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read, of the kind `InvalidData` if the content is not valid for
    /// this column.
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
    /// [`io::Error`] if the file cannot be written.
    pub(crate) fn begin(out: W) -> io::Result<Self> {
        let mut recorder = Self { out, sum: Hasher::new() };
        recorder.write(MAGIC)?;
        recorder.write(bytemuck::bytes_of(&[FORMAT, ORDER]))?;
        Ok(recorder)
    }

    /// Completes the file with the checksum.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be written.
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
    pub(super) format: u32,
}

impl<R: Read> IndexReader<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read, of the kind `InvalidData` if it is not an index, or is an
    /// index of another format or byte order.
    pub(crate) fn begin(input: R) -> io::Result<Self> {
        let mut player = Self { input, sum: Hasher::new(), format: FORMAT };
        let mut magic = [0; 8];
        let mut numbers = [0_u32; 2];
        let result = player.fill(&mut magic).and_then(|()| player.fill(bytemuck::bytes_of_mut(&mut numbers)));
        result.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => invalid("the file is too short to be an index of Trefoil"),
            _ => error,
        })?;
        match (&magic, numbers) {
            (MAGIC, [format @ OLDEST_FORMAT..=FORMAT, ORDER]) => {
                player.format = format;
                Ok(player)
            }
            (MAGIC, _) => Err(invalid("the index has another format; import its source again")),
            _ => Err(invalid("the file is not an index of Trefoil")),
        }
    }

    /// Verifies the checksum after all columns are read.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read, of the kind `InvalidData` if the checksum is wrong.
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

columns!(TextColumn: arena, ends);
