//! Any code system as CSV that says what it is: lines `# url: …`, `# version: …` before the headings.
//!
//! | heading | what stands below it |
//! |---|---|
//! | `code` | the code; needed |
//! | `display` | its display |
//! | `parent` | codes of its parents, cut at `|` |
//! | `designation:de` | what it is also called, in this language |
//! | anything else | a property of this name; FHIR's own (`inactive`, `status`, `notSelectable`, …) take effect |

use std::io::{BufRead, Read as _};

use super::source::base;
use super::{LoadError, Reading, Source, uncounted, unreadable, unreadable_row};
use crate::code_system::builder::{Builder, Designation};
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

/// Longest line of the preamble, in bytes.
const LONGEST: u64 = 64 << 10;

/// Is it one file with the ending that says so?
pub(super) fn key(source: &Source) -> Option<String> {
    let [name] = source.names() else { return None };
    let lower = base(name).to_ascii_lowercase();
    (lower.ends_with(".csv") || lower.ends_with(".csv.gz")).then(|| name.clone())
}

/// The file that is read.
pub(super) fn reads(source: &Source) -> Vec<String> {
    source.names().to_vec()
}

/// What the columns hold.
enum Column {
    Code,
    Display,
    Parent,
    Designation(String),
    Property(String),
}

/// Reads the file.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_, '_>) -> Result<Builder, LoadError> {
    let file = reading.source.names()[0].clone();
    let mut input = reading.source.read(&file).map_err(unreadable(&file))?;
    let (mut header, above) = preamble(&file, &mut *input)?;
    let before = above + uncounted(&mut *input).map_err(unreadable(&file))?;
    let mut csv = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(input);
    let wrong = unreadable_row(&file, before);
    let columns: Vec<Column> = csv
        .headers()
        .map_err(&wrong)?
        .iter()
        .map(|heading| match heading.trim_start_matches('\u{feff}') {
            "code" => Column::Code,
            "display" => Column::Display,
            "parent" => Column::Parent,
            other => match other.strip_prefix("designation:") {
                Some(language) => Column::Designation(language.to_owned()),
                None => Column::Property(other.to_owned()),
            },
        })
        .collect();
    let Some(code) = columns.iter().position(|column| matches!(column, Column::Code)) else {
        return Err(LoadError::at_line(&file, above + 1, "no column has the heading 'code'"));
    };
    for column in &columns {
        if let Column::Property(code) = column {
            header.property.push(PropertyDefinition { code: code.clone(), ..PropertyDefinition::default() });
        }
    }
    let mut builder = Builder::new(&header).map_err(|why| LoadError::in_file(&file, why))?;
    let mut row = csv::StringRecord::new();
    while csv.read_record(&mut row).map_err(&wrong)? {
        let line = row.position().map_or(0, csv::Position::line) + before;
        tell(&mut builder, &columns, &row, code).map_err(|why| LoadError::at_line(&file, line, why))?;
    }
    Ok(builder)
}

fn tell(
    builder: &mut Builder,
    columns: &[Column],
    row: &csv::StringRecord,
    code: usize,
) -> Result<(), String> {
    let (number, is_new) = builder.concept(row.get(code).unwrap_or_default())?;
    if !is_new {
        return Err(format!("the code '{}' stands there twice", row.get(code).unwrap_or_default()));
    }
    for (column, value) in columns.iter().zip(row).filter(|(_, value)| !value.is_empty()) {
        match column {
            Column::Code => {}
            Column::Display => builder.display(number, value)?,
            Column::Parent => {
                for parent in value.split('|').map(str::trim).filter(|parent| !parent.is_empty()) {
                    builder.property(number, "parent", parent)?;
                }
            }
            Column::Designation(language) => {
                let said = Designation { language: Some(language), value, ..Designation::default() };
                builder.designation(number, said)?;
            }
            Column::Property(name) => builder.property(number, name, value)?,
        }
    }
    Ok(())
}

/// Reads the lines before the headings, and says how many there were.
fn preamble(file: &str, input: &mut dyn BufRead) -> Result<(Header, u64), LoadError> {
    let mut header = Header {
        resource_type: "CodeSystem".to_owned(),
        status: Some("active".to_owned()),
        content: Some(Content::Complete),
        hierarchy_meaning: Some(Meaning::IsA),
        ..Header::default()
    };
    let mut lines = 0;
    loop {
        let head = input.fill_buf().map_err(unreadable(file))?;
        let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
        if !matches!(head.first(), Some(b'#' | b'\n' | b'\r')) {
            break;
        }
        lines += 1;
        let mut line = String::new();
        let read = input.take(LONGEST).read_line(&mut line);
        read.map_err(|error| LoadError::at_line(file, lines, error))?;
        let text = line.trim_start_matches(['\u{feff}', '#']).trim();
        let Some((name, value)) = text.split_once(':') else { continue };
        let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match name.trim() {
            "url" => header.url = value,
            "version" => header.version = value,
            "name" => header.name = value,
            "title" => header.title = value,
            "language" => header.language = value,
            "valueSet" => header.value_set = value,
            "caseSensitive" => header.case_sensitive = value.map(|value| value == "true"),
            other => {
                let why = format!(
                    "'{other}' is not known here; url, version, name, title, language, valueSet and caseSensitive are"
                );
                return Err(LoadError::at_line(file, lines, why));
            }
        }
    }
    match &header.url {
        Some(_) => Ok((header, lines)),
        None => Err(LoadError::at_line(
            file,
            1,
            "nothing says which code system this is; begin the file with a line '# url: http://…'",
        )),
    }
}
