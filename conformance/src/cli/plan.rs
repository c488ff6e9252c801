//! The plan of a run: the cases that would run, and why the others would not.

use std::collections::BTreeMap;
use std::io::{Write, stdout};

use crate::environment::TestEnvironment;
use crate::run::profile_additions::ProfileAdditions;
use crate::run::selection::Selection;
use crate::spec::Specification;

/// Prints which cases would run, which members of the profile others lack, and why the rest would not run.
pub fn show_plan(environment: &TestEnvironment, spec: &Specification, selection: &Selection) {
    let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
    let mut lacking = Vec::new();
    let mut out = stdout().lock();
    let mut plan = || -> std::io::Result<()> {
        let mut count = 0;
        for case in selection.cases(spec) {
            if let Some(reason) = selection.other_skip_reason(spec, case, environment) {
                *skipped.entry(reason).or_default() += 1;
            } else if let Some(reason) = selection.skip_reason(spec, case, environment) {
                lacking.push((case, reason));
            } else {
                count += 1;
                writeln!(out, "{}", case.id)?;
            }
        }
        if !lacking.is_empty() {
            writeln!(out)?;
        }
        for (case, reason) in &lacking {
            writeln!(out, "skipped {}: {reason}", case.id)?;
        }
        writeln!(out, "\n{count} cases would run against {}", environment.target.addresses.base_url)?;
        if !lacking.is_empty() {
            writeln!(out, "{} skipped: the profile lacks a member", lacking.len())?;
        }
        skipped.iter().try_for_each(|(reason, count)| writeln!(out, "{count} skipped: {reason}"))?;
        show_additions(&mut out, environment, spec, selection)
    };
    // A closed pipe is not an error.
    drop(plan());
}

/// Writes the members of the profile with which more cases would run.
pub fn show_additions(
    out: &mut impl Write,
    environment: &TestEnvironment,
    spec: &Specification,
    selection: &Selection,
) -> std::io::Result<()> {
    let additions = ProfileAdditions::of(spec, selection, environment).to_string();
    if additions.is_empty() { Ok(()) } else { write!(out, "\n{additions}") }
}
