//! Errors of an import, with file and line.

use std::{fmt, io};

/// Error in the files of a release.
#[derive(Debug, Clone, thiserror::Error)]
pub struct ImportError {
    /// File within the release, or the path of the release.
    pub file: String,
    /// Line in the file, from 1.
    pub line: Option<u64>,
    /// Reason for the error, and what to do.
    pub reason: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

impl ImportError {
    pub(crate) fn in_file(file: &str, reason: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: None, reason: reason.to_string() }
    }

    pub(crate) fn at_line(file: &str, line: u64, reason: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: Some(line), reason: reason.to_string() }
    }
}

/// A function that converts an error of the operating system or of an archive, and adds the name of the file.
pub(crate) fn unreadable(file: &str) -> impl Fn(io::Error) -> ImportError {
    move |error| ImportError::in_file(file, error)
}

/// A function that converts an error of the CSV reader, whose line numbers do not include the `before` lines
/// above the table.
pub(crate) fn unreadable_row(file: &str, before: u64) -> impl Fn(csv::Error) -> ImportError {
    move |error| {
        let line = error.position().map(|index| index.line() + before);
        let reason = match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("the row has {len} fields, the heading {expected_len}; is a quote not closed?")
            }
            csv::ErrorKind::Utf8 { err, .. } => format!("field {} is not UTF-8", err.field() + 1),
            _ => error.to_string(),
        };
        ImportError { file: file.to_owned(), line, reason }
    }
}
