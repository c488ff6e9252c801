//! What must hold of the tables themselves: unique ids, live references, no requirement without a
//! case, sorted rows. Unknown keys are refused when a table is read.

use std::collections::BTreeSet;

use super::{FILES, Spec};
use crate::world::givens;

/// Everything that is wrong with the tables; empty when all is well.
pub fn faults(spec: &Spec) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    let all = spec.requirements.iter().map(|r| &r.id).chain(spec.cases.iter().map(|c| &c.id));
    for id in all {
        if !ids.insert(id.as_str()) {
            faults.push(format!("{id} stands twice"));
        }
        if id.split('/').count() < 3 || id.split('/').any(str::is_empty) {
            faults.push(format!("{id} does not name spec, section and slug"));
        }
    }
    let known: BTreeSet<_> = spec.requirements.iter().map(|r| r.id.as_str()).collect();
    let mut covered = BTreeSet::new();
    for case in &spec.cases {
        for requirement in &case.covers {
            if !known.contains(requirement.as_str()) {
                faults.push(format!("{} covers {requirement}, which does not exist", case.id));
            }
            covered.insert(requirement.as_str());
        }
        let first = case.covers.first().map(|id| format!("{id}/"));
        if !first.is_some_and(|first| case.id.starts_with(&first)) {
            faults.push(format!("{} does not begin with the first requirement that it covers", case.id));
        }
        if !case.is_well_formed() {
            faults.push(format!("{} needs either request and expect, or steps", case.id));
        }
        for given in &case.given {
            if !givens::NAMES.contains(&given.as_str()) {
                faults.push(format!("{} is given '{given}', which nobody can make", case.id));
            }
        }
    }
    for name in givens::NAMES {
        if !spec.cases.iter().any(|case| case.given.iter().any(|given| given == name)) {
            faults.push(format!("no case is given '{name}'"));
        }
    }
    for requirement in &spec.requirements {
        if !covered.contains(requirement.id.as_str()) {
            faults.push(format!("{} has no case", requirement.id));
        }
    }
    for gap in &spec.gaps {
        if !spec.cases.iter().any(|case| case.id == gap.case) {
            faults.push(format!("gaps.toml names {}, which does not exist", gap.case));
        }
        if gap.reason.trim().is_empty() {
            faults.push(format!("gaps.toml gives no reason for {}", gap.case));
        }
    }
    for (file, text) in FILES {
        faults.extend(unsorted(text).map(|id| format!("{file}: {id} stands before its place")));
    }
    faults
}

/// Ids that stand before a smaller one. Parts are compared one by one, so that a requirement is
/// followed by its cases.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_order() {
        let spec = Spec::load().unwrap();
        let faults = faults(&spec);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(spec.requirements.len() > 150, "{} requirements", spec.requirements.len());
    }

    #[test]
    fn every_file_is_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/specs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                name == "gaps.toml" || FILES.iter().any(|(file, _)| *file == name),
                "{name} is not in the list of tables"
            );
        }
    }

    #[test]
    fn rows_out_of_order_are_named() {
        let text = "id = \"a/b/c\"\nid = \"a/b/c/x\"\nid = \"a/b/c-d\"\nid = \"a/b/b\"\n";
        assert_eq!(unsorted(text).collect::<Vec<_>>(), ["a/b/c-d"]);
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text =
            "[[case]]\nid = \"a/b/c\"\ncovers = []\nrequest = { path = \"/\" }\nexpect = { statsu = 200 }\n";
        let error = toml::from_str::<super::super::Table>(text).unwrap_err().to_string();
        assert!(error.contains("statsu"), "{error}");
    }
}
