//! ICD-10-CM as the National Center for Health Statistics publishes it: the order file, one code a line at fixed columns.
//!
//! | columns | what stands there |
//! |---|---|
//! | 7 to 13 | the code without its point |
//! | 15 | 1 where it may be billed, 0 for a heading |
//! | 17 to 76 | short description |
//! | 78 on | long description |
//!
//! A code lies below the longest other one that it begins with.

use super::source::base;
use super::table::{Fields, Table};
use super::{LoadError, Reading, Source};
use crate::code_system::builder::{Builder, Designation};
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

const URL: &str = "http://hl7.org/fhir/sid/icd-10-cm";

/// Is there an order file?
pub(super) fn key(source: &Source) -> Option<String> {
    let is_one = |name: &str| {
        let name = name.to_ascii_lowercase().replace('-', "_");
        name.starts_with("icd10cm_order_") && name.ends_with(".txt") && !name.contains("addenda")
    };
    source.named(is_one).into_iter().next()
}

/// Reads the file.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_>) -> Result<Builder, LoadError> {
    let file = key(reading.source).expect("what fits has an order file");
    let version: String =
        base(&file)["icd10cm_order_".len()..].chars().take_while(char::is_ascii_digit).collect();
    let property = |code: &str, kind: &str| PropertyDefinition {
        code: code.to_owned(),
        r#type: Some(kind.to_owned()),
        ..PropertyDefinition::default()
    };
    let header = Header {
        resource_type: "CodeSystem".to_owned(),
        url: Some(URL.to_owned()),
        version: Some(version),
        name: Some("ICD_10_CM".to_owned()),
        title: Some("ICD-10-CM".to_owned()),
        status: Some("active".to_owned()),
        content: Some(Content::Complete),
        case_sensitive: Some(false),
        hierarchy_meaning: Some(Meaning::IsA),
        language: Some("en".to_owned()),
        property: vec![property("billable", "boolean")],
        ..Header::default()
    };
    let mut builder = Builder::new(&header).map_err(|why| LoadError::in_file(&file, why))?;
    let mut table = Table::open(reading.source, &file, '\0')?;
    let mut fields = Fields::default();
    while let Some(line) = table.next(&mut fields)?.map(|fields| fields.get(0).to_owned()) {
        let part = |from: usize, to: usize| line.get(from..to.min(line.len())).unwrap_or_default().trim();
        let (code, flag) = (part(6, 13), part(14, 15));
        let long = part(77, usize::MAX);
        if code.len() < 3 || !matches!(flag, "0" | "1") || part(16, 76).is_empty() {
            return Err(table.wrong("it is no line of an order file: a code in columns 7 to 13, 0 or 1 in column 15, then descriptions"));
        }
        tell(&mut builder, code, flag, part(16, 76), long).map_err(|why| table.wrong(why))?;
    }
    Ok(builder)
}

fn tell(builder: &mut Builder, code: &str, flag: &str, short: &str, long: &str) -> Result<(), String> {
    let dotted = |code: &str| match code.len() {
        ..=3 => code.to_owned(),
        _ => format!("{}.{}", &code[..3], &code[3..]),
    };
    let (number, is_new) = builder.concept(&dotted(code))?;
    if !is_new {
        return Err(format!("{} stands there twice", dotted(code)));
    }
    builder.display(number, if long.is_empty() { short } else { long })?;
    if !long.is_empty() && long != short {
        builder.designation(
            number,
            Designation { language: Some("en"), value: short, ..Designation::default() },
        )?;
    }
    builder.property(number, "billable", if flag == "1" { "true" } else { "false" })?;
    // Headings stand before what is below them.
    if let Some(parent) = (3..code.len()).rev().find_map(|end| builder.find(&dotted(&code[..end]))) {
        builder.link(number, parent);
    }
    Ok(())
}
