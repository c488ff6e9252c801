//! Bulk Data export: kick-off, status and deletion (Bulk Data Access 2.0.0). [`crate::export`] combines them.

use bytes::Bytes;
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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
    /// The export is complete; the value is the first page of the manifest.
    Complete(ManifestPage),
}

/// One page of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPage {
    /// The page exactly as the server sent it.
    pub bytes: Bytes,
    pub manifest: ExportManifest,
    /// Address of the next page.
    pub next: Option<String>,
}

/// Members of a manifest that the client uses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportManifest {
    /// Time of the snapshot: the export contains all changes before this instant.
    pub transaction_time: String,
    /// Whether downloads need the access token.
    pub requires_access_token: bool,
    /// Files with resources.
    pub output: Vec<OutputFile>,
    /// Files with Bundles that name the resources deleted since `_since`.
    #[serde(default)]
    pub deleted: Vec<OutputFile>,
    /// Files with OperationOutcomes.
    #[serde(default)]
    pub error: Vec<OutputFile>,
    /// Links to other pages.
    #[serde(default)]
    pub link: Vec<ManifestLink>,
}

/// A link of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ManifestLink {
    /// `next` for the next page.
    #[serde(default)]
    pub relation: String,
    #[serde(default)]
    pub url: String,
}

/// The part of a file that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRange {
    /// First byte.
    pub start: u64,
    /// Strong entity tag of the bytes before `start`.
    pub validator: Option<String>,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OutputFile {
    /// Type of the resources in the file.
    #[serde(rename = "type")]
    pub kind: String,
    pub url: String,
    /// Number of resources in the file.
    #[serde(default)]
    pub count: Option<u64>,
}

impl KickOff {
    /// Returns a short description of what is exported: `Group/g1` or `all patients`.
    pub fn scope(&self) -> String {
        if self.group.is_empty() { "all patients".to_owned() } else { format!("Group/{}", self.group) }
    }

    /// Checks the values before they are sent.
    ///
    /// # Errors
    /// Returns the reason why the server would reject a value.
    pub fn check(&self) -> Result<(), String> {
        if self.since.is_empty() || self.since.parse::<Timestamp>().is_ok() {
            return Ok(());
        }
        Err(format!("_since '{}' is not an instant like 2024-01-31T08:00:00Z", self.since))
    }
}

impl Api {
    /// Starts an export and returns the address of its status.
    ///
    /// # Errors
    /// Returns an error for any status except 202. In that case, no export was started.
    pub async fn kick_off(&self, query: &KickOff, bearer: &Bearer) -> Result<String, ApiError> {
        let base = &self.profile().fhir_base;
        let url = match query.group.as_str() {
            "" => format!("{base}/$export"),
            group => format!("{base}/Group/{}/$export", path_segment(group)?),
        };
        let all = [("_outputFormat", "ndjson"), ("_type", &query.types), ("_since", &query.since)];
        let query: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let request = self.authorize(self.http().get(&url).query(&query), bearer).await?;
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
    /// Returns the error of the request. [`ApiError::is_final_export_status`] says whether the export failed.
    pub async fn poll(&self, status_url: &str, bearer: &Bearer) -> Result<ExportStatus, ApiError> {
        let answer = self.get_with_token(status_url, bearer).await?;
        if answer.status == StatusCode::ACCEPTED {
            return Ok(ExportStatus::Running {
                progress: answer.header("x-progress").map(str::to_owned),
                retry_after_s: retry_after_s(&answer).unwrap_or(DEFAULT_POLL_S),
            });
        }
        manifest_page(status_url, answer).map(ExportStatus::Complete)
    }

    /// Reads a further page of a manifest.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub async fn manifest_page(&self, url: &str, bearer: &Bearer) -> Result<ManifestPage, ApiError> {
        manifest_page(url, self.get_with_token(url, bearer).await?)
    }

    async fn get_with_token(&self, url: &str, bearer: &Bearer) -> Result<Answer, ApiError> {
        check_safe(url)?;
        let request = self.http().get(url).header("accept", "application/json");
        self.call(self.authorize(request, bearer).await?).await
    }

    /// Requests a file of an export, or the rest of it. The body of the response is not read.
    ///
    /// # Errors
    /// Returns an error for any status except 200, 206 and 416.
    pub async fn request_file(
        &self,
        url: &str,
        range: &FileRange,
        bearer: Option<&Bearer>,
    ) -> Result<reqwest::Response, ApiError> {
        // A compressed response could not be resumed.
        let mut request = self.http().get(url).header("accept", "application/fhir+ndjson");
        request = request.header("accept-encoding", "identity");
        if range.start > 0 {
            request = request.header("range", format!("bytes={}-", range.start));
            if let Some(validator) = &range.validator {
                request = request.header("if-range", validator);
            }
        }
        if let Some(bearer) = bearer {
            check_safe(url)?;
            request = self.authorize(request, bearer).await?;
        }
        let response = self.stream(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() || (status == StatusCode::RANGE_NOT_SATISFIABLE && range.start > 0) {
            return Ok(response);
        }
        let body = response.bytes().await.unwrap_or_default();
        Err(ApiError::refused(url, &Answer { status, headers, body, received_at: self.now() }))
    }

    /// Cancels an export, or deletes its files if it is completed.
    ///
    /// # Errors
    /// Returns the error of the request.
    pub async fn delete_export(&self, status_url: &str, bearer: &Bearer) -> Result<(), ApiError> {
        let answer = self.call(self.authorize(self.http().delete(status_url), bearer).await?).await?;
        if answer.status.is_success() { Ok(()) } else { Err(ApiError::refused(status_url, &answer)) }
    }
}

/// Reads a page of a manifest.
fn manifest_page(url: &str, answer: Answer) -> Result<ManifestPage, ApiError> {
    let manifest: ExportManifest = answer.json(url)?;
    let next = manifest.link.iter().find(|link| link.relation == "next" && !link.url.is_empty());
    let absolute = |next: &ManifestLink| {
        let joined = url::Url::parse(url).and_then(|base| base.join(&next.url));
        joined.map(String::from).map_err(|error| ApiError::Unexpected {
            url: url.to_owned(),
            reason: format!("the address '{}' of the next page is invalid: {error}", next.url),
        })
    };
    let next = next.map(absolute).transpose()?;
    Ok(ManifestPage { bytes: answer.body, manifest, next })
}

/// Returns the delay in `Retry-After` in seconds, if there is one. The header contains seconds or an HTTP date (RFC 9110 10.2.3).
pub(super) fn retry_after_s(answer: &Answer) -> Option<i64> {
    let text = answer.header("retry-after").unwrap_or_default().trim();
    let date = || {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Some(at.as_second() - answer.received_at.as_second())
    };
    let seconds: i64 = text.parse().ok().or_else(date)?;
    Some(seconds.clamp(1, LONGEST_POLL_S))
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
    fn check_retry(header: Option<&str>, expected: Option<i64>) {
        let mut headers = http::HeaderMap::new();
        if let Some(header) = header {
            headers.insert("retry-after", header.parse().unwrap());
        }
        let received_at = "1994-11-06T08:49:37Z".parse().unwrap();
        let answer = Answer { status: StatusCode::ACCEPTED, headers, body: Bytes::new(), received_at };
        assert_eq!(retry_after_s(&answer), expected, "{header:?}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        check_retry(Some("7"), Some(7));
        check_retry(Some("0"), Some(1));
        check_retry(Some("-3"), Some(1));
        check_retry(Some("99999999"), Some(3600));
        check_retry(Some("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        check_retry(Some("Sun, 06 Nov 1994 08:00:00 GMT"), Some(1));
        check_retry(Some("soon"), None);
        check_retry(None, None);
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
