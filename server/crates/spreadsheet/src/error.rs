//! [`SpreadsheetError`].

use std::io;

/// Maximum size of a workbook, and of a text that is not UTF-8, in bytes. Both are held in memory.
pub(crate) const MAX_IN_MEMORY: u64 = 512 << 20;
/// Maximum number of cells of a sheet, from its first one to the last one with a value.
pub(crate) const MAX_CELLS: u64 = 50_000_000;

/// Reasons why a table cannot be read, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SpreadsheetError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not a workbook.
    #[error("the workbook cannot be read: {0}; save it again as .xlsx, .ods or 'CSV UTF-8'")]
    Workbook(String),
    /// The workbook has no such sheet.
    #[error("the workbook has no sheet '{sheet}'; name one of its sheets: {sheets}")]
    NoSheet {
        /// The sheet that was asked for.
        sheet: String,
        /// The names of the sheets.
        sheets: String,
    },
    /// A formula has failed.
    #[error("the cell {cell} has the error {error}; correct its formula")]
    Cell {
        /// Place of the cell, such as `B7`.
        cell: String,
        /// The error that the spreadsheet program shows.
        error: String,
    },
    /// The table is too large.
    #[error("the file has more than {} MiB; save it as 'CSV UTF-8'", MAX_IN_MEMORY >> 20)]
    TooLarge,
    /// The sheet has a value far from the others.
    #[error(
        "the sheet has values as far as {0}, which are more than {MAX_CELLS} cells; delete what is outside of the table"
    )]
    TooManyCells(String),
    /// An option does not fit the file.
    #[error("{0}")]
    Option(&'static str),
}
