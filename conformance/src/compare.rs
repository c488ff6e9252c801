//! Compares the reports of two runs.

use std::collections::BTreeMap;
use std::fmt;

use crate::run::verdict::CaseOutcome;

/// Differences between two runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Cases that fail or cannot be tested in the second run only, with both verdicts.
    pub worse: Vec<(String, &'static str, &'static str)>,
    /// Cases that pass in the second run only.
    pub better: Vec<(String, &'static str, &'static str)>,
    /// Other cases whose verdicts differ, or that only one run has.
    pub other: Vec<(String, &'static str, &'static str)>,
}

/// Compares the outcomes of two runs.
pub fn compare(first: &[CaseOutcome], second: &[CaseOutcome]) -> Comparison {
    let by_id = |outcomes: &'_ [CaseOutcome]| -> BTreeMap<String, &'static str> {
        outcomes.iter().map(|outcome| (outcome.id.clone(), outcome.verdict.name())).collect()
    };
    let is_bad = |verdict: &str| matches!(verdict, "fail" | "inconclusive");
    let (first, second) = (by_id(first), by_id(second));
    let mut comparison = Comparison::default();
    let ids: std::collections::BTreeSet<_> = first.keys().chain(second.keys()).collect();
    for id in ids {
        let before = first.get(id).copied().unwrap_or("absent");
        let after = second.get(id).copied().unwrap_or("absent");
        let list = match (before, after) {
            (before, after) if before == after => continue,
            (_, after) if is_bad(after) => &mut comparison.worse,
            (_, "pass") => &mut comparison.better,
            _ => &mut comparison.other,
        };
        list.push((id.clone(), before, after));
    }
    comparison
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (title, list) in [("worse", &self.worse), ("better", &self.better), ("other", &self.other)] {
            for (id, before, after) in list {
                writeln!(f, "{title:6}  {id}: {before} -> {after}")?;
            }
        }
        let Self { worse, better, other } = self;
        write!(f, "{} worse, {} better, {} other changes", worse.len(), better.len(), other.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::verdict::{CaseFailure, Verdict};
    use crate::spec::requirement::Level;

    fn outcome(id: &str, verdict: Verdict) -> CaseOutcome {
        CaseOutcome { id: id.to_owned(), covers: Vec::new(), level: Level::Must, verdict, took_ms: 1 }
    }

    #[test]
    fn two_runs_are_compared_case_by_case() {
        let fail = || Verdict::Fail(CaseFailure::before("x"));
        let skip = || Verdict::Skip { reason: "y".to_owned() };
        let first =
            [outcome("a", Verdict::Pass), outcome("b", fail()), outcome("c", skip()), outcome("d", fail())];
        let second =
            [outcome("a", fail()), outcome("b", Verdict::Pass), outcome("d", fail()), outcome("e", skip())];
        let text = compare(&first, &second).to_string();
        let expected = "worse   a: pass -> fail\nbetter  b: fail -> pass\nother   c: skip -> absent\n\
                        other   e: absent -> skip\n1 worse, 1 better, 2 other changes";
        assert_eq!(text, expected);
    }
}
