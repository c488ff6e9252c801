//! Bulk Data export: kick-off, status and deletion (Bulk Data Access 2.0.0). Downloads are in [`super::download`].

use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::discovery::check_safe;
use super::terminology::path_segment;
use super::{Answer, Api, ApiError, Bearer};

/// Time between two polls if the server sends no `Retry-After`, in seconds.
const DEFAULT_POLL_S: i64 = 2;
/// Maximum time between two polls, in seconds, even if the server requests a longer one.
const LONGEST_POLL_S: i64 = 3600;

/// Parameters of an export. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KickOff {
    /// Id of a Group; empty for an export of all patients.
    pub group: String,
    /// Resource types, separated by commas; empty for all types.
    pub types: String,
    /// Instant; only resources that changed after it are exported.
    pub since: String,
}

/// Status of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportStatus {
    /// The export is not complete.
    Running {
        /// Progress text of the server (`X-Progress`).
        progress: Option<String>,
        /// Time until the next poll, in seconds.
        retry_after_s: i64,
    },
    /// The export is complete.
    Complete(ExportManifest),
}

/// Manifest of a completed export.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportManifest {
    /// Time of the snapshot: the export contains all changes before this instant.
    pub transaction_time: String,
    /// URL of the kick-off request.
    pub request: String,
    /// Whether downloads need the access token.
    pub requires_access_token: bool,
    /// Files with resources.
    pub output: Vec<OutputFile>,
    /// Files with OperationOutcomes.
    #[serde(default)]
    pub error: Vec<OutputFile>,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OutputFile {
    /// Type of the resources in the file.
    #[serde(rename = "type")]
    pub kind: String,
    pub url: String,
    /// Number of resources in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl Api {
    /// Starts an export and returns the address of its status.
    ///
    /// # Errors
    /// Returns an error for any status except 202. In that case, no export was started.
    pub async fn kick_off(&self, query: &KickOff, bearer: &Bearer) -> Result<String, ApiError> {
        let token = self.token(bearer).await?;
        let base = &self.profile().fhir_base;
        let url = match query.group.as_str() {
            "" => format!("{base}/$export"),
            group => format!("{base}/Group/{}/$export", path_segment(group)?),
        };
        let all = [("_outputFormat", "ndjson"), ("_type", &query.types), ("_since", &query.since)];
        let query: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let request = self.http().get(&url).query(&query).bearer_auth(token);
        let request = request.header("accept", "application/fhir+json").header("prefer", "respond-async");
        let answer = self.call(request).await?;
        if answer.status != StatusCode::ACCEPTED {
            return Err(ApiError::refused(&url, &answer));
        }
        let missing = || ApiError::Unexpected {
            url: url.clone(),
            reason: "the 202 response has no status address in Content-Location".to_owned(),
        };
        let at = answer.header("content-location").ok_or_else(missing)?;
        let at = url::Url::parse(&url).and_then(|base| base.join(at)).map_err(|_| missing())?;
        check_safe(at.as_str())?;
        Ok(at.into())
    }

    /// Polls the status of an export.
    ///
    /// # Errors
    /// Returns the error of the request. Any status except 200, 202, 429 and 503 means that the export failed.
    pub async fn poll(&self, status_url: &str, bearer: &Bearer) -> Result<ExportStatus, ApiError> {
        let token = self.token(bearer).await?;
        let request = self.http().get(status_url).bearer_auth(token).header("accept", "application/json");
        let answer = self.call(request).await?;
        let retry_after_s = retry_after_s(&answer, self.now());
        match answer.status {
            StatusCode::ACCEPTED => Ok(ExportStatus::Running {
                progress: answer.header("x-progress").map(str::to_owned),
                retry_after_s,
            }),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Ok(ExportStatus::Running { progress: None, retry_after_s })
            }
            _ => answer.json(status_url).map(ExportStatus::Complete),
        }
    }

    /// Cancels an export, or deletes its files if it is completed.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub async fn delete_export(&self, status_url: &str, bearer: &Bearer) -> Result<(), ApiError> {
        let token = self.token(bearer).await?;
        let answer = self.call(self.http().delete(status_url).bearer_auth(token)).await?;
        if answer.status.is_success() { Ok(()) } else { Err(ApiError::refused(status_url, &answer)) }
    }
}

/// Returns the delay in `Retry-After` in seconds. The header contains seconds or an HTTP date (RFC 9110 10.2.3).
fn retry_after_s(answer: &Answer, now: Timestamp) -> i64 {
    let text = answer.header("retry-after").unwrap_or_default().trim();
    let date = || {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Some(at.as_second() - now.as_second())
    };
    let seconds = text.parse().ok().or_else(date).unwrap_or(DEFAULT_POLL_S);
    seconds.clamp(1, LONGEST_POLL_S)
}

/// Returns the percentage in the progress text of the server, if it contains one.
pub fn percent(progress: &str) -> Option<u16> {
    let before = progress.split_once('%')?.0.trim_end();
    let start = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
    let number: f64 = before[start..].parse().ok()?;
    Some(number.clamp(0.0, 100.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_retry(header: Option<&str>, expected: i64) {
        let mut headers = http::HeaderMap::new();
        if let Some(header) = header {
            headers.insert("retry-after", header.parse().unwrap());
        }
        let answer = Answer { status: StatusCode::ACCEPTED, headers, body: bytes::Bytes::new() };
        let now = "1994-11-06T08:49:37Z".parse().unwrap();
        assert_eq!(retry_after_s(&answer, now), expected, "{header:?}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        check_retry(Some("7"), 7);
        check_retry(Some("0"), 1);
        check_retry(Some("-3"), 1);
        check_retry(Some("99999999"), 3600);
        check_retry(Some("Sun, 06 Nov 1994 08:50:07 GMT"), 30);
        check_retry(Some("Sun, 06 Nov 1994 08:00:00 GMT"), 1);
        check_retry(Some("soon"), DEFAULT_POLL_S);
        check_retry(None, DEFAULT_POLL_S);
    }

    #[track_caller]
    fn check_percent(text: &str, expected: Option<u16>) {
        assert_eq!(percent(text), expected, "{text}");
    }

    #[test]
    fn a_percentage_is_found_in_a_progress_text() {
        check_percent("42% (3 of 7 types)", Some(42));
        check_percent("about 12.5 % done", Some(12));
        check_percent("250%", Some(100));
        check_percent("almost done", None);
        check_percent("%", None);
    }
}
