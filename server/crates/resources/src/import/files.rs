//! Finds the files to import and detects their format from their content.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use super::gzip_members::{GzipMembers, MAGIC};

/// Number of bytes that [`open`] reads to detect the format.
const TAR_HEADER: usize = 512;
/// Size of the read buffers in bytes.
const BUFFER: usize = 256 << 10;

/// The content of an opened file, decompressed if it was compressed.
pub(super) enum FileContent {
    Tar(Box<dyn Read>),
    /// JSON or NDJSON as UTF-8: the first character after whitespace is a bracket, or the name says so.
    Text(Box<dyn BufRead>),
    /// Any other content, with the reason why it cannot be imported.
    Other(&'static str),
}

/// Types to which others refer by a search, such as `Organization?identifier=…`. Types that refer to others
/// follow them.
const REFERRED: [&str; 5] = ["Organization", "Location", "Practitioner", "PractitionerRole", "Patient"];
/// Number of bytes at the start of a file in which its first type is searched.
const TYPE_BYTES: u64 = 4 << 10;

/// The files in a folder tree, without hidden files, in the order of their names. Files that begin with a
/// resource of a type to which others refer come first: the references are then resolved before the resource
/// with the reference is written. If the path is a file, returns only the path.
pub(super) fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // Symbolic links to folders are not followed, because they may form a cycle.
            let is_folder = entry.file_type()?.is_dir();
            if is_folder {
                folders.push(entry.path());
            } else if entry.path().is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files.sort_by_cached_key(|file| {
        let first = first_type(file).unwrap_or_default();
        REFERRED.iter().position(|kind| *kind == first).unwrap_or(REFERRED.len())
    });
    Ok(files)
}

/// The type of the first resource in a file that is not a Bundle. A file that cannot be read has none.
fn first_type(path: &Path) -> Option<String> {
    let mut file = BufReader::with_capacity(TYPE_BYTES as usize, File::open(path).ok()?);
    let mut head = Vec::new();
    match file.fill_buf().ok()?.starts_with(&MAGIC) {
        true => GzipMembers::new(file).take(TYPE_BYTES).read_to_end(&mut head).ok()?,
        false => file.take(TYPE_BYTES).read_to_end(&mut head).ok()?,
    };
    let head = String::from_utf8_lossy(&head);
    let types = head.split("\"resourceType\"").skip(1).filter_map(|after| after.split('"').nth(1));
    types.map(str::to_owned).find(|kind| kind != "Bundle")
}

/// The total size in bytes of some files. Files that cannot be read count as 0.
pub(super) fn size<'a>(files: impl Iterator<Item = &'a PathBuf>) -> u64 {
    files.filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum()
}

/// A reader that reports the number of bytes of each read.
struct CountingReader<R, F> {
    inner: R,
    tell: F,
}

impl<R: Read, F: FnMut(u64)> Read for CountingReader<R, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        (self.tell)(read as u64);
        Ok(read)
    }
}

/// Opens a file and detects the format from its first bytes; the name says only whether a text has lines.
/// `tell` is called with the total number of bytes read from the disk.
pub(super) fn open(path: &Path, tell: impl FnMut(u64) + 'static) -> io::Result<FileContent> {
    let file = CountingReader { inner: File::open(path)?, tell };
    let mut file = BufReader::with_capacity(BUFFER, file);
    let has_lines = has_lines(&path.to_string_lossy());
    if file.fill_buf()?.starts_with(&MAGIC) {
        content(GzipMembers::new(file), has_lines)
    } else {
        content(file, has_lines)
    }
}

/// `true` for the name of a file of NDJSON.
pub(super) fn has_lines(name: &str) -> bool {
    name.ends_with(".ndjson") || name.ends_with(".ndjson.gz")
}

fn content(mut source: impl Read + 'static, has_lines: bool) -> io::Result<FileContent> {
    let mut head = Vec::new();
    source.by_ref().take(TAR_HEADER as u64).read_to_end(&mut head)?;
    if head.get(257..262) == Some(b"ustar") {
        return Ok(FileContent::Tar(Box::new(Cursor::new(head).chain(source))));
    }
    if let Some(utf_16) = Utf16::of(&head) {
        let mut rest = Cursor::new(head).chain(source).take(MAX_UTF_16 + 1);
        let mut bytes = Vec::new();
        rest.read_to_end(&mut bytes)?;
        return Ok(FileContent::Text(Box::new(Cursor::new(utf_16.decode(&bytes)?.into_bytes()))));
    }
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&head);
    let mut visible = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let (first, second) = (visible.next(), visible.next());
    let other = |what| Ok(FileContent::Other(what));
    match first {
        // A file without resources is a valid export.
        None if has_lines => {}
        // HL7's definitions contain a file that begins with `[FHIR]`.
        Some(b'[') if !has_lines && second.is_some_and(|byte| byte.is_ascii_uppercase()) => {
            return other("neither JSON nor a package");
        }
        Some(b'{' | b'[') => {}
        None => return other("it is empty"),
        Some(b'<') => return other("it is XML; Trefoil reads resources as JSON"),
        _ if head.starts_with(b"PK\x03\x04") => {
            return other("it is a ZIP archive that is not a release of a code system; unpack it first");
        }
        _ if head.starts_with(b"BZh")
            || head.starts_with(b"\xFD7zXZ")
            || head.starts_with(b"\x28\xB5\x2F\xFD") =>
        {
            return other("it is compressed in another way than gzip; decompress it first");
        }
        _ if has_lines => {}
        Some(_) => return other("neither JSON nor a package"),
    }
    let source = Cursor::new(head).chain(source);
    Ok(FileContent::Text(Box::new(BufReader::with_capacity(BUFFER, source))))
}

/// Maximum size of a text in UTF-16, which is held in memory.
const MAX_UTF_16: u64 = 512 << 20;

/// The byte order of a text in UTF-16.
#[derive(Clone, Copy)]
enum Utf16 {
    Little,
    Big,
}

impl Utf16 {
    /// The byte order, if the text begins with a mark, or with a bracket of JSON.
    fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xFF, 0xFE, ..] | [b'{' | b'[', 0, ..] => Some(Self::Little),
            [0xFE, 0xFF, ..] | [0, b'{' | b'[', ..] => Some(Self::Big),
            _ => None,
        }
    }

    fn decode(self, bytes: &[u8]) -> io::Result<String> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text);
        if bytes.len() as u64 > MAX_UTF_16 {
            return Err(invalid("a text in UTF-16 may have at most 512 MiB; convert it to UTF-8"));
        }
        let (units, rest) = bytes.as_chunks::<2>();
        let units = units.iter().map(|unit| match self {
            Self::Little => u16::from_le_bytes(*unit),
            Self::Big => u16::from_be_bytes(*unit),
        });
        let text: Result<String, _> = char::decode_utf16(units).collect();
        match text {
            Ok(text) if rest.is_empty() => Ok(text.trim_start_matches('\u{feff}').to_owned()),
            _ => Err(invalid("the text looks like UTF-16, but is not valid")),
        }
    }
}

/// Result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// The buffer contains the line, without its line end.
    Text,
    /// The line was longer than the limit and was skipped.
    TooLong,
    End,
}

/// Reads the next line into `buffer`, up to `limit` bytes.
pub(super) fn next_line(
    source: &mut dyn BufRead,
    buffer: &mut Vec<u8>,
    limit: usize,
) -> io::Result<InputLine> {
    buffer.clear();
    let mut passed = false;
    loop {
        let chunk = source.fill_buf()?;
        if chunk.is_empty() {
            return Ok(match (passed, buffer.is_empty()) {
                (true, _) => InputLine::TooLong,
                (false, true) => InputLine::End,
                (false, false) => InputLine::Text,
            });
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        passed |= buffer.len() + part.len() > limit;
        if passed {
            buffer.clear();
        } else {
            buffer.extend_from_slice(part);
        }
        let used = end.map_or(chunk.len(), |end| end + 1);
        source.consume(used);
        if end.is_some() {
            return Ok(if passed { InputLine::TooLong } else { InputLine::Text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_longer_than_the_limit_are_skipped() {
        #[track_caller]
        fn check(text: &str, expected: &[&str]) {
            // The buffer is smaller than the lines, so that lines cross its boundaries.
            let mut source = BufReader::with_capacity(3, text.as_bytes());
            let (mut buffer, mut lines) = (Vec::new(), Vec::new());
            loop {
                match next_line(&mut source, &mut buffer, 5).unwrap() {
                    InputLine::Text => lines.push(String::from_utf8(buffer.clone()).unwrap()),
                    InputLine::TooLong => lines.push("too long".to_owned()),
                    InputLine::End => break,
                }
            }
            assert_eq!(lines, expected, "{text:?}");
        }
        check("", &[]);
        check("a", &["a"]);
        check("a\n\nb\r\n", &["a", "", "b\r"]);
        check("12345\n123456\n1234567\n1", &["12345", "too long", "too long", "1"]);
        check("1234567", &["too long"]);
    }
}
