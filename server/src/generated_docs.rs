//! Pages of `server/docs` with generated sections.

use identity::model::members::{MemberRow, MemberType};

/// A row of a table `member | type | default | meaning`.
pub fn member_line(row: &MemberRow) -> String {
    let kind = match row.kind {
        MemberType::Text | MemberType::Choice(_) => "text",
        MemberType::List => "list of text",
        MemberType::Number => "number",
        MemberType::Boolean | MemberType::BooleanOff => "`true` or `false`",
        MemberType::KeySet => "JWK Set",
    };
    format!("| `{}` | {kind} | {} | {} |\n", row.name, row.default, row.description())
}

/// The text of a documentation comment for a cell of a table.
pub fn sentence(meaning: &str) -> &str {
    meaning.trim().trim_end_matches('.')
}

/// Compares the sections of a page with generated text, or writes them if `TREFOIL_UPDATE_DOCS` is set. A
/// section is the text between `<!-- NAME -->` and `<!-- end of NAME -->`.
#[track_caller]
pub fn check_page(name: &str, sections: &[(&str, String)]) {
    let path = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let mut expected = page.clone();
    for (section, text) in sections {
        let (begin, end) = (format!("<!-- {section} -->\n"), format!("<!-- end of {section} -->"));
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("{name} has no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{name} has no {end}"));
        expected = format!("{before}{begin}{text}{end}{after}");
    }
    if std::env::var_os("TREFOIL_UPDATE_DOCS").is_some() {
        // Other tests read the page at the same time.
        let complete = format!("{path}.new");
        std::fs::write(&complete, &expected).unwrap();
        std::fs::rename(&complete, &path).unwrap();
        return;
    }
    assert_eq!(page, expected, "set TREFOIL_UPDATE_DOCS=1 to write {name}");
}
