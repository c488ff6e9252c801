//! The table of wants names tests that exist.

use std::path::Path;

/// The source of all tests of the client.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn each_want_has_a_test() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut source = String::new();
    sources(&client.join("src"), &mut source);
    sources(&client.join("tests"), &mut source);
    let table = std::fs::read_to_string(client.join("docs/wants.md")).unwrap();
    let rows: Vec<_> =
        table.lines().filter(|line| line.starts_with("| ") && !line.contains("| test |")).collect();
    assert!(rows.len() >= 77, "only {} wants are listed", rows.len());
    for row in rows {
        let test = row.rsplit('`').nth(1).unwrap_or_else(|| panic!("no test is named: {row}"));
        assert!(source.contains(&format!("fn {test}(")), "'{test}' does not exist: {row}");
    }
}
