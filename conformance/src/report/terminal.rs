//! Report for the terminal: a line for each section as soon as it has ended, then each failure with
//! requirement, request, response and differences, the reasons of other verdicts, the slowest cases and the
//! next commands. The last line contains the totals.
//!
//! The text has colours; a stream that is not a terminal removes them.

use std::collections::BTreeMap;
use std::io::{Result, Stdout, Write};

use anstream::AutoStream;
use anstyle::Style;

use super::causes::{SharedCause, shared_causes};
use super::live_line::{LiveLine, verdict_style};
use super::record::RunRecord;
use crate::run::verdict::{CaseFailure, CaseOutcome, RunSummary, ShownExchange};
use crate::run::{RunEvent, RunListener};

/// Maximum number of lines of a response, and of columns of a line.
const LINES: usize = 40;
const COLUMNS: usize = 400;
/// Number of cases in the list of the slowest ones.
const SLOWEST: usize = 5;

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// Writes the report to `W`.
pub struct TerminalReport<W> {
    out: W,
    live: LiveLine,
    record: RunRecord,
    /// Cases by section that have ended.
    sections: BTreeMap<String, RunSummary>,
}

impl TerminalReport<AutoStream<Stdout>> {
    /// A listener that writes to the standard output of this process.
    pub fn of_process() -> Self {
        Self::new(anstream::stdout(), LiveLine::of_process())
    }
}

impl<W: Write> TerminalReport<W> {
    /// A listener that writes to `out`, and shows progress in `live`.
    pub fn new(out: W, live: LiveLine) -> Self {
        Self { out, live, record: RunRecord::default(), sections: BTreeMap::new() }
    }

    fn start(&mut self) -> Result<()> {
        let cases = self.record.cases();
        let noun = if cases == 1 { "case" } else { "cases" };
        let seed = self.record.seed.map(|seed| format!(" with --seed {seed}")).unwrap_or_default();
        self.live.start(cases);
        let text = format!("{cases} {noun} against {}{seed}\n", self.record.target);
        self.live.suspend(|| writeln!(self.out, "{text}"))
    }

    fn case(&mut self, outcome: &CaseOutcome) -> Result<()> {
        self.live.add(outcome);
        let summary = self.sections.entry(outcome.section().to_owned()).or_default();
        summary.count(&outcome.verdict);
        let summary = *summary;
        let section = self.record.sections.iter().find(|(name, _)| name == outcome.section());
        match section {
            Some((name, cases)) if summary.count_of_all() == *cases => {
                let line = section_line(name, width(&self.record), &summary);
                self.live.suspend(|| line.map_or(Ok(()), |line| writeln!(self.out, "{line}")))
            }
            _ => Ok(()),
        }
    }

    /// Writes the end of the report.
    fn end(&mut self) -> Result<()> {
        self.live.end();
        let Self { out, record, sections, .. } = self;
        // Sections that were interrupted.
        for (name, cases) in &record.sections {
            let summary = sections.get(name).filter(|summary| summary.count_of_all() < *cases);
            if let Some(line) = summary.and_then(|summary| section_line(name, width(record), summary)) {
                writeln!(out, "{line}")?;
            }
        }
        record.failures().try_for_each(|(outcome, failure)| write_failure(out, record, outcome, failure))?;
        write_causes(out, record)?;
        write_reasons(out, record)?;
        let slowest = record.slowest(SLOWEST);
        if !slowest.is_empty() {
            writeln!(out, "\nslowest cases")?;
        }
        for outcome in slowest {
            writeln!(out, "{:>6}.{:03} s  {}", outcome.took_ms / 1000, outcome.took_ms % 1000, outcome.id)?;
        }
        if !record.end.leftovers.is_empty() {
            writeln!(out)?;
        }
        for leftover in &record.end.leftovers {
            writeln!(out, "could not delete {leftover}")?;
        }
        if let Some(reason) = &record.end.lost {
            let style = verdict_style("fail");
            writeln!(out, "\n{style}{reason}{style:#}")?;
        }
        if let Some((outcome, _)) = record.failures().next() {
            let id = &outcome.id;
            writeln!(
                out,
                "\n{DIM}Show what a case sends and expects:{DIM:#}\n  trefoil-conformance explain {id}"
            )?;
            writeln!(out, "{DIM}Run it alone; add to the command:{DIM:#}\n  --only {id}")?;
        }
        let interrupted = if record.end.interrupted { ", interrupted" } else { "" };
        writeln!(out, "\n{}{interrupted}", coloured_summary(&record.end.summary))?;
        out.flush()
    }
}

/// The width of the longest name of a section.
fn width(record: &RunRecord) -> usize {
    record.sections.iter().map(|(name, _)| name.len()).max().unwrap_or_default()
}

/// The line of a section: how many of the cases that were not skipped have passed. `None` if all were
/// skipped.
fn section_line(name: &str, width: usize, summary: &RunSummary) -> Option<String> {
    let total = summary.count_of_all() - summary.skipped;
    let (style, mark) = match summary {
        RunSummary { failed: 1.., .. } => (verdict_style("fail"), "  <"),
        RunSummary { inconclusive: 1.., .. } => (verdict_style("inconclusive"), "  <"),
        RunSummary { passed, .. } if *passed < total => (Style::new(), "  <"),
        _ => (verdict_style("pass"), ""),
    };
    (total > 0).then(|| format!("{name:width$}  {style}{:>3}/{total}{mark}{style:#}", summary.passed))
}

fn write_failure(
    out: &mut impl Write,
    record: &RunRecord,
    outcome: &CaseOutcome,
    failure: &CaseFailure,
) -> Result<()> {
    let red = verdict_style("fail");
    let bold = red.bold();
    writeln!(out, "\n{bold}FAILED{bold:#} {BOLD}{}{BOLD:#}", outcome.id)?;
    for requirement in record.requirements_of(outcome) {
        let (level, kind, source) = (requirement.level.keyword(), requirement.kind(), requirement.source());
        writeln!(out, "  {level}, {kind}: {}\n  {DIM}{source}{DIM:#}", requirement.gist)?;
    }
    if let Some(ShownExchange { request, answer }) = failure.exchanges.last() {
        writeln!(out, "  step {}\n  {request}", failure.exchanges.len())?;
        shown_lines(answer).try_for_each(|line| writeln!(out, "  {DIM}|{DIM:#} {line}"))?;
    }
    failure.differences.iter().try_for_each(|difference| writeln!(out, "  {red}- {difference}{red:#}"))
}

/// Writes the causes that several failures share.
fn write_causes(out: &mut impl Write, record: &RunRecord) -> Result<()> {
    let causes = shared_causes(record);
    if !causes.is_empty() {
        writeln!(out, "\n{BOLD}failures that probably have one cause{BOLD:#}")?;
    }
    for SharedCause { address, difference, cases } in causes {
        writeln!(out, "{:>6} cases  {address}: {difference}", cases.len())?;
        writeln!(out, "              {DIM}such as {}{DIM:#}", cases[0])?;
    }
    Ok(())
}

/// Writes the reasons of gaps, and of cases that could not be tested or did not run.
fn write_reasons(out: &mut impl Write, record: &RunRecord) -> Result<()> {
    let gaps = record.outcomes.iter().filter(|outcome| outcome.verdict.name() == "gap");
    for (number, outcome) in gaps.enumerate() {
        let lead = if number == 0 { "\n" } else { "" };
        writeln!(out, "{lead}gap {}: {}", outcome.id, outcome.verdict.reason().unwrap_or_default())?;
    }
    for (verdict, word) in [("inconclusive", "inconclusive"), ("skip", "skipped")] {
        let style = verdict_style(verdict);
        let reasons = record.reasons(verdict);
        if !reasons.is_empty() {
            writeln!(out)?;
        }
        for (reason, count) in reasons {
            let reason = reason.trim_end().replace('\n', "\n  ");
            writeln!(out, "{style}{count} {word}: {reason}{style:#}")?;
        }
    }
    Ok(())
}

/// The totals, each in the colour of its verdict.
fn coloured_summary(summary: &RunSummary) -> String {
    let words =
        [("passed", "pass"), ("failed", "fail"), ("inconclusive", "inconclusive"), ("skipped", "skip")];
    let text = summary.to_string();
    let parts = text.split(", ").map(|part| {
        let verdict = words.iter().find(|(word, _)| part.ends_with(word)).filter(|_| !part.starts_with("0 "));
        let style = verdict.map(|(_, verdict)| verdict_style(verdict)).unwrap_or_default();
        format!("{style}{part}{style:#}")
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The first lines of a response, without the rest of long lines. The other reports contain all of it.
fn shown_lines(response: &str) -> impl Iterator<Item = String> {
    let count = response.lines().count();
    let lines = response.lines().take(LINES).map(|line| match line.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    });
    let more = (count > LINES).then(|| format!("… and {} more lines", count - LINES));
    lines.chain(more)
}

impl<W: Write> RunListener for TerminalReport<W> {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        self.record.add(event);
        // A closed terminal is not an error.
        drop(match event {
            RunEvent::Start(_) => self.start(),
            RunEvent::Case(outcome) => self.case(outcome),
            RunEvent::End(_) => self.end(),
        });
    }
}

#[cfg(test)]
mod tests {
    use anstream::StripStream;

    use super::*;
    use crate::report::trial;

    #[test]
    fn the_terminal_report_is_complete() {
        let mut text = Vec::new();
        trial::emit(&mut TerminalReport::new(StripStream::new(&mut text), LiveLine::hidden()));
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }

    #[test]
    fn the_coloured_terminal_report_is_complete() {
        let mut text = Vec::new();
        trial::emit(&mut TerminalReport::new(&mut text, LiveLine::hidden()));
        insta::assert_snapshot!(String::from_utf8(text).unwrap().replace('\u{1b}', "ESC"));
    }
}
