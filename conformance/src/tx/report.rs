//! Report of a run of the suite: a table by suite and operation, the first difference of every failed test
//! and, if requested, a JSON file.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::OPERATIONS;
use super::contradictions::Contradiction;
use super::outcome::{TestOutcome, Verdict};

/// Results of a run.
#[derive(Debug)]
pub struct SuiteReport {
    /// Name of the server's software.
    pub software: String,
    /// Version of the server's software.
    pub version: String,
    /// FHIR version that the server implements.
    pub fhir_version: String,
    /// Modes of the run.
    pub modes: BTreeSet<String>,
    /// Outcomes of all tests, in the order of the suite.
    pub outcomes: Vec<TestOutcome>,
    /// Total duration.
    pub took: Duration,
}

/// Number of tests by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResultSum {
    /// Number of tests that passed.
    pub passed: usize,
    /// Number of tests that failed because of the server.
    pub failed: usize,
    /// Number of tests that failed because of the suite's own contradictions.
    pub contradictory: usize,
    /// Number of tests of operations that the server does not offer.
    pub not_offered: usize,
    /// Number of other tests that were not run.
    pub skipped: usize,
}

impl ResultSum {
    fn of<'o>(outcomes: impl Iterator<Item = &'o TestOutcome>) -> Self {
        let mut sum = Self::default();
        for outcome in outcomes {
            match outcome.verdict {
                Verdict::Pass(_) => sum.passed += 1,
                Verdict::Fail(_) => sum.failed += 1,
                Verdict::Contradiction(_) => sum.contradictory += 1,
                Verdict::NotOffered => sum.not_offered += 1,
                Verdict::Skip(_) => sum.skipped += 1,
            }
        }
        sum
    }
}

impl fmt::Display for ResultSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.pad("-");
        }
        let Self { passed, failed, contradictory, not_offered, skipped } = self;
        f.pad(&format!("{passed}/{failed}/{contradictory}/{not_offered}/{skipped}"))
    }
}

impl SuiteReport {
    /// The counts of an operation, or of all operations.
    pub fn sum(&self, operation: Option<&str>) -> ResultSum {
        ResultSum::of(self.outcomes.iter().filter(|one| operation.is_none_or(|name| one.operation == name)))
    }

    /// The operations of the tests, in the order of the suite.
    pub fn operations(&self) -> Vec<&'static str> {
        let tried = |name: &&str| self.outcomes.iter().any(|one| one.operation == **name);
        OPERATIONS.iter().map(|operation| operation.name).filter(tried).collect()
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let sum = |sum: ResultSum| {
            json!({
                "passed": sum.passed, "failed": sum.failed, "contradictory": sum.contradictory,
                "notOffered": sum.not_offered, "skipped": sum.skipped,
            })
        };
        let operations = self.operations();
        let mut totals: serde_json::Map<_, _> =
            operations.iter().map(|name| ((*name).to_owned(), sum(self.sum(Some(name))))).collect();
        totals.insert("all".to_owned(), sum(self.sum(None)));
        let tests = self.outcomes.iter().map(|one| {
            let mut test = json!({ "suite": one.suite, "test": one.test, "operation": one.operation });
            match &one.verdict {
                Verdict::Pass(notes) => {
                    test["status"] = "pass".into();
                    if !notes.is_empty() {
                        test["warnings"] = json!(notes);
                    }
                }
                Verdict::Fail(difference) => {
                    test["status"] = "fail".into();
                    test["diff"] = json!(difference);
                }
                Verdict::Contradiction(contradiction) => {
                    test["status"] = "contradiction".into();
                    test["diff"] = json!(contradiction.difference);
                    test["why"] = json!(contradiction.reason);
                }
                Verdict::NotOffered => test["status"] = "not-offered".into(),
                Verdict::Skip(reason) => {
                    test["status"] = "skip".into();
                    test["why"] = json!(reason);
                }
            }
            if let Some(status) = one.status {
                test["http"] = json!(status.as_u16());
                test["ms"] = json!(one.took.as_millis() as u64);
            }
            test
        });
        json!({
            "server": { "software": self.software, "version": self.version, "fhirVersion": self.fhir_version },
            "modes": self.modes,
            "totals": totals,
            "tests": tests.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes: Vec<_> = self.modes.iter().map(String::as_str).collect();
        let (count, seconds) = (self.outcomes.len(), self.took.as_secs_f32());
        writeln!(
            f,
            "{} {}, FHIR {}, modes {}: {count} tests in {seconds:.1} s",
            self.software,
            self.version,
            self.fhir_version,
            modes.join("+")
        )?;
        let operations = self.operations();
        let mut suites: Vec<&str> = Vec::new();
        for one in &self.outcomes {
            if !suites.contains(&one.suite.as_str()) {
                suites.push(&one.suite);
            }
        }
        let width = suites.iter().map(|name| name.len()).max().unwrap_or_default().max(5);
        write!(f, "{:width$}", "suite")?;
        for name in operations.iter().chain([&"all"]) {
            write!(f, " {name:>16}")?;
        }
        writeln!(f, "   passed/failed/suite/not offered/left out")?;
        for suite in suites.iter().map(Some).chain([None]) {
            let of_suite = || self.outcomes.iter().filter(|one| suite.is_none_or(|name| one.suite == **name));
            write!(f, "{:width$}", suite.unwrap_or(&"ALL"))?;
            for name in &operations {
                write!(f, " {:>16}", ResultSum::of(of_suite().filter(|one| one.operation == *name)))?;
            }
            writeln!(f, " {:>16}", ResultSum::of(of_suite()))?;
        }
        for TestOutcome { suite, test, operation, verdict, .. } in &self.outcomes {
            match verdict {
                Verdict::Fail(difference) => writeln!(f, "FAIL  {suite}/{test} [{operation}] {difference}")?,
                Verdict::Contradiction(Contradiction { difference, reason, .. }) => {
                    writeln!(f, "SUITE {suite}/{test} [{operation}] {difference}: {reason}")?;
                }
                _ => {}
            }
        }
        let ResultSum { passed, failed, contradictory, not_offered, skipped } = self.sum(None);
        write!(
            f,
            "{passed} passed, {failed} failed because of the server, {contradictory} because of the suite, \
             {not_offered} not offered, {skipped} left out"
        )
    }
}

/// The report of an invented run.
#[cfg(test)]
pub(super) fn invented() -> SuiteReport {
    let outcome = |suite: &str, operation: &str, verdict| TestOutcome {
        suite: suite.to_owned(),
        test: "t".to_owned(),
        operation: operation.to_owned(),
        verdict,
        status: Some(http::StatusCode::OK),
        took: Duration::from_millis(3),
    };
    SuiteReport {
        software: "Other".to_owned(),
        version: "1".to_owned(),
        fhir_version: "4.0.1".to_owned(),
        modes: BTreeSet::from(["general".to_owned()]),
        outcomes: vec![
            outcome("a", "validate-code", Verdict::Pass(Vec::new())),
            outcome("a", "validate-code", Verdict::Fail("x: expected 1, got 2".to_owned())),
            outcome("a", "expand", Verdict::Contradiction(&super::contradictions::CONTRADICTIONS[0])),
            outcome("b", "expand", Verdict::NotOffered),
            outcome("b", "expand", Verdict::Skip("disabled in the suite".to_owned())),
        ],
        took: Duration::from_millis(1500),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_file_agree() {
        let (report, known) = (invented(), &super::super::contradictions::CONTRADICTIONS[0]);
        assert_eq!(
            report.to_string(),
            "Other 1, FHIR 4.0.1, modes general: 5 tests in 1.5 s\n\
             suite           expand    validate-code              all   passed/failed/suite/not offered/left out\n\
             a            0/0/1/0/0        1/1/0/0/0        1/1/1/0/0\n\
             b            0/0/0/1/1                -        0/0/0/1/1\n\
             ALL          0/0/1/1/1        1/1/0/0/0        1/1/1/1/1\n\
             FAIL  a/t [validate-code] x: expected 1, got 2\n\
             SUITE a/t [expand] CONTRADICTION\n\
             1 passed, 1 failed because of the server, 1 because of the suite, 1 not offered, 1 left out"
                .replace("CONTRADICTION", &format!("{}: {}", known.difference, known.reason))
        );
        let json = report.json();
        assert_eq!(
            json["totals"]["all"],
            json!({ "passed": 1, "failed": 1, "contradictory": 1, "notOffered": 1, "skipped": 1 })
        );
        assert_eq!(json["tests"][1]["diff"], "x: expected 1, got 2");
    }
}
