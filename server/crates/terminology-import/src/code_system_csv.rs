//! Any code system as a table: CSV, or a sheet of a spreadsheet. Lines such as `# url: …` and `# version: …`
//! before the headings describe it.
//!
//! | heading | content of the column |
//! |---|---|
//! | `code` | the code; required |
//! | `display` | the display |
//! | `parent` | codes of the parents, separated by `|` |
//! | `designation:de`, `display (de)` | a designation in this language |
//! | any other | a property of this name; FHIR's standard ones (`inactive`, `status`, `notSelectable`, …) take effect |
//!
//! The first three have further names ([`spreadsheet::Column`]).

use std::io::{BufRead, BufReader, Cursor, Read as _};

use spreadsheet::{Column, SpreadsheetError};
use terminology::indexing::{
    ConceptDesignation, ContentMode, HierarchyMeaning, IndexBuilder, PropertyDefinition, ResourceHeader,
};

use crate::error::{ImportError, unreadable, unreadable_row};
use crate::quote_reader::{QuoteReader, QuoteState};
use crate::release_reader::ReleaseReader;
use crate::release_source::{ReleaseSource, base_name};
use crate::table_reader::uncounted;

/// Name of the format of a text.
pub(super) const NAME: &str = "CSV";
/// Name of the format of a workbook.
pub(super) const SPREADSHEET: &str = "spreadsheet";
/// Maximum length of a line before the table, and of the line of its headings, in bytes.
const LONGEST: u64 = 64 << 10;

/// The file, if it is the only one and its name is that of a text with delimiters.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    let [name] = source.file_names() else { return None };
    let lower = base_name(name).to_ascii_lowercase();
    let plain = lower.strip_suffix(".gz").unwrap_or(&lower);
    (plain.ends_with(".csv") || plain.ends_with(".tsv")).then(|| name.clone())
}

/// The file, if it is the only one and a workbook.
pub(super) fn key_workbook(source: &ReleaseSource) -> Option<String> {
    let [name] = source.file_names() else { return None };
    spreadsheet::is_workbook(name).then(|| name.clone())
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    source.file_names().to_vec()
}

#[derive(Debug, PartialEq, Eq)]
enum CsvColumn {
    Code,
    Display,
    Parent,
    Designation(String),
    Property(String),
    /// Without a heading, so that its cells must be empty.
    Nameless,
}

impl CsvColumn {
    /// The columns with these headings, and the position of the code.
    fn of(headings: &[&str]) -> Result<(Vec<Self>, usize), String> {
        let [code, display, parent] =
            spreadsheet::find_columns(headings, [Column::CODE, Column::DISPLAY, Column::PARENT]);
        let column = |(at, heading): (usize, &&str)| match Some(at) {
            at if at == code => Self::Code,
            at if at == display => Self::Display,
            at if at == parent => Self::Parent,
            _ if heading.is_empty() => Self::Nameless,
            _ => language(heading).map_or_else(
                || Self::Property((*heading).to_owned()),
                |tag| Self::Designation(tag.to_owned()),
            ),
        };
        let columns = headings.iter().enumerate().map(column).collect();
        let names: Vec<_> = headings.iter().filter(|heading| !heading.is_empty()).copied().collect();
        let missing = || {
            let [first, others @ ..] = Column::CODE.0 else { return String::new() };
            format!(
                "no column has the heading '{first}' (or {}); columns seen: {}",
                others.join(", "),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )
        };
        code.map(|code| (columns, code)).ok_or_else(missing)
    }
}

/// The language of a column of designations: `designation:de`, or a name of the display as in `text (de)`.
fn language(heading: &str) -> Option<&str> {
    let (name, tag) = match heading.split_once(':') {
        Some(parts) => parts,
        None => heading.strip_suffix(')')?.rsplit_once('(')?,
    };
    let is_name = name.trim().eq_ignore_ascii_case("designation")
        || spreadsheet::find_columns(&[name], [Column::DISPLAY]) != [None];
    let tag = tag.trim();
    let first = tag.split('-').next().unwrap_or_default();
    let is_tag = (2..=3).contains(&first.len())
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_name && is_tag).then_some(tag)
}

/// The lines before the table.
struct Preamble {
    header: ResourceHeader,
    /// Whether the parent of a code is the longest other code with which it begins.
    parents_by_prefix: bool,
    lines: u64,
    headings: String,
}

/// Reads the file.
///
/// # Errors
/// [`ImportError`] if the file is not a table or lacks a required value.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let file = reader.source.file_names()[0].clone();
    let options = &reader.stated.table;
    let input = reader.source.read(&file).map_err(unreadable(&file))?;
    let text = spreadsheet::open(&file, input, options);
    let mut input = text.map_err(|error: SpreadsheetError| ImportError::in_file(&file, error))?;
    let Preamble { mut header, parents_by_prefix, lines: above, headings } = preamble(&file, &mut *input)?;
    let delimiter = spreadsheet::delimiter_of(&headings);
    let mut table = BufReader::new(Cursor::new(headings.into_bytes()).chain(input));
    let before = above + uncounted(&mut table).map_err(unreadable(&file))?;
    let quotes = QuoteState::default();
    let mut csv = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .comment(Some(b'#'))
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(QuoteReader::new(table, quotes.clone(), delimiter));
    let line_error = unreadable_row(&file, before);
    let headings = csv.headers().map_err(&line_error)?.clone();
    let all = headings.len();
    let mut headings: Vec<&str> = headings.iter().collect();
    // Spreadsheet programs add empty columns at the end.
    let width = headings.iter().rposition(|heading| !heading.is_empty()).map_or(0, |last| last + 1);
    headings.truncate(width);
    let (columns, code) =
        CsvColumn::of(&headings).map_err(|reason| ImportError::at_line(&file, above + 1, reason))?;
    for column in &columns {
        if let CsvColumn::Property(code) = column {
            header.property.push(PropertyDefinition { code: code.clone(), ..PropertyDefinition::default() });
        }
    }
    let mut builder = IndexBuilder::new(&header).map_err(|reason| ImportError::in_file(&file, reason))?;
    let mut row = csv::StringRecord::new();
    let (mut parents, mut orphans) = (Vec::new(), Vec::new());
    while csv.read_record(&mut row).map_err(&line_error)? {
        let line = row.position().map_or(0, csv::Position::line) + before;
        if let Some(line) = quotes.unclosed() {
            return Err(ImportError::at_line(
                &file,
                line + above,
                "the quote that begins in this line is not closed; close it, or write two quotes for one in the text",
            ));
        }
        if row.iter().all(str::is_empty) {
            continue;
        }
        check_width(&row, width, all).map_err(|reason| ImportError::at_line(&file, line, reason))?;
        let result = add_row(&mut builder, &columns, &row, code);
        let result = result.map_err(|reason| ImportError::at_line(&file, line, reason))?;
        if result.is_empty() && parents_by_prefix {
            orphans.push(row.get(code).unwrap_or_default().to_owned());
        }
        parents.extend(result.into_iter().map(|parent| (line, parent)));
    }
    for code in orphans {
        add_parent_by_prefix(&mut builder, &code).map_err(|reason| ImportError::in_file(&file, reason))?;
    }
    // A parent may follow its children.
    match parents.into_iter().find(|(_, parent)| builder.find_concept(parent).is_none()) {
        Some((line, parent)) => {
            let reason =
                format!("the parent '{parent}' is not a code of the file; add it, or leave the cell empty");
            Err(ImportError::at_line(&file, line, reason))
        }
        None => Ok(builder),
    }
}

/// Checks that a row has the cells of all headings, and beyond them only empty ones.
fn check_width(row: &csv::StringRecord, width: usize, all: usize) -> Result<(), String> {
    if row.len() < width {
        return Err(format!("the row has {} fields, the heading {all}; is a quote not closed?", row.len()));
    }
    match row.iter().enumerate().skip(width).find(|(_, cell)| !cell.is_empty()) {
        Some((at, cell)) if at < all => Err(format!("column {} has '{cell}', but no heading", at + 1)),
        Some(_) => Err(format!("the row has {} fields, the heading {all}; is a quote missing?", row.len())),
        None => Ok(()),
    }
}

/// Adds as parent the longest other code with which a code begins, if there is one.
fn add_parent_by_prefix(builder: &mut IndexBuilder, code: &str) -> Result<(), String> {
    let prefixes = code.char_indices().rev().map(|(end, _)| &code[..end]);
    let parent = prefixes
        .take_while(|prefix| !prefix.is_empty())
        .find(|prefix| builder.find_concept(prefix).is_some());
    let (Some(parent), Some(number)) = (parent, builder.find_concept(code)) else { return Ok(()) };
    builder.add_property(number, "parent", parent)
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
            CsvColumn::Nameless => {
                return Err(format!("the cell '{value}' is in a column without a heading; name the column"));
            }
        }
    }
    Ok(parents)
}

/// Reads the lines before the table, and the line of its headings.
fn preamble(file: &str, input: &mut dyn BufRead) -> Result<Preamble, ImportError> {
    let header = ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        status: Some("active".to_owned()),
        content: Some(ContentMode::Complete),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        ..ResourceHeader::default()
    };
    let mut preamble = Preamble { header, parents_by_prefix: false, lines: 0, headings: String::new() };
    loop {
        let mut line = String::new();
        let read = input.take(LONGEST).read_line(&mut line);
        read.map_err(|error| ImportError::at_line(file, preamble.lines + 1, error))?;
        let text = spreadsheet::without_padding(&line);
        if line.is_empty() || !(text.is_empty() || text.starts_with('#')) {
            preamble.headings = line;
            break;
        }
        preamble.lines += 1;
        let Some((name, value)) = text.trim_start_matches('#').split_once(':') else { continue };
        // The value may be in the next cell.
        let value = value.trim_start_matches([',', ';', '\t']).trim();
        preamble
            .add(name.trim(), value)
            .map_err(|reason| ImportError::at_line(file, preamble.lines, reason))?;
    }
    match &preamble.header.url {
        Some(_) => Ok(preamble),
        None => Err(ImportError::at_line(
            file,
            1,
            "the code system is not named; begin the file with a line '# url: http://…'",
        )),
    }
}

impl Preamble {
    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let text = Some(value.to_owned()).filter(|value| !value.is_empty());
        match name {
            "url" if value.contains([',', ' ', '\t']) => {
                return Err(format!(
                    "the URL '{value}' contains a comma or a blank; write the URL alone in its line"
                ));
            }
            "url" => self.header.url = text,
            "version" => self.header.version = text,
            "name" => self.header.name = text,
            "title" => self.header.title = text,
            "language" => self.header.language = text,
            "valueSet" => self.header.value_set = text,
            "caseSensitive" => self.header.case_sensitive = text.map(|value| value == "true"),
            "parents" if value == "prefix" => self.parents_by_prefix = true,
            "parents" => {
                return Err(format!(
                    "'{value}' is unknown; # parents: prefix takes the longest other code with which a code begins"
                ));
            }
            other => {
                return Err(format!(
                    "unknown name '{other}'; use url, version, name, title, language, valueSet, caseSensitive or parents"
                ));
            }
        }
        Ok(())
    }
}
