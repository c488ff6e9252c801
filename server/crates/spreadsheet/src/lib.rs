//! Tables as spreadsheet programs save them, as CSV in UTF-8: other delimiters and encodings, the sheets of a
//! workbook, and headings in other languages.
//!
//! | module | contents |
//! |---|---|
//! | `encoding` | UTF-8 and UTF-16, and Latin-1 if the caller states it |
//! | `workbook` | a sheet of an `.xlsx` or `.ods` file as CSV |
//! | `delimiter` | the delimiter of a table, by the line of its headings |
//! | `error` | [`SpreadsheetError`] |
//! | `headings` | the columns that have a meaning, by usual names |

mod delimiter;
mod encoding;
mod error;
mod headings;
mod workbook;

use std::io::{self, BufRead, Read as _};

pub use self::delimiter::{delimiter_of, without_padding};
pub use self::encoding::StatedEncoding;
use self::error::MAX_IN_MEMORY;
pub use self::error::SpreadsheetError;
pub use self::headings::{Column, find_columns};

/// Statements of the caller about a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The encoding of a text that is neither UTF-8 nor UTF-16.
    pub encoding: Option<StatedEncoding>,
    /// Name of the sheet of a workbook; `None` for the first.
    pub sheet: Option<String>,
}

/// `true` if the name is that of a workbook.
pub fn is_workbook(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| ["xlsx", "xlsm", "xlsb", "xls", "ods"].contains(&extension.as_str()))
}

/// The text of a table, as CSV in UTF-8 without a byte order mark. A workbook has commas; in other files the
/// delimiter is that of the file. Reading fails in the line that is not UTF-8.
///
/// # Errors
/// [`SpreadsheetError`] if the file cannot be read as a table.
pub fn open<'a>(
    name: &str,
    mut input: Box<dyn BufRead + 'a>,
    options: &ReadOptions,
) -> Result<Box<dyn BufRead + 'a>, SpreadsheetError> {
    if is_workbook(name) {
        if options.encoding.is_some() {
            return Err(SpreadsheetError::Option(
                "--encoding does not apply to a workbook, which states its encoding; leave it out",
            ));
        }
        let csv = workbook::as_csv(whole(input)?, options.sheet.as_deref())?;
        return Ok(Box::new(io::Cursor::new(csv)));
    }
    if options.sheet.is_some() {
        return Err(SpreadsheetError::Option(
            "--sheet applies to a workbook (.xlsx, .ods) only; leave it out",
        ));
    }
    let head = input.fill_buf()?;
    if let Some(encoding) = encoding::of(head, options.encoding) {
        return Ok(Box::new(io::Cursor::new(encoding::decode(&whole(input)?, encoding)?)));
    }
    if head.starts_with(encoding::UTF_8_MARK) {
        input.consume(encoding::UTF_8_MARK.len());
    }
    Ok(Box::new(encoding::Utf8Reader::new(input)))
}

/// The bytes of a file that is held in memory.
fn whole(input: Box<dyn BufRead + '_>) -> Result<Vec<u8>, SpreadsheetError> {
    let mut bytes = Vec::new();
    input.take(MAX_IN_MEMORY + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_IN_MEMORY { Err(SpreadsheetError::TooLarge) } else { Ok(bytes) }
}
