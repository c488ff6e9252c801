//! The options of a run, on a server that answers everything with the same object.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::runtime::Runtime;
use trefoil_conformance::environment::TestEnvironment;
use trefoil_conformance::run::selection::Selection;
use trefoil_conformance::run::verdict::{CaseFailure, CaseOutcome, Verdict};
use trefoil_conformance::run::{self, RunEnd, RunListener, RunOptions};
use trefoil_conformance::spec::Specification;
use trefoil_conformance::spec::requirement::Level;

use crate::other_servers::{Verdicts, dumb_environment};

/// A case that the server passes, and one that it fails.
const PASSED: &str = "rfc8414/3.2/json/content-type";
const FAILED: &str = "rfc6749/5.2/json/unknown-grant-type";

/// A dumb server, and a runtime for the requests to it.
struct Dumb {
    runtime: Runtime,
    world: TestEnvironment,
}

impl Dumb {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let world = runtime.block_on(dumb_environment(usize::MAX));
        Self { runtime, world }
    }

    /// Runs the two cases with these options.
    fn run(&self, options: RunOptions, stop: bool) -> (RunEnd, Verdicts) {
        let only = [PASSED, FAILED].map(str::to_owned).to_vec();
        let options = RunOptions { selection: Selection { only, ..Selection::default() }, ..options };
        let verdicts = Verdicts::default();
        let mut listeners: Vec<Box<dyn RunListener>> = vec![Box::new(verdicts.clone())];
        let spec = Specification::load().unwrap();
        let stop = AtomicBool::new(stop);
        let end = self.runtime.block_on(run::run(&self.world, &spec, &options, &stop, &mut listeners));
        (end, verdicts)
    }
}

#[test]
fn without_options_both_cases_run() {
    let (end, verdicts) = Dumb::start().run(RunOptions::default(), false);
    assert_eq!((end.summary.passed, end.summary.failed), (1, 1));
    assert_eq!(verdicts.names()[FAILED], "fail");
}

#[test]
fn a_baseline_excuses_failures_and_reports_what_passes() {
    let dumb = Dumb::start();
    let known = |case: &str| {
        let baseline = BTreeMap::from([(case.to_owned(), "known".to_owned())]);
        dumb.run(RunOptions { baseline, ..RunOptions::default() }, false).1.names()
    };
    assert_eq!((known(FAILED)[FAILED], known(FAILED)[PASSED]), ("gap", "pass"));
    assert_eq!((known(PASSED)[FAILED], known(PASSED)[PASSED]), ("fail", "fail"));
}

#[test]
fn a_resumed_run_takes_over_the_outcomes() {
    let earlier = CaseOutcome {
        id: PASSED.to_owned(),
        covers: Vec::new(),
        level: Level::Must,
        verdict: Verdict::Fail(CaseFailure::before("from the earlier run")),
        took_ms: 5,
    };
    let (end, verdicts) =
        Dumb::start().run(RunOptions { earlier: vec![earlier], ..RunOptions::default() }, false);
    assert_eq!(end.summary.failed, 2);
    assert!(verdicts.faults().iter().any(|fault| fault.contains("from the earlier run")));
}

#[test]
fn no_case_starts_after_the_deadline_or_an_interrupt() {
    let dumb = Dumb::start();
    let (end, _) = dumb.run(RunOptions { deadline: Some(Instant::now()), ..RunOptions::default() }, false);
    assert_eq!((end.summary.inconclusive, end.interrupted), (2, false));
    let (end, verdicts) = dumb.run(RunOptions::default(), true);
    assert!(end.interrupted && verdicts.names().is_empty());
}

#[test]
fn a_seed_determines_the_order() {
    let dumb = Dumb::start();
    let order = |seed| dumb.run(RunOptions { seed: Some(seed), ..RunOptions::default() }, false).1.order();
    assert_eq!(order(1), order(1));
    let orders: Vec<_> = (0..8).map(order).collect();
    assert!(orders.contains(&vec![PASSED.to_owned(), FAILED.to_owned()]), "{orders:?}");
    assert!(orders.contains(&vec![FAILED.to_owned(), PASSED.to_owned()]), "{orders:?}");
}
