//! Listeners to a run. The runner does not depend on any of them.
//!
//! | module | contents |
//! |---|---|
//! | [`terminal`] | one line per section, all failures with details |
//! | [`json`] | one JSON object per line, for programs |
//! | [`junit`] | JUnit XML, for CI servers |

pub mod json;
pub mod junit;
pub mod terminal;

#[cfg(test)]
pub(crate) mod trial {
    //! An invented run, for snapshots of the reports.

    use std::time::Duration;

    use crate::run::{CaseFailure, CaseOutcome, RunEvent, RunListener, RunSummary, Verdict};

    fn outcome(id: &str, verdict: Verdict) -> CaseOutcome {
        let section = id.split('/').take(2).collect::<Vec<_>>().join("/");
        CaseOutcome { id: id.to_owned(), section, covers: vec![], verdict, took: Duration::from_millis(12) }
    }

    /// Sends the events of a run with one case of each verdict to a listener.
    pub fn tell(listener: &mut dyn RunListener) {
        let failure = CaseFailure {
            step: 2,
            request: "curl -i -H 'authorization: Bearer eyJhbG…' 'https://localhost:1/oauth2/userinfo'"
                .to_owned(),
            answer: "500 Internal Server Error\ncontent-type: text/plain\n\nout of <tea>".to_owned(),
            differences: vec![
                "status: 500 instead of 200".to_owned(),
                "body.sub: nothing instead of $string".to_owned(),
            ],
        };
        let outcomes = [
            outcome("spec/authorize/a", Verdict::Pass),
            outcome("spec/authorize/b", Verdict::Gap("needs a second clock".to_owned())),
            outcome("spec/userinfo/a", Verdict::Pass),
            outcome("spec/userinfo/b", Verdict::Fail(failure)),
            outcome("spec/userinfo/c", Verdict::Skip("the profile has no 'users.2'".to_owned())),
        ];
        listener.hear(&RunEvent::Start { target: "https://localhost:1", cases: outcomes.len() });
        outcomes.iter().for_each(|outcome| listener.hear(&RunEvent::Case(outcome)));
        listener.hear(&RunEvent::End(RunSummary { passed: 2, failed: 1, gaps: 1, skipped: 1 }));
    }
}
