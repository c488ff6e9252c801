//! Runs cases and reports the outcomes to listeners.
//!
//! | module | contents |
//! |---|---|
//! | [`selection`] | which cases run on a target, and why the others do not |
//! | [`missing_members`] | members of the profile that cases need and the profile lacks |
//! | [`profile_additions`] | members of the profile that would let more cases run |
//! | `features` | whether a target has the features that a case uses |
//! | [`case_run`] | runs one case |
//! | [`shared_exchange`] | exchanges that several cases share |
//! | [`sending`] | sends the request of a step |
//! | [`step_check`] | compares the responses to a step with its expectations |
//! | [`verdict`] | verdicts on cases, and their numbers |
//! | [`matcher`] | compares a value with the expected value of a row |
//! | [`response_check`] | compares a response with an expectation |

pub mod case_run;
mod features;
pub mod matcher;
pub mod missing_members;
pub mod profile_additions;
pub mod response_check;
pub mod selection;
pub mod sending;
pub mod shared_exchange;
pub mod step_check;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::RwLock;

use self::shared_exchange::SharedExchanges;
use self::verdict::milliseconds_since;
use crate::environment::TestEnvironment;
use crate::spec::Specification;
use crate::spec::case::{self, Case};
use crate::spec::requirement::Requirement;
use selection::Selection;
use verdict::{CaseOutcome, RunSummary, Verdict};

/// Event of a run.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The run begins.
    Start(&'a RunStart<'a>),
    /// A case has ended. Cases are reported in the order of the run.
    Case(&'a CaseOutcome),
    /// The run has ended.
    End(&'a RunEnd),
}

/// Facts that are known at the start of a run.
#[derive(Debug)]
pub struct RunStart<'a> {
    /// Version of the suite.
    pub suite: &'a str,
    /// Base URL of the target.
    pub target: &'a str,
    /// Time at which the run began.
    pub started: Timestamp,
    /// Requirements that the cases test, in the order of the tables.
    pub requirements: Vec<&'a Requirement>,
    /// Number of cases of each section, in the order of the run.
    pub sections: Vec<(String, usize)>,
    /// Seed of the order of the cases; `None` for the order of the tables.
    pub seed: Option<u64>,
}

impl RunStart<'_> {
    /// The number of cases.
    pub fn cases(&self) -> usize {
        self.sections.iter().map(|(_, cases)| cases).sum()
    }
}

/// Version of this suite.
pub const SUITE: &str = env!("CARGO_PKG_VERSION");

/// The number of ids of each section, in the order of their first ids.
pub fn sections<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<(String, usize)> {
    let mut sections: Vec<(String, usize)> = Vec::new();
    for section in ids.map(case::section_of) {
        match sections.iter_mut().find(|(name, _)| name == section) {
            Some((_, cases)) => *cases += 1,
            None => sections.push((section.to_owned(), 1)),
        }
    }
    sections
}

/// How a run has ended.
#[derive(Debug, Clone, Default)]
pub struct RunEnd {
    /// Number of cases of each verdict.
    pub summary: RunSummary,
    /// Whether the run was ended before all cases had run.
    pub interrupted: bool,
    /// Why the target was given up: it stopped answering.
    pub lost: Option<String>,
    /// The reasons why cases were skipped, with the number of these cases, the most frequent first.
    pub skip_reasons: Vec<(String, usize)>,
    /// URLs of what the run has created and could not delete.
    pub leftovers: Vec<String>,
    /// Duration of the run, in milliseconds.
    pub took_ms: u64,
}

/// Listens to a run.
pub trait RunListener {
    /// Handles an event of the run.
    fn on_event(&mut self, event: &RunEvent<'_>);
}

/// How cases are run.
#[derive(Debug, Default)]
pub struct RunOptions {
    /// Which cases run.
    pub selection: Selection,
    /// Number of cases that run concurrently; 0 for the usual number.
    pub jobs: usize,
    /// Seed of the order of the cases; `None` for the order of the tables.
    pub seed: Option<u64>,
    /// Cases that are known to fail, with the reason, in addition to those of the tables.
    pub baseline: BTreeMap<String, String>,
    /// Outcomes of an earlier run, which are reported again.
    pub earlier: Vec<CaseOutcome>,
    /// Time after which no case is started.
    pub deadline: Option<Instant>,
    /// Time at which the run begins, for reports.
    pub started: Timestamp,
}

/// Runs cases concurrently and reports to the listeners. Starts no further case once `stop` is true, and then
/// deletes what the run has created.
pub async fn run(
    environment: &TestEnvironment,
    spec: &Specification,
    options: &RunOptions,
    stop: &AtomicBool,
    listeners: &mut [Box<dyn RunListener>],
) -> RunEnd {
    let begin = Instant::now();
    let mut emit = |event: &RunEvent<'_>| listeners.iter_mut().for_each(|listener| listener.on_event(event));
    let mut cases = options.selection.cases(spec);
    if let Some(seed) = options.seed {
        fastrand::Rng::with_seed(seed).shuffle(&mut cases);
    }
    let target = environment.target.addresses.base_url.as_str();
    let covered: BTreeSet<&String> = cases.iter().flat_map(|case| &case.covers).collect();
    emit(&RunEvent::Start(&RunStart {
        suite: SUITE,
        target,
        started: options.started,
        requirements: spec
            .requirements
            .iter()
            .filter(|requirement| covered.contains(&requirement.id))
            .collect(),
        sections: sections(cases.iter().map(|case| case.id.as_str())),
        seed: options.seed,
    }));
    let mut end = RunEnd::default();
    let stated =
        environment.target.profile.get("jobs").and_then(Value::as_u64).map(|jobs| jobs.clamp(1, 64) as usize);
    let treatment = environment.target.treatment;
    let usual = stated.unwrap_or(treatment.cases_at_once);
    let jobs = if options.jobs == 0 { usual } else { options.jobs };
    let turns = Turns {
        lock: RwLock::new(()),
        are_shared: jobs > 1 && treatment.is_shared,
        exchanges: SharedExchanges::among(cases.iter().copied()),
    };
    let mut running = futures_util::stream::iter(&cases)
        .take_while(|_| std::future::ready(!stop.load(Ordering::Relaxed)))
        .map(|case| one_case(environment, spec, options, &turns, case))
        // In the order of the cases, so that two reports of a run can be compared line by line.
        .buffered(jobs);
    let mut reported = 0;
    let mut skips = BTreeMap::<String, usize>::new();
    while let Some(outcome) = running.next().await {
        end.summary.count(&outcome.verdict);
        if let Verdict::Skip { reason } = &outcome.verdict {
            *skips.entry(reason.clone()).or_default() += 1;
        }
        emit(&RunEvent::Case(&outcome));
        reported += 1;
    }
    // Cases that are still running hold preconditions, which the clean-up would remove under them.
    drop(running);
    end.interrupted = reported < cases.len();
    end.skip_reasons = skips.into_iter().collect();
    end.skip_reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    end.lost = environment.lost();
    if environment.local.is_none() {
        end.leftovers = environment.target.clean_up().await;
    }
    end.took_ms = milliseconds_since(begin);
    emit(&RunEvent::End(&end));
    end
}

/// Reason why a case that passes only alone is inconclusive.
const PASSES_ALONE: &str = "the server answered with an error (5xx) while other cases ran, and the case passes alone: \
                            'jobs = 1' in the profile runs all cases one after the other";

/// Turns of the cases: they run beside each other, or one runs alone.
struct Turns {
    lock: RwLock<()>,
    /// Whether cases run beside each other on a server of another maker.
    are_shared: bool,
    exchanges: SharedExchanges,
}

impl Turns {
    /// Runs a case beside others. If the server fails meanwhile, runs the case again alone, which shows
    /// whether the server fails by itself or under the requests of several cases.
    async fn outcome(
        &self,
        environment: &TestEnvironment,
        spec: &Specification,
        case: &Case,
        gap: Option<&str>,
    ) -> CaseOutcome {
        let errors_before = environment.target.server_errors();
        let outcome = {
            let _beside_others = self.lock.read().await;
            case_run::outcome(environment, spec, case, gap, &self.exchanges).await
        };
        let is_doubtful = matches!(outcome.verdict, Verdict::Fail(_) | Verdict::Inconclusive { .. });
        if !self.are_shared || !is_doubtful || environment.target.server_errors() == errors_before {
            return outcome;
        }
        let _alone = self.lock.write().await;
        let alone = case_run::outcome(environment, spec, case, gap, &SharedExchanges::default()).await;
        match alone.verdict {
            Verdict::Pass => {
                let verdict = Verdict::Inconclusive { reason: PASSES_ALONE.to_owned() };
                CaseOutcome { verdict, ..alone }
            }
            _ => alone,
        }
    }
}

/// The outcome of a case: that of an earlier run, a skip, or that of running it now.
async fn one_case(
    environment: &TestEnvironment,
    spec: &Specification,
    options: &RunOptions,
    turns: &Turns,
    case: &Case,
) -> CaseOutcome {
    if let Some(earlier) = options.earlier.iter().find(|outcome| outcome.id == case.id) {
        return earlier.clone();
    }
    let without_running = |verdict| CaseOutcome {
        id: case.id.clone(),
        covers: case.covers.clone(),
        level: spec.level_of(case),
        verdict,
        took_ms: 0,
    };
    if let Some(reason) = options.selection.skip_reason(spec, case, environment) {
        return without_running(Verdict::Skip { reason });
    }
    if options.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        let reason = "the time of the run was over (--max-time)".to_owned();
        return without_running(Verdict::Inconclusive { reason });
    }
    // The list of the tables is about Trefoil.
    let of_trefoil = || spec.gap_reason(&case.id).filter(|_| environment.target.treatment.house_rules);
    let gap = options.baseline.get(&case.id).map(String::as_str).or_else(of_trefoil);
    turns.outcome(environment, spec, case, gap).await
}
