//! The order file: one code a line, at fixed columns.
//!
//! | columns | what stands there |
//! |---|---|
//! | 7 to 13 | the code without its point |
//! | 15 | 1 where it may be billed, 0 for a heading |
//! | 17 to 76 | short description |
//! | 78 on | long description |
//!
//! A code that is not there yet lies below the longest other one that it begins with.

use std::collections::HashSet;

use crate::code_system::builder::{Builder, Designation, Number};
use crate::load::LoadError;
use crate::load::source::Source;
use crate::load::table::{Fields, Table};

/// Reads the file.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(source: &mut Source<'_>, file: &str, builder: &mut Builder) -> Result<(), LoadError> {
    let mut table = Table::open(source, file, '\0')?;
    let mut fields = Fields::default();
    let mut seen = HashSet::new();
    while let Some(line) = table.next(&mut fields)?.map(|fields| fields.get(0).to_owned()) {
        let part = |from: usize, to: usize| line.get(from..to.min(line.len())).unwrap_or_default().trim();
        let (code, flag) = (part(6, 13), part(14, 15));
        let long = part(77, usize::MAX);
        if code.len() < 3 || !matches!(flag, "0" | "1") || part(16, 76).is_empty() {
            return Err(table.wrong("it is no line of an order file: a code in columns 7 to 13, 0 or 1 in column 15, then descriptions"));
        }
        let told = tell(builder, code, flag, part(16, 76), long);
        if !seen.insert(told.map_err(|why| table.wrong(why))?) {
            return Err(table.wrong(format_args!("{} stands there twice", dotted(code))));
        }
    }
    Ok(())
}

fn dotted(code: &str) -> String {
    match code.split_at_checked(3) {
        Some((category, rest)) if !rest.is_empty() => format!("{category}.{rest}"),
        _ => code.to_owned(),
    }
}

fn tell(builder: &mut Builder, code: &str, flag: &str, short: &str, long: &str) -> Result<Number, String> {
    let (number, is_new) = builder.concept(&dotted(code))?;
    builder.display(number, if long.is_empty() { short } else { long })?;
    if !long.is_empty() && long != short {
        let said = Designation { language: Some("en"), value: short, ..Designation::default() };
        builder.designation(number, said)?;
    }
    builder.property(number, "billable", if flag == "1" { "true" } else { "false" })?;
    // Headings stand before what is below them.
    let above = |end: usize| builder.find(&dotted(code.get(..end)?));
    if let Some(parent) = (3..code.len()).rev().find_map(above).filter(|_| is_new) {
        builder.link(number, parent);
    }
    Ok(number)
}
