//! Any code system as CSV. Lines such as `# url: …` and `# version: …` before the headings describe it.
//!
//! | heading | content of the column |
//! |---|---|
//! | `code` | the code; required |
//! | `display` | the display |
//! | `parent` | codes of the parents, separated by `|` |
//! | `designation:de` | a designation in this language |
//! | any other | a property of this name; FHIR's standard ones (`inactive`, `status`, `notSelectable`, …) take effect |

use std::io::{BufRead, BufReader, Read as _};

use terminology::indexing::{
    ConceptDesignation, ContentMode, HierarchyMeaning, IndexBuilder, PropertyDefinition, ResourceHeader,
};

use crate::error::{ImportError, unreadable, unreadable_row};
use crate::quote_reader::{QuoteReader, QuoteState};
use crate::release_reader::ReleaseReader;
use crate::release_source::{ReleaseSource, base_name};
use crate::table_reader::uncounted;

/// Maximum length of a line in the preamble, in bytes.
const LONGEST: u64 = 64 << 10;

/// The file, if it is the only one and its name ends with `.csv` or `.csv.gz`.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    let [name] = source.file_names() else { return None };
    let lower = base_name(name).to_ascii_lowercase();
    (lower.ends_with(".csv") || lower.ends_with(".csv.gz")).then(|| name.clone())
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    source.file_names().to_vec()
}

enum CsvColumn {
    Code,
    Display,
    Parent,
    Designation(String),
    Property(String),
}

/// Reads the file.
///
/// # Errors
/// [`ImportError`] if the file is not valid CSV or lacks a required value.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let file = reader.source.file_names()[0].clone();
    let quotes = QuoteState::default();
    let input = reader.source.read(&file).map_err(unreadable(&file))?;
    let mut input = BufReader::new(QuoteReader::new(input, quotes.clone()));
    let (mut header, above) = preamble(&file, &mut input)?;
    let before = above + uncounted(&mut input).map_err(unreadable(&file))?;
    let mut csv = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(input);
    let line_error = unreadable_row(&file, before);
    let columns: Vec<CsvColumn> = csv
        .headers()
        .map_err(&line_error)?
        .iter()
        .map(|heading| match heading.trim_start_matches('\u{feff}') {
            "code" => CsvColumn::Code,
            "display" => CsvColumn::Display,
            "parent" => CsvColumn::Parent,
            other => match other.strip_prefix("designation:") {
                Some(language) => CsvColumn::Designation(language.to_owned()),
                None => CsvColumn::Property(other.to_owned()),
            },
        })
        .collect();
    let Some(code) = columns.iter().position(|column| matches!(column, CsvColumn::Code)) else {
        return Err(ImportError::at_line(&file, above + 1, "no column has the heading 'code'"));
    };
    for column in &columns {
        if let CsvColumn::Property(code) = column {
            header.property.push(PropertyDefinition { code: code.clone(), ..PropertyDefinition::default() });
        }
    }
    let mut builder = IndexBuilder::new(&header).map_err(|why| ImportError::in_file(&file, why))?;
    let mut row = csv::StringRecord::new();
    let mut parents = Vec::new();
    while csv.read_record(&mut row).map_err(&line_error)? {
        let line = row.position().map_or(0, csv::Position::line) + before;
        if let Some(opened) = quotes.unclosed() {
            return Err(ImportError::at_line(
                &file,
                opened,
                "the quote that begins in this line is not closed; close it, or write two quotes for one in the text",
            ));
        }
        let named = add_row(&mut builder, &columns, &row, code);
        let named = named.map_err(|why| ImportError::at_line(&file, line, why))?;
        parents.extend(named.into_iter().map(|parent| (line, parent)));
    }
    // A parent may follow its children.
    match parents.into_iter().find(|(_, parent)| builder.find_concept(parent).is_none()) {
        Some((line, parent)) => {
            let why =
                format!("the parent '{parent}' is not a code of the file; add it, or leave the cell empty");
            Err(ImportError::at_line(&file, line, why))
        }
        None => Ok(builder),
    }
}

/// Adds a concept. Returns the codes of its parents.
fn add_row(
    builder: &mut IndexBuilder,
    columns: &[CsvColumn],
    row: &csv::StringRecord,
    code: usize,
) -> Result<Vec<String>, String> {
    let own = row.get(code).unwrap_or_default();
    if builder.has_case_variant(own) {
        return Err(format!(
            "'{own}' differs from another code by case only, but caseSensitive is false; set it to true, or list each \
             concept once"
        ));
    }
    let (number, is_new) = builder.add_concept(own)?;
    let mut parents = Vec::new();
    if !is_new {
        return Err(format!("the code '{}' occurs twice", row.get(code).unwrap_or_default()));
    }
    for (column, value) in columns.iter().zip(row).filter(|(_, value)| !value.is_empty()) {
        match column {
            CsvColumn::Code => {}
            CsvColumn::Display => builder.set_display(number, value)?,
            CsvColumn::Parent => {
                for parent in value.split('|').map(str::trim).filter(|parent| !parent.is_empty()) {
                    builder.add_property(number, "parent", parent)?;
                    parents.push(parent.to_owned());
                }
            }
            CsvColumn::Designation(language) => {
                let designation =
                    ConceptDesignation { language: Some(language), value, ..ConceptDesignation::default() };
                builder.add_designation(number, designation)?;
            }
            CsvColumn::Property(name) => builder.add_property(number, name, value)?,
        }
    }
    Ok(parents)
}

/// Reads the lines before the headings. Returns the header that they describe, and their number.
fn preamble(file: &str, input: &mut dyn BufRead) -> Result<(ResourceHeader, u64), ImportError> {
    let mut header = ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        status: Some("active".to_owned()),
        content: Some(ContentMode::Complete),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        ..ResourceHeader::default()
    };
    let mut lines = 0;
    loop {
        let head = input.fill_buf().map_err(unreadable(file))?;
        // Spreadsheet programs begin UTF-8 files with a byte order mark.
        let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
        if !matches!(head.first(), Some(b'#' | b'\n' | b'\r')) {
            break;
        }
        lines += 1;
        let mut line = String::new();
        let read = input.take(LONGEST).read_line(&mut line);
        read.map_err(|error| ImportError::at_line(file, lines, error))?;
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
                    "unknown name '{other}'; use url, version, name, title, language, valueSet or caseSensitive"
                );
                return Err(ImportError::at_line(file, lines, why));
            }
        }
    }
    match &header.url {
        Some(_) => Ok((header, lines)),
        None => Err(ImportError::at_line(
            file,
            1,
            "the code system is not named; begin the file with a line '# url: http://…'",
        )),
    }
}
