//! The line of a terminal that shows the progress of a run: how far it is, verdicts, times and the current
//! section.

use std::io::{IsTerminal as _, stderr, stdout};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};

use crate::run::verdict::{CaseOutcome, RunSummary};

/// The section has the rest of the line, and is cut off where the terminal ends.
const TEMPLATE: &str = "{bar:12} {pos}/{len}  {prefix}  {elapsed}, {eta} left  {wide_msg}";

/// Colour of a verdict: one of the 16 that every terminal has, in the shade of its theme.
pub fn verdict_style(verdict: &str) -> Style {
    match verdict {
        "pass" => AnsiColor::Green.on_default(),
        "fail" => AnsiColor::Red.on_default(),
        "inconclusive" => AnsiColor::Yellow.on_default(),
        "skip" => Style::new().dimmed(),
        _ => Style::new(),
    }
}

/// The line. It is written to standard error.
pub struct LiveLine {
    bar: ProgressBar,
    has_colour: bool,
    summary: RunSummary,
}

impl LiveLine {
    /// A line that is not shown.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), has_colour: false, summary: RunSummary::default() }
    }

    /// The line of this process, which is hidden unless its output is a terminal.
    pub fn of_process() -> Self {
        if !stdout().is_terminal() || !stderr().is_terminal() {
            return Self::hidden();
        }
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a valid constant");
        let bar = ProgressBar::new(0).with_style(style.progress_chars("=> "));
        let has_colour = AutoStream::choice(&stderr()) != ColorChoice::Never;
        Self { bar, has_colour, summary: RunSummary::default() }
    }

    /// Begins a run of `cases` cases.
    pub fn start(&self, cases: usize) {
        self.bar.set_length(cases as u64);
        self.bar.set_prefix(counts(&self.summary, self.has_colour));
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// Adds a case.
    pub fn add(&mut self, outcome: &CaseOutcome) {
        self.summary.count(&outcome.verdict);
        self.bar.set_prefix(counts(&self.summary, self.has_colour));
        self.bar.set_message(outcome.section().to_owned());
        self.bar.inc(1);
    }

    /// Runs `print`, which writes to standard output, while the line is removed.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the line.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The numbers of cases that passed, and of those with another verdict that occurred.
fn counts(summary: &RunSummary, has_colour: bool) -> String {
    let RunSummary { passed, failed, gaps, skipped, inconclusive } = *summary;
    let all = [
        ("pass", passed),
        ("fail", failed),
        ("gap", gaps),
        ("inconclusive", inconclusive),
        ("skip", skipped),
    ];
    let parts = all.into_iter().filter(|(verdict, count)| *verdict == "pass" || *count > 0);
    let texts = parts.map(|(verdict, count)| match has_colour {
        true => {
            let style = verdict_style(verdict);
            format!("{style}{count} {verdict}{style:#}")
        }
        false => format!("{count} {verdict}"),
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_name_the_verdicts_that_occurred() {
        let summary = RunSummary { passed: 12, failed: 1, skipped: 3, ..RunSummary::default() };
        assert_eq!(counts(&summary, false), "12 pass 1 fail 3 skip");
        assert_eq!(counts(&RunSummary::default(), false), "0 pass");
        let coloured = "\u{1b}[32m12 pass\u{1b}[0m \u{1b}[31m1 fail\u{1b}[0m \u{1b}[2m3 skip\u{1b}[0m";
        assert_eq!(counts(&summary, true), coloured);
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
