//! Reads the engine's journals before the engine does, and only to look: the engine takes whatever it cannot read for
//! the torn end of a crash and cuts it off, with all that was acknowledged behind it.
//!
//! A journal is a row of batches, and zeros where it is not written yet. A batch (all numbers little-endian):
//!
//! | part | bytes |
//! |---|---|
//! | start | 1, number of items (u32), number of the batch (u64) |
//! | each item | 2, kind (u8), compression (u8), table (u64), length of the key (u16), of the value (u32), of the value as it stands here (u32), key, value |
//! | or | 4, table (u64): the table is emptied |
//! | end | 3, XXH3 of all items (u64), `FJL` and the format's number |
//!
//! What a crash leaves at the end of the newest journal is fine: it was never acknowledged. It is a batch that breaks
//! off or, after a loss of power, one with holes, since a disk writes its sectors whole and in any order.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::engine;
use crate::StoreError;

/// The end of each batch, and the whole of the file that tells the format of the engine.
const MAGIC: [u8; 4] = *b"FJL\x03";
/// The least that a disk writes at once, in bytes.
const SECTOR: u64 = 512;
/// How much is read at once, in bytes.
const BUFFER: usize = 64 << 10;

/// Checks all journals in the engine's folder, and cuts off a torn end that the engine would not.
///
/// # Errors
/// [`StoreError::Corrupt`] names the file that is damaged and says what to do.
pub(super) fn check(dir: &Path) -> Result<(), StoreError> {
    if std::fs::read(dir.join("version")).ok().as_deref() != Some(&MAGIC[..]) {
        // There is no engine yet, or another one, which says so itself.
        return Ok(());
    }
    let failed = engine("read the journal of the store");
    let mut journals: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(&failed)? {
        let path = entry.map_err(&failed)?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        journals.extend(number.map(|number| (number, path)));
    }
    journals.sort_unstable();
    let newest = journals.pop();
    for (_, path) in &journals {
        if let Some(at) = look(path).map_err(&failed)?.broken_at() {
            return Err(damaged(path, at, "put back a backup of the folder"));
        }
    }
    let Some((_, path)) = newest else { return Ok(()) };
    match look(&path).map_err(&failed)? {
        Found::Whole => Ok(()),
        Found::Torn { at } => {
            tracing::warn!(journal = %path.display(), at, "a write that a crash broke off is left out");
            let file = File::options().write(true).open(&path).map_err(&failed)?;
            file.set_len(at).and_then(|()| file.sync_all()).map_err(&failed)
        }
        Found::Damaged { at } => {
            let remedy = format!(
                "put back a backup of the folder, or give up what was written from there on with `truncate -s {at} {}`",
                path.display()
            );
            Err(damaged(&path, at, &remedy))
        }
    }
}

fn damaged(path: &Path, at: u64, remedy: &str) -> StoreError {
    let path = path.display();
    StoreError::Corrupt {
        what: format!(
            "the journal {path} is not what was written from byte {at} on; stop the server and {remedy}"
        ),
    }
}

/// What a journal is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Whole,
    /// Its last batch was never written whole.
    Torn {
        at: u64,
    },
    /// Something that was written whole is not what it was.
    Damaged {
        at: u64,
    },
}

impl Found {
    /// A journal that others follow was written to its end.
    fn broken_at(self) -> Option<u64> {
        match self {
            Self::Whole => None,
            Self::Torn { at } | Self::Damaged { at } => Some(at),
        }
    }
}

fn look(path: &Path) -> io::Result<Found> {
    let mut source = BufReader::with_capacity(BUFFER, File::open(path)?);
    let mut at = 0;
    while let Some(length) = batch(&mut source)? {
        at += length;
    }
    source.seek(SeekFrom::Start(at))?;
    let rest = without_blank_end(source)?;
    Ok(if rest.is_empty() {
        Found::Whole
    } else if is_followed(&rest) || was_whole(&rest, at) {
        Found::Damaged { at }
    } else {
        Found::Torn { at }
    })
}

/// What is left of the file up to the zeros at its end.
fn without_blank_end(mut source: impl BufRead) -> io::Result<Vec<u8>> {
    let (mut rest, mut blank, zeros) = (Vec::new(), 0, [0; BUFFER]);
    loop {
        let chunk = source.fill_buf()?;
        if chunk.is_empty() {
            return Ok(rest);
        }
        // Mostly all of it is blank, and this is the fastest way to see that.
        let is_blank = zeros.starts_with(chunk);
        let last = if is_blank { None } else { chunk.iter().rposition(|&byte| byte != 0) };
        let used = last.map_or(0, |last| last + 1);
        if used > 0 {
            rest.resize(rest.len() + blank, 0);
            rest.extend_from_slice(&chunk[..used]);
            blank = 0;
        }
        blank += chunk.len() - used;
        let length = chunk.len();
        source.consume(length);
    }
}

/// Does a whole batch stand anywhere behind the first one?
fn is_followed(rest: &[u8]) -> bool {
    let ends = rest.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC);
    // Memory can be read.
    ends.map(|(at, _)| &rest[at + MAGIC.len()..]).any(|mut behind| matches!(batch(&mut behind), Ok(Some(_))))
}

/// Was the batch that stands here written to its end, all its sectors too?
fn was_whole(rest: &[u8], at: u64) -> bool {
    let first = (SECTOR - at % SECTOR) as usize;
    let (head, sectors) = rest.split_at(first.min(rest.len()));
    let is_written = |sector: &[u8]| sector.iter().any(|&byte| byte != 0);
    rest.ends_with(&MAGIC) && is_written(head) && sectors.chunks(SECTOR as usize).all(is_written)
}

/// Reads a batch; gives its length in bytes where it is whole and its checksum is right.
fn batch(source: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut batch = Batch { source, hasher: Xxh3::new(), length: 0 };
    match batch.read() {
        Ok(is_right) => Ok(is_right.then_some(batch.length)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

struct Batch<'a, R> {
    source: &'a mut R,
    hasher: Xxh3,
    length: u64,
}

impl<R: BufRead> Batch<'_, R> {
    fn read(&mut self) -> io::Result<bool> {
        if self.take()? != [1] {
            return Ok(false);
        }
        let items = u32::from_le_bytes(self.take()?);
        let _number: [u8; 8] = self.take()?;
        for _ in 0..items {
            match self.item()? {
                [2] => {
                    let _kind_compression_table: [u8; 10] = self.item()?;
                    let key = u16::from_le_bytes(self.item()?);
                    let _length_before: [u8; 4] = self.item()?;
                    let value = u32::from_le_bytes(self.item()?);
                    self.text(usize::from(key) + value as usize)?;
                }
                [4] => drop::<[u8; 8]>(self.item()?),
                _ => return Ok(false),
            }
        }
        let sum = self.hasher.digest();
        Ok(self.take()? == [3] && u64::from_le_bytes(self.take()?) == sum && self.take()? == MAGIC)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.length += N as u64;
        Ok(bytes)
    }

    /// A part of an item, which its checksum is of.
    fn item<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.take()?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    fn text(&mut self, mut left: usize) -> io::Result<()> {
        self.length += left as u64;
        while left > 0 {
            let chunk = self.source.fill_buf()?;
            let some = &chunk[..left.min(chunk.len())];
            if some.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.hasher.update(some);
            let length = some.len();
            self.source.consume(length);
            left -= length;
        }
        Ok(())
    }
}
