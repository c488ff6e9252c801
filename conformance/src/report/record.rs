//! The record of a complete run, and the listener for formats that are written at its end.

use std::collections::BTreeMap;
use std::io::Write;

use jiff::Timestamp;

use crate::run::verdict::{CaseOutcome, Verdict};
use crate::run::{RunEnd, RunEvent, RunListener, RunStart};
use crate::spec::requirement::Requirement;

/// Everything that the events of a run state.
#[derive(Debug, Default)]
pub struct RunRecord {
    /// Version of the suite.
    pub suite: String,
    /// Base URL of the target.
    pub target: String,
    /// Time at which the run began.
    pub started: Timestamp,
    /// Seed of the order of the cases.
    pub seed: Option<u64>,
    /// Requirements that the cases test, in the order of the tables.
    pub requirements: Vec<Requirement>,
    /// Number of cases of each section, in the order of the run.
    pub sections: Vec<(String, usize)>,
    /// Outcomes in the order of the run.
    pub outcomes: Vec<CaseOutcome>,
    /// End of the run.
    pub end: RunEnd,
}

impl RunRecord {
    /// Adds an event.
    pub fn add(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Start(start) => {
                start.suite.clone_into(&mut self.suite);
                start.target.clone_into(&mut self.target);
                self.started = start.started;
                self.seed = start.seed;
                self.requirements = start.requirements.iter().copied().cloned().collect();
                self.sections.clone_from(&start.sections);
            }
            RunEvent::Case(outcome) => self.outcomes.push((*outcome).clone()),
            RunEvent::End(end) => self.end = (*end).clone(),
        }
    }

    /// Sends the events of the run to a listener.
    pub fn replay(&self, listener: &mut dyn RunListener) {
        listener.on_event(&RunEvent::Start(&RunStart {
            suite: &self.suite,
            target: &self.target,
            started: self.started,
            requirements: self.requirements.iter().collect(),
            sections: self.sections.clone(),
            seed: self.seed,
        }));
        self.outcomes.iter().for_each(|outcome| listener.on_event(&RunEvent::Case(outcome)));
        listener.on_event(&RunEvent::End(&self.end));
    }

    /// The number of cases that were to run.
    pub fn cases(&self) -> usize {
        self.sections.iter().map(|(_, cases)| cases).sum()
    }

    /// The requirements that a case tests.
    pub fn requirements_of<'a>(&'a self, outcome: &'a CaseOutcome) -> impl Iterator<Item = &'a Requirement> {
        self.requirements.iter().filter(|requirement| outcome.covers.contains(&requirement.id))
    }

    /// The cases that failed, with what they found.
    pub fn failures(&self) -> impl Iterator<Item = (&CaseOutcome, &crate::run::verdict::CaseFailure)> {
        self.outcomes.iter().filter_map(|outcome| match &outcome.verdict {
            Verdict::Fail(failure) => Some((outcome, failure)),
            _ => None,
        })
    }

    /// The number of cases with a verdict, by reason.
    pub fn reasons(&self, verdict: &str) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.verdict.name() == verdict) {
            *reasons.entry(outcome.verdict.reason().unwrap_or_default()).or_default() += 1;
        }
        reasons
    }

    /// The cases that took longest, the longest first.
    pub fn slowest(&self, count: usize) -> Vec<&CaseOutcome> {
        let mut outcomes: Vec<_> = self.outcomes.iter().filter(|outcome| outcome.took_ms > 0).collect();
        outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took_ms));
        outcomes.truncate(count);
        outcomes
    }

    /// The remark on a run that did not end normally.
    pub fn remark(&self) -> Option<String> {
        let interrupted = self.end.interrupted.then(|| {
            let (ran, cases) = (self.outcomes.len(), self.cases());
            format!("The run was interrupted after {ran} of {cases} cases.")
        });
        self.end.lost.clone().or(interrupted)
    }
}

/// The text of a report.
pub type ReportText = fn(&RunRecord) -> String;

/// Writes a report to `W` at the end of the run.
pub struct ReportAtEnd<W> {
    out: W,
    text: ReportText,
    record: RunRecord,
}

impl<W: Write> ReportAtEnd<W> {
    /// A listener that writes what `text` returns for the run.
    pub fn new(out: W, text: ReportText) -> Self {
        Self { out, text, record: RunRecord::default() }
    }
}

impl<W: Write> RunListener for ReportAtEnd<W> {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        self.record.add(event);
        if let RunEvent::End(_) = event {
            let text = (self.text)(&self.record);
            let result = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
            if let Err(error) = result {
                eprintln!("error: failed to write a report: {error}");
            }
        }
    }
}
