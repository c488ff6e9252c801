//! Sheets of workbooks.

use std::io::Cursor;

use calamine::{Data, Range, Reader as _, open_workbook_auto_from_rs};

use crate::error::{MAX_CELLS, SpreadsheetError};

/// A sheet as CSV: each row of the sheet is a row, from the first one on, so that lines have the numbers that
/// the spreadsheet program shows.
pub(crate) fn as_csv(bytes: Vec<u8>, sheet: Option<&str>) -> Result<Vec<u8>, SpreadsheetError> {
    let wrong = |error: &dyn std::fmt::Display| SpreadsheetError::Workbook(error.to_string());
    let mut workbook = open_workbook_auto_from_rs(Cursor::new(bytes)).map_err(|error| wrong(&error))?;
    let sheets = workbook.sheet_names();
    let name = match sheet {
        Some(sheet) if !sheets.iter().any(|name| name == sheet) => {
            return Err(SpreadsheetError::NoSheet { sheet: sheet.to_owned(), sheets: sheets.join(", ") });
        }
        Some(sheet) => sheet.to_owned(),
        None => sheets.first().cloned().ok_or_else(|| wrong(&"it has no sheet"))?,
    };
    let range = workbook.worksheet_range(&name).map_err(|error| wrong(&error))?;
    write(&range)
}

fn write(range: &Range<Data>) -> Result<Vec<u8>, SpreadsheetError> {
    let Some((last_row, last_column)) = range.end() else { return Ok(Vec::new()) };
    if (u64::from(last_row) + 1) * (u64::from(last_column) + 1) > MAX_CELLS {
        return Err(SpreadsheetError::TooManyCells(place(last_row, last_column)));
    }
    let mut csv = csv::WriterBuilder::new().from_writer(Vec::new());
    for row in 0..=last_row {
        let cells = (0..=last_column).map(|column| text(range.get_value((row, column)), row, column));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        csv.write_record(&cells).map_err(std::io::Error::from)?;
    }
    csv.into_inner().map_err(|error| SpreadsheetError::Read(error.into_error()))
}

/// A cell as text. A code that was typed as a number has no decimal point, and a date is that of ISO 8601.
fn text(cell: Option<&Data>, row: u32, column: u32) -> Result<String, SpreadsheetError> {
    Ok(match cell {
        None | Some(Data::Empty) => String::new(),
        Some(Data::DateTime(time)) if time.is_datetime() => {
            let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
            let date = format!("{year:04}-{month:02}-{day:02}");
            match (hour, minute, second) {
                (0, 0, 0) => date,
                _ => format!("{date}T{hour:02}:{minute:02}:{second:02}"),
            }
        }
        Some(Data::Error(error)) => {
            return Err(SpreadsheetError::Cell { cell: place(row, column), error: error.to_string() });
        }
        Some(cell) => cell.to_string(),
    })
}

/// The place of a cell, in the notation of spreadsheet programs.
fn place(row: u32, mut column: u32) -> String {
    let mut letters = String::new();
    loop {
        letters.insert(0, char::from(b'A' + (column % 26) as u8));
        match column / 26 {
            0 => return format!("{letters}{}", row + 1),
            rest => column = rest - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_letters_of_spreadsheets() {
        assert_eq!([place(0, 0), place(6, 25), place(9, 26), place(0, 701)], ["A1", "Z7", "AA10", "ZZ1"]);
    }

    #[test]
    fn a_value_far_from_the_table_is_refused() {
        let cell = |place| calamine::Cell::new(place, Data::String("x".to_owned()));
        assert!(write(&Range::from_sparse(vec![cell((1_048_575, 0))])).is_ok());
        let error = write(&Range::from_sparse(vec![cell((1_048_575, 16_383))])).unwrap_err().to_string();
        assert!(error.starts_with("the sheet has values as far as XFD1048576, "), "{error}");
    }
}
