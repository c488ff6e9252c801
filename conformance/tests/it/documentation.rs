//! The generated tables of `README.md`. `TREFOIL_UPDATE_DOCS=1 cargo test -p trefoil-conformance --test it documentation`
//! writes them.

use trefoil_conformance::run::matcher::MATCHERS;
use trefoil_conformance::spec::{Specification, preconditions};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

/// Replaces the text between the two markers of a section.
fn with_section(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{table}{end}{after}")
}

fn matchers() -> String {
    let rows = MATCHERS.iter().map(|(text, matches)| match text.strip_prefix('$') {
        Some(_) => format!("| `{text}` | {matches} |\n"),
        None => format!("| {text} | {matches} |\n"),
    });
    format!("| text | matches |\n|---|---|\n{}", rows.collect::<String>())
}

fn preconditions_table() -> String {
    let rows = preconditions::load().unwrap().into_iter().map(|precondition| {
        let sets: Vec<_> = precondition.sets.iter().map(|name| format!("`${name}`")).collect();
        let (name, gist, cost) = (precondition.name, precondition.gist, precondition.cost.name());
        format!("| `{name}` | {gist} | {} | {cost} |\n", sets.join(", "))
    });
    format!("| name | what is set up | variables | cost |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn the_readme_has_the_tables() {
    let text = std::fs::read_to_string(README).unwrap();
    let expected = with_section(&text, "matchers", &matchers());
    let expected = with_section(&expected, "preconditions", &preconditions_table());
    if std::env::var_os("TREFOIL_UPDATE_DOCS").is_some() {
        std::fs::write(README, &expected).unwrap();
    }
    let found = std::fs::read_to_string(README).unwrap();
    assert_eq!(found, expected, "set TREFOIL_UPDATE_DOCS=1 to write the tables");
}

/// Checks that the examples in the README are valid rows, because readers copy them.
#[test]
fn the_examples_in_the_readme_are_valid_rows() {
    let text = std::fs::read_to_string(README).unwrap();
    let blocks: Vec<_> =
        text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 3);
    let operation = format!("[[case]]\nid = \"a/b/c/d\"\ncovers = [\"a/b/c\"]\n{}", blocks[2]);
    for block in [blocks[0], blocks[1], &operation] {
        Specification::default().add("README.md", block).unwrap();
    }
}
