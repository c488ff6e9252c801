//! Report for the terminal: a line for each section, each failure with request, response and differences, and the
//! totals in the last line.

use std::collections::BTreeMap;
use std::io::Write;

use crate::run::{CaseFailure, CaseOutcome, RunEvent, RunListener, RunSummary, Verdict};

/// Writes the report to `W`.
pub struct TerminalReport<W> {
    out: W,
    sections: Vec<(String, usize, usize)>,
    failures: Vec<(String, CaseFailure)>,
    skipped: BTreeMap<String, usize>,
    gaps: Vec<(String, String)>,
}

impl<W: Write> TerminalReport<W> {
    /// Returns a listener that writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, sections: Vec::new(), failures: Vec::new(), skipped: BTreeMap::new(), gaps: Vec::new() }
    }

    fn case(&mut self, outcome: &CaseOutcome) {
        if let Verdict::Skip(reason) = &outcome.verdict {
            *self.skipped.entry(reason.clone()).or_default() += 1;
            return;
        }
        let place = match self.sections.iter().position(|(name, ..)| *name == outcome.section) {
            Some(place) => place,
            None => {
                self.sections.push((outcome.section.clone(), 0, 0));
                self.sections.len() - 1
            }
        };
        let (_, passed, total) = &mut self.sections[place];
        *total += 1;
        match &outcome.verdict {
            Verdict::Pass => *passed += 1,
            Verdict::Fail(failure) => self.failures.push((outcome.id.clone(), failure.clone())),
            Verdict::Gap(reason) => self.gaps.push((outcome.id.clone(), reason.clone())),
            Verdict::Skip(_) => {}
        }
    }

    /// Writes the end of the report. A closed terminal is not an error.
    fn end(&mut self, summary: RunSummary) -> std::io::Result<()> {
        let width = self.sections.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        let out = &mut self.out;
        for (name, passed, total) in &self.sections {
            let mark = if passed == total { "" } else { "  <" };
            writeln!(out, "{name:width$}  {passed:>3}/{total}{mark}")?;
        }
        for (id, failure) in &self.failures {
            writeln!(out, "\nFAILED {id}")?;
            if failure.step > 0 {
                writeln!(out, "  step {}\n  {}", failure.step, failure.request)?;
                failure.answer.lines().try_for_each(|line| writeln!(out, "  | {line}"))?;
            }
            failure.differences.iter().try_for_each(|difference| writeln!(out, "  - {difference}"))?;
        }
        for (id, reason) in &self.gaps {
            writeln!(out, "\ngap {id}: {reason}")?;
        }
        if !self.skipped.is_empty() {
            writeln!(out)?;
        }
        for (reason, count) in &self.skipped {
            writeln!(out, "{count} skipped: {reason}")?;
        }
        let more = |count: usize, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let RunSummary { passed, failed, gaps, skipped } = summary;
        writeln!(
            out,
            "\n{passed} passed, {failed} failed{}{}",
            more(gaps, "gaps"),
            more(skipped, "skipped")
        )?;
        out.flush()
    }
}

impl<W: Write> RunListener for TerminalReport<W> {
    fn hear(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Start { target, cases } => {
                let noun = if *cases == 1 { "case" } else { "cases" };
                drop(writeln!(self.out, "{cases} {noun} against {target}\n"));
            }
            RunEvent::Case(outcome) => self.case(outcome),
            RunEvent::End(summary) => drop(self.end(*summary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_report_is_complete() {
        let mut text = Vec::new();
        crate::report::trial::tell(&mut TerminalReport::new(&mut text));
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
