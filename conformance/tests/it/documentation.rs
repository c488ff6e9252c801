//! The generated tables of the documents. `TREFOIL_UPDATE_DOCS=1 cargo test -p trefoil-conformance --test it
//! documentation` writes them.

use std::path::Path;

use trefoil_conformance::board::BoardConfig;
use trefoil_conformance::profile::members::{MEMBERS, ProfileMember, SETTINGS};
use trefoil_conformance::profile::{self, Profile};
use trefoil_conformance::run::matcher::MATCHERS;
use trefoil_conformance::spec::permits::PERMITS;
use trefoil_conformance::spec::uses::{FEATURES, FORMS};
use trefoil_conformance::spec::{Specification, catalogue, preconditions};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const COVERAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/coverage.md");
const PROFILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/profiles.md");

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

fn uses_table() -> String {
    let features = FEATURES.iter().map(|(_, name, does)| (*name, *does));
    let rows = features.chain(FORMS).map(|(name, does)| format!("| `{name}` | {does} |\n"));
    format!("| used | what the server does |\n|---|---|\n{}", rows.collect::<String>())
}

fn permits_table() -> String {
    let rows =
        PERMITS.iter().map(|(_, name, clause, choice)| format!("| `{name}` | {choice} | {clause} |\n"));
    format!("| permitted | choice of the server | clause |\n|---|---|---|\n{}", rows.collect::<String>())
}

fn preconditions_table() -> String {
    let rows = preconditions::load().unwrap().into_iter().map(|precondition| {
        let sets: Vec<_> = precondition.sets.iter().map(|name| format!("`${name}`")).collect();
        let (name, gist, cost) = (precondition.name, precondition.gist, precondition.cost.name());
        format!("| `{name}` | {gist} | {} | {cost} |\n", sets.join(", "))
    });
    format!("| name | what is set up | variables | cost |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

fn profile_table(members: &[ProfileMember]) -> String {
    let rows = members.iter().map(|member| format!("| `{}` | {} |\n", member.name, member.meaning));
    format!("| member | meaning |\n|---|---|\n{}", rows.collect::<String>())
}

/// Returns the names of the ready profiles, with the first comment of each.
fn ready_table() -> String {
    let rows = profile::READY.iter().map(|(name, text)| {
        let comments = text.lines().take_while(|line| line.starts_with('#'));
        let about = comments.map(|line| line.trim_start_matches("# ")).collect::<Vec<_>>().join(" ");
        format!("| `{name}` | {about} |\n")
    });
    format!("| name | server |\n|---|---|\n{}", rows.collect::<String>())
}

/// Compares the generated sections of a document, or writes them if the tests are run for this.
fn check_sections(path: &str, sections: &[(&str, String)]) {
    let text = std::fs::read_to_string(path).unwrap();
    let expected = sections.iter().fold(text, |text, (name, table)| with_section(&text, name, table));
    if std::env::var_os("TREFOIL_UPDATE_DOCS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, expected, "set TREFOIL_UPDATE_DOCS=1 to write the tables");
}

#[test]
fn the_documents_have_the_tables() {
    let sections = [
        ("uses", uses_table()),
        ("permits", permits_table()),
        ("matchers", matchers()),
        ("preconditions", preconditions_table()),
    ];
    check_sections(README, &sections);
    let (settings, members) = (profile_table(&SETTINGS), profile_table(&MEMBERS));
    let coverage = catalogue::coverage(&Specification::load().unwrap()).unwrap();
    check_sections(COVERAGE, &[("coverage", coverage)]);
    check_sections(PROFILES, &[("settings", settings), ("members", members), ("ready", ready_table())]);
}

#[test]
fn ready_profiles_are_valid() {
    for (name, text) in profile::READY {
        // The tests have no tokens of other servers.
        let text = text.replace("env:", "");
        Profile::from_toml(&text, Path::new(".")).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
}

/// Checks that the examples in the README are valid rows, because readers copy them.
#[test]
fn the_examples_in_the_readme_are_valid_rows() {
    let text = std::fs::read_to_string(README).unwrap();
    let blocks: Vec<_> =
        text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let (servers, blocks): (Vec<_>, Vec<_>) =
        blocks.into_iter().partition(|block| block.starts_with("[[server]]"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("board.toml");
    std::fs::write(&file, servers.concat()).unwrap();
    assert_eq!(BoardConfig::read(&file).unwrap().servers.len(), 1);
    assert_eq!(blocks.len(), 4);
    let operation = format!("[[case]]\nid = \"a/b/c/d\"\ncovers = [\"a/b/c\"]\n{}", blocks[2]);
    for block in [blocks[0], blocks[1], &operation] {
        Specification::default().add("README.md", block).unwrap();
    }
}
