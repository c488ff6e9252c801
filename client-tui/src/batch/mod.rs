//! Validation of many codes: a file of codings, `$validate-code` for each one, and the results in the order
//! of the file.

mod input;

use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;

pub use self::input::{BatchDefaults, BatchError, MAX_ROWS, read, read_text};
use crate::api::{Api, ApiError, Bearer, ValidateCode, ValidationAnswer};
use crate::export::retry::RetryCounter;

/// Maximum number of requests for one row if the server says that it is busy.
const MAX_ATTEMPTS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Number of the row; the header is not counted.
    pub row: u64,
    pub question: ValidateCode,
    /// Reason why the row cannot be sent, if it is invalid.
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResult {
    pub row: u64,
    pub url: String,
    pub system: String,
    pub code: String,
    pub display: String,
    /// Whether the code is valid; `None` if there is no answer.
    pub result: Option<bool>,
    pub server_display: Option<String>,
    pub message: Option<String>,
    /// Reason why there is no answer.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words describe the verdicts")]
pub enum BatchVerdict {
    Valid,
    Invalid,
    Failed,
}

impl BatchVerdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Failed => "error",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchSummary {
    pub total: u64,
    pub valid: u64,
    pub invalid: u64,
    /// Rows without an answer.
    pub failed: u64,
}

impl BatchSummary {
    pub fn add(&mut self, verdict: BatchVerdict) {
        self.total += 1;
        match verdict {
            BatchVerdict::Valid => self.valid += 1,
            BatchVerdict::Invalid => self.invalid += 1,
            BatchVerdict::Failed => self.failed += 1,
        }
    }

    pub fn sentence(self) -> String {
        let Self { total, valid, invalid, failed } = self;
        format!("{total} rows: {valid} valid, {invalid} invalid, {failed} without an answer")
    }
}

impl BatchResult {
    fn new(row: &BatchRow, result: Result<ValidationAnswer, String>) -> Self {
        let ValidateCode { url, id, system, code, display } = row.question.clone();
        let merged = Self {
            row: row.row,
            url: if url.is_empty() { id } else { url },
            system,
            code,
            display,
            ..Self::default()
        };
        match result {
            Ok(validated) => Self {
                result: Some(validated.result),
                server_display: validated.display,
                message: validated.message,
                ..merged
            },
            Err(error) => Self { error: Some(error), ..merged },
        }
    }

    pub fn verdict(&self) -> BatchVerdict {
        match self.result {
            Some(true) => BatchVerdict::Valid,
            Some(false) => BatchVerdict::Invalid,
            None => BatchVerdict::Failed,
        }
    }

    /// The explanation of the verdict: the error, the message, or the display of the server.
    pub fn explanation(&self) -> &str {
        let texts = [&self.error, &self.message, &self.server_display];
        texts.into_iter().flatten().next().map(String::as_str).unwrap_or_default()
    }

    /// Names of the columns of [`Self::columns`].
    pub const COLUMNS: [&'static str; 9] =
        ["row", "url", "system", "code", "display", "result", "serverDisplay", "message", "error"];

    /// The values of a CSV record.
    pub fn columns(&self) -> [String; 9] {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        [
            self.row.to_string(),
            self.url.clone(),
            self.system.clone(),
            self.code.clone(),
            self.display.clone(),
            self.result.map(|result| result.to_string()).unwrap_or_default(),
            text(&self.server_display),
            text(&self.message),
            text(&self.error),
        ]
    }
}

/// Validates the rows with at most `parallel` concurrent requests. The results are in the order of the rows.
pub fn run(
    api: &Api,
    rows: Vec<BatchRow>,
    bearer: &Bearer,
    parallel: usize,
) -> impl Stream<Item = BatchResult> + Send + 'static {
    let (api, bearer) = (api.clone(), bearer.clone());
    let validate = move |row: BatchRow| {
        let (api, bearer) = (api.clone(), bearer.clone());
        async move {
            let result = match &row.error {
                Some(error) => Err(error.clone()),
                None => validate(&api, &row.question, &bearer).await.map_err(|error| error.to_string()),
            };
            BatchResult::new(&row, result)
        }
    };
    stream::iter(rows).map(validate).buffered(parallel.max(1))
}

/// Validates a code. If the server says that it is busy, the request is sent again.
async fn validate(api: &Api, question: &ValidateCode, bearer: &Bearer) -> Result<ValidationAnswer, ApiError> {
    let mut retry = RetryCounter::default();
    let mut attempts = 1;
    loop {
        let error = match api.validate_code(question, bearer).await {
            Ok(validation) => return Ok(validation),
            Err(error) => error,
        };
        // If the server cannot be reached, each row would wait.
        if error.is_unreachable() || attempts == MAX_ATTEMPTS {
            return Err(error);
        }
        match retry.next_delay(&error, api, Some(bearer)).await {
            Some(delay) => api.wait(delay).await,
            None => return Err(error),
        }
        attempts += 1;
    }
}
