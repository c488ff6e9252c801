//! Statement of compliance: what was tested and with which result, as a Markdown text that a maker can
//! publish.

use std::fmt::Write as _;

use jiff::civil::Date;

use super::outcome::Verdict;
use super::report::{ResultSum, SuiteReport};

/// The statement for a run on `date` against the server at `target`.
pub fn statement(report: &SuiteReport, target: &str, date: Date) -> String {
    let modes: Vec<_> = report.modes.iter().map(String::as_str).collect();
    let sum = report.sum(None);
    let all = sum.passed + sum.failed;
    let result = if sum.failed == 0 { "passes" } else { "does not pass" };
    let mut text = format!(
        "# Statement of compliance\n\n\
         {} {} {result} HL7's terminology ecosystem tests: {} of {all} tests passed.\n\n\
         | | |\n|---|---|\n\
         | server | {target} |\n| FHIR version | {} |\n| modes | {} |\n| date | {date} |\n\
         | tested with | trefoil-conformance {} |\n| tests that contradict the suite | {} |\n\
         | tests of operations that are not offered | {} |\n| tests left out | {} |\n\n\
         | operation | passed | failed | contradictory | not offered | left out |\n|---|---|---|---|---|---|\n",
        report.software,
        report.version,
        sum.passed,
        report.fhir_version,
        modes.join(", "),
        env!("CARGO_PKG_VERSION"),
        sum.contradictory,
        sum.not_offered,
        sum.skipped,
    );
    for operation in report.operations() {
        let ResultSum { passed, failed, contradictory, not_offered, skipped } = report.sum(Some(operation));
        let _ = writeln!(
            text,
            "| {operation} | {passed} | {failed} | {contradictory} | {not_offered} | {skipped} |"
        );
    }
    let failed: Vec<_> =
        report.outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Fail(_))).collect();
    if !failed.is_empty() {
        text.push_str("\nFailed:\n\n");
    }
    for outcome in failed {
        let _ = writeln!(text, "- {}/{}", outcome.suite, outcome.test);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_is_complete() {
        let report = crate::tx::report::invented();
        let statement = statement(&report, "https://tx.example/r4", jiff::civil::date(2026, 11, 23));
        insta::assert_snapshot!(statement.replace(env!("CARGO_PKG_VERSION"), "[version]"));
    }
}
