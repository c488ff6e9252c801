//! Report for the terminal: a line for each section, each failure with request, response and differences, and the
//! totals in the last line.

use std::collections::BTreeMap;
use std::io::Write;

use crate::run::verdict::{CaseFailure, CaseOutcome, ShownExchange, Verdict};
use crate::run::{RunEnd, RunEvent, RunListener};

/// Maximum number of lines of a response, and of columns of a line.
const LINES: usize = 40;
const COLUMNS: usize = 400;

/// Writes the report to `W`.
pub struct TerminalReport<W> {
    out: W,
    sections: Vec<(String, usize, usize)>,
    failures: Vec<(String, CaseFailure)>,
    /// Number of cases by verdict and reason.
    reasons: BTreeMap<(&'static str, String), usize>,
}

impl<W: Write> TerminalReport<W> {
    /// Returns a listener that writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, sections: Vec::new(), failures: Vec::new(), reasons: BTreeMap::new() }
    }

    fn case(&mut self, outcome: &CaseOutcome) {
        if let Some(reason) = outcome.verdict.reason() {
            let key = match &outcome.verdict {
                Verdict::Gap { .. } => ("gap", format!("{}: {reason}", outcome.id)),
                verdict => (verdict.name(), reason.to_owned()),
            };
            *self.reasons.entry(key).or_default() += 1;
        }
        if matches!(outcome.verdict, Verdict::Skip { .. }) {
            return;
        }
        let section = outcome.section();
        let place = match self.sections.iter().position(|(name, ..)| *name == section) {
            Some(place) => place,
            None => {
                self.sections.push((section.to_owned(), 0, 0));
                self.sections.len() - 1
            }
        };
        let (_, passed, total) = &mut self.sections[place];
        *total += 1;
        match &outcome.verdict {
            Verdict::Pass => *passed += 1,
            Verdict::Fail(failure) => self.failures.push((outcome.id.clone(), failure.clone())),
            _ => {}
        }
    }

    /// Writes the end of the report. A closed terminal is not an error.
    fn end(&mut self, end: &RunEnd) -> std::io::Result<()> {
        let width = self.sections.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        let out = &mut self.out;
        for (name, passed, total) in &self.sections {
            let mark = if passed == total { "" } else { "  <" };
            writeln!(out, "{name:width$}  {passed:>3}/{total}{mark}")?;
        }
        for (id, failure) in &self.failures {
            writeln!(out, "\nFAILED {id}")?;
            if let Some(ShownExchange { request, answer }) = failure.exchanges.last() {
                writeln!(out, "  step {}\n  {request}", failure.exchanges.len())?;
                shown_lines(answer).try_for_each(|line| writeln!(out, "  | {line}"))?;
            }
            failure.differences.iter().try_for_each(|difference| writeln!(out, "  - {difference}"))?;
        }
        for verdict in ["gap", "inconclusive", "skip"] {
            let mut reasons = self.reasons.iter().filter(|((name, _), _)| *name == verdict).peekable();
            if reasons.peek().is_some() {
                writeln!(out)?;
            }
            for ((_, reason), count) in reasons {
                match verdict {
                    "gap" => writeln!(out, "gap {reason}")?,
                    "inconclusive" => writeln!(out, "{count} inconclusive: {reason}")?,
                    _ => writeln!(out, "{count} skipped: {reason}")?,
                }
            }
        }
        if !end.leftovers.is_empty() {
            writeln!(out)?;
        }
        for leftover in &end.leftovers {
            writeln!(out, "could not delete {leftover}")?;
        }
        if let Some(reason) = &end.lost {
            writeln!(out, "\n{reason}")?;
        }
        let interrupted = if end.interrupted { ", interrupted" } else { "" };
        writeln!(out, "\n{}{interrupted}", end.summary)?;
        out.flush()
    }
}

/// Returns the first lines of a response, without the rest of long lines. The other reports contain all of it.
fn shown_lines(answer: &str) -> impl Iterator<Item = String> {
    let count = answer.lines().count();
    let lines = answer.lines().take(LINES).map(|line| match line.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    });
    let more = (count > LINES).then(|| format!("… and {} more lines", count - LINES));
    lines.chain(more)
}

impl<W: Write> RunListener for TerminalReport<W> {
    fn hear(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Start(start) => {
                let noun = if start.cases == 1 { "case" } else { "cases" };
                let seed = start.seed.map(|seed| format!(" with --seed {seed}")).unwrap_or_default();
                drop(writeln!(self.out, "{} {noun} against {}{seed}\n", start.cases, start.target));
            }
            RunEvent::Case(outcome) => self.case(outcome),
            RunEvent::End(end) => drop(self.end(end)),
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
