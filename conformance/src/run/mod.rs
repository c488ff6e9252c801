//! Runs cases and reports the outcomes to listeners.
//!
//! | module | contents |
//! |---|---|
//! | [`matcher`] | compares a value with the expected value of a row |
//! | [`response_check`] | compares a response with an expectation |

pub mod matcher;
pub mod response_check;

use std::fmt;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::Value;

use crate::environment::preconditions::{self, CaseContext};
use crate::environment::{SetupError, TestEnvironment};
use crate::spec::Specification;
use crate::spec::case::{Case, Step};
use crate::wire::answer_part;
use crate::wire::build::build_request;
use crate::wire::exchange::{self, Answer, SentRequest};
use crate::wire::variables::{UnknownVariable, Variables};
use matcher::Difference;

/// Number of cases that run concurrently.
const AT_ONCE: usize = 8;
/// Maximum number of repetitions of a request, and the time between two.
const POLLS: usize = 400;
const POLL_PAUSE: Duration = Duration::from_millis(25);

/// Verdict on a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All responses match the row.
    Pass,
    /// A response does not match the row.
    Fail(CaseFailure),
    /// The case fails, for the reason that `specs/gaps.toml` states.
    Gap(String),
    /// The case cannot run on this target.
    Skip(String),
}

/// Difference between a response and its expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseFailure {
    /// Number of the step, from 1; 0 if the failure precedes the first request.
    pub step: usize,
    /// Request as a curl command.
    pub request: String,
    /// Status, headers and body of the response, as text.
    pub answer: String,
    /// Differences between the response and its expectation.
    pub differences: Vec<Difference>,
}

impl CaseFailure {
    /// Returns a failure before the first request.
    pub fn before(difference: impl Into<String>) -> Self {
        Self { step: 0, request: String::new(), answer: String::new(), differences: vec![difference.into()] }
    }
}

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { step, request, answer, differences } = self;
        write!(f, "step {step}\n{request}\n{answer}\n- {}", differences.join("\n- "))
    }
}

/// A case that was run.
#[derive(Debug, Clone)]
pub struct CaseOutcome {
    /// Id of the case.
    pub id: String,
    /// Section of the case.
    pub section: String,
    /// Requirements that the case tests.
    pub covers: Vec<String>,
    /// Verdict on the case.
    pub verdict: Verdict,
    /// Duration of the case.
    pub took: Duration,
}

/// Number of cases of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Number of cases that passed.
    pub passed: usize,
    /// Number of cases that failed.
    pub failed: usize,
    /// Number of known gaps.
    pub gaps: usize,
    /// Number of cases that were skipped.
    pub skipped: usize,
}

impl RunSummary {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Pass => self.passed += 1,
            Verdict::Fail(_) => self.failed += 1,
            Verdict::Gap(_) => self.gaps += 1,
            Verdict::Skip(_) => self.skipped += 1,
        }
    }
}

/// Event of a run.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The run begins.
    Start {
        /// Base URL of the target.
        target: &'a str,
        /// Number of cases.
        cases: usize,
    },
    /// A case has ended. Cases are reported in the order of the tables.
    Case(&'a CaseOutcome),
    /// The run has ended.
    End(RunSummary),
}

/// Listens to a run.
pub trait RunListener {
    /// Handles an event of the run.
    fn hear(&mut self, event: &RunEvent<'_>);
}

/// Runs cases concurrently and reports to the listeners.
pub async fn run(
    world: &TestEnvironment,
    spec: &Specification,
    cases: &[&Case],
    listeners: &mut [Box<dyn RunListener>],
) -> RunSummary {
    let mut tell = |event: &RunEvent<'_>| listeners.iter_mut().for_each(|listener| listener.hear(event));
    tell(&RunEvent::Start { target: &world.target.base_url, cases: cases.len() });
    let mut summary = RunSummary::default();
    let mut running =
        futures_util::stream::iter(cases.iter().map(|case| outcome(world, spec, case))).buffered(AT_ONCE);
    while let Some(outcome) = running.next().await {
        summary.count(&outcome.verdict);
        tell(&RunEvent::Case(&outcome));
    }
    tell(&RunEvent::End(summary));
    summary
}

/// Runs one case.
pub async fn outcome(world: &TestEnvironment, spec: &Specification, case: &Case) -> CaseOutcome {
    let started = Instant::now();
    let verdict = weigh(try_case(world, case).await, spec.gap_reason(&case.id));
    CaseOutcome {
        id: case.id.clone(),
        section: case.section().to_owned(),
        covers: case.covers.clone(),
        verdict,
        took: started.elapsed(),
    }
}

/// Combines the result of a case with its gap. The failure of a known gap is excused; a known gap that passes is a
/// failure.
pub fn weigh(tried: Result<(), Verdict>, gap: Option<&str>) -> Verdict {
    match (tried, gap) {
        (Ok(()), None) => Verdict::Pass,
        (Ok(()), Some(_)) => {
            Verdict::Fail(CaseFailure::before("this passes now: remove it from specs/gaps.toml"))
        }
        (Err(Verdict::Fail(_)), Some(reason)) => Verdict::Gap(reason.to_owned()),
        (Err(verdict), _) => verdict,
    }
}

async fn try_case(world: &TestEnvironment, case: &Case) -> Result<(), Verdict> {
    let mut scene = CaseContext::new(world);
    for given in &case.given {
        preconditions::set_up(world, given, &mut scene).await.map_err(|trouble| match trouble {
            SetupError::Lacking(reason) => Verdict::Skip(reason),
            other => Verdict::Fail(CaseFailure::before(format!("given '{given}': {other}"))),
        })?;
    }
    let wrong = |error: UnknownVariable| Verdict::Fail(CaseFailure::before(error.to_string()));
    for (index, step) in case.steps.iter().enumerate() {
        let sent = build_request(&step.request, &scene.vars)
            .map_err(|error| Verdict::Fail(CaseFailure::before(error)))?;
        let answered = exchange(world, &mut scene, &sent, step.request.poll).await;
        let failure = |answer: String, differences| {
            Verdict::Fail(CaseFailure {
                step: index + 1,
                request: exchange::curl(&sent),
                answer: answer.clone(),
                differences,
            })
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(trouble) => return Err(failure(String::new(), vec![trouble.to_string()])),
        };
        let keys = scene.own.as_ref().map_or(&world.target.keys, |own| &own.1.keys);
        let differences = check_step(step, &answer, &mut scene.vars, keys).map_err(wrong)?;
        if !differences.is_empty() {
            return Err(failure(exchange::shown(&answer), differences));
        }
    }
    Ok(())
}

/// Compares a response with the expectation of its step, and sets the variables that the step captures. Returns the
/// differences. `keys` is the server's published key set.
///
/// # Errors
/// Returns [`UnknownVariable`] if the expectation contains an unknown variable.
pub fn check_step(
    step: &Step,
    answer: &Answer,
    vars: &mut Variables,
    keys: &Value,
) -> Result<Vec<Difference>, UnknownVariable> {
    let mut differences = response_check::check_response(&step.expect, answer, vars, keys)?;
    for (name, source) in &step.capture {
        match answer_part::find_part(answer, source) {
            Some(value) => vars.set(name, value),
            None => differences.push(format!("capture {name}: the answer has no {source}")),
        }
    }
    Ok(differences)
}

/// Sends a request with the cookies of the case, and stores the cookies of the response. Repeats the request while the
/// response has the status `poll`.
///
/// # Errors
/// Returns [`SetupError`] if there is no response, or if the status is still `poll` after the last repetition.
pub async fn exchange(
    world: &TestEnvironment,
    scene: &mut CaseContext,
    sent: &SentRequest,
    poll: Option<u16>,
) -> Result<Answer, SetupError> {
    for _ in 0..POLLS {
        let target = scene.own.as_ref().map_or(&world.target, |own| &own.1);
        let answer = target.send(sent, &mut scene.cookies).await?;
        if Some(answer.status.as_u16()) != poll {
            return Ok(answer);
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
    Err(SetupError::Failed(format!(
        "the status was still {} after {POLLS} requests",
        poll.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_excuses_only_a_failure() {
        let fail = || Err(Verdict::Fail(CaseFailure::before("x")));
        assert_eq!(weigh(Ok(()), None), Verdict::Pass);
        assert_eq!(weigh(fail(), Some("because")), Verdict::Gap("because".to_owned()));
        assert!(matches!(weigh(fail(), None), Verdict::Fail(_)));
        assert!(matches!(weigh(Ok(()), Some("because")), Verdict::Fail(_)));
        let skip = || Verdict::Skip("no profile".to_owned());
        assert_eq!(weigh(Err(skip()), Some("because")), skip());
    }
}
