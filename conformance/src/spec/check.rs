//! Rules for the tables themselves: unique ids, valid references, a case for each requirement, sorted rows.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{Case, Step};
use super::expectation::Expectation;
use super::uses::{self, Feature, Use};
use super::{FILES, Specification};

/// Maximum length of a line in a table, in columns.
const LINE_COLUMNS: usize = 160;

/// All faults of the tables.
pub fn table_faults(spec: &Specification) -> Vec<String> {
    let mut faults = faults_of_rows(spec);
    for gap in &spec.gaps {
        if !spec.cases.iter().any(|case| case.id == gap.case) {
            faults.push(format!("gaps.toml names {}, which does not exist", gap.case));
        }
        if gap.reason.trim().is_empty() {
            faults.push(format!("gaps.toml has no reason for {}", gap.case));
        }
    }
    for (file, text) in FILES {
        faults
            .extend(unsorted(text).map(|id| format!("{file}: {id} must come later: rows are sorted by id")));
        for (line, _) in long_lines(text) {
            faults.push(format!("{file}:{line} has more than {LINE_COLUMNS} columns"));
        }
    }
    faults
}

/// The faults of requirements and cases, wherever their tables are.
pub fn faults_of_rows(spec: &Specification) -> Vec<String> {
    let mut faults = Vec::new();
    check_ids(spec, &mut faults);
    check_requirements(spec, &mut faults);
    check_cases(spec, &mut faults);
    faults
}

fn check_ids(spec: &Specification, faults: &mut Vec<String>) {
    let mut ids = BTreeSet::new();
    for id in spec.requirements.iter().map(|r| &r.id).chain(spec.cases.iter().map(|c| &c.id)) {
        if !ids.insert(id.as_str()) {
            faults.push(format!("two rows have the id {id}"));
        }
        if id.split('/').count() < 3 || id.split('/').any(str::is_empty) {
            faults.push(format!("{id} does not name specification, section and slug"));
        }
    }
}

/// Words that hide the server, the endpoint or the client that a gist is about.
const HIDING_WORDS: [&str; 8] =
    ["nobody", "everybody", "somebody", "whoever", "nothing", "told", "tells", "says"];
/// Words with which no gist begins, because its subject would come later.
const LATE_SUBJECTS: [&str; 6] = ["What", "Whose", "Those", "It", "They", "There"];

/// The reason why testers of other servers cannot read a gist without the code; `None` if they can.
fn gist_fault(gist: &str) -> Option<String> {
    let mut words = gist.split(|c: char| !c.is_alphanumeric() && c != '_');
    if let Some(first) = LATE_SUBJECTS.iter().find(|word| gist.split(' ').next() == Some(word)) {
        return Some(format!(
            "the gist begins with '{first}'; begin with the server, the endpoint or the value"
        ));
    }
    if let Some(word) = words.find(|word| HIDING_WORDS.contains(&word.to_lowercase().as_str())) {
        return Some(format!("the gist has the word '{word}'; name the server, the client or the member"));
    }
    (!gist.ends_with('.')).then(|| "the gist does not end with a full stop".to_owned())
}

fn check_requirements(spec: &Specification, faults: &mut Vec<String>) {
    let covered: BTreeSet<_> = spec.cases.iter().flat_map(|case| &case.covers).collect();
    for requirement in &spec.requirements {
        if !covered.contains(&requirement.id) {
            faults.push(format!("{} has no case", requirement.id));
        }
        if let Some(fault) = gist_fault(&requirement.gist) {
            faults.push(format!("{}: {fault}", requirement.id));
        }
        if requirement.standard.is_some() == requirement.house.is_some() {
            faults.push(format!("{} needs either 'standard' or 'house'", requirement.id));
        }
    }
}

/// Maximum number of requirements that one expectation can show.
const SHOWN_AT_ONCE: usize = 4;

/// Checks that a case shows each requirement by an expectation, and not more of them than one can assert.
fn check_assertions(case: &Case, faults: &mut Vec<String>) {
    let of_steps: BTreeSet<_> = case.steps.iter().flat_map(|step| &step.covers).collect();
    let of_case = case.covers.iter().filter(|id| !of_steps.contains(id)).count();
    for count in case.steps.iter().map(|step| step.covers.len()).chain([of_case]) {
        if count > SHOWN_AT_ONCE {
            faults.push(format!(
                "{} shows {count} requirements at once: name them at the steps that show them, or add cases",
                case.id
            ));
        }
    }
    let asserts =
        |step: &Step| step.expect.is_stated() || step.house.as_ref().is_some_and(Expectation::is_stated);
    let is_silent = |step: &&Step| !step.covers.is_empty() && !asserts(step);
    if case.steps.iter().any(|step| is_silent(&step)) || !case.steps.iter().any(asserts) {
        faults.push(format!("{} shows a requirement without an expectation", case.id));
    }
}

fn check_cases(spec: &Specification, faults: &mut Vec<String>) {
    let requirement_ids: BTreeSet<_> = spec.requirements.iter().map(|r| r.id.as_str()).collect();
    for case in &spec.cases {
        for requirement in case.covers.iter().filter(|id| !requirement_ids.contains(id.as_str())) {
            faults.push(format!("{} covers {requirement}, which does not exist", case.id));
        }
        check_assertions(case, faults);
        let may_write = case.uses.contains(&Use::Feature(Feature::Writes));
        if !may_write && case.steps.iter().any(|step| uses::changes_data(&step.request)) {
            faults.push(format!("{} changes data of the server: add 'writes' to its 'uses'", case.id));
        }
        let first = case.covers.first().map(|id| format!("{id}/"));
        if !first.is_some_and(|first| case.id.starts_with(&first)) {
            faults.push(format!("{} does not begin with the first requirement that it covers", case.id));
        }
        for name in &case.given {
            if !spec.preconditions.iter().any(|precondition| precondition.name == *name) {
                faults.push(format!(
                    "{} uses the precondition '{name}', which preconditions.toml does not contain",
                    case.id
                ));
            }
        }
    }
    check_equal_cases(spec, faults);
    for precondition in &spec.preconditions {
        if !spec.cases.iter().any(|case| case.given.contains(&precondition.name)) {
            faults.push(format!("precondition '{}' is not used by any case", precondition.name));
        }
    }
}

/// Checks that no case has the precondition, the requests and the expectations of another one.
fn check_equal_cases(spec: &Specification, faults: &mut Vec<String>) {
    let mut by_content = BTreeMap::new();
    for case in &spec.cases {
        let mut members: toml::Table = toml::from_str(&case.row).unwrap_or_default();
        for own in ["id", "covers"] {
            members.remove(own);
        }
        if let Some(other) = by_content.insert(members.to_string(), &case.id) {
            faults
                .push(format!("{} equals {other}; name both requirements in 'covers' of one case", case.id));
        }
    }
}

/// The ids that precede a smaller id. Ids are compared part by part, so that the cases of a requirement
/// follow it.
fn unsorted(text: &str) -> impl Iterator<Item = &str> {
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id"))
        .filter_map(|rest| rest.trim_start().strip_prefix('='))
        .map(|rest| rest.trim().trim_matches('"'))
        .collect();
    let misplaced: Vec<&str> =
        ids.windows(2).filter(|pair| pair[0].split('/').gt(pair[1].split('/'))).map(|pair| pair[0]).collect();
    misplaced.into_iter()
}

/// The lines that are too long, with their numbers.
fn long_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > LINE_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_no_faults() {
        let spec = Specification::load().unwrap();
        let faults = table_faults(&spec);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(spec.requirements.len() > 150, "{} requirements", spec.requirements.len());
    }

    #[test]
    fn every_file_is_in_the_list_of_tables() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/specs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                matches!(name.as_str(), "gaps.toml" | "preconditions.toml" | "catalogue.toml" | "fixtures")
                    || FILES.iter().any(|(file, _)| *file == name),
                "{name} is not in the list of tables"
            );
        }
    }

    #[test]
    fn gists_name_their_subject() {
        for (gist, fault) in [
            ("The token endpoint accepts a code only once.", None),
            ("It is left out of the response.", Some("begins with 'It'")),
            ("The client is told the error.", Some("the word 'told'")),
            ("The token endpoint returns nothing.", Some("the word 'nothing'")),
            ("The server refuses it", Some("a full stop")),
        ] {
            let actual = gist_fault(gist);
            assert_eq!(actual.is_some(), fault.is_some(), "{gist}: {actual:?}");
            assert!(fault.is_none_or(|part| actual.unwrap().contains(part)), "{gist}");
        }
    }

    #[test]
    fn unsorted_rows_are_reported() {
        let text = "id = \"a/b/c\"\nid = \"a/b/c/x\"\nid = \"a/b/c-d\"\nid = \"a/b/b\"\n";
        assert_eq!(unsorted(text).collect::<Vec<_>>(), ["a/b/c-d"]);
    }

    #[test]
    fn invalid_rows_are_reported() {
        #[track_caller]
        fn check(case: &str, expected: &str) {
            let text = format!("\n[[case]]\nid = \"a/b/c\"\ncovers = []\n{case}");
            let error = Specification::default().add("x.toml", &text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        check("request = { get = \"/\" }\nexpect = { statsu = 200 }", "statsu");
        check(
            "request = { get = \"/\" }\nexpct = { status = 200 }",
            "x.toml:3: a/b/c: 'expct' is not a member",
        );
        check("request = { get = \"/\", post = \"/\" }\nexpect = {}", "a request has one method");
        check("request = { get = \"/\" }", "a step needs 'expect', 'out', 'error' or 'house'");
        check("op = \"ValueSet/$expand\"\nwith = [\"nothing\"]\nout = {}", "no resource 'nothing'");
        check("op = \"X/$lookup\"\nin = { odd = \"a\" }\nout = {}", "the type of 'odd' is not known");
    }
}
