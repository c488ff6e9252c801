//! Finds the files to import and detects their format from their content.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

/// Number of bytes that [`open`] reads to detect the format.
const TAR_HEADER: usize = 512;
/// Size of the read buffers in bytes.
const BUFFER: usize = 256 << 10;

/// The content of an opened file, decompressed if it was compressed.
pub(super) enum FileContent {
    /// A tar archive.
    Tar(Box<dyn Read>),
    /// JSON or NDJSON: the first character after whitespace is a brace.
    Text(Box<dyn BufRead>),
    /// Any other content.
    Other,
}

/// The files in a folder tree, sorted and without hidden files. If the path is a file, returns only the path.
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
    Ok(files)
}

/// The total size in bytes of all files below some paths. Files that cannot be read count as 0.
pub(super) fn size(paths: &[PathBuf]) -> u64 {
    let files = paths.iter().filter_map(|path| below(path).ok()).flatten();
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

/// Opens a file and detects the format from its first bytes. `tell` is called with the total number of bytes
/// read from the disk.
pub(super) fn open(path: &Path, tell: impl FnMut(u64) + 'static) -> io::Result<FileContent> {
    let file = CountingReader { inner: File::open(path)?, tell };
    let mut file = BufReader::with_capacity(BUFFER, file);
    if file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        content(MultiGzDecoder::new(file))
    } else {
        content(file)
    }
}

fn content(mut source: impl Read + 'static) -> io::Result<FileContent> {
    let mut head = Vec::new();
    source.by_ref().take(TAR_HEADER as u64).read_to_end(&mut head)?;
    let is_tar = head.get(257..262) == Some(b"ustar");
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&head);
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace()).copied();
    let source = Cursor::new(head).chain(source);
    Ok(match first {
        _ if is_tar => FileContent::Tar(Box::new(source)),
        Some(b'{') => FileContent::Text(Box::new(BufReader::with_capacity(BUFFER, source))),
        _ => FileContent::Other,
    })
}

/// Result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// The buffer contains the line, without its line end.
    Text,
    /// The line was longer than the limit and was skipped.
    TooLong,
    /// There is no further line.
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
