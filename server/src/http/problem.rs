//! Errors of the domains to answers: the one home of error statuses, by exhaustive match.
//!
//! Three dialects: OAuth JSON, OperationOutcome, pages. What the caller reads and what the log keeps
//! are different texts: an internal error is logged whole and told as nothing but itself.

use bulk::MembersError;
use fhir::{IssueCode, OperationOutcome};
use http::{StatusCode, header};
use identity::authorize::ShowError;
use identity::client_auth::ClientAuthError;
use identity::device::DeviceError;
use identity::dpop::ProofError;
use identity::grant::GrantError;
use identity::passkey::PasskeyError;
use identity::pending::TooManyPending;
use identity::pushed::PushError;
use identity::token::BadToken;
use identity::user::UserError;
use resources::{BodyError, ResourceError};
use store::StoreError;
use terminology::TxError;
use terminology::budget::Cause;

use super::extract;
use super::pages;
use super::reply::{self, Response};
use crate::question_pool::NotAsked;

/// How a group of endpoints words its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// JSON with `error` and `error_description` (RFC 6749 5.2).
    OAuth,
    /// OperationOutcome.
    Fhir,
    /// A page.
    Page,
}

impl Dialect {
    /// An error that is not of any domain: no such address, wrong method, body too large, a fault.
    pub fn plain(self, status: StatusCode, text: &str) -> Response {
        match self {
            Self::OAuth => {
                let error = if status.is_server_error() { "server_error" } else { "invalid_request" };
                oauth(status, error, Some(text))
            }
            Self::Fhir => fhir(status, issue_code(status), text),
            Self::Page => pages::error(status, text),
        }
    }
}

/// The issue code that goes with a status where no domain chose one.
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

/// An error answer of an OAuth endpoint.
pub fn oauth(status: StatusCode, error: &str, description: Option<&str>) -> Response {
    let mut body = serde_json::json!({ "error": error });
    if let Some(description) = description {
        // RFC 6749 5.2 leaves `"` and `\` out of descriptions.
        body["error_description"] = description.replace(['"', '\\'], "'").into();
    }
    let response = reply::no_store(reply::json(status, &body));
    if status == StatusCode::UNAUTHORIZED {
        return reply::with(response, header::WWW_AUTHENTICATE, "Basic realm=\"trefoil\"");
    }
    response
}

/// An error answer of a FHIR endpoint.
pub fn fhir(status: StatusCode, code: IssueCode, text: impl Into<String>) -> Response {
    outcome(status, &OperationOutcome::error(code, text))
}

/// An OperationOutcome with a status.
pub fn outcome(status: StatusCode, outcome: &OperationOutcome) -> Response {
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
            "somebody else changed this at the same time; try again",
        ),
        StoreError::ReadOnly { .. } => {
            (StatusCode::INSUFFICIENT_STORAGE, IssueCode::NoStore, "the server cannot write at the moment")
        }
        StoreError::Clock { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            IssueCode::Transient,
            "the clock of the server has jumped, and it does not write until that is settled",
        ),
        StoreError::Key { .. } => {
            (StatusCode::BAD_REQUEST, IssueCode::Value, "a name in the request cannot be stored")
        }
        StoreError::Corrupt { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            IssueCode::Exception,
            "what is stored is damaged; the server's log says where",
        ),
        StoreError::Locked { .. } | StoreError::Draft { .. } | StoreError::Engine { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception, "the server failed; its log says why")
        }
    }
}

/// The store's error in a dialect; the log keeps what it was.
pub fn store(dialect: Dialect, error: &StoreError) -> Response {
    let (status, code, text) = store_status(error);
    tracing::error!(%error, "store");
    match dialect {
        Dialect::Fhir => fhir(status, code, text),
        _ => dialect.plain(status, text),
    }
}

/// A body that could not be read.
pub fn unreadable(dialect: Dialect, error: &extract::BodyError) -> Response {
    let status = match error {
        extract::BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        extract::BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        extract::BodyError::Broken => StatusCode::BAD_REQUEST,
        extract::BodyError::Busy(_) => {
            let response = dialect.plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
    };
    dialect.plain(status, &error.to_string())
}

/// A Group of a client whose members cannot be read.
pub fn members(error: &MembersError) -> Response {
    match error {
        MembersError::Store(error) => store(Dialect::Fhir, error),
        MembersError::NoGroup(_) | MembersError::Bad(_) => {
            tracing::error!(%error, "a Group that limits a client cannot be read");
            let text = "the Groups that limit this client cannot be read; the server's log says why";
            fhir(StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception, text)
        }
    }
}

/// A client that was not recognised.
pub fn client_auth(error: &ClientAuthError) -> Response {
    match error {
        ClientAuthError::InvalidRequest(text) => {
            oauth(StatusCode::BAD_REQUEST, "invalid_request", Some(text))
        }
        ClientAuthError::InvalidClient | ClientAuthError::BadAssertion(_) | ClientAuthError::KeySet(_) => {
            oauth(StatusCode::UNAUTHORIZED, "invalid_client", Some(&error.to_string()))
        }
        ClientAuthError::Store(error) => store(Dialect::OAuth, error),
    }
}

/// A code or refresh token that was not taken.
pub fn grant(error: &GrantError) -> Response {
    match error {
        GrantError::Store(error) => store(Dialect::OAuth, error),
        GrantError::Scope => oauth(StatusCode::BAD_REQUEST, "invalid_scope", Some(&error.to_string())),
        GrantError::Unknown
        | GrantError::Reused
        | GrantError::RedirectUri
        | GrantError::Verifier
        | GrantError::Key
        | GrantError::Revoked => oauth(StatusCode::BAD_REQUEST, "invalid_grant", Some(&error.to_string())),
    }
}

/// A device code that gave no token (RFC 8628 3.5).
pub fn device(error: &DeviceError) -> Response {
    let code = match error {
        DeviceError::Grant(error) => return grant(error),
        DeviceError::Pending => "authorization_pending",
        DeviceError::SlowDown => "slow_down",
        DeviceError::Expired => "expired_token",
        DeviceError::Denied => "access_denied",
    };
    oauth(StatusCode::BAD_REQUEST, code, Some(&error.to_string()))
}

/// A passkey ceremony that could not go on.
pub fn passkey(error: &PasskeyError) -> Response {
    let status = match error {
        PasskeyError::Store(error) => return store(Dialect::Page, error),
        PasskeyError::NoHostName => StatusCode::NOT_FOUND,
        PasskeyError::Over | PasskeyError::Refused(_) => StatusCode::BAD_REQUEST,
        PasskeyError::TooMany | PasskeyError::OnlyWay | PasskeyError::NoPasskey => StatusCode::CONFLICT,
    };
    pages::error(status, &pages::passkey::sentence(&error.to_string()))
}

/// A user who could not be changed, on a page.
pub fn user(error: &UserError) -> Response {
    match error {
        UserError::Store(error) => store(Dialect::Page, error),
        UserError::Unknown(_) => pages::error(StatusCode::NOT_FOUND, "This account is gone."),
        UserError::Exists(_) | UserError::BadName(_) => {
            pages::error(StatusCode::CONFLICT, "This name cannot be used.")
        }
    }
}

/// An access token that was not accepted at a FHIR endpoint.
pub fn fhir_token(error: &BadToken) -> Response {
    match error {
        BadToken::Store(error) => store(Dialect::Fhir, error),
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
            let mut response = fhir(StatusCode::UNAUTHORIZED, IssueCode::Login, error.to_string());
            response.headers_mut().remove(header::WWW_AUTHENTICATE);
            reply::with(response, header::WWW_AUTHENTICATE, &challenge(error))
        }
    }
}

/// An access token that was not accepted at userinfo.
pub fn userinfo_token(error: &BadToken) -> Response {
    if let BadToken::Store(error) = error {
        return store(Dialect::OAuth, error);
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

/// `WWW-Authenticate` for a token that was not accepted, in the scheme that would be (RFC 6750 3; RFC 9449
/// 7.1).
fn challenge(error: &BadToken) -> String {
    match error {
        BadToken::Proof(_) | BadToken::OtherKey | BadToken::NeedsProof => {
            let algorithms = identity::dpop::ALGORITHMS.join(" ");
            format!(
                "DPoP error=\"{}\", error_description=\"{}\", algs=\"{algorithms}\"",
                token_error(error),
                error.to_string().replace(['"', '\\'], "'")
            )
        }
        _ => bearer_challenge("invalid_token", &error.to_string()),
    }
}

/// A proof that was not accepted at an endpoint of the authorization server (RFC 9449 5).
pub fn proof(error: &ProofError) -> Response {
    match error {
        ProofError::Bad(error) => {
            oauth(StatusCode::BAD_REQUEST, "invalid_dpop_proof", Some(&error.to_string()))
        }
        ProofError::Store(error) => store(Dialect::OAuth, error),
    }
}

/// A pushed authorization request that was not taken.
pub fn pushed(error: &PushError) -> Response {
    match error {
        PushError::Refused { error, text } => oauth(StatusCode::BAD_REQUEST, error.as_str(), Some(text)),
        PushError::Store(error) => store(Dialect::OAuth, error),
    }
}

/// Too many pending requests of a source, with the time to wait.
pub fn pending(dialect: Dialect, error: TooManyPending) -> Response {
    let response = match dialect {
        Dialect::OAuth => {
            oauth(StatusCode::TOO_MANY_REQUESTS, "temporarily_unavailable", Some(&error.to_string()))
        }
        _ => dialect.plain(StatusCode::TOO_MANY_REQUESTS, &pages::passkey::sentence(&error.to_string())),
    };
    reply::with(response, header::RETRY_AFTER, &error.retry_after_s.to_string())
}

/// `WWW-Authenticate` of RFC 6750 3.
pub fn bearer_challenge(error: &str, description: &str) -> String {
    format!("Bearer error=\"{error}\", error_description=\"{}\"", description.replace(['"', '\\'], "'"))
}

/// An authorization request that stays here.
pub fn show(error: &ShowError) -> Response {
    match error {
        ShowError::Client | ShowError::RedirectUri | ShowError::Pushed => {
            pages::error(StatusCode::BAD_REQUEST, &error.to_string())
        }
        ShowError::Store(error) => store(Dialect::Page, error),
    }
}

/// A terminology operation that could not be judged.
pub fn terminology(error: &TxError) -> Response {
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
        TxError::Unprocessable(_) if error.exhausted() == Some(Cause::Cancelled) => {
            return busy(&error.to_string());
        }
        TxError::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    outcome(status, &error.outcome())
}

/// A terminology question that was not asked.
pub fn not_asked(why: NotAsked) -> Response {
    busy(match why {
        NotAsked::Full => "too many long terminology questions are waiting; try again later",
        NotAsked::Stopping => "the server stops; try again later",
    })
}

fn busy(text: &str) -> Response {
    let response = fhir(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
    reply::with_static(response, header::RETRY_AFTER, "2")
}

/// A resource that could not be read or written.
pub fn resource(error: &ResourceError) -> Response {
    let (status, code) = match error {
        ResourceError::Store(error) => return store(Dialect::Fhir, error),
        ResourceError::NotFound { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        ResourceError::Gone { .. } => (StatusCode::GONE, IssueCode::Deleted),
        ResourceError::Outside { .. } => (StatusCode::FORBIDDEN, IssueCode::Forbidden),
        ResourceError::Several { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::MultipleMatches),
        ResourceError::Page => (StatusCode::BAD_REQUEST, IssueCode::Value),
        ResourceError::VersionConflict { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::Conflict),
        ResourceError::Body(error) => match error {
            BodyError::TooBig { .. } => (StatusCode::PAYLOAD_TOO_LARGE, IssueCode::TooLong),
            BodyError::Json { .. } | BodyError::NotObject { .. } | BodyError::TooDeep { .. } => {
                (StatusCode::BAD_REQUEST, IssueCode::Structure)
            }
            BodyError::NoType | BodyError::NoId => (StatusCode::BAD_REQUEST, IssueCode::Required),
            BodyError::UnknownType(_) | BodyError::BundleType(_) => {
                (StatusCode::BAD_REQUEST, IssueCode::NotSupported)
            }
            BodyError::DuplicateMember { .. }
            | BodyError::WrongType { .. }
            | BodyError::BadId(_)
            | BodyError::WrongId { .. }
            | BodyError::BadMeta
            | BodyError::BadBundle(_)
            | BodyError::Entry(_)
            | BodyError::Search(_)
            | BodyError::BadEntry { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        },
    };
    fhir(status, code, error.to_string())
}
