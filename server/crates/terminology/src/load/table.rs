//! Files of lines and fields: tabs (RF2), bars (RRF) and CSV, one after the other, each line told with its number.

use std::io::{BufRead, Read as _};

use super::source::Source;
use super::{LoadError, unreadable};

/// Longest line, in bytes.
const LONGEST: u64 = 1 << 20;

/// A file of lines whose fields are cut at one character, with no quotes.
pub(super) struct Table<'s> {
    name: String,
    input: Box<dyn BufRead + 's>,
    separator: char,
    buffer: Vec<u8>,
    line: u64,
}

impl<'s> Table<'s> {
    /// Opens a file of the release.
    ///
    /// # Errors
    /// Of the file.
    pub fn open(source: &'s mut Source, name: &str, separator: char) -> Result<Self, LoadError> {
        let input = source.read(name).map_err(unreadable(name))?;
        Ok(Self { name: name.to_owned(), input, separator, buffer: Vec::new(), line: 0 })
    }

    /// Number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// An error in the line that was read last.
    pub fn wrong(&self, why: impl std::fmt::Display) -> LoadError {
        LoadError::at_line(&self.name, self.line, why)
    }

    /// The fields of the next line that is not empty.
    ///
    /// # Errors
    /// Of the file; a line that is too long or no UTF-8.
    pub fn next<'a>(&mut self, fields: &'a mut Fields) -> Result<Option<&'a Fields>, LoadError> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = self.input.by_ref().take(LONGEST).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(|error| LoadError::at_line(&self.name, self.line, error))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == LONGEST && !self.buffer.ends_with(b"\n") {
                return Err(self.wrong(format_args!("it is longer than {LONGEST} bytes")));
            }
            let Ok(mut text) = std::str::from_utf8(&self.buffer) else {
                return Err(self.wrong("it is not UTF-8"));
            };
            if self.line == 1 {
                text = text.strip_prefix('\u{feff}').unwrap_or(text);
            }
            let text = text.trim_end_matches(['\n', '\r']);
            if text.is_empty() {
                continue;
            }
            fields.cut(text, self.separator);
            return Ok(Some(fields));
        }
    }

    /// The fields of the next line, at least so many.
    ///
    /// # Errors
    /// As for [`next`](Self::next); a line with fewer fields.
    pub fn row<'a>(&mut self, fields: &'a mut Fields, least: usize) -> Result<Option<&'a Fields>, LoadError> {
        match self.next(fields)? {
            Some(fields) if fields.len() < least => {
                Err(self.wrong(format_args!("it has {} fields where {least} are needed", fields.len())))
            }
            row => Ok(row),
        }
    }
}

/// The fields of one line; used again for each.
#[derive(Debug, Default)]
pub(super) struct Fields {
    text: String,
    ends: Vec<usize>,
    width: usize,
}

impl Fields {
    fn cut(&mut self, text: &str, separator: char) {
        self.text.clear();
        self.text.push_str(text);
        self.width = separator.len_utf8();
        self.ends.clear();
        self.ends.extend(self.text.match_indices(separator).map(|(at, _)| at));
        self.ends.push(self.text.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// A field; empty where there is none.
    pub fn get(&self, at: usize) -> &str {
        let Some(end) = self.ends.get(at) else { return "" };
        let start = if at == 0 { 0 } else { self.ends[at - 1] + self.width };
        &self.text[start..*end]
    }

    /// The place of the field with this content, whatever its case: for lines of headings.
    pub fn position(&self, heading: &str) -> Option<usize> {
        (0..self.len()).find(|at| self.get(*at).trim().eq_ignore_ascii_case(heading))
    }
}
