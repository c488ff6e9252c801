//! Tables of lines and fields, separated by tabs (RF2), bars (RRF) or commas (CSV). They are read line by
//! line, and errors name the line.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _};

use encoding_rs::WINDOWS_1252;

use crate::error::{ImportError, unreadable, unreadable_row};
use crate::quote_reader::{QuoteReader, QuoteState};
use crate::release_source::ReleaseSource;

/// Maximum length of a line, in bytes.
const LONGEST: u64 = 1 << 20;

/// A file whose fields are separated by one character, without quotes.
pub(super) struct DelimitedTable<'s> {
    name: String,
    input: Box<dyn BufRead + 's>,
    separator: char,
    buffer: Vec<u8>,
    line: u64,
    headings: Vec<String>,
    may_be_western: bool,
}

impl<'s> DelimitedTable<'s> {
    /// Opens a file of the release.
    ///
    /// # Errors
    /// Returns [`ImportError`] if the file cannot be opened.
    pub fn open(source: &'s mut ReleaseSource, name: &str, separator: char) -> Result<Self, ImportError> {
        let input = source.read(name).map_err(unreadable(name))?;
        Ok(Self {
            name: name.to_owned(),
            input,
            separator,
            buffer: Vec::new(),
            line: 0,
            headings: Vec::new(),
            may_be_western: false,
        })
    }

    /// Reads lines that are not UTF-8 as Windows-1252, which some publishers use.
    #[must_use]
    pub fn or_western(self) -> Self {
        Self { may_be_western: true, ..self }
    }

    /// An error in the current line.
    pub fn line_error(&self, reason: impl std::fmt::Display) -> ImportError {
        ImportError::at_line(&self.name, self.line, reason)
    }

    /// The fields of the next line that is not empty.
    ///
    /// # Errors
    /// Returns [`ImportError`] if the file cannot be read, or if a line is too long or not UTF-8.
    pub fn next_line<'a>(
        &mut self,
        fields: &'a mut FieldBuffer,
    ) -> Result<Option<&'a FieldBuffer>, ImportError> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = self.input.by_ref().take(LONGEST).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(|error| ImportError::at_line(&self.name, self.line, error))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == LONGEST && !self.buffer.ends_with(b"\n") {
                return Err(self.line_error(format_args!("the line is longer than {LONGEST} bytes")));
            }
            let mut text = match std::str::from_utf8(&self.buffer) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) if self.may_be_western => WINDOWS_1252.decode_without_bom_handling(&self.buffer).0,
                Err(_) => return Err(self.line_error("the line is not UTF-8")),
            };
            if self.line == 1
                && let Some(rest) = text.strip_prefix('\u{feff}')
            {
                text = rest.to_owned().into();
            }
            let text = text.trim_end_matches(['\n', '\r']);
            if text.is_empty() {
                continue;
            }
            fields.split_line(text, self.separator);
            return Ok(Some(fields));
        }
    }

    /// Reads the names of the columns in the first line, and returns their number, not counting blank names
    /// at the end.
    ///
    /// # Errors
    /// Returns [`ImportError`] as [`next_line`](Self::next_line) does, and if the file is empty or has fewer
    /// than `least` columns.
    pub fn read_heading(&mut self, fields: &mut FieldBuffer, least: usize) -> Result<usize, ImportError> {
        let Some(fields) = self.next_line(fields)? else {
            return Err(self.line_error(
                "the file is empty; it must begin with the names of its columns; copy it again",
            ));
        };
        match (0..fields.len()).rev().find(|index| !fields.get(*index).trim().is_empty()).map_or(0, |last| last + 1)
        {
            width if width < least => Err(self.line_error(format_args!(
                "the first line names {width} columns instead of at least {least}; copy the file again, or check that it is the right table"
            ))),
            width => {
                let headings: Vec<_> = (0..width).map(|index| fields.get(index).to_owned()).collect();
                self.headings = headings;
                Ok(width)
            }
        }
    }

    /// The names of the columns, after [`read_heading`](Self::read_heading).
    pub fn headings(&self) -> &[String] {
        &self.headings
    }

    /// The fields of the next line. A line with fewer than `width` fields is truncated, and a line with more
    /// fields lacks its line end; blank fields at the end are accepted.
    ///
    /// # Errors
    /// Returns [`ImportError`] as [`next_line`](Self::next_line) does, and if the line has another width.
    pub fn next_row<'a>(
        &mut self,
        fields: &'a mut FieldBuffer,
        width: usize,
    ) -> Result<Option<&'a FieldBuffer>, ImportError> {
        match self.next_line(fields)? {
            Some(fields)
                if fields.len() < width
                    || (width..fields.len()).any(|index| !fields.get(index).is_empty()) =>
            {
                let count = fields.len();
                Err(self.line_error(format_args!(
                    "the line has {count} fields instead of {width}; the file is truncated or corrupt, copy it again"
                )))
            }
            row => Ok(row),
        }
    }
}

/// Calls `row` with the columns of each line of a table with tabs and headings, in the order of `columns`. A
/// column whose heading ends with `?` may be missing, and is then read as empty.
///
/// # Errors
/// Returns [`ImportError`] if the file cannot be read or lacks a column, and the error of `row` with the
/// line.
pub(super) fn for_each_headed_row<const N: usize>(
    source: &mut ReleaseSource<'_>,
    file: &str,
    columns: [&str; N],
    mut row: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<(), ImportError> {
    let mut fields = FieldBuffer::default();
    let mut table = DelimitedTable::open(source, file, '\t')?.or_western();
    let column_count = columns.iter().filter(|name| !name.ends_with('?')).count();
    let width = table.read_heading(&mut fields, column_count)?;
    let mut positions = [0; N];
    for (position, name) in positions.iter_mut().zip(columns) {
        let plain = name.trim_end_matches('?');
        let place = table.headings().iter().position(|heading| heading.trim().eq_ignore_ascii_case(plain));
        *position = match place {
            None if plain == name => {
                return Err(ImportError::at_line(file, 1, format!("no column has the heading '{name}'")));
            }
            // A missing column gets a position past the end of every line, so its fields are empty.
            place => place.unwrap_or(usize::MAX),
        };
    }
    while table.next_row(&mut fields, width)?.is_some() {
        row(positions.map(|position| fields.get(position))).map_err(|reason| table.line_error(reason))?;
    }
    Ok(())
}

/// The fields of one line, in a buffer that is reused.
#[derive(Debug, Default)]
pub(super) struct FieldBuffer {
    text: String,
    ends: Vec<usize>,
    width: usize,
}

impl FieldBuffer {
    fn split_line(&mut self, text: &str, separator: char) {
        self.text.clear();
        self.text.push_str(text);
        self.width = separator.len_utf8();
        self.ends.clear();
        self.ends.extend(self.text.match_indices(separator).map(|(offset, _)| offset));
        self.ends.push(self.text.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The field at a position, or an empty field if the line has fewer fields.
    pub fn get(&self, index: usize) -> &str {
        let Some(end) = self.ends.get(index) else { return "" };
        let start = if index == 0 { 0 } else { self.ends[index - 1] + self.width };
        &self.text[start..*end]
    }
}

/// A CSV file, of which only some columns are read.
pub(super) struct CsvTable<'s> {
    name: String,
    csv: csv::Reader<QuoteReader<Box<dyn BufRead + 's>>>,
    quotes: QuoteState,
    columns: Vec<usize>,
    uncounted: u64,
}

impl<'s> CsvTable<'s> {
    /// Opens a file of the release and finds its columns, ignoring the case of the headings. The first
    /// `required` columns are required. The other columns may be missing, as in older releases, and are then
    /// read as empty.
    ///
    /// # Errors
    /// Returns [`ImportError`] if the file cannot be read or lacks a required column.
    pub fn open(
        source: &'s mut ReleaseSource,
        name: &str,
        headings: &[&str],
        required: usize,
    ) -> Result<Self, ImportError> {
        let mut input = source.read(name).map_err(unreadable(name))?;
        let uncounted = uncounted(&mut *input).map_err(unreadable(name))?;
        let quotes = QuoteState::default();
        let mut csv = csv::Reader::from_reader(QuoteReader::new(input, quotes.clone(), b','));
        let header = csv.headers().map_err(|error| ImportError::at_line(name, 1, error))?;
        let columns = headings.iter().enumerate().map(|(index, expected_heading)| {
            let is_it =
                |heading: &str| heading.trim_start_matches('\u{feff}').eq_ignore_ascii_case(expected_heading);
            let missing = || {
                ImportError::at_line(name, 1, format_args!("no column has the heading '{expected_heading}'"))
            };
            match header.iter().position(is_it) {
                None if index < required => Err(missing()),
                // A missing column gets a position past the end of every line, so its fields are empty.
                column => Ok(column.unwrap_or(usize::MAX)),
            }
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), csv, quotes, columns, uncounted })
    }

    /// Calls `row` for each line with the selected columns.
    ///
    /// # Errors
    /// Returns [`ImportError`] if the file cannot be read, and the error of `row` with the line.
    pub fn for_each_row(
        mut self,
        row: &mut dyn FnMut(&[&str]) -> Result<(), String>,
    ) -> Result<(), ImportError> {
        let mut record = csv::StringRecord::new();
        loop {
            let more =
                self.csv.read_record(&mut record).map_err(unreadable_row(&self.name, self.uncounted))?;
            if let Some(line) = self.quotes.unclosed() {
                let reason =
                    "the quote that begins in this line is not closed; the file is corrupt, copy it again";
                return Err(ImportError::at_line(&self.name, line, reason));
            }
            if !more {
                return Ok(());
            }
            let fields: Vec<&str> =
                self.columns.iter().map(|column| record.get(*column).unwrap_or_default().trim()).collect();
            let column = record.position().map_or(0, csv::Position::line) + self.uncounted;
            row(&fields).map_err(|reason| ImportError::at_line(&self.name, column, reason))?;
        }
    }
}

/// Returns how many lines the CSV reader does not count after the headings, which it reads next. It assigns
/// the second character of a line end of two characters to the following row.
pub(crate) fn uncounted(input: &mut dyn BufRead) -> io::Result<u64> {
    let head = input.fill_buf()?;
    let end = head.iter().position(|byte| *byte == b'\n');
    Ok(u64::from(end.is_some_and(|end| head[..end].ends_with(b"\r"))))
}
