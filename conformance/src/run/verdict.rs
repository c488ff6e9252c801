//! Verdicts on cases.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::matcher::Difference;
use crate::spec::requirement::Level;

/// Verdict on a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// All responses match the row.
    Pass,
    /// A response does not match the row.
    Fail(CaseFailure),
    /// The case fails, as `specs/gaps.toml` or the baseline of the run states.
    Gap {
        /// Why it fails.
        reason: String,
    },
    /// The case cannot run on this target, or was not asked for.
    Skip {
        /// Why it does not run.
        reason: String,
    },
    /// The case could not be tested, because something that precedes it failed.
    Inconclusive {
        /// Reason for the failure.
        reason: String,
    },
}

impl Verdict {
    /// The name of the verdict in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Gap { .. } => "gap",
            Self::Skip { .. } => "skip",
            Self::Inconclusive { .. } => "inconclusive",
        }
    }

    /// The verdict with all texts of a failure or a reason replaced.
    pub fn map_texts(self, replaced: impl Fn(&str) -> String) -> Self {
        let reason = |reason: String| replaced(&reason);
        match self {
            Self::Pass => Self::Pass,
            Self::Fail(CaseFailure { exchanges, differences }) => {
                let exchange = |texts: ShownExchange| ShownExchange {
                    request: replaced(&texts.request),
                    answer: replaced(&texts.answer),
                };
                Self::Fail(CaseFailure {
                    exchanges: exchanges.into_iter().map(exchange).collect(),
                    differences: differences.iter().map(|difference| replaced(difference)).collect(),
                })
            }
            Self::Gap { reason: text } => Self::Gap { reason: reason(text) },
            Self::Skip { reason: text } => Self::Skip { reason: reason(text) },
            Self::Inconclusive { reason: text } => Self::Inconclusive { reason: reason(text) },
        }
    }

    /// The reason of a verdict that has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Pass | Self::Fail(_) => None,
            Self::Gap { reason } | Self::Skip { reason } | Self::Inconclusive { reason } => Some(reason),
        }
    }
}

/// A request and its response, as texts without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownExchange {
    /// Request as a curl command.
    pub request: String,
    /// Status, headers and body of the response; empty if there was none.
    pub answer: String,
}

/// Difference between a response and its expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseFailure {
    /// All exchanges of the case in order; the last one failed. Empty if the failure precedes the first
    /// request.
    pub exchanges: Vec<ShownExchange>,
    /// Differences between the last response and its expectation.
    pub differences: Vec<Difference>,
}

impl CaseFailure {
    /// A failure before the first request.
    pub fn before(difference: impl Into<String>) -> Self {
        Self { exchanges: Vec::new(), differences: vec![difference.into()] }
    }
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(ShownExchange { request, answer }) = self.exchanges.last() {
            write!(f, "step {}\n{request}\n{answer}\n", self.exchanges.len())?;
        }
        write!(f, "- {}", self.differences.join("\n- "))
    }
}

/// A case that was run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// Id of the case.
    pub id: String,
    /// Requirements that the case tests.
    pub covers: Vec<String>,
    /// Highest level of these requirements.
    pub level: Level,
    /// Verdict on the case.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Duration of the case, in milliseconds.
    pub took_ms: u64,
}

impl CaseOutcome {
    /// The first two parts of the id, which name the section in reports.
    pub fn section(&self) -> &str {
        crate::spec::case::section_of(&self.id)
    }

    /// The first part of the id, which names the specification.
    pub fn specification(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
}

/// Number of cases of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Number of cases that passed.
    pub passed: usize,
    /// Number of cases that failed.
    pub failed: usize,
    /// Number of known gaps.
    pub gaps: usize,
    /// Number of cases that were skipped.
    pub skipped: usize,
    /// Number of cases that could not be tested.
    pub inconclusive: usize,
}

impl RunSummary {
    /// Counts a verdict.
    pub fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Pass => &mut self.passed,
            Verdict::Fail(_) => &mut self.failed,
            Verdict::Gap { .. } => &mut self.gaps,
            Verdict::Skip { .. } => &mut self.skipped,
            Verdict::Inconclusive { .. } => &mut self.inconclusive,
        } += 1;
    }

    /// The number of all cases.
    pub fn count_of_all(&self) -> usize {
        let Self { passed, failed, gaps, skipped, inconclusive } = self;
        passed + failed + gaps + skipped + inconclusive
    }

    /// The number of cases that ran.
    pub fn count_of_run(&self) -> usize {
        self.count_of_all() - self.skipped
    }

    /// Returns whether all cases that ran passed or are known gaps.
    pub fn is_success(&self) -> bool {
        self.failed == 0 && self.inconclusive == 0
    }
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { passed, failed, gaps, skipped, inconclusive } = self;
        write!(f, "{passed} passed, {failed} failed")?;
        let gap = if *gaps == 1 { "gap" } else { "gaps" };
        for (count, what) in [(gaps, gap), (inconclusive, "inconclusive"), (skipped, "skipped")] {
            if *count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Combines the result of a case with its gap. The failure of a known gap is excused; a known gap that passes
/// is a failure.
pub fn weigh(tried: Result<(), Verdict>, gap: Option<&str>) -> Verdict {
    match (tried, gap) {
        (Ok(()), None) => Verdict::Pass,
        (Ok(()), Some(_)) => Verdict::Fail(CaseFailure::before(
            "this case is in the list of known failures and passes now: remove it from the list",
        )),
        (Err(Verdict::Fail(_)), Some(reason)) => Verdict::Gap { reason: reason.to_owned() },
        (Err(verdict), _) => verdict,
    }
}

/// The whole milliseconds since a point in time.
pub fn milliseconds_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_excuses_only_a_failure() {
        let fail = || Err(Verdict::Fail(CaseFailure::before("x")));
        assert_eq!(weigh(Ok(()), None), Verdict::Pass);
        assert_eq!(weigh(fail(), Some("because")), Verdict::Gap { reason: "because".to_owned() });
        assert!(matches!(weigh(fail(), None), Verdict::Fail(_)));
        assert!(matches!(weigh(Ok(()), Some("because")), Verdict::Fail(_)));
        let skip = || Verdict::Skip { reason: "no profile".to_owned() };
        assert_eq!(weigh(Err(skip()), Some("because")), skip());
    }
}
