//! For people: one line a section, every failure with request, answer and difference, and a last
//! line with the sum.

use std::collections::BTreeMap;
use std::io::Write;

use crate::run::{Event, Failure, Listener, Outcome, Summary, Verdict};

/// Writes to anything that takes text.
pub struct Terminal<W> {
    out: W,
    sections: Vec<(String, usize, usize)>,
    failures: Vec<(String, Failure)>,
    skipped: BTreeMap<String, usize>,
    gaps: Vec<(String, String)>,
}

impl<W: Write> Terminal<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, sections: Vec::new(), failures: Vec::new(), skipped: BTreeMap::new(), gaps: Vec::new() }
    }

    fn case(&mut self, outcome: &Outcome) {
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

    /// The end of the report. A terminal that is gone is nobody's fault.
    fn end(&mut self, summary: Summary) -> std::io::Result<()> {
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
        let Summary { passed, failed, gaps, skipped } = summary;
        writeln!(
            out,
            "\n{passed} passed, {failed} failed{}{}",
            more(gaps, "gaps"),
            more(skipped, "skipped")
        )?;
        out.flush()
    }
}

impl<W: Write> Listener for Terminal<W> {
    fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Start { target, cases } => drop(writeln!(self.out, "{cases} cases against {target}\n")),
            Event::Case(outcome) => self.case(outcome),
            Event::End(summary) => drop(self.end(*summary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read() {
        let mut text = Vec::new();
        crate::report::trial::tell(&mut Terminal::new(&mut text));
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
