//! A linearization of ICD-11 as WHO publishes it, such as MMS: one table with tabs (`SimpleTabulation`, in
//! older releases `LinearizationMiniOutput`).
//!
//! Categories have their code, and blocks and chapters, which cannot be used for coding, their id and number.
//! The rows are in the order of the hierarchy, and the title of each begins with a dash for each level.

use terminology::indexing::{ConceptDesignation, IndexBuilder, ResourceHeader};

use crate::error::ImportError;
use crate::release_header::{property, release_header};
use crate::release_reader::ReleaseReader;
use crate::release_source::{ReleaseSource, base_name};
use crate::table_reader::{DelimitedTable, FieldBuffer, for_each_headed_row};

/// Begins of the names of the table.
const FILES: [&str; 2] = ["simpletabulation", "linearizationminioutput"];
/// The part of a URI before the release, the linearization and the entity.
const RELEASES: &str = "/icd/release/11/";
const COLUMNS: [&str; 10] = [
    "Foundation URI?",
    "Linearization URI?",
    "Linearization (release) URI?",
    "Code",
    "BlockId",
    "Title",
    "TitleEN?",
    "ClassKind",
    "ChapterNo",
    "CodingNote?",
];

/// Returns the table, if there is one.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    let is_table = |name: &str| {
        let name = name.to_ascii_lowercase();
        FILES.iter().any(|begin| name.starts_with(begin)) && name.ends_with(".txt")
    };
    source.files_named(is_table).into_iter().next()
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    key_file(source).into_iter().collect()
}

/// The language at the end of the name of the table (`SimpleTabulation-ICD-11-MMS-en.txt`).
pub(super) fn language_in_name(source: &ReleaseSource) -> Option<String> {
    let file = key_file(source)?;
    let (_, language) = base_name(&file).strip_suffix(".txt")?.rsplit_once('-')?;
    (language.len() == 2).then(|| language.to_ascii_lowercase())
}

/// A linearization and its release, from the URI of an entity.
struct Linearization {
    url: String,
    name: String,
    release: Option<String>,
}

impl Linearization {
    /// Reads a URI such as `http://id.who.int/icd/release/11/2025-01/mms/257068234`. Older tables have no
    /// release in it.
    fn of_entity(uri: &str) -> Option<Self> {
        let (host, path) = uri.split_once(RELEASES)?;
        let mut parts = path.split('/');
        let (first, second) = (parts.next()?, parts.next()?);
        let (release, name) = match parts.next() {
            Some(_) => (Some(first), second),
            None => (None, first),
        };
        let host = host.replacen("https:", "http:", 1);
        Some(Self {
            url: format!("{host}{RELEASES}{name}"),
            name: name.to_ascii_uppercase(),
            release: release.filter(|release| *release != "beta").map(String::from),
        })
    }
}

/// Reads the table.
///
/// # Errors
/// [`ImportError`] if the table is not valid or states no version.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let file = key_file(reader.source).expect("the format was found by this file");
    let language = language_in_name(reader.source);
    let mut builder = IndexBuilder::new(&header(reader, &file, language.as_deref())?)
        .map_err(|reason| ImportError::in_file(&file, reason))?;
    // The concepts above the current row, the chapter first.
    let mut above: Vec<u32> = Vec::new();
    for_each_headed_row(reader.source, &file, COLUMNS, |row| {
        let [entity, _, _, code, block, title, english, kind, chapter, note] = row;
        let code = [code, block, chapter].into_iter().find(|code| !code.is_empty());
        let code = code.ok_or("the row has no code, block and chapter")?;
        let (level, title) = title_of(title);
        if level > above.len() {
            return Err(format!("{code} has {level} dashes, more than one above those of the row before it"));
        }
        let (number, is_new) = builder.add_concept(code)?;
        if !is_new {
            return Err(format!("the code {code} occurs twice"));
        }
        builder.set_display(number, &title)?;
        above.truncate(level);
        if let Some(parent) = above.last() {
            builder.add_parent(number, *parent);
        }
        above.push(number);
        let (_, english) = title_of(english);
        if !english.is_empty() && english != title {
            let designation =
                ConceptDesignation { language: Some("en"), value: &english, ..ConceptDesignation::default() };
            builder.add_designation(number, designation)?;
        }
        if !kind.eq_ignore_ascii_case("category") {
            builder.add_property(number, "notSelectable", "true")?;
        }
        let properties = [("kind", kind), ("chapter", chapter), ("foundation", entity), ("codingNote", note)];
        properties
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|(name, value)| builder.add_property(number, name, value.trim_matches('"')))
    })?;
    Ok(builder)
}

/// The description of the linearization, from its first entity and the headings.
fn header(
    reader: &mut ReleaseReader<'_, '_>,
    file: &str,
    language: Option<&str>,
) -> Result<ResourceHeader, ImportError> {
    let mut fields = FieldBuffer::default();
    let mut table = DelimitedTable::open(reader.source, file, '\t')?;
    let width = table.read_heading(&mut fields, 1)?;
    let month = table.headings().iter().find_map(|heading| month_of(heading));
    let row = table.next_row(&mut fields, width)?;
    let uri = row.and_then(|row| (0..width).find_map(|column| Linearization::of_entity(row.get(column))));
    let Linearization { url, name, release } = uri.ok_or_else(|| {
        let reason = format!("no column has the URI of an entity of a release, with {RELEASES} in it");
        ImportError::at_line(file, 2, reason)
    })?;
    let version = release.or(month).ok_or_else(|| {
        let reason = "no version found: neither the URIs nor the heading 'Version:…' state the release; download the table again";
        ImportError::in_file(file, reason)
    })?;
    Ok(ResourceHeader {
        language: language.map(String::from),
        property: vec![
            property("kind", "string"),
            property("chapter", "string"),
            property("foundation", "string"),
            property("codingNote", "string"),
            property("notSelectable", "boolean"),
        ],
        ..release_header(&url, &version, &format!("ICD11{name}"), &format!("ICD-11 {name}"))
    })
}

/// The month in the heading of the last column, such as `Version:2022 Feb 11 - 21:30 UTC`, as `2022-02`.
fn month_of(heading: &str) -> Option<String> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let mut words = heading.trim().strip_prefix("Version:")?.split_whitespace();
    let (year, month) = (words.next()?, words.next()?.to_ascii_lowercase());
    let month = 1 + MONTHS.iter().position(|name| month.starts_with(name))?;
    year.parse::<u16>().ok().map(|year| format!("{year}-{month:02}"))
}

/// The number of dashes before a title, and the title. Older tables have it in quotes.
fn title_of(cell: &str) -> (usize, String) {
    let text = match cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => cell.to_owned(),
    };
    let mut rest = text.as_str();
    let mut level = 0;
    while let Some(below) = rest.strip_prefix("- ") {
        (rest, level) = (below, level + 1);
    }
    (level, rest.trim().to_owned())
}
