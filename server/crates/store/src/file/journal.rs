//! Checks the journals of fjall before fjall opens them. fjall treats data that it cannot read as an
//! incomplete write after a crash, and discards it with all acknowledged writes that follow.
//!
//! A journal is a sequence of batches, followed by zeros. A batch has these parts (all numbers are
//! little-endian):
//!
//! | part | bytes |
//! |---|---|
//! | start | 1, number of items (u32), number of the batch (u64) |
//! | each item | 2, kind (u8), compression (u8), table (u64), length of the key (u16), of the value (u32), of the value as stored (u32), key, value |
//! | or | 4, table (u64): all entries of the table are removed |
//! | end | 3, XXH3 of all items (u64), `FJL` and the format's number |
//!
//! An incomplete batch at the end of the newest journal, as a crash leaves it, was never acknowledged. It is
//! truncated or, after a loss of power, has holes, because a disk writes its sectors in any order.
//!
//! The format is internal to fjall. The workspace pins the version of fjall, and a test of this module fails
//! with any other version until the format has been compared.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::failure::{ACCEPT_DAMAGE, engine};
use crate::StoreError;

/// End of each batch, and content of the file that names the engine's format.
const MAGIC: [u8; 4] = *b"FJL\x03";
/// The smallest unit that a disk writes, in bytes.
const SECTOR: u64 = 512;
/// Size of the read buffer in bytes.
const BUFFER: usize = 64 << 10;

/// Length of a journal at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalPosition {
    /// The number in the file name of the journal.
    pub number: u64,
    /// Length of all batches in bytes.
    pub length: u64,
    /// XXH3 over the header and the checksum of each batch. The headers are included because the checksum of
    /// a batch does not cover them.
    pub chain: u64,
}

impl JournalPosition {
    /// The position of a journal without a batch.
    pub fn empty(number: u64) -> Self {
        JournalTail { number, ..JournalTail::default() }.position()
    }
}

/// Reads a growing journal incrementally, each batch once.
#[derive(Default)]
pub(super) struct JournalTail {
    number: u64,
    length: u64,
    chain: Xxh3,
}

impl JournalTail {
    /// Reads the batches that were added to a journal. A journal with another number is read from its start.
    pub fn advance(&mut self, dir: &Path, number: u64) -> io::Result<JournalPosition> {
        if number != self.number {
            *self = Self { number, ..Self::default() };
        }
        let mut source = BufReader::with_capacity(BUFFER, File::open(path_of(dir, number))?);
        source.seek(SeekFrom::Start(self.length))?;
        while self.next(&mut source)? {}
        Ok(self.position())
    }

    fn position(&self) -> JournalPosition {
        JournalPosition { number: self.number, length: self.length, chain: self.chain.digest() }
    }

    /// Reads one batch. Returns `false` if no complete batch follows.
    fn next(&mut self, source: &mut impl BufRead) -> io::Result<bool> {
        let Some(ReadBatch { length, header, sum }) = batch(source)? else { return Ok(false) };
        self.length += length;
        self.chain.update(&header);
        self.chain.update(&sum.to_le_bytes());
        Ok(true)
    }
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.jnl"))
}

/// The numbers of the journals in the engine's folder, in ascending order.
pub(super) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Checks all journals in the engine's folder against the last checkpoint, and truncates an incomplete end
/// that the engine would not detect. With `accept_damage`, truncates the newest journal at its first damaged
/// byte.
///
/// # Errors
/// [`StoreError::Corrupt`] with the damaged or missing file and the remedy.
pub(super) fn check(
    dir: &Path,
    expected: Option<&JournalPosition>,
    accept_damage: bool,
) -> Result<(), StoreError> {
    if std::fs::read(dir.join("version")).ok().as_deref() != Some(&MAGIC[..]) {
        // There is no engine yet, or an engine of another version, which fjall reports when it opens the
        // folder.
        return Ok(());
    }
    let failed = engine("read the journal of the store");
    let mut journals = numbers(dir).map_err(&failed)?;
    let newest = journals.pop();
    if let Some(expected) = expected
        && !accept_damage
        && newest.is_none_or(|newest| newest < expected.number)
    {
        return Err(missing(&path_of(dir, expected.number)));
    }
    let expected_of = |number| expected.filter(|expected| expected.number == number && !accept_damage);
    for number in journals {
        let path = path_of(dir, number);
        if let Some(break_offset) = look(&path, expected_of(number)).map_err(&failed)?.broken_at() {
            return Err(damaged(&path, break_offset, "restore a backup of the folder"));
        }
    }
    let number = match (newest, expected) {
        (Some(number), _) => number,
        // Without a journal, the engine would start to number its batches from the beginning, and would lose
        // the next writes.
        (None, Some(expected)) => {
            File::create(path_of(dir, expected.number)).map_err(&failed)?;
            expected.number
        }
        (None, None) => return Ok(()),
    };
    let path = path_of(dir, number);
    match look(&path, expected_of(number)).map_err(&failed)? {
        JournalScan::Intact => Ok(()),
        JournalScan::Torn { at: break_offset } => {
            tracing::warn!(journal = %path.display(), break_offset, "an incomplete write at the end of a journal is ignored");
            cut(&path, break_offset).map_err(&failed)
        }
        JournalScan::Damaged { at: break_offset } if accept_damage => {
            tracing::error!(journal = %path.display(), break_offset, "writes from this byte on are discarded");
            cut(&path, break_offset).map_err(&failed)
        }
        JournalScan::Damaged { at: break_offset } => {
            let file = dir.with_file_name(ACCEPT_DAMAGE);
            let remedy = format!(
                "restore a backup of the folder, or discard all writes from there on: create the empty file {} \
                 and start again",
                file.display()
            );
            Err(damaged(&path, break_offset, &remedy))
        }
    }
}

/// Removes all batches of a journal that the engine has closed.
pub(super) fn empty(dir: &Path, number: u64) -> io::Result<()> {
    cut(&path_of(dir, number), 0)
}

fn cut(path: &Path, index: u64) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(index).and_then(|()| file.sync_all())
}

/// The error for a missing journal of the last checkpoint whose content is in no table.
pub(super) fn missing(path: &Path) -> StoreError {
    let file = path.parent().unwrap_or(path).with_file_name(ACCEPT_DAMAGE);
    StoreError::Corrupt {
        what: format!(
            "the journal {} is missing, and writes that were acknowledged were only in it; stop the server and restore a \
             backup of the folder, or discard these writes: create the empty file {} and start again",
            path.display(),
            file.display()
        ),
    }
}

fn damaged(path: &Path, index: u64, remedy: &str) -> StoreError {
    let path = path.display();
    StoreError::Corrupt {
        what: format!("the journal {path} is corrupt from byte {index}; stop the server and {remedy}"),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum JournalScan {
    Intact,
    /// The last batch is incomplete, as after a crash.
    Torn {
        at: u64,
    },
    Damaged {
        at: u64,
    },
}

impl JournalScan {
    /// The position of the defect, for a journal that is not the newest one and must therefore be complete.
    fn broken_at(self) -> Option<u64> {
        match self {
            Self::Intact => None,
            Self::Torn { at: offset } | Self::Damaged { at: offset } => Some(offset),
        }
    }
}

/// Reads a journal. Its start must be the content that it had at the last checkpoint.
fn look(path: &Path, expected: Option<&JournalPosition>) -> io::Result<JournalScan> {
    let mut source = BufReader::with_capacity(BUFFER, File::open(path)?);
    let mut tail =
        JournalTail { number: expected.map_or(0, |expected| expected.number), ..JournalTail::default() };
    let mut is_matched = expected.is_none_or(|expected| tail.position() == *expected);
    while tail.next(&mut source)? {
        is_matched |=
            expected.is_some_and(|expected| tail.length == expected.length && tail.position() == *expected);
    }
    let end = tail.length;
    if !is_matched {
        // A different chain does not reveal the position of the change. A journal that is too short is
        // damaged at its end.
        return Ok(JournalScan::Damaged {
            at: expected.map_or(end, |expected| if end < expected.length { end } else { 0 }),
        });
    }
    source.seek(SeekFrom::Start(end))?;
    let rest = without_blank_end(source)?;
    Ok(if rest.is_empty() {
        JournalScan::Intact
    } else if is_followed(&rest) || was_whole(&rest, end) && !stops_within_sector(&rest, end) {
        JournalScan::Damaged { at: end }
    } else {
        JournalScan::Torn { at: end }
    })
}

/// The content of the file without the zeros at its end.
fn without_blank_end(mut source: impl BufRead) -> io::Result<Vec<u8>> {
    let (mut rest, mut blank, zeros) = (Vec::new(), 0, [0; BUFFER]);
    loop {
        let chunk = source.fill_buf()?;
        if chunk.is_empty() {
            return Ok(rest);
        }
        // Most of the file consists of zeros, and this comparison is the fastest way to detect them.
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

/// `true` if a complete batch follows the first batch.
fn is_followed(rest: &[u8]) -> bool {
    let ends = rest.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC);
    // The data are in memory, so reading them cannot fail.
    ends.map(|(offset, _)| &rest[offset + MAGIC.len()..])
        .any(|mut behind| matches!(batch(&mut behind), Ok(Some(_))))
}

/// `true` if all sectors of the batch at this position were written to the disk.
fn was_whole(rest: &[u8], index: u64) -> bool {
    let first = (SECTOR - index % SECTOR) as usize;
    let (head, sectors) = rest.split_at(first.min(rest.len()));
    let is_written = |sector: &[u8]| sector.iter().any(|&byte| byte != 0);
    rest.ends_with(&MAGIC) && is_written(head) && sectors.chunks(SECTOR as usize).all(is_written)
}

/// `true` if an item of the batch is missing up to the end of its sector. The engine passes a batch to the
/// system in pieces, each of which ends with an item. A sector may have been written after one piece and not
/// after the next.
fn stops_within_sector(rest: &[u8], index: u64) -> bool {
    let mut source = rest;
    let mut batch = JournalBatch { source: &mut source, hasher: Xxh3::new(), length: 0, part: 0 };
    // The batch is incomplete or damaged; only the position of the last part that was read matters.
    drop(batch.read());
    let free = SECTOR - (index + batch.part) % SECTOR;
    let part = rest.iter().skip(usize::try_from(batch.part).unwrap_or(usize::MAX));
    part.take(usize::try_from(free).unwrap_or(usize::MAX)).all(|&byte| byte == 0)
}

struct ReadBatch {
    length: u64,
    header: [u8; 12],
    sum: u64,
}

/// Reads a batch. Returns `None` if the batch is incomplete or its checksum does not match.
fn batch(source: &mut impl BufRead) -> io::Result<Option<ReadBatch>> {
    let mut batch = JournalBatch { source, hasher: Xxh3::new(), length: 0, part: 0 };
    match batch.read() {
        Ok(read) => Ok(read),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

struct JournalBatch<'a, R> {
    source: &'a mut R,
    hasher: Xxh3,
    length: u64,
    /// Offset of the start, item or end that is being read.
    part: u64,
}

impl<R: BufRead> JournalBatch<'_, R> {
    fn read(&mut self) -> io::Result<Option<ReadBatch>> {
        if self.take()? != [1] {
            return Ok(None);
        }
        // The number of items, and the number of the batch.
        let header: [u8; 12] = self.take()?;
        let items = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        for _ in 0..items {
            self.part = self.length;
            match self.item()? {
                [2] => {
                    let _kind_compression_table: [u8; 10] = self.item()?;
                    let key = u16::from_le_bytes(self.item()?);
                    let _length_before: [u8; 4] = self.item()?;
                    let value = u32::from_le_bytes(self.item()?);
                    self.text(usize::from(key) + value as usize)?;
                }
                [4] => drop::<[u8; 8]>(self.item()?),
                _ => return Ok(None),
            }
        }
        let sum = self.hasher.digest();
        self.part = self.length;
        let is_right =
            self.take()? == [3] && u64::from_le_bytes(self.take()?) == sum && self.take()? == MAGIC;
        Ok(is_right.then_some(ReadBatch { length: self.length, header, sum }))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.length += N as u64;
        Ok(bytes)
    }

    /// Reads a field of an item. The checksum of the batch covers it.
    fn item<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let bytes = self.take()?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    fn text(&mut self, mut remaining: usize) -> io::Result<()> {
        self.length += remaining as u64;
        while remaining > 0 {
            let chunk = self.source.fill_buf()?;
            let some = &chunk[..remaining.min(chunk.len())];
            if some.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.hasher.update(some);
            let length = some.len();
            self.source.consume(length);
            remaining -= length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Versions of fjall and lsm-tree whose journal format this module was compared with. lsm-tree encodes
    /// the kind and the compression of an item.
    const CHECKED_VERSIONS: [(&str, &str); 2] = [("fjall", "3.1.13"), ("lsm-tree", "3.1.10")];

    const WHAT_TO_CHECK: &str = "The module `file/journal.rs` reads and truncates journals in a format that is private \
        to fjall. A wrong idea of the format refuses intact journals, or cuts off acknowledged writes. Compare these \
        sources of the new version with the table at the top of the module:
  fjall `src/journal/entry.rs`: tags, order, width and byte order of the fields of a batch
  fjall `src/journal/batch_reader.rs`: what the checksum covers, and which damage ends a journal without an error
  fjall `src/journal/recovery.rs`: file names (`NUMBER.jnl`), and that the highest number is the active journal
  fjall `src/file.rs` and `src/version.rs`: `MAGIC_BYTES`, and the file `version` in the engine's folder
  lsm-tree `src/value_type.rs` and `src/compression.rs`: one byte each for the kind and the compression
Run `cargo test -p trefoil-store` and `cargo xtask soak --only kills`. Then change CHECKED_VERSIONS in this test and, \
        for fjall, the pinned version in the workspace's Cargo.toml.";

    #[test]
    fn the_journal_format_was_checked_for_the_locked_versions_of_the_engine() {
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../Cargo.lock");
        let lock = std::fs::read_to_string(lock).unwrap();
        for (name, checked) in CHECKED_VERSIONS {
            let locked = locked_versions(&lock, name);
            assert_eq!(locked, [checked], "Cargo.lock has another version of {name}. {WHAT_TO_CHECK}");
        }
    }

    /// All versions of a package in the text of a Cargo.lock.
    fn locked_versions<'a>(lock: &'a str, name: &str) -> Vec<&'a str> {
        let start = format!("name = \"{name}\"\nversion = \"");
        lock.split("[[package]]\n")
            .filter_map(|package| package.strip_prefix(&start)?.split('"').next())
            .collect()
    }

    #[test]
    fn locked_versions_lists_every_version_of_exactly_that_package() {
        let lock = "version = 4\n\n[[package]]\nname = \"fjall\"\nversion = \"3.1.13\"\n\n\
            [[package]]\nname = \"fjall\"\nversion = \"4.0.0\"\ndependencies = []\n\n\
            [[package]]\nname = \"fjall-tools\"\nversion = \"1.0.0\"\n";
        assert_eq!(locked_versions(lock, "fjall"), ["3.1.13", "4.0.0"]);
        assert!(locked_versions(lock, "lsm-tree").is_empty());
    }
}
