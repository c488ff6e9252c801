//! A law that is tested with random requests, and what a violation looks like.

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::environment::preconditions::{self, CaseContext};
use crate::environment::{SetupError, TestEnvironment};
use crate::run::sending;
use crate::run::verdict::{CaseFailure, ShownExchange};
use crate::spec::request::Request;
use crate::wire::build::build_request;
use crate::wire::exchange::{self, Answer};

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
    pub environment: &'a TestEnvironment,
    pub(super) runtime: &'a Runtime,
    pub(super) budget: u32,
    pub(super) seed: u64,
}

/// Result of a random value: the failure that shows that the law is broken, if it is.
pub type Finding = Option<CaseFailure>;

impl<'a> LawTest<'a> {
    /// The test of a law with `budget` requests and the random values of `seed`.
    pub fn new(environment: &'a TestEnvironment, runtime: &'a Runtime, budget: u32, seed: u64) -> Self {
        Self { environment, runtime, budget, seed }
    }

    /// Sets up preconditions.
    ///
    /// # Errors
    /// [`Broken`] if the target lacks something or does not behave as expected.
    pub fn given(&self, names: &[&str]) -> Result<CaseContext, Broken> {
        let mut context = CaseContext::new(self.environment);
        for name in names {
            self.runtime.block_on(preconditions::set_up(self.environment, name, &mut context))?;
        }
        Ok(context)
    }

    /// Sends a request in the form of the tables. Returns the response, and the exchange as text.
    ///
    /// # Errors
    /// [`Broken`] if the target does not answer, or lacks the endpoint.
    pub fn ask(&self, context: &mut CaseContext, request: Value) -> Result<(Answer, ShownExchange), Broken> {
        let request: Request =
            serde_json::from_value(request).map_err(|error| Broken::Inconclusive(error.to_string()))?;
        let sent_request =
            build_request(&request, &context.vars).map_err(|error| Broken::Lacking(error.to_string()))?;
        let repeated = sending::RepeatedStatus { poll: request.poll, expects_limit: false };
        let exchanged =
            self.runtime.block_on(sending::exchange(self.environment, context, &sent_request, repeated))?;
        let answer = exchanged.answer;
        let texts =
            ShownExchange { request: exchange::curl(&sent_request), answer: exchange::shown(&answer) };
        Ok((answer, texts))
    }

    /// Runs a future to its end.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Tries random values until one breaks the law or `budget` values have been tried. A value that breaks
    /// it is made smaller as long as the smaller one breaks it too. The law describes the value in the
    /// differences of its finding.
    ///
    /// # Errors
    /// [`Broken`] with the finding of the smallest value that breaks the law.
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

/// The failure that two exchanges show.
pub fn failure(exchanges: Vec<ShownExchange>, difference: String) -> CaseFailure {
    CaseFailure { exchanges, differences: vec![difference] }
}
