//! Errors of the domains as responses. All error statuses are set here, by exhaustive matches.
//!
//! There are three dialects: OAuth JSON, OperationOutcome, pages. The details of an internal error are only logged;
//! the client gets a generic text.

use bulk::GroupError;
use fhir::{IssueCode, OperationOutcome};
use http::{StatusCode, header};
use identity::authorize::device::DeviceError;
use identity::authorize::pushed_request::PushRequestError;
use identity::authorize::request::PageError;
use identity::client_auth::authenticator::ClientAuthError;
use identity::directory::user_directory::UserError;
use identity::sign_in::passkey::PasskeyError;
use identity::sign_in::pending_quota::TooManyPending;
use identity::tokens::access_token::BadToken;
use identity::tokens::dpop::ProofError;
use identity::tokens::grant::GrantError;
use resources::{ResourceBodyError, ResourceError};
use store::StoreError;
use terminology::ExhaustionCause;
use terminology::TxError;

use super::extract;
use super::pages;
use super::reply::{self, Response};
use crate::node::question_pool::QuestionRejected;

/// The format of the errors of a group of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// JSON with `error` and `error_description` (RFC 6749 section 5.2).
    OAuth,
    /// OperationOutcome.
    Fhir,
    /// An HTML page.
    Page,
}

impl Dialect {
    /// Returns the response to an error that does not come from a domain, such as an unknown path, a wrong method or
    /// a large body.
    pub fn plain_error(self, status: StatusCode, text: &str) -> Response {
        match self {
            Self::OAuth => {
                let error = if status.is_server_error() { "server_error" } else { "invalid_request" };
                oauth_error(status, error, Some(text))
            }
            Self::Fhir => fhir_error(status, issue_code(status), text),
            Self::Page => pages::error(status, text),
        }
    }
}

/// Returns the issue code of a status for errors that do not come from a domain.
fn issue_code(status: StatusCode) -> IssueCode {
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

/// Returns an error response of an OAuth endpoint.
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

/// Returns an error response of a FHIR endpoint.
pub fn fhir_error(status: StatusCode, code: IssueCode, text: impl Into<String>) -> Response {
    outcome_response(status, &OperationOutcome::error(code, text))
}

/// Returns an OperationOutcome.
pub fn outcome_response(status: StatusCode, outcome: &OperationOutcome) -> Response {
    let response = reply::no_store(reply::fhir_json(status, outcome));
    if status == StatusCode::UNAUTHORIZED {
        return reply::with(response, header::WWW_AUTHENTICATE, "Bearer realm=\"trefoil\"");
    }
    response
}

fn store_status(error: &StoreError) -> (StatusCode, IssueCode, &'static str) {
    match error {
        StoreError::Conflict { .. } => (
            StatusCode::CONFLICT,
            IssueCode::Conflict,
            "the record was changed by another request at the same time; try again",
        ),
        StoreError::ReadOnly { .. } => (
            StatusCode::INSUFFICIENT_STORAGE,
            IssueCode::NoStore,
            "the server cannot store data at the moment; try again later",
        ),
        StoreError::Clock { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            IssueCode::Transient,
            "the clock of the server has jumped; it stores nothing until an operator corrects or accepts the clock",
        ),
        StoreError::Key { .. } => {
            (StatusCode::BAD_REQUEST, IssueCode::Value, "the request contains an id that cannot be stored")
        }
        StoreError::Corrupt { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            IssueCode::Exception,
            "the stored data is corrupt; the server's log has the details",
        ),
        StoreError::Locked { .. } | StoreError::Draft { .. } | StoreError::Engine { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            IssueCode::Exception,
            "internal error; the server's log has the details",
        ),
    }
}

/// Returns the response to an error of the store, and logs the error.
pub fn store_error(dialect: Dialect, error: &StoreError) -> Response {
    let (status, code, text) = store_status(error);
    tracing::error!(%error, "store");
    match dialect {
        Dialect::Fhir => fhir_error(status, code, text),
        _ => dialect.plain_error(status, text),
    }
}

/// Returns the response to a body that could not be read.
pub fn body_error(dialect: Dialect, error: &extract::ReadBodyError) -> Response {
    let status = match error {
        extract::ReadBodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        extract::ReadBodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        extract::ReadBodyError::Broken => StatusCode::BAD_REQUEST,
        extract::ReadBodyError::Busy(_) => {
            let response = dialect.plain_error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
    };
    dialect.plain_error(status, &error.to_string())
}

/// Returns the response for a client with a Group whose members cannot be read.
pub fn group_members(error: &GroupError) -> Response {
    match error {
        GroupError::Store(error) => store_error(Dialect::Fhir, error),
        GroupError::NoGroup(_) | GroupError::Bad(_) => {
            tracing::error!(%error, "a Group that limits a client cannot be read");
            let text = "the Groups of this client cannot be read; the server's log has the details";
            fhir_error(StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception, text)
        }
    }
}

/// Returns the response to a failed client authentication.
pub fn client_error(error: &ClientAuthError) -> Response {
    match error {
        ClientAuthError::InvalidRequest(text) => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_request", Some(text))
        }
        ClientAuthError::InvalidClient | ClientAuthError::BadAssertion(_) | ClientAuthError::KeySet(_) => {
            oauth_error(StatusCode::UNAUTHORIZED, "invalid_client", Some(&error.to_string()))
        }
        ClientAuthError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// Returns the response to a rejected authorization code or refresh token.
pub fn grant_error(error: &GrantError) -> Response {
    match error {
        GrantError::Store(error) => store_error(Dialect::OAuth, error),
        GrantError::Scope => oauth_error(StatusCode::BAD_REQUEST, "invalid_scope", Some(&error.to_string())),
        GrantError::Unknown
        | GrantError::Reused
        | GrantError::RedirectUri
        | GrantError::Verifier
        | GrantError::Key
        | GrantError::Revoked => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_grant", Some(&error.to_string()))
        }
    }
}

/// Returns the response to a device code for which there is no token (RFC 8628 section 3.5).
pub fn device_error(error: &DeviceError) -> Response {
    let code = match error {
        DeviceError::Grant(error) => return grant_error(error),
        DeviceError::Pending => "authorization_pending",
        DeviceError::SlowDown => "slow_down",
        DeviceError::Expired => "expired_token",
        DeviceError::Denied => "access_denied",
    };
    oauth_error(StatusCode::BAD_REQUEST, code, Some(&error.to_string()))
}

/// Returns the response to a failed passkey ceremony.
pub fn passkey_error(error: &PasskeyError) -> Response {
    let status = match error {
        PasskeyError::Store(error) => return store_error(Dialect::Page, error),
        PasskeyError::NoHostName => StatusCode::NOT_FOUND,
        PasskeyError::CeremonyExpired | PasskeyError::Rejected(_) => StatusCode::BAD_REQUEST,
        PasskeyError::TooMany | PasskeyError::OnlyWay | PasskeyError::NoPasskey => StatusCode::CONFLICT,
    };
    pages::error(status, &pages::passkey::as_sentence(&error.to_string()))
}

/// Returns the page for a user that could not be changed.
pub fn user_error(error: &UserError) -> Response {
    match error {
        UserError::Store(error) => store_error(Dialect::Page, error),
        UserError::Unknown(_) => pages::error(StatusCode::NOT_FOUND, "This account no longer exists."),
        UserError::Exists(_) | UserError::BadName(_) => {
            pages::error(StatusCode::CONFLICT, "This name cannot be used.")
        }
    }
}

/// Returns the response to an access token that a FHIR endpoint rejected.
pub fn fhir_token(error: &BadToken) -> Response {
    match error {
        BadToken::Store(error) => store_error(Dialect::Fhir, error),
        BadToken::Malformed
        | BadToken::Expired
        | BadToken::Revoked
        | BadToken::ClientGone
        | BadToken::UserGone
        | BadToken::SignedOut
        | BadToken::NeedsProof
        | BadToken::NotBound
        | BadToken::OtherKey
        | BadToken::Proof(_) => {
            let mut response = fhir_error(StatusCode::UNAUTHORIZED, IssueCode::Login, error.to_string());
            response.headers_mut().remove(header::WWW_AUTHENTICATE);
            reply::with(response, header::WWW_AUTHENTICATE, &challenge(error))
        }
    }
}

/// Returns the response to an access token that userinfo rejected.
pub fn userinfo_token(error: &BadToken) -> Response {
    if let BadToken::Store(error) = error {
        return store_error(Dialect::OAuth, error);
    }
    let body = serde_json::json!({ "error": token_error(error), "error_description": error.to_string() });
    let response = reply::no_store(reply::json(StatusCode::UNAUTHORIZED, &body));
    reply::with(response, header::WWW_AUTHENTICATE, &challenge(error))
}

fn token_error(error: &BadToken) -> &'static str {
    match error {
        BadToken::Proof(_) | BadToken::OtherKey => "invalid_dpop_proof",
        _ => "invalid_token",
    }
}

/// Returns `WWW-Authenticate` for a rejected token, with the scheme that would be accepted (RFC 6750 section 3; RFC
/// 9449 section 7.1).
fn challenge(error: &BadToken) -> String {
    match error {
        BadToken::Proof(_) | BadToken::OtherKey | BadToken::NeedsProof => {
            let algorithms = identity::tokens::dpop::PROOF_ALGORITHMS.join(" ");
            format!(
                "DPoP error=\"{}\", error_description=\"{}\", algs=\"{algorithms}\"",
                token_error(error),
                error.to_string().replace(['"', '\\'], "'")
            )
        }
        _ => bearer_challenge("invalid_token", &error.to_string()),
    }
}

/// Returns the response to a DPoP proof that an OAuth endpoint rejected (RFC 9449 section 5).
pub fn proof_error(error: &ProofError) -> Response {
    match error {
        ProofError::Bad(error) => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_dpop_proof", Some(&error.to_string()))
        }
        ProofError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// Returns the response to a rejected pushed authorization request.
pub fn push_error(error: &PushRequestError) -> Response {
    match error {
        PushRequestError::Rejected { error, text } => {
            oauth_error(StatusCode::BAD_REQUEST, error.as_str(), Some(text))
        }
        PushRequestError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// Returns the response to a source with too many pending requests, with `Retry-After`.
pub fn pending_error(dialect: Dialect, error: TooManyPending) -> Response {
    let response = match dialect {
        Dialect::OAuth => {
            oauth_error(StatusCode::TOO_MANY_REQUESTS, "temporarily_unavailable", Some(&error.to_string()))
        }
        _ => dialect
            .plain_error(StatusCode::TOO_MANY_REQUESTS, &pages::passkey::as_sentence(&error.to_string())),
    };
    reply::with(response, header::RETRY_AFTER, &error.retry_after_s.to_string())
}

/// Returns `WWW-Authenticate` of RFC 6750 section 3.
pub fn bearer_challenge(error: &str, description: &str) -> String {
    format!("Bearer error=\"{error}\", error_description=\"{}\"", description.replace(['"', '\\'], "'"))
}

/// Returns the page for an authorization request whose error must not be sent to the client.
pub fn page_error(error: &PageError) -> Response {
    match error {
        PageError::Client | PageError::RedirectUri | PageError::PushedRequest => {
            pages::error(StatusCode::BAD_REQUEST, &error.to_string())
        }
        PageError::Store(error) => store_error(Dialect::Page, error),
    }
}

/// Returns the response to a failed terminology operation.
pub fn terminology_error(error: &TxError) -> Response {
    let status = match error {
        TxError::Missing { .. }
        | TxError::NothingToValidate { .. }
        | TxError::Malformed { .. }
        | TxError::DisplayLanguage(_)
        | TxError::UnknownValueSet { .. } => StatusCode::BAD_REQUEST,
        TxError::UnknownInstance { .. }
        | TxError::UnknownCodeSystem { .. }
        | TxError::NotOnDay { .. }
        | TxError::UnknownCode { .. }
        | TxError::UnknownConcept { .. } => StatusCode::NOT_FOUND,
        TxError::Unprocessable(_) if error.exhausted() == Some(ExhaustionCause::Cancelled) => {
            return retry_later(&error.to_string());
        }
        TxError::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    outcome_response(status, &error.outcome())
}

/// Returns the response to a terminology question that was not run.
pub fn question_rejected(why: QuestionRejected) -> Response {
    retry_later(match why {
        QuestionRejected::Full => "too many long terminology requests are waiting; try again later",
        QuestionRejected::Stopping => "the server is stopping; try again later",
    })
}

fn retry_later(text: &str) -> Response {
    let response = fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
    reply::with_static(response, header::RETRY_AFTER, "2")
}

/// Returns the response to a resource that could not be read or written.
pub fn resource_error(error: &ResourceError) -> Response {
    let (status, code) = match error {
        ResourceError::Store(error) => return store_error(Dialect::Fhir, error),
        ResourceError::NotFound { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        ResourceError::Gone { .. } => (StatusCode::GONE, IssueCode::Deleted),
        ResourceError::Outside { .. } => (StatusCode::FORBIDDEN, IssueCode::Forbidden),
        ResourceError::Several { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::MultipleMatches),
        ResourceError::Page => (StatusCode::BAD_REQUEST, IssueCode::Value),
        ResourceError::VersionConflict { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::Conflict),
        ResourceError::Body(error) => match error {
            ResourceBodyError::TooBig { .. } => (StatusCode::PAYLOAD_TOO_LARGE, IssueCode::TooLong),
            ResourceBodyError::Json { .. }
            | ResourceBodyError::NotObject { .. }
            | ResourceBodyError::TooDeep { .. } => (StatusCode::BAD_REQUEST, IssueCode::Structure),
            ResourceBodyError::NoType | ResourceBodyError::NoId => {
                (StatusCode::BAD_REQUEST, IssueCode::Required)
            }
            ResourceBodyError::UnknownType(_) | ResourceBodyError::BundleType(_) => {
                (StatusCode::BAD_REQUEST, IssueCode::NotSupported)
            }
            ResourceBodyError::DuplicateMember { .. }
            | ResourceBodyError::WrongType { .. }
            | ResourceBodyError::BadId(_)
            | ResourceBodyError::WrongId { .. }
            | ResourceBodyError::BadMeta
            | ResourceBodyError::BadBundle(_)
            | ResourceBodyError::Entry(_)
            | ResourceBodyError::Search(_)
            | ResourceBodyError::BadEntry { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        },
    };
    fhir_error(status, code, error.to_string())
}
