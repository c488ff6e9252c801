//! HL7's terminology ecosystem suite (HL7/fhir-tx-ecosystem-ig, folder `tests`), run against any FHIR R4
//! server.
//!
//! | module | contents |
//! |---|---|
//! | [`suite`] | the files: `test-cases.json` and the files that it names |
//! | [`r4`] | conversion between R5, which the suite uses, and R4; removal of members that are not compared |
//! | [`matcher`] | compares a response with an expectation |
//! | `item_pairing` | pairs the items of two arrays |
//! | `text_template` | compares a text with a template |
//! | `server` | the server under test, and the operations |
//! | [`contradictions`] | the tests whose expectation is wrong |
//! | `outcome` | the options of a run, and the outcome of each test |
//! | [`statement`] | the statement of compliance |
//! | [`publish`] | our rows about `$subsumes` in the layout of the suite |
//! | [`report`] | the table, the differences, the result file |
//!
//! A test is one request: the parameters of its file, each setup resource of its suite as `tx-resource`, and
//! the parameters of its profile, sent to the type-level operation of an empty server. The response is
//! compared with the expectation, and the class of its status with the expected class.

pub mod contradictions;
mod item_pairing;
pub mod matcher;
mod outcome;
pub mod publish;
pub mod r4;
pub mod report;
mod server;
pub mod statement;
pub mod suite;
mod text_template;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use self::matcher::AnswerMatcher;
pub use self::outcome::{SuiteOptions, TestOutcome, Verdict};
use self::report::SuiteReport;
use self::server::{OPERATIONS, Server};
use self::suite::{Externals, SuiteTest, TestFiles, TestSuite};

/// File with the parameters that are added if a test names no profile.
const PROFILE: &str = "parameters-default.json";

/// Runs the suite.
///
/// # Errors
/// [`SuiteError`] if the suite cannot be read or the server cannot be reached.
pub async fn run(options: &SuiteOptions) -> Result<SuiteReport, SuiteError> {
    let files = TestFiles::new(&options.tests);
    let cases = files.cases().map_err(SuiteError::Unreadable)?;
    for name in &options.suites {
        if !cases.suites.iter().any(|suite| suite.name == *name) {
            return Err(SuiteError::Unreadable(anyhow::anyhow!("suite '{name}' does not exist")));
        }
    }
    let externals = match &options.externals {
        Some(path) => suite::externals(path).map_err(SuiteError::Unreadable)?,
        None => Externals::new(),
    };
    let server = Server::connect(options).await.map_err(SuiteError::Server)?;
    let modes = options.modes.iter().cloned().chain(["general".to_owned()]).collect();
    let run = SuiteRun { files, server, modes, externals };
    let mut outcomes = Vec::new();
    let mut offered: HashMap<&str, bool> = HashMap::new();
    let begin = Instant::now();
    for suite in cases.suites.iter().filter(|suite| run.selects(suite, options)) {
        for test in suite.tests.iter().filter(|test| run.selects_test(test, options)) {
            let mut outcome = TestOutcome {
                suite: suite.name.clone(),
                test: test.name.clone(),
                operation: test.operation.clone(),
                verdict: Verdict::Skip(String::new()),
                status: None,
                took: Duration::ZERO,
            };
            match run.verdict_without_request(test, &mut offered).await {
                Some(verdict) => outcome.verdict = verdict,
                None => run.test(suite, test, &mut outcome).await.map_err(SuiteError::Unreadable)?,
            }
            outcomes.push(outcome);
        }
    }
    let Server { software, version, fhir_version, .. } = run.server;
    Ok(SuiteReport { software, version, fhir_version, modes: run.modes, outcomes, took: begin.elapsed() })
}

/// Errors that prevent a run of the suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The files are missing or are not those of the suite.
    #[error("{0:#}")]
    Unreadable(anyhow::Error),
    /// The server cannot be reached.
    #[error("{0:#}")]
    Server(anyhow::Error),
}

struct SuiteRun {
    files: TestFiles,
    server: Server,
    modes: BTreeSet<String>,
    externals: Externals,
}

impl SuiteRun {
    fn has_mode(&self, mode: Option<&String>) -> bool {
        mode.is_none_or(|mode| mode.is_empty() || self.modes.contains(mode))
    }

    fn selects(&self, suite: &TestSuite, options: &SuiteOptions) -> bool {
        let is_selected = options.suites.is_empty() || options.suites.contains(&suite.name);
        is_selected && !suite.disabled && self.has_mode(suite.mode.as_ref())
    }

    fn selects_test(&self, test: &SuiteTest, options: &SuiteOptions) -> bool {
        let is_asked_for = options.operations.is_empty() || options.operations.contains(&test.operation);
        is_asked_for && self.has_mode(test.mode.as_ref())
    }

    /// The verdict on a test that this run leaves out, or that the server cannot answer.
    async fn verdict_without_request(
        &self,
        test: &SuiteTest,
        offered: &mut HashMap<&str, bool>,
    ) -> Option<Verdict> {
        if test.disabled {
            return Some(Verdict::Skip("disabled in the suite".to_owned()));
        }
        if let Some(version) = &test.version {
            let version = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
            if !self.server.fhir_version.starts_with(&version) {
                return Some(Verdict::Skip(format!("for FHIR {version} only")));
            }
        }
        let Some(operation) = OPERATIONS.iter().find(|operation| operation.name == test.operation) else {
            return Some(Verdict::Skip("operation unknown to the runner".to_owned()));
        };
        let is_offered = match offered.get(operation.name) {
            Some(offer) => *offer,
            None => {
                let offered_now = self.server.offers(operation).await;
                offered.insert(operation.name, offered_now);
                offered_now
            }
        };
        (!is_offered).then_some(Verdict::NotOffered)
    }

    /// Sends the request of a test and compares the answer.
    ///
    /// # Errors
    /// An error if the files of the test cannot be read.
    async fn test(&self, suite: &TestSuite, test: &SuiteTest, outcome: &mut TestOutcome) -> Result<()> {
        let operation = OPERATIONS.iter().find(|operation| operation.name == test.operation);
        let operation = operation.context("the operation is unknown")?;
        let is_reading = operation.declared.is_none();
        let body = if is_reading { None } else { Some(self.request(suite, test)?) };
        let headers = self.headers(suite, test)?;
        let begin = Instant::now();
        let result = self.server.send(operation.path, body.as_ref(), headers).await;
        outcome.took = begin.elapsed();
        let (status, answer) = match result {
            Ok(response) => response,
            Err(error) => {
                outcome.verdict = Verdict::Fail(format!("no answer: {error:#}"));
                return Ok(());
            }
        };
        outcome.status = Some(status);
        let Some(response) = answer.filter(Value::is_object) else {
            outcome.verdict = Verdict::Fail(format!("HTTP {} without a JSON body", status.as_u16()));
            return Ok(());
        };
        let references = [test.file("response", &self.modes), test.response2.as_deref()];
        let mut first = None;
        for name in references.into_iter().flatten() {
            match self.judge(test, name, status, &response, is_reading) {
                Ok(notes) => {
                    outcome.verdict = Verdict::Pass(notes);
                    return Ok(());
                }
                Err(difference) => first = first.or(Some(difference)),
            }
        }
        let difference = first.unwrap_or_else(|| "the test has no expected response".to_owned());
        outcome.verdict = match contradictions::explanation(&suite.name, &test.name, &difference) {
            Some(contradiction) => Verdict::Contradiction(contradiction),
            None => Verdict::Fail(difference),
        };
        Ok(())
    }

    /// Compares an answer with one expectation. The error is the first difference.
    fn judge(
        &self,
        test: &SuiteTest,
        name: &str,
        status: StatusCode,
        response: &Value,
        pattern: bool,
    ) -> Result<Vec<String>, String> {
        let expected = self.files.get(name).map_err(|_| format!("the suite has no file {name}"))?;
        let expected = r4::expectation(&expected, &self.modes);
        let got = r4::answer(response, &expected, &self.modes);
        let kind =
            |value: &Value| value.get("resourceType").and_then(Value::as_str).unwrap_or("?").to_owned();
        if kind(&expected) != kind(&got) {
            let (expected, answer_kind) = (kind(&expected), kind(&got));
            let text = got.pointer("/issue/0/details/text").unwrap_or(&got);
            return Err(format!(
                "expected a {expected}, got HTTP {} {answer_kind}: {}",
                status.as_u16(),
                matcher::short(text)
            ));
        }
        let matcher = AnswerMatcher {
            modes: &self.modes,
            fhir_version: &self.server.fhir_version,
            externals: self.externals.get(name),
            pattern,
        };
        let (difference, notes) = matcher.compare(&expected, &got);
        if let Some(difference) = difference {
            return Err(difference);
        }
        let is_second = test.response2.as_deref() == Some(name);
        let expected_status = match &test.http_code {
            Some(code) => code.as_str(),
            // An expected second response that is an OperationOutcome must have an error status.
            None if is_second && kind(&expected) == "OperationOutcome" => "4xx",
            None => "2xx",
        };
        let status_text = status.as_str();
        let fits = match expected_status.strip_suffix("xx") {
            Some(class) => status_text.starts_with(class),
            None => status_text == expected_status,
        };
        if fits {
            Ok(notes)
        } else {
            Err(format!("HTTP status: expected {expected_status}, got {status_text}"))
        }
    }

    fn request(&self, suite: &TestSuite, test: &SuiteTest) -> Result<Value> {
        let name = test.file("request", &self.modes).context("the test has no request file")?;
        let mut body = (*self.files.r4(name)?).clone();
        let mut more = Vec::new();
        for name in &suite.setup {
            more.push(json!({ "name": "tx-resource", "resource": *self.files.r4(name)? }));
        }
        let profile = self.files.r4(test.profile.as_deref().unwrap_or(PROFILE))?;
        more.extend(profile["parameter"].as_array().into_iter().flatten().cloned());
        match body.get_mut("parameter").and_then(Value::as_array_mut) {
            Some(list) => list.extend(more),
            None => body["parameter"] = more.into(),
        }
        Ok(body)
    }

    fn headers(&self, suite: &TestSuite, test: &SuiteTest) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str| -> Result<()> {
            let name = HeaderName::try_from(name)
                .with_context(|| format!("'{name}' is not the name of a header"))?;
            let value = HeaderValue::try_from(value)
                .with_context(|| format!("'{value}' is not valid in a header"))?;
            headers.insert(name, value);
            Ok(())
        };
        add("x-request-id", &format!("tx:{}/{}", suite.name, test.name))?;
        if let Some(languages) = &test.accept_language {
            add("accept-language", languages)?;
        }
        if let Some(more) = test.header.as_ref().filter(|more| self.has_mode(more.mode.as_ref())) {
            add(&more.name, &more.value)?;
        }
        Ok(headers)
    }
}
