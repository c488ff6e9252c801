//! Laws: properties that hold for every server, tested with random requests. A failure names the smallest request that
//! breaks the law, and the seed that repeats the run.
//!
//! | module | laws |
//! |---|---|
//! | [`authorization`] | redirect URIs are compared exactly; a code is spent once |
//! | [`difference`] | not a law: two servers that are asked the same |
//! | [`terminology`] | `$subsumes` is an order; `$validate-code` agrees with `$expand`; GET agrees with POST |
//! | [`export`] | an export is complete, without duplicates, and its parts add up |

pub mod authorization;
pub mod difference;
pub mod export;
pub mod terminology;

use std::fmt::Debug;
use std::time::Instant;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::environment::preconditions::{self, CaseContext};
use crate::environment::{SetupError, TestEnvironment};
use crate::run::case_run;
use crate::run::verdict::{CaseFailure, CaseOutcome, ShownExchange, Verdict};
use crate::spec::request::Request;
use crate::spec::requirement::{BoundActor, Level, Requirement};
use crate::wire::build::build_request;
use crate::wire::exchange::{self, Answer};

/// Number of random values that are tried for each law, unless `--budget` states another one.
pub const BUDGET: u32 = 60;

/// A law.
#[derive(Debug)]
pub struct Law {
    /// Id in reports.
    pub id: &'static str,
    /// Statement of the law.
    pub gist: &'static str,
    /// URL of the clause of a standard that states it, or from which it follows.
    pub standard: &'static str,
    test: fn(&LawTest<'_>) -> Result<(), Broken>,
}

/// All laws.
pub const LAWS: [Law; 9] = [
    Law {
        id: "law/authorize/redirect-exact",
        gist: "A redirect URI that differs from the registered one in any character never receives a response.",
        standard: "https://www.rfc-editor.org/rfc/rfc9700#section-2.1",
        test: authorization::redirect_exact,
    },
    Law {
        id: "law/token/code-once",
        gist: "Of several concurrent requests with the same code, one at most receives tokens.",
        standard: "https://www.rfc-editor.org/rfc/rfc6749#section-4.1.2",
        test: authorization::code_once,
    },
    Law {
        id: "law/subsumes/mirrored",
        gist: "$subsumes of B and A mirrors that of A and B; a code is equivalent to itself.",
        standard: "https://hl7.org/fhir/R4/codesystem-operation-subsumes.html",
        test: terminology::mirrored,
    },
    Law {
        id: "law/subsumes/transitive",
        gist: "If A subsumes B, and B subsumes C, then A subsumes C.",
        standard: "https://hl7.org/fhir/R4/codesystem-operation-subsumes.html",
        test: terminology::transitive,
    },
    Law {
        id: "law/terminology/get-equals-post",
        gist: "An operation by GET answers like the same operation by POST.",
        standard: "https://hl7.org/fhir/R4/operations.html#executing",
        test: terminology::get_equals_post,
    },
    Law {
        id: "law/validate-code/agrees-with-expand",
        gist: "$validate-code finds exactly the codes in a value set that $expand lists.",
        standard: "https://hl7.org/fhir/R4/valueset-operation-validate-code.html",
        test: terminology::agrees_with_expand,
    },
    Law {
        id: "law/export/increments-add-up",
        gist: "An export with _since contains exactly the resources that were changed after that time.",
        standard: "https://hl7.org/fhir/uv/bulkdata/STU2/export.html#query-parameters",
        test: export::increments_add_up,
    },
    Law {
        id: "law/export/no-duplicates",
        gist: "Each resource of an export occurs once, and the counts of the manifest are right.",
        standard: "https://hl7.org/fhir/uv/bulkdata/STU2/export.html#response---complete-status",
        test: export::no_duplicates,
    },
    Law {
        id: "law/export/types-add-up",
        gist: "The exports of each type alone contain together what one export of all types contains.",
        standard: "https://hl7.org/fhir/uv/bulkdata/STU2/export.html#query-parameters",
        test: export::types_add_up,
    },
];

/// Why a law does not hold, or could not be tested.
#[derive(Debug)]
pub enum Broken {
    /// The server breaks the law.
    Failed(CaseFailure),
    /// The server lacks something.
    Lacking(String),
    /// Something that precedes the test failed.
    Inconclusive(String),
}

impl Law {
    /// Returns the law as a requirement, for reports.
    pub fn requirement(&self) -> Requirement {
        Requirement {
            id: self.id.to_owned(),
            level: Level::Must,
            actor: BoundActor::Server,
            standard: Some(self.standard.to_owned()),
            house: None,
            gist: self.gist.to_owned(),
        }
    }
}

impl From<SetupError> for Broken {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Lacking(reason) => Self::Lacking(reason),
            SetupError::Variable(error) => Self::Lacking(format!("the profile has no '{}'", error.0)),
            error => Self::Inconclusive(error.to_string()),
        }
    }
}

/// The test of a law on a server.
pub struct LawTest<'a> {
    /// Server, profile and preconditions.
    pub world: &'a TestEnvironment,
    runtime: &'a Runtime,
    budget: u32,
    seed: u64,
}

/// Result of a random value: the failure that shows that the law is broken, if it is.
pub type Finding = Option<CaseFailure>;

impl<'a> LawTest<'a> {
    /// Returns the test of a law with `budget` requests and the random values of `seed`.
    pub fn new(world: &'a TestEnvironment, runtime: &'a Runtime, budget: u32, seed: u64) -> Self {
        Self { world, runtime, budget, seed }
    }

    /// Sets up preconditions.
    ///
    /// # Errors
    /// Returns [`Broken`] if the target lacks something or does not behave as expected.
    pub fn given(&self, names: &[&str]) -> Result<CaseContext, Broken> {
        let mut scene = CaseContext::new(self.world);
        for name in names {
            self.runtime.block_on(preconditions::set_up(self.world, name, &mut scene))?;
        }
        Ok(scene)
    }

    /// Sends a request in the form of the tables. Returns the response, and the exchange as text.
    ///
    /// # Errors
    /// Returns [`Broken`] if the target does not answer, or lacks the endpoint.
    pub fn ask(&self, scene: &mut CaseContext, request: Value) -> Result<(Answer, ShownExchange), Broken> {
        let request: Request =
            serde_json::from_value(request).map_err(|error| Broken::Inconclusive(error.to_string()))?;
        let sent =
            build_request(&request, &scene.vars).map_err(|error| Broken::Lacking(error.to_string()))?;
        let (answer, _) =
            self.runtime.block_on(case_run::exchange(self.world, scene, &sent, request.poll))?;
        let shown = ShownExchange { request: exchange::curl(&sent), answer: exchange::shown(&answer) };
        Ok((answer, shown))
    }

    /// Runs a future to its end.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Tries random values until one breaks the law or `budget` values have been tried. A value that breaks it is made
    /// smaller as long as the smaller one breaks it too. The law describes the value in the differences of its finding.
    ///
    /// # Errors
    /// Returns [`Broken`] with the finding of the smallest value that breaks the law.
    pub fn for_all<S>(
        &self,
        values: &S,
        cost: u32,
        mut law: impl FnMut(S::Value) -> Result<Finding, Broken>,
    ) -> Result<(), Broken>
    where
        S: Strategy,
        S::Value: Debug,
    {
        let cases = (self.budget / cost).max(1);
        let config =
            Config { cases, failure_persistence: None, max_shrink_iters: 4 * cases, ..Config::default() };
        let seed: Vec<u8> = self.seed.to_le_bytes().repeat(4);
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let last = std::cell::RefCell::new(None);
        let law = std::cell::RefCell::new(&mut law);
        let tried = runner.run(values, |value| {
            let result = (*law.borrow_mut())(value);
            let message = match &result {
                Ok(None) => return Ok(()),
                Ok(Some(failure)) => failure.differences.join("; "),
                Err(_) => "not tested".to_owned(),
            };
            *last.borrow_mut() = Some(result);
            Err(TestCaseError::fail(message))
        });
        match (tried, last.into_inner()) {
            (Ok(()), _) => Ok(()),
            (_, Some(Err(broken))) => Err(broken),
            (Err(TestError::Fail(..)), Some(Ok(Some(mut failure)))) => {
                failure
                    .differences
                    .push(format!("no smaller case was found; repeat this one with --seed {}", self.seed));
                Err(Broken::Failed(failure))
            }
            (Err(error), _) => Err(Broken::Inconclusive(error.to_string())),
        }
    }
}

/// Asks two servers the same, at most about `budget` times. `seed` determines the questions.
pub fn compare(
    (first, second): (&TestEnvironment, &TestEnvironment),
    runtime: &Runtime,
    budget: u32,
    seed: u64,
) -> Verdict {
    let test = |world| LawTest::new(world, runtime, budget, seed);
    let verdict = verdict(difference::differs(&test(first), &test(second)));
    verdict.map_texts(|text| second.target.secrets.mask(&first.target.secrets.mask(text)))
}

fn verdict(tested: Result<(), Broken>) -> Verdict {
    match tested {
        Ok(()) => Verdict::Pass,
        Err(Broken::Failed(failure)) => Verdict::Fail(failure),
        Err(Broken::Lacking(reason)) => Verdict::Skip { reason },
        Err(Broken::Inconclusive(reason)) => Verdict::Inconclusive { reason },
    }
}

/// Tests a law with `budget` random values that `seed` determines.
pub fn test(law: &Law, world: &TestEnvironment, runtime: &Runtime, budget: u32, seed: u64) -> CaseOutcome {
    let started = Instant::now();
    let verdict = match world.lost() {
        Some(reason) => Verdict::Inconclusive { reason },
        None => verdict((law.test)(&LawTest::new(world, runtime, budget, seed))),
    };
    CaseOutcome {
        id: law.id.to_owned(),
        covers: vec![law.id.to_owned()],
        level: Level::Must,
        verdict: verdict.map_texts(|text| world.target.secrets.mask(text)),
        took_ms: crate::run::milliseconds_since(started),
    }
}

/// Returns the failure that two exchanges show.
pub fn failure(exchanges: Vec<ShownExchange>, difference: String) -> CaseFailure {
    CaseFailure { exchanges, differences: vec![difference] }
}
