//! Which members of the profile would let more cases run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::missing_members::missing_members;
use super::selection::Selection;
use crate::environment::TestEnvironment;
use crate::spec::Specification;

/// Members of the profile with which more cases would run.
#[derive(Debug, Default)]
pub struct ProfileAdditions(Vec<(BTreeSet<String>, usize)>);

impl ProfileAdditions {
    /// The members that the selected cases lack, with the number of cases; the largest number is first.
    pub fn of(spec: &Specification, selection: &Selection, environment: &TestEnvironment) -> Self {
        let mut counts: BTreeMap<BTreeSet<String>, usize> = BTreeMap::new();
        for case in selection.cases(spec) {
            if environment.local.is_some() || selection.other_skip_reason(spec, case, environment).is_some() {
                continue;
            }
            let missing = missing_members(case, &environment.target);
            // A member that the profile has in part is named with the part that it lacks.
            let members = missing.iter().map(|path| match path.split_once('.') {
                Some((member, _)) if !environment.target.profile.contains_key(member) => member,
                _ => path.as_str(),
            });
            let members: BTreeSet<_> = members.map(str::to_owned).collect();
            if !members.is_empty() {
                *counts.entry(members).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self(counts)
    }
}

impl fmt::Display for ProfileAdditions {
    /// Writes a line for each set of members; nothing if the profile lacks no member.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        writeln!(f, "complete these members of the profile to run more cases:")?;
        for (members, count) in &self.0 {
            let members: Vec<&str> = members.iter().map(String::as_str).collect();
            let cases = if *count == 1 { "case" } else { "cases" };
            writeln!(f, "{count:>6} {cases:<5}  {}", members.join(", "))?;
        }
        Ok(())
    }
}
