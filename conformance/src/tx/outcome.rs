//! The options of a run of HL7's suite, and the outcome of each test.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;

use super::contradictions::Contradiction;

/// Options of a run.
#[derive(Debug, Default)]
pub struct SuiteOptions {
    /// Folder with `test-cases.json`.
    pub tests: PathBuf,
    /// FHIR base URL of the server.
    pub target: String,
    /// Selected suites; all if empty.
    pub suites: Vec<String>,
    /// Selected operations; all if empty.
    pub operations: Vec<String>,
    /// Modes besides `general`, such as `flat` or `snomed`.
    pub modes: Vec<String>,
    /// File with the texts of the server's messages, which the suite calls externals.
    pub externals: Option<PathBuf>,
    /// Bearer token to send.
    pub token: Option<String>,
    /// Certificates to trust in addition to those of the system, as PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
}

/// Result of a test.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The answer matches the expectation; the value contains the notes that the suite requests.
    Pass(Vec<String>),
    /// The answer does not match; the value is the first difference.
    Fail(String),
    /// The answer differs from an expectation that contradicts the suite itself.
    Contradiction(&'static Contradiction),
    /// The server does not offer the operation.
    NotOffered,
    /// The test was not run; the value is the reason.
    Skip(String),
}

/// The outcome of one test.
#[derive(Debug, Clone)]
pub struct TestOutcome {
    /// Name of the suite.
    pub suite: String,
    /// Name of the test.
    pub test: String,
    /// Operation that the test calls.
    pub operation: String,
    /// Result of the test.
    pub verdict: Verdict,
    /// HTTP status of the answer.
    pub status: Option<StatusCode>,
    /// Duration of the request.
    pub took: Duration,
}
