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

    use crate::run::verdict::{CaseFailure, CaseOutcome, RunSummary, ShownExchange, Verdict};
    use crate::run::{RunEnd, RunEvent, RunListener, RunStart};
    use crate::spec::Specification;
    use crate::spec::requirement::Level;

    fn outcome(id: &str, verdict: Verdict) -> CaseOutcome {
        let requirement = id.rsplit_once('/').map_or(id, |(requirement, _)| requirement);
        let covers = vec![requirement.to_owned()];
        CaseOutcome { id: id.to_owned(), covers, level: Level::Must, verdict, took_ms: 12 }
    }

    /// Sends the events of a run with one case of each verdict to a listener.
    pub fn tell(listener: &mut dyn RunListener) {
        let failure = CaseFailure {
            exchanges: vec![
                ShownExchange {
                    request: "curl -i 'https://localhost:1/oauth2/authorize?state=1'".to_owned(),
                    answer: "302 Found\nlocation: https://app.example/?code=***".to_owned(),
                },
                ShownExchange {
                    request: "curl -i -H 'authorization: Bearer ***' 'https://localhost:1/oauth2/userinfo'"
                        .to_owned(),
                    answer: "500 Internal Server Error\ncontent-type: text/plain\n\nout of <tea>".to_owned(),
                },
            ],
            differences: vec![
                "status: 500 instead of 200".to_owned(),
                "body.sub: nothing instead of $string".to_owned(),
            ],
        };
        let outcomes = [
            outcome("spec/authorize/x/a", Verdict::Pass),
            outcome("spec/authorize/x/b", Verdict::Gap { reason: "needs a second clock".to_owned() }),
            outcome("spec/userinfo/x/a", Verdict::Pass),
            outcome("spec/userinfo/x/b", Verdict::Fail(failure)),
            outcome("spec/userinfo/x/c", Verdict::Skip { reason: "the profile has no 'users.2'".to_owned() }),
            outcome(
                "spec/userinfo/x/d",
                Verdict::Inconclusive { reason: "given 'token': the sign-in ended at /login".to_owned() },
            ),
        ];
        let spec = Specification::default();
        let start =
            RunStart { target: "https://localhost:1", spec: &spec, cases: outcomes.len(), seed: Some(7) };
        listener.hear(&RunEvent::Start(&start));
        outcomes.iter().for_each(|outcome| listener.hear(&RunEvent::Case(outcome)));
        let mut summary = RunSummary::default();
        outcomes.iter().for_each(|outcome| summary.count(&outcome.verdict));
        let leftovers = vec!["https://localhost:1/fhir/Group/7: 403 Forbidden".to_owned()];
        listener.hear(&RunEvent::End(&RunEnd { summary, interrupted: true, lost: None, leftovers }));
    }
}
