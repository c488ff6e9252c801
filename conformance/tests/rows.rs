//! Each case of the tables as a trial with its id as name. All trials use one server, which the first of them
//! builds and starts.
//!
//! `cargo test -p trefoil-conformance --test rows -- spec/userinfo` runs one section.

use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use trefoil_conformance::environment::TestEnvironment;
use trefoil_conformance::run::case_run;
use trefoil_conformance::run::shared_exchange::SharedExchanges;
use trefoil_conformance::run::verdict::Verdict;
use trefoil_conformance::spec::Specification;
use trefoil_conformance::spec::case::Case;

struct Suite {
    spec: Specification,
    runtime: Runtime,
    environment: OnceLock<TestEnvironment>,
    exchanges: SharedExchanges,
}

impl Suite {
    fn environment(&self) -> &TestEnvironment {
        self.environment
            .get_or_init(|| self.runtime.block_on(TestEnvironment::start()).expect("the server starts"))
    }

    fn no_secret_in_any_log(&self) -> Result<(), Failed> {
        let Some(TestEnvironment { target, local: Some(local), .. }) = self.environment.get() else {
            return Ok(());
        };
        let logs = local.server.logs().map_err(|error| Failed::from(format!("{error:#}")))?;
        if logs.is_empty() || target.secrets.is_empty() {
            return Err(Failed::from("there is no log, or no secret was sent"));
        }
        let secrets = target.secrets.found_in(&logs);
        let tried = format!("{} secrets in {} bytes of logs", target.secrets.len(), logs.len());
        if secrets.is_empty() {
            Ok(())
        } else {
            Err(Failed::from(format!("of {tried}:\n{}", secrets.join("\n"))))
        }
    }

    fn trial(&self, case: &Case) -> Result<(), Failed> {
        let outcome = self.runtime.block_on(case_run::outcome(
            self.environment(),
            &self.spec,
            case,
            self.spec.gap_reason(&case.id),
            &self.exchanges,
        ));
        match outcome.verdict {
            Verdict::Pass | Verdict::Gap { .. } => Ok(()),
            Verdict::Skip { reason } => Err(Failed::from(format!("left out: {reason}"))),
            Verdict::Inconclusive { reason } => {
                Err(Failed::from(format!("{}, not tested: {reason}", case.place)))
            }
            Verdict::Fail(failure) => Err(Failed::from(format!("{}, {failure}", case.place))),
        }
    }
}

fn main() {
    let arguments = Arguments::from_args();
    if !arguments.list {
        test_server::build().expect("the server can be built");
    }
    let spec = Specification::load().expect("the tables can be read");
    let suite = Arc::new(Suite {
        exchanges: SharedExchanges::among(&spec.cases),
        spec,
        runtime: Runtime::new().expect("a runtime can be created"),
        environment: OnceLock::new(),
    });
    let trials = suite.spec.cases.iter().map(|case| {
        let (suite, case) = (suite.clone(), case.clone());
        Trial::test(case.id.clone(), move || suite.trial(&case))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // This trial runs last: no log may contain a secret that was sent.
    let after = suite.clone();
    let law = Trial::test("law/no-secret-in-any-log", move || after.no_secret_in_any_log());
    let last = libtest_mimic::run(&arguments, vec![law]);
    // Dropped before the end of the process, so that the server is stopped.
    drop(suite);
    if conclusion.has_failed() {
        conclusion.exit();
    }
    last.exit();
}
