//! The format of the errors of a group of endpoints.

use fhir::{IssueCode, OperationOutcome};
use http::{StatusCode, header};

use crate::http::pages::error_page;
use crate::http::reply::{self, Response};

/// The format of the errors of a group of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// JSON with `error` and `error_description` (RFC 6749 section 5.2).
    OAuth,
    /// The same JSON, with error codes of the administration API.
    Admin,
    /// OperationOutcome.
    Fhir,
    /// An HTML page.
    Page,
}

impl Dialect {
    /// The dialect of problems at a path, by its first segment.
    pub fn of_path(path: &str) -> Self {
        match path.strip_prefix('/').and_then(|path| path.split('/').next()) {
            Some("oauth2" | ".well-known") => Self::OAuth,
            Some("fhir") => Self::Fhir,
            Some("admin") => Self::Admin,
            _ => Self::Page,
        }
    }

    /// The response to an error that does not come from a domain, such as an unknown path, a wrong method or
    /// a large body.
    pub fn plain_error(self, status: StatusCode, text: &str) -> Response {
        match self {
            Self::OAuth | Self::Admin => {
                let error = if status.is_server_error() { "server_error" } else { "invalid_request" };
                oauth_error(status, error, Some(text))
            }
            Self::Fhir => fhir_error(status, issue_code(status), text),
            Self::Page => error_page::error(status, text),
        }
    }
}

/// The issue code of a status for errors that do not come from a domain.
pub(super) fn issue_code(status: StatusCode) -> IssueCode {
    match status {
        StatusCode::NOT_FOUND => IssueCode::NotFound,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            IssueCode::NotSupported
        }
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::URI_TOO_LONG => IssueCode::TooLong,
        StatusCode::REQUEST_TIMEOUT => IssueCode::Timeout,
        status if status.is_server_error() => IssueCode::Exception,
        _ => IssueCode::Invalid,
    }
}

/// An error response of an OAuth endpoint.
pub fn oauth_error(status: StatusCode, error: &str, description: Option<&str>) -> Response {
    let mut body = serde_json::json!({ "error": error });
    if let Some(description) = description {
        // RFC 6749 section 5.2 does not allow `"` and `\` in descriptions.
        body["error_description"] = description.replace(['"', '\\'], "'").into();
    }
    let response = reply::no_store(reply::json(status, &body));
    if status == StatusCode::UNAUTHORIZED {
        return reply::with(response, header::WWW_AUTHENTICATE, "Basic realm=\"trefoil\"");
    }
    response
}

/// An error response of a FHIR endpoint.
pub fn fhir_error(status: StatusCode, code: IssueCode, text: impl Into<String>) -> Response {
    outcome_response(status, &OperationOutcome::error(code, text))
}

/// An OperationOutcome.
pub fn outcome_response(status: StatusCode, outcome: &OperationOutcome) -> Response {
    let response = reply::no_store(reply::fhir_json(status, outcome));
    if status == StatusCode::UNAUTHORIZED {
        return reply::with(response, header::WWW_AUTHENTICATE, "Bearer realm=\"trefoil\"");
    }
    response
}

/// An error response of the administration API.
pub(super) fn admin_error(status: StatusCode, error: &str, text: &str) -> Response {
    let response = oauth_error(status, error, Some(text));
    let challenge = match status {
        StatusCode::UNAUTHORIZED if error == "invalid_request" => "Bearer realm=\"trefoil\"".to_owned(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => bearer_challenge(error, text),
        _ => return response,
    };
    let mut response = response;
    response.headers_mut().remove(header::WWW_AUTHENTICATE);
    reply::with(response, header::WWW_AUTHENTICATE, &challenge)
}

/// The response of the administration API to a record that does not exist.
pub(super) fn no_such(record: &str) -> Response {
    admin_error(StatusCode::NOT_FOUND, "not_found", &format!("there is no such {record}"))
}

/// The response of a FHIR endpoint to a token without the necessary scope.
pub(super) fn insufficient_scope(text: &str, scope: Option<&str>) -> Response {
    let response = fhir_error(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
    let mut challenge = bearer_challenge("insufficient_scope", text);
    if let Some(scope) = scope {
        // A scope contains neither `"` nor `\`.
        challenge.push_str(&format!(", scope=\"{scope}\""));
    }
    reply::with(response, header::WWW_AUTHENTICATE, &challenge)
}

/// `WWW-Authenticate` of RFC 6750 section 3.
pub fn bearer_challenge(error: &str, description: &str) -> String {
    format!("Bearer error=\"{error}\", error_description=\"{}\"", description.replace(['"', '\\'], "'"))
}
