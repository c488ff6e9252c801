//! Report for CI servers: JUnit XML with one `testsuite` per section, written at the end of a run.

use std::io::Write;

use crate::run::verdict::{CaseOutcome, ShownExchange, Verdict};
use crate::run::{RunEvent, RunListener};

/// Writes the report to `W`.
pub struct JunitReport<W> {
    out: W,
    outcomes: Vec<CaseOutcome>,
}

impl<W: Write> JunitReport<W> {
    /// Returns a listener that writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, outcomes: Vec::new() }
    }

    fn end(&mut self) -> std::io::Result<()> {
        let out = &mut self.out;
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"trefoil-conformance\">"
        )?;
        let mut sections: Vec<&str> = self.outcomes.iter().map(CaseOutcome::section).collect();
        let mut seen = std::collections::BTreeSet::new();
        sections.retain(|section| seen.insert(*section));
        for section in sections {
            let cases: Vec<_> = self.outcomes.iter().filter(|outcome| outcome.section() == section).collect();
            let count = |fits: fn(&Verdict) -> bool| cases.iter().filter(|case| fits(&case.verdict)).count();
            let failed = count(|verdict| matches!(verdict, Verdict::Fail(_)));
            let skipped = count(|verdict| matches!(verdict, Verdict::Skip { .. } | Verdict::Gap { .. }));
            let errors = count(|verdict| matches!(verdict, Verdict::Inconclusive { .. }));
            let (section, tests) = (escaped(section), cases.len());
            writeln!(
                out,
                "  <testsuite name=\"{section}\" tests=\"{tests}\" failures=\"{failed}\" errors=\"{errors}\" \
                 skipped=\"{skipped}\">"
            )?;
            for case in cases {
                write_case(out, &section, case)?;
            }
            writeln!(out, "  </testsuite>")?;
        }
        writeln!(out, "</testsuites>")?;
        out.flush()
    }
}

fn write_case(out: &mut impl Write, section: &str, case: &CaseOutcome) -> std::io::Result<()> {
    let (id, seconds, ms) = (escaped(&case.id), case.took_ms / 1000, case.took_ms % 1000);
    write!(out, "    <testcase classname=\"{section}\" name=\"{id}\" time=\"{seconds}.{ms:03}\"")?;
    match &case.verdict {
        Verdict::Pass => writeln!(out, "/>"),
        Verdict::Fail(failure) => {
            let message = escaped(&failure.differences.join("; "));
            let texts = failure
                .exchanges
                .iter()
                .map(|ShownExchange { request, answer }| format!("{request}\n\n{answer}"));
            let detail = escaped(&texts.collect::<Vec<_>>().join("\n\n"));
            writeln!(out, ">\n      <failure message=\"{message}\">{detail}</failure>\n    </testcase>")
        }
        Verdict::Inconclusive { reason } => {
            writeln!(out, ">\n      <error message=\"{}\"/>\n    </testcase>", escaped(reason))
        }
        Verdict::Gap { reason } | Verdict::Skip { reason } => {
            writeln!(out, ">\n      <skipped message=\"{}\"/>\n    </testcase>", escaped(reason))
        }
    }
}

/// Escapes a text for XML, and omits characters that XML cannot contain.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

impl<W: Write> RunListener for JunitReport<W> {
    fn hear(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Start(_) => {}
            RunEvent::Case(outcome) => self.outcomes.push((*outcome).clone()),
            RunEvent::End(_) => drop(self.end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_junit_report_is_complete() {
        let mut text = Vec::new();
        crate::report::trial::tell(&mut JunitReport::new(&mut text));
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
