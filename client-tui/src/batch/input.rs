//! Files of codings: CSV or a spreadsheet with headings, or one JSON object of the type Coding on each line
//! (NDJSON).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};
use serde::Deserialize;
use spreadsheet::{Column, ReadOptions, delimiter_of, find_columns};

use super::BatchRow;
use crate::api::ValidateCode;

/// Maximum size of a file, in bytes.
const MAX_FILE_SIZE: u64 = 64 * 1024 * 1024;
/// Maximum number of rows in a file.
pub const MAX_ROWS: usize = 100_000;

/// Values for rows that do not have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchDefaults {
    /// Canonical URL of the value set.
    pub url: String,
    /// Id of the value set, instead of its URL.
    pub id: String,
    pub system: String,
}

/// Reasons why a file is not a list of codings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("the file has no rows")]
    Empty,
    #[error(
        "the column 'code' is missing; the columns are code, system, display and url, in any order; columns seen: {0}"
    )]
    NoCodeColumn(String),
    #[error("the file has more than {MAX_ROWS} rows; split it")]
    TooManyRows,
    #[error("the file is not valid CSV: {0}")]
    Csv(String),
}

/// A row as it is written.
#[derive(Default, Deserialize)]
struct RawRow {
    #[serde(default)]
    url: String,
    #[serde(default)]
    system: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    display: String,
}

/// Reads the text of a file, or of stdin if the path is `-`. That of a workbook is CSV.
///
/// # Errors
/// An error if the file cannot be read, is not UTF-8 although no encoding is stated, or is too large.
pub fn read_text(path: &Path, options: &ReadOptions) -> io::Result<String> {
    let input: Box<dyn BufRead> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path)?)),
    };
    let table = spreadsheet::open(&path.to_string_lossy(), input, options).map_err(io::Error::other)?;
    let mut text = String::new();
    if table.take(MAX_FILE_SIZE + 1).read_to_string(&mut text)? as u64 > MAX_FILE_SIZE {
        return Err(io::Error::other(format!("the file has more than {MAX_FILE_SIZE} bytes; split it")));
    }
    Ok(text)
}

/// Reads the rows of a file. A file whose first character is `{` is NDJSON; other files are CSV. A row that
/// is invalid contains the reason.
///
/// # Errors
/// [`BatchError`] if the file as a whole cannot be read.
pub fn read(text: &str, defaults: &BatchDefaults) -> Result<Vec<BatchRow>, BatchError> {
    let text = text.trim_start_matches('\u{feff}');
    let rows = if text.trim_start().starts_with('{') { read_ndjson(text)? } else { read_csv(text)? };
    if rows.is_empty() {
        return Err(BatchError::Empty);
    }
    Ok((1..).zip(rows).map(|(row, raw)| to_row(row, raw, defaults)).collect())
}

fn to_row(row: u64, raw: Result<RawRow, String>, defaults: &BatchDefaults) -> BatchRow {
    let (raw, error) = match raw {
        Ok(raw) => (raw, None),
        Err(error) => (RawRow::default(), Some(error)),
    };
    let or = |value: String, default: &str| if value.is_empty() { default.to_owned() } else { value };
    let has_own_set = !raw.url.is_empty();
    let question = ValidateCode {
        url: or(raw.url, &defaults.url),
        // The value set of a row takes precedence.
        id: if has_own_set { String::new() } else { defaults.id.clone() },
        system: or(raw.system, &defaults.system),
        code: raw.code,
        display: raw.display,
    };
    let missing = [
        ("code", question.code.is_empty()),
        ("system", question.system.is_empty()),
        ("url", question.url.is_empty() && question.id.is_empty()),
    ];
    let missing = missing.into_iter().find(|(_, is_missing)| *is_missing);
    let error = error.or_else(|| missing.map(|(name, _)| format!("the {name} is missing")));
    BatchRow { row, question, error }
}

fn read_ndjson(text: &str) -> Result<Vec<Result<RawRow, String>>, BatchError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let parse = |line: &str| {
        serde_json::from_str(line)
            .map_err(|error| format!("the row is not a JSON object of a Coding: {error}"))
    };
    let rows: Vec<_> = lines.take(MAX_ROWS + 1).map(parse).collect();
    if rows.len() > MAX_ROWS { Err(BatchError::TooManyRows) } else { Ok(rows) }
}

fn read_csv(text: &str) -> Result<Vec<Result<RawRow, String>>, BatchError> {
    let delimiter = delimiter_of(text.lines().next().unwrap_or_default());
    let mut builder = ReaderBuilder::new();
    let mut reader = builder.delimiter(delimiter).flexible(true).trim(Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| BatchError::Csv(error.to_string()))?.clone();
    if header.is_empty() {
        return Err(BatchError::Empty);
    }
    let headings: Vec<&str> = header.iter().collect();
    let [code, display, system, url] =
        find_columns(&headings, [Column::CODE, Column::DISPLAY, Column::SYSTEM, Column::URL]);
    let Some(code) = code else {
        let names: Vec<_> = headings.into_iter().filter(|heading| !heading.is_empty()).collect();
        return Err(BatchError::NoCodeColumn(names.join(", ")));
    };
    let value = |record: &StringRecord, location: Option<usize>| {
        location.and_then(|location| record.get(location)).unwrap_or_default().to_owned()
    };
    let (mut rows, mut filled) = (Vec::new(), 0);
    for record in reader.records() {
        if rows.len() == MAX_ROWS {
            return Err(BatchError::TooManyRows);
        }
        let is_empty = record.as_ref().is_ok_and(|record| record.iter().all(str::is_empty));
        rows.push(match record {
            Ok(record) => Ok(RawRow {
                url: value(&record, url),
                system: value(&record, system),
                code: value(&record, Some(code)),
                display: value(&record, display),
            }),
            Err(error) => Err(format!("the row is not valid CSV: {error}")),
        });
        if !is_empty {
            filled = rows.len();
        }
    }
    // Spreadsheet programs write empty rows at the end.
    rows.truncate(filled);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> BatchDefaults {
        BatchDefaults { url: "vs".to_owned(), system: "s".to_owned(), ..BatchDefaults::default() }
    }

    /// Returns url, system, code, display and error of each row.
    fn rows(text: &str) -> Vec<[String; 5]> {
        let row = |row: BatchRow| {
            let ValidateCode { url, system, code, display, .. } = row.question;
            [url, system, code, display, row.error.unwrap_or_default()]
        };
        read(text, &defaults()).unwrap().into_iter().map(row).collect()
    }

    #[test]
    fn columns_are_read_in_any_order() {
        let text = "\u{feff}Display,note, CODE ,url\n\"Cane, long\",x,cane,\n,,b,other\n";
        let expected = [["vs", "s", "cane", "Cane, long", ""], ["other", "s", "b", "", ""]];
        assert_eq!(rows(text), expected);
        let text = "Schlüssel;Bezeichnung;;\r\ncane;Stock, lang;;\r\n;;;\r\n;;;\r\n";
        assert_eq!(rows(text), [["vs", "s", "cane", "Stock, lang", ""]]);
    }

    #[test]
    fn codings_are_read_from_lines() {
        let text =
            "{\"code\":\"a\",\"userSelected\":true}\n\n{\"system\":\"t\",\"code\":\"b\",\"display\":\"B\"}\n";
        assert_eq!(rows(text), [["vs", "s", "a", "", ""], ["vs", "t", "b", "B", ""]]);
    }

    #[test]
    fn an_invalid_row_has_a_reason() {
        let codes = rows("{\"code\":\"a\"}\n{\"code\":1}\n{\"display\":\"x\"}\n");
        assert_eq!(codes[0][4], "");
        assert!(codes[1][4].contains("invalid type"), "{codes:?}");
        assert_eq!(codes[2][4], "the code is missing");
        let without = read("code\na\n", &BatchDefaults::default()).unwrap();
        assert_eq!(without[0].error.as_deref(), Some("the system is missing"));
    }

    #[test]
    fn a_file_without_codings_is_rejected() {
        let error = |text: &str| read(text, &defaults()).unwrap_err();
        assert_eq!(error(""), BatchError::Empty);
        assert_eq!(error("code\n"), BatchError::Empty);
        assert_eq!(error("system,display\na,b\n"), BatchError::NoCodeColumn("system, display".to_owned()));
        assert_eq!(error(&format!("code\n{}", "a\n".repeat(MAX_ROWS + 1))), BatchError::TooManyRows);
    }
}
