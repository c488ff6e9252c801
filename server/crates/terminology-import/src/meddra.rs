//! MedDRA in the files of its maintenance organization: tables without headings, with fields separated by
//! `$`.
//!
//! The five levels are one hierarchy. A preferred term (PT) is also a lowest level term (LLT) with the same
//! code, and a concept once. A PT can be below several high level terms, and has a primary class as a
//! property.

use terminology::indexing::{IndexBuilder, ResourceHeader};

use crate::error::ImportError;
use crate::release_header::{property, release_header};
use crate::release_reader::ReleaseReader;
use crate::release_source::ReleaseSource;
use crate::table_reader::{DelimitedTable, FieldBuffer};

/// The URI of MedDRA in FHIR (HL7 Terminology, external code systems).
const URL: &str = "https://www.meddra.org";

/// The file with the version and the language.
const RELEASE: &str = "meddra_release.asc";
/// The terms of each level, the highest first: the level, the file, and the least number of fields.
const LEVELS: [(&str, &str, usize); 5] = [
    ("SOC", "soc.asc", 3),
    ("HLGT", "hlgt.asc", 2),
    ("HLT", "hlt.asc", 2),
    ("PT", "pt.asc", 4),
    ("LLT", "llt.asc", 10),
];
/// The links between a level and the next one. Those of a lowest level term are in its own row.
const LINKS: [&str; 3] = ["soc_hlgt.asc", "hlgt_hlt.asc", "hlt_pt.asc"];

/// Returns the file of lowest level terms, if the other files are beside it.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    let files = input_files(source);
    (files.len() == 1 + LEVELS.len() + LINKS.len()).then(|| source.file_named(LEVELS[4].1)).flatten()
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    let terms = LEVELS.iter().map(|(_, file, _)| *file);
    [RELEASE].into_iter().chain(terms).chain(LINKS).filter_map(|file| source.file_named(file)).collect()
}

/// Reads the release.
///
/// # Errors
/// [`ImportError`] if a table is not valid.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let mut stated = (String::new(), String::new());
    for_each_row(reader, RELEASE, 2, |row| {
        stated = (row.get(0).to_owned(), row.get(1).to_owned());
        Ok(())
    })?;
    let (version, language) = stated;
    if version.is_empty() {
        let reason = "no version found: the first field must state it, such as 27.1; copy the file again";
        return Err(ImportError::in_file(RELEASE, reason));
    }
    let header = ResourceHeader {
        language: language_tag(&language).map(String::from),
        property: vec![property("level", "string"), property("primarySOC", "code")],
        ..release_header(URL, &version, "MedDRA", "Medical Dictionary for Regulatory Activities")
    };
    let mut builder = IndexBuilder::new(&header).map_err(|reason| ImportError::in_file(RELEASE, reason))?;
    for (level, file, width) in LEVELS {
        for_each_row(reader, file, width, |row| {
            let (number, is_new) = builder.add_concept(row.get(0))?;
            if !is_new && level == "LLT" && row.get(0) == row.get(2) {
                return Ok(());
            }
            if !is_new {
                return Err(format!("the code {} occurs twice", row.get(0)));
            }
            builder.set_display(number, row.get(1))?;
            builder.add_property(number, "level", level)?;
            match level {
                "PT" if !row.get(3).is_empty() => builder.add_property(number, "primarySOC", row.get(3))?,
                "LLT" => {
                    let Some(parent) = builder.find_concept(row.get(2)) else {
                        return Err(format!("the preferred term {} does not exist", row.get(2)));
                    };
                    builder.add_parent(number, parent);
                    // A term that is not current is kept for old records.
                    if row.get(9).eq_ignore_ascii_case("N") {
                        builder.mark_inactive(number);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    for file in LINKS {
        for_each_row(reader, file, 2, |row| {
            let [above, below] = [0, 1].map(|column| builder.find_concept(row.get(column)));
            let (Some(above), Some(below)) = (above, below) else {
                return Err(format!("{} or {} is not a term", row.get(0), row.get(1)));
            };
            builder.add_parent(below, above);
            Ok(())
        })?;
    }
    Ok(builder)
}

/// The language tag of the name of a language in the release.
fn language_tag(name: &str) -> Option<&'static str> {
    const LANGUAGES: [(&str, &str); 16] = [
        ("English", "en"),
        ("Chinese", "zh"),
        ("Croatian", "hr"),
        ("Czech", "cs"),
        ("Dutch", "nl"),
        ("French", "fr"),
        ("German", "de"),
        ("Greek", "el"),
        ("Hungarian", "hu"),
        ("Italian", "it"),
        ("Japanese", "ja"),
        ("Korean", "ko"),
        ("Portuguese", "pt"),
        ("Russian", "ru"),
        ("Spanish", "es"),
        ("Swedish", "sv"),
    ];
    LANGUAGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, tag)| *tag)
}

/// Calls `row` for each line of a file, which has at least `width` fields.
fn for_each_row(
    reader: &mut ReleaseReader<'_, '_>,
    name: &str,
    width: usize,
    mut row: impl FnMut(&FieldBuffer) -> Result<(), String>,
) -> Result<(), ImportError> {
    let file = reader.source.file_named(name).expect("the format has all files");
    let mut fields = FieldBuffer::default();
    let mut table = DelimitedTable::open(reader.source, &file, '$')?.or_western();
    while let Some(fields) = table.next_line(&mut fields)? {
        let read = match fields.len() {
            count if count < width => Err(format!(
                "the line has {count} fields instead of {width}; the file is truncated or corrupt, copy it again"
            )),
            _ => row(fields),
        };
        read.map_err(|reason| table.line_error(reason))?;
    }
    Ok(())
}
