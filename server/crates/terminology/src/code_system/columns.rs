//! The columns that an index is made of, and how they go to a file and come back.

use std::io::{self, Read, Write};

use bytemuck::Pod;
use crc32fast::Hasher;

use super::ends::Ends;

/// First bytes of a saved index.
const MAGIC: &[u8; 8] = b"TREFOIL\n";
/// Changes with every change of the columns, and of what stands in them; a file of another format is built again from
/// its source.
const FORMAT: u32 = 6;
/// Reads differently where the machine has its bytes the other way round.
const ORDER: u32 = 0x0102_0304;
/// Pieces that a column is read in: a length that is a lie takes no more memory than this.
const PIECE_BYTES: usize = 16 << 20;

/// What goes to a file and comes back.
pub(crate) trait Column {
    /// Writes it.
    ///
    /// # Errors
    /// The file's.
    fn save<W: Write>(&self, to: &mut Recorder<W>) -> io::Result<()>;

    /// Fills it with what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The file's; what cannot be this column.
    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()>;
}

/// Makes a struct a column of these of its fields, in this order: named once, for both directions.
macro_rules! columns {
    ($name:ident: $($field:tt),+) => {
        impl $crate::code_system::columns::Column for $name {
            fn save<W: std::io::Write>(
                &self,
                to: &mut $crate::code_system::columns::Recorder<W>,
            ) -> std::io::Result<()> {
                $($crate::code_system::columns::Column::save(&self.$field, to)?;)+
                Ok(())
            }

            fn load<R: std::io::Read>(
                &mut self,
                from: &mut $crate::code_system::columns::Player<R>,
            ) -> std::io::Result<()> {
                $($crate::code_system::columns::Column::load(&mut self.$field, from)?;)+
                Ok(())
            }
        }
    };
}
pub(crate) use columns;

/// Writes columns, a checksum behind them.
pub(crate) struct Recorder<W> {
    out: W,
    sum: Hasher,
}

impl<W: Write> Recorder<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The file's.
    pub(crate) fn begin(out: W) -> io::Result<Self> {
        let mut recorder = Self { out, sum: Hasher::new() };
        recorder.write(MAGIC)?;
        recorder.write(bytemuck::bytes_of(&[FORMAT, ORDER]))?;
        Ok(recorder)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The file's.
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

/// Reads what a [`Recorder`] wrote.
pub(crate) struct Player<R> {
    input: R,
    sum: Hasher,
}

impl<R: Read> Player<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// The file's; a file that is no index, or one of another format or machine.
    pub(crate) fn begin(input: R) -> io::Result<Self> {
        let mut player = Self { input, sum: Hasher::new() };
        let mut magic = [0; 8];
        player.fill(&mut magic)?;
        let mut numbers = [0_u32; 2];
        player.fill(bytemuck::bytes_of_mut(&mut numbers))?;
        match (&magic, numbers) {
            (MAGIC, [FORMAT, ORDER]) => Ok(player),
            (MAGIC, _) => Err(broken("an index of another format; import its source again")),
            _ => Err(broken("no index of Trefoil")),
        }
    }

    /// Judges the checksum, once all columns were read.
    ///
    /// # Errors
    /// The file's; a checksum that does not fit.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let mut sum = [0; 4];
        self.input.read_exact(&mut sum)?;
        match u32::from_ne_bytes(sum) == self.sum.finalize() {
            true => Ok(()),
            false => Err(broken("a checksum that does not fit; import its source again")),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes)?;
        self.sum.update(bytes);
        Ok(())
    }
}

impl<T: Pod> Column for Vec<T> {
    fn save<W: Write>(&self, to: &mut Recorder<W>) -> io::Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(self);
        to.write(&(bytes.len() as u64).to_ne_bytes())?;
        to.write(bytes)
    }

    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()> {
        let mut length = [0; 8];
        from.fill(&mut length)?;
        let length = usize::try_from(u64::from_ne_bytes(length)).map_err(|_| broken("a column too long"))?;
        if !length.is_multiple_of(size_of::<T>()) {
            return Err(broken("a column of an odd length"));
        }
        let (items, piece) = (length / size_of::<T>(), PIECE_BYTES / size_of::<T>());
        *self = Self::new();
        // A length that is a lie takes room of the address space alone: what is not read is not touched.
        self.try_reserve_exact(items).map_err(|_| broken("a column longer than the memory"))?;
        while self.len() < items {
            let begin = self.len();
            let end = items.min(begin + piece);
            self.resize(end, T::zeroed());
            from.fill(bytemuck::cast_slice_mut(&mut self[begin..]))?;
        }
        Ok(())
    }
}

impl<T: Column + Default> Column for Option<T> {
    fn save<W: Write>(&self, to: &mut Recorder<W>) -> io::Result<()> {
        vec![u8::from(self.is_some())].save(to)?;
        self.as_ref().map_or(Ok(()), |column| column.save(to))
    }

    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()> {
        let mut is_there = Vec::<u8>::new();
        is_there.load(from)?;
        *self = (is_there == [1]).then(T::default);
        self.as_mut().map_or(Ok(()), |column| column.load(from))
    }
}

impl Column for String {
    fn save<W: Write>(&self, to: &mut Recorder<W>) -> io::Result<()> {
        let bytes = self.as_bytes();
        to.write(&(bytes.len() as u64).to_ne_bytes())?;
        to.write(bytes)
    }

    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()> {
        let mut bytes = Vec::<u8>::new();
        bytes.load(from)?;
        *self = Self::from_utf8(bytes).map_err(|_| broken("text that is not UTF-8"))?;
        Ok(())
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file holds {what}"))
}

/// Variable-length rows in two flat columns.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    ends: Ends,
    items: Vec<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { ends: Ends::default(), items: Vec::new() }
    }
}

impl<T> Rows<T> {
    /// Room for so many rows of so many items together.
    pub(crate) fn with_capacity(rows: usize, items: usize) -> Self {
        Self { ends: Ends::with_capacity(rows), items: Vec::with_capacity(items) }
    }

    /// Appends the next row.
    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = T>) {
        self.items.extend(row);
        self.ends.push(self.items.len() as u32);
    }

    /// A row; empty where none was appended.
    pub(crate) fn row(&self, at: u32) -> &[T] {
        &self.items[self.range(at)]
    }

    /// Where the items of a row stand among all.
    pub(crate) fn range(&self, at: u32) -> std::ops::Range<usize> {
        self.ends.range(at)
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many items all rows have together.
    pub(crate) fn items(&self) -> usize {
        self.items.len()
    }

    /// Is there no item in any row?
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Gives back what growing took too much.
    pub(crate) fn shrink(&mut self) {
        self.ends.shrink();
        self.items.shrink_to_fit();
    }
}

impl<T: Pod> Rows<T> {
    /// Rows of items that came in any order: `of` names the row of each. Items of one row stay in order.
    pub(crate) fn grouped(rows: usize, of: &[u32], items: &[T]) -> Self {
        let (ends, order) = group(rows, of);
        Self { ends, items: order.iter().map(|at| items[*at as usize]).collect() }
    }
}

/// Sorts by row, and says where each row ends and which item comes where.
pub(crate) fn group(rows: usize, of: &[u32]) -> (Ends, Vec<u32>) {
    let mut ends = vec![0_u32; rows];
    for row in of {
        ends[*row as usize] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        // The start for now; placing the items moves it to the end.
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

impl<T: Pod> Column for Rows<T> {
    fn save<W: Write>(&self, to: &mut Recorder<W>) -> io::Result<()> {
        self.ends.save(to)?;
        self.items.save(to)
    }

    fn load<R: Read>(&mut self, from: &mut Player<R>) -> io::Result<()> {
        self.ends.load(from)?;
        self.items.load(from)
    }
}

/// Texts by ordinal, end to end in one string.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    arena: String,
    ends: Ends,
}

impl Texts {
    /// Room for so many bytes in so many texts.
    pub(crate) fn with_capacity(bytes: usize, texts: usize) -> Self {
        Self { arena: String::with_capacity(bytes), ends: Ends::with_capacity(texts) }
    }

    /// Appends the text of the next ordinal.
    ///
    /// # Errors
    /// When the arena would outgrow 4 GiB.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), String> {
        self.arena.push_str(text);
        let end = u32::try_from(self.arena.len()).map_err(|_| "more than 4 GiB of text".to_owned())?;
        self.ends.push(end);
        Ok(())
    }

    /// The text of an ordinal.
    pub(crate) fn get(&self, at: u32) -> &str {
        &self.arena[self.ends.range(at)]
    }

    /// How many texts there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Gives back what growing took too much.
    pub(crate) fn shrink(&mut self) {
        self.arena.shrink_to_fit();
        self.ends.shrink();
    }

    /// All bytes together.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.len()
    }
}

columns!(Texts: arena, ends);

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(rows: &Rows<u32>) -> Vec<u8> {
        let mut file = Vec::new();
        let mut recorder = Recorder::begin(&mut file).unwrap();
        rows.save(&mut recorder).unwrap();
        recorder.end().unwrap();
        file
    }

    fn read(file: &[u8]) -> io::Result<Rows<u32>> {
        let mut player = Player::begin(file)?;
        let mut rows = Rows::default();
        rows.load(&mut player)?;
        player.end().map(|()| rows)
    }

    #[test]
    fn what_is_saved_comes_back_and_nothing_else_does() {
        let rows = Rows::grouped(3, &[2, 0, 2, 0], &[9_u32, 8, 7, 6]);
        let file = saved(&rows);
        let back = read(&file).unwrap();
        assert_eq!((back.row(0), back.row(1), back.row(2)), (&[8, 6][..], &[][..], &[9, 7][..]));
        for at in 0..file.len() {
            let mut other = file.clone();
            other[at] ^= 1;
            assert!(read(&other).is_err(), "a bit of byte {at} is wrong");
            assert!(read(&file[..at]).is_err(), "torn at {at}");
        }
    }
}
