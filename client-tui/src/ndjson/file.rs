//! Reading of any line of a large NDJSON file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use memchr::memmem;

use super::resource::MAX_LINE;

/// Number of lines between two known positions.
const STRIDE: u64 = 64;
const BUFFER: usize = 256 * 1024;

/// A file with one JSON value on each line.
#[derive(Debug)]
pub struct NdjsonFile {
    file: File,
    /// Positions of the lines 0, 64, 128 and so on.
    positions: Vec<u64>,
    lines: u64,
}

impl NdjsonFile {
    /// Opens a file and counts its lines.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut positions = vec![0];
        let (mut lines, mut position, mut last) = (0, 0, b'\n');
        let mut buffer = vec![0; BUFFER];
        loop {
            let piece = match file.read(&mut buffer)? {
                0 => break,
                size => &buffer[..size],
            };
            for end in memchr::memchr_iter(b'\n', piece) {
                lines += 1;
                if lines % STRIDE == 0 {
                    positions.push(position + end as u64 + 1);
                }
            }
            position += piece.len() as u64;
            last = piece[piece.len() - 1];
        }
        lines += u64::from(last != b'\n');
        Ok(Self { file, positions, lines })
    }

    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Up to `count` lines from the line `first` on, without line ends.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn read(&mut self, first: u64, count: usize) -> io::Result<Vec<Vec<u8>>> {
        let Some(position) = self.positions.get((first / STRIDE) as usize) else { return Ok(Vec::new()) };
        self.file.seek(SeekFrom::Start(*position))?;
        let mut reader = BufReader::with_capacity(BUFFER, &self.file);
        for _ in 0..first % STRIDE {
            skip_line(&mut reader)?;
        }
        let count = count.min(self.lines.saturating_sub(first) as usize);
        (0..count).map(|_| read_line(&mut reader)).collect()
    }

    /// The numbers of the lines that match.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn search(&mut self, matches: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        self.each_line(|number, line| {
            if matches(line) {
                numbers.push(number);
            }
            true
        })?;
        Ok(numbers)
    }

    /// The number of the line with the resource of this id.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn find_id(&mut self, id: &str) -> io::Result<Option<u64>> {
        let finder = memmem::Finder::new(id.as_bytes());
        let mut number_of_id = None;
        self.each_line(|number, line| {
            // The id may also occur in a reference, so that the line is parsed.
            if finder.find(line).is_some() && super::resource::id(line).as_deref() == Some(id) {
                number_of_id = Some(number);
            }
            number_of_id.is_none()
        })?;
        Ok(number_of_id)
    }

    /// Calls a function with each line until it returns false.
    fn each_line(&mut self, mut f: impl FnMut(u64, &[u8]) -> bool) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(BUFFER, &self.file);
        let mut line = Vec::new();
        for number in 0..self.lines {
            line.clear();
            reader.read_until(b'\n', &mut line)?;
            if !f(number, &line) {
                break;
            }
        }
        Ok(())
    }
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    reader.skip_until(b'\n').map(drop)
}

/// Reads a line without its end, up to [`MAX_LINE`].
fn read_line(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else {
        skip_line(reader)?;
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> (tempfile::TempDir, NdjsonFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ndjson");
        std::fs::write(&path, content).unwrap();
        let file = NdjsonFile::open(&path).unwrap();
        (folder, file)
    }

    fn texts(lines: Vec<Vec<u8>>) -> Vec<String> {
        lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn any_page_of_lines_is_read() {
        let content: Vec<_> = (0..1000).map(|n| format!("{{\"id\":\"{n}\"}}")).collect();
        for end in ["", "\n"] {
            let (_folder, mut file) = file(&format!("{}{end}", content.join("\n")));
            assert_eq!(file.lines(), 1000);
            for first in [0, 1, 63, 64, 65, 500, 998, 999] {
                let page = texts(file.read(first, 3).unwrap());
                let expected = &content[first as usize..(first as usize + 3).min(1000)];
                assert_eq!(page, expected, "{first}");
            }
            assert!(file.read(5000, 3).unwrap().is_empty());
        }
    }

    #[test]
    fn lines_are_found_by_text_and_by_id() {
        let (_folder, mut file) =
            file("{\"ref\":\"b\",\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\",\"text\":\"b\"}\n");
        assert_eq!(file.search(|line| memmem::find(line, b"\"b\"").is_some()).unwrap(), [0, 1, 2]);
        assert_eq!(file.find_id("b").unwrap(), Some(1));
        assert_eq!(file.find_id("d").unwrap(), None);
    }

    #[test]
    fn an_empty_file_has_no_lines() {
        let (_folder, mut file) = file("");
        assert_eq!((file.lines(), file.read(0, 5).unwrap().len()), (0, 0));
    }
}
