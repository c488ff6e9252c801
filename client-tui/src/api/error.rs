//! Errors of requests, with messages for the user.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::Answer;
use super::connection_failure::{connection_failure, innermost};
use super::page_text::page_text;
use super::retry_after::retry_after_s;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The server did not answer.
    #[error("{reason} ({url} cannot be reached)")]
    Unreachable { url: String, reason: String },
    /// The server answered with an error status.
    #[error("{text} ({status} from {url})")]
    Refused {
        url: String,
        status: StatusCode,
        /// Text of the OperationOutcome or the OAuth error.
        text: String,
        /// Value of `Retry-After`, in seconds.
        retry_after_s: Option<i64>,
        /// Whether an OperationOutcome says that the problem is transient.
        transient: bool,
        /// Scope that would allow the request (RFC 6750 3), if the server names it.
        missing_scope: Option<String>,
    },
    /// The connection was lost while the body of a response was read.
    #[error("the connection was lost: {reason} ({url})")]
    Interrupted { url: String, reason: String },
    /// The server answered in a way that violates the standards.
    #[error("unexpected response: {reason} ({url})")]
    Unexpected { url: String, reason: String },
    /// The profile lacks a setting that the request needs.
    #[error("{0}")]
    Profile(&'static str),
    #[error("no user is signed in")]
    NotSignedIn,
    #[error("the sign-in failed: {0}")]
    SignIn(String),
    /// The client is read-only, and the request was not sent. The text says what it would change.
    #[error("the client is read-only (--read-only), and {0}")]
    ReadOnly(String),
    /// An export names an address at another host, to which the token was not sent.
    #[error(
        "the export continues at {host}, which is not the server of the profile, and the token was not sent there; if you trust this host, allow it with --file-host {host}"
    )]
    ForeignHost { host: String },
    /// The server rejected the code of a sign-in.
    #[error("the sign-in failed: {0}")]
    RejectedCode(String),
    /// A file could not be written.
    #[error("failed to write {path}: {reason}")]
    File { path: String, reason: String },
    /// The request could not be built.
    #[error("the request cannot be sent: {0}")]
    Request(String),
}

impl ApiError {
    /// Returns true if the server cannot be reached.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Returns true if the server has nothing at the address.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::NOT_FOUND | StatusCode::GONE, .. })
    }

    /// Returns true if the token was not sent, because the address is at another host.
    pub fn is_foreign_host(&self) -> bool {
        matches!(self, Self::ForeignHost { .. })
    }

    /// Returns true if the same request may succeed later without any change: the network failed, or the
    /// server said that it is busy or that the problem is transient.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Interrupted { .. } => true,
            Self::Refused { status, transient, .. } => {
                *transient || matches!(status.as_u16(), 408 | 425 | 429 | 502 | 503 | 504)
            }
            _ => false,
        }
    }

    /// The delay that the server requested with `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after_s, .. } => {
                retry_after_s.map(|s| Duration::from_secs(s.unsigned_abs()))
            }
            _ => None,
        }
    }

    /// Returns true if this response to a status request means that the export failed or no longer exists. A
    /// rejected token says nothing about the export.
    pub fn is_final_export_status(&self) -> bool {
        match self {
            Self::Refused { status, .. } => !self.is_transient() && !matches!(status.as_u16(), 401 | 403),
            _ => false,
        }
    }

    /// Adds the reason why the token lacks the scope that the server requires. `requested` are the scopes
    /// that were requested for the token, if they are known.
    #[must_use]
    pub(super) fn explain_scope(mut self, requested: Option<&str>) -> Self {
        if let Self::Refused { text, missing_scope: Some(missing), .. } = &mut self {
            let reason = match requested {
                Some(requested) if requested.split_whitespace().any(|scope| scope == missing) => {
                    "it was requested, but the server did not grant it to this client or user"
                }
                Some(_) => "it was not requested; add it to the scopes of the profile, or use --scope",
                None => "the token does not contain it",
            };
            text.push_str(&format!(" (missing scope {missing}: {reason})"));
        }
        self
    }

    pub(crate) fn interrupted(url: &str, error: &reqwest::Error, after_bytes: u64) -> Self {
        let reason = format!("{} after {after_bytes} bytes", innermost(error));
        Self::Interrupted { url: url.to_owned(), reason }
    }

    pub(super) fn unreachable(url: &str, error: &reqwest::Error) -> Self {
        Self::Unreachable { url: url.to_owned(), reason: connection_failure(url, error) }
    }

    pub(super) fn request(error: reqwest::Error) -> Self {
        Self::Request(innermost(&error))
    }

    pub(super) fn certificates(error: reqwest::Error) -> Self {
        Self::Request(format!("the certificates to trust cannot be used: {}", innermost(&error)))
    }

    pub(super) fn refused(url: &str, response: &Answer) -> Self {
        // Redirects are not followed, because a token would be sent to an address that the user did not name.
        let target = response.header("location").filter(|_| response.status.is_redirection());
        let text = match target {
            Some(target) => format!("the server redirects to {target}; set the base address to that server"),
            None => response_text(&response.body),
        };
        Self::Refused {
            url: url.to_owned(),
            status: response.status,
            text,
            retry_after_s: retry_after_s(response),
            transient: is_transient_outcome(&response.body),
            missing_scope: response.header("www-authenticate").and_then(scope_of_challenge),
        }
    }
}

/// The parameter `scope` of a challenge: `Bearer error="insufficient_scope", scope="a b"`.
fn scope_of_challenge(challenge: &str) -> Option<String> {
    let (_, rest) = challenge.split_once("scope=\"")?;
    rest.split('"').next().map(str::to_owned)
}

/// Returns true if an OperationOutcome has an issue of the type `transient` or one of its subtypes (FHIR R4,
/// issue-type).
fn is_transient_outcome(body: &[u8]) -> bool {
    const TRANSIENT: [&str; 6] =
        ["transient", "lock-error", "no-store", "timeout", "incomplete", "throttled"];
    let Ok(json) = serde_json::from_slice::<Value>(body) else { return false };
    let issues = json["issue"].as_array().into_iter().flatten();
    issues.filter_map(|issue| issue["code"].as_str()).any(|code| TRANSIENT.contains(&code))
}

/// The text of an error body: OperationOutcome (FHIR) or `error` and `error_description` (OAuth).
fn response_text(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        return match std::str::from_utf8(body).map(str::trim) {
            Ok(text) if !page_text(text).is_empty() => page_text(text),
            _ => "no explanation".to_owned(),
        };
    };
    if let Some(issues) = json["issue"].as_array() {
        let text = |issue: &Value| {
            let text = issue["details"]["text"].as_str().or(issue["diagnostics"].as_str());
            text.or(issue["code"].as_str()).unwrap_or("an issue without text").to_owned()
        };
        return issues.iter().map(text).collect::<Vec<_>>().join("; ");
    }
    match (json["error"].as_str(), json["error_description"].as_str()) {
        (Some(error), Some(description)) => format!("{error} ({description})"),
        (Some(error), None) => error.to_owned(),
        _ => "no explanation".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: &str) {
        assert_eq!(response_text(body.as_bytes()), expected);
    }

    #[test]
    fn the_missing_scope_is_explained() {
        assert_eq!(scope_of_challenge("Bearer error=\"x\", scope=\"a/B.r\"").as_deref(), Some("a/B.r"));
        assert_eq!(scope_of_challenge("Bearer realm=\"x\""), None);
        let refusal = || ApiError::Refused {
            url: "u".to_owned(),
            status: StatusCode::FORBIDDEN,
            text: "no".to_owned(),
            retry_after_s: None,
            transient: false,
            missing_scope: Some("user/ValueSet.s".to_owned()),
        };
        let text = |requested: Option<&str>| refusal().explain_scope(requested).to_string();
        assert!(text(Some("openid user/ValueSet.s")).contains("did not grant"));
        assert!(text(Some("openid")).contains("not requested"));
        assert!(text(None).contains("missing scope user/ValueSet.s"));
    }

    #[test]
    fn error_bodies_are_converted_to_messages() {
        check(r#"{"error":"invalid_grant","error_description":"spent"}"#, "invalid_grant (spent)");
        check(r#"{"error":"invalid_scope"}"#, "invalid_scope");
        check(
            r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid","details":{"text":"no such ValueSet"}},{"code":"required"}]}"#,
            "no such ValueSet; required",
        );
        check("upstream timed out", "upstream timed out");
        check("<html>", "no explanation");
        check("<html><h1>502 Bad Gateway</h1></html>", "502 Bad Gateway");
        check("", "no explanation");
        check("[]", "no explanation");
    }
}
