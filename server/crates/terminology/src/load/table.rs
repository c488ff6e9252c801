//! Files of lines and fields: tabs (RF2), bars (RRF) and CSV, one after the other, each line told with its number.

use std::io::{BufRead, Read as _};

use super::source::Source;
use super::{LoadError, uncounted, unreadable, unreadable_row};

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

    /// The names of the columns, at least so many, from the first line. How many there are: blank ones at its end are
    /// none.
    ///
    /// # Errors
    /// As for [`next`](Self::next); an empty file, or fewer columns.
    pub fn heading(&mut self, fields: &mut Fields, least: usize) -> Result<usize, LoadError> {
        let Some(fields) = self.next(fields)? else {
            return Err(self.wrong("it is empty, without even the names of its columns; copy it again"));
        };
        match (0..fields.len()).rev().find(|at| !fields.get(*at).trim().is_empty()).map_or(0, |last| last + 1)
        {
            width if width < least => Err(self.wrong(format_args!(
                "it names {width} columns where {least} are needed; copy it again, or is it another table?"
            ))),
            width => Ok(width),
        }
    }

    /// The fields of the next line, so many and no more but blank ones: a line with fewer was cut off, one with more
    /// has lost its end.
    ///
    /// # Errors
    /// As for [`next`](Self::next); a line of another width.
    pub fn row<'a>(&mut self, fields: &'a mut Fields, width: usize) -> Result<Option<&'a Fields>, LoadError> {
        match self.next(fields)? {
            Some(fields)
                if fields.len() < width || (width..fields.len()).any(|at| !fields.get(at).is_empty()) =>
            {
                let found = fields.len();
                Err(self.wrong(format_args!(
                    "it has {found} fields where {width} are needed; the file was cut off or damaged, copy it again"
                )))
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
}

/// A CSV file of which only the columns with certain headings count.
pub(super) struct Sheet<'s> {
    name: String,
    csv: csv::Reader<Box<dyn BufRead + 's>>,
    columns: Vec<usize>,
    uncounted: u64,
}

impl<'s> Sheet<'s> {
    /// Opens a file of the release and finds its columns, whatever the case of their headings. The first `needed` of
    /// them must be there; others are empty where older releases lack them.
    ///
    /// # Errors
    /// Of the file; a column that is missing.
    pub fn open(
        source: &'s mut Source,
        name: &str,
        headings: &[&str],
        needed: usize,
    ) -> Result<Self, LoadError> {
        let mut input = source.read(name).map_err(unreadable(name))?;
        let uncounted = uncounted(&mut *input).map_err(unreadable(name))?;
        let mut csv = csv::Reader::from_reader(input);
        let found = csv.headers().map_err(|error| LoadError::at_line(name, 1, error))?;
        let columns = headings.iter().enumerate().map(|(at, wanted)| {
            let is_it = |heading: &str| heading.trim_start_matches('\u{feff}').eq_ignore_ascii_case(wanted);
            let missing =
                || LoadError::at_line(name, 1, format_args!("no column has the heading '{wanted}'"));
            match found.iter().position(is_it) {
                None if at < needed => Err(missing()),
                // No line is as long as that.
                column => Ok(column.unwrap_or(usize::MAX)),
            }
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), csv, columns, uncounted })
    }

    /// Calls `row` with the columns asked for, line by line.
    ///
    /// # Errors
    /// Of the file; what the caller finds wrong, told with the line.
    pub fn each(mut self, row: &mut dyn FnMut(&[&str]) -> Result<(), String>) -> Result<(), LoadError> {
        let mut record = csv::StringRecord::new();
        loop {
            let more =
                self.csv.read_record(&mut record).map_err(unreadable_row(&self.name, self.uncounted))?;
            if !more {
                return Ok(());
            }
            let fields: Vec<&str> =
                self.columns.iter().map(|at| record.get(*at).unwrap_or_default().trim()).collect();
            let at = record.position().map_or(0, csv::Position::line) + self.uncounted;
            row(&fields).map_err(|why| LoadError::at_line(&self.name, at, why))?;
        }
    }
}
