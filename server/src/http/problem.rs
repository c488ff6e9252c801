//! [`Problem`]: why a handler does not answer as requested, and its response.
//!
//! This module is the one home of the statuses of domain errors, by exhaustive matches. A route has a dialect, in which
//! its problems are rendered: OAuth JSON, administration JSON, OperationOutcome, page. The details of an internal error
//! are only logged; the client gets a generic text.

use bulk::{FileError, GroupError, JobRequestError, KickOffError};
use fhir::{IssueCode, OperationOutcome};
use http::{StatusCode, header};
use identity::authorize::device::DeviceError;
use identity::authorize::pushed_request::PushRequestError;
use identity::authorize::request::PageError;
use identity::client_auth::authenticator::ClientAuthError;
use identity::directory::user_directory::{ChangeUserError, UserError};
use identity::sign_in::linked_account::LinkError;
use identity::sign_in::passkey::PasskeyError;
use identity::sign_in::password::PasswordError;
use identity::sign_in::pending_quota::TooManyPending;
use identity::tokens::access_token::BadToken;
use identity::tokens::dpop::{BadProof, ProofError};
use identity::tokens::grant::GrantError;
use resources::{ResourceBodyError, ResourceError};
use store::StoreError;
use terminology::ExhaustionCause;
use terminology::TxError;

use super::extract::ReadBodyError;
use super::pages;
use super::reply::{self, Response};
use crate::node::question_pool::QuestionRejected;

/// Why a handler does not answer as requested. `?` converts the errors of the domains.
pub enum Problem {
    /// The response of the handler itself: an error that only the handler knows, or a page or redirect that must
    /// precede the answer.
    Response(Box<Response>),
    /// The body cannot be read.
    Body(ReadBodyError),
    /// A change of a user failed.
    ChangeUser(ChangeUserError),
    /// The client is not authenticated.
    Client(ClientAuthError),
    /// A device code has no token.
    Device(DeviceError),
    /// A file of an export cannot be sent.
    File(FileError),
    /// An authorization code or refresh token is rejected.
    Grant(GrantError),
    /// The Groups of a client cannot be read.
    Group(GroupError),
    /// A request on an export job failed.
    JobRequest(JobRequestError),
    /// An export is not started.
    KickOff(KickOffError),
    /// An external account is not linked.
    Link(LinkError),
    /// An authorization request has an error that must not be sent to the client.
    Page(PageError),
    /// A passkey ceremony failed.
    Passkey(PasskeyError),
    /// A new password is rejected.
    Password(PasswordError),
    /// The source has too many pending requests.
    Pending(TooManyPending),
    /// A DPoP proof is rejected.
    Proof(ProofError),
    /// A pushed authorization request is rejected.
    PushRequest(PushRequestError),
    /// A terminology question is not run.
    Question(QuestionRejected),
    /// A resource cannot be read or written.
    Resource(ResourceError),
    /// The store failed.
    Store(StoreError),
    /// A terminology operation failed.
    Terminology(TxError),
    /// An access token is rejected.
    Token(BadToken),
    /// A user cannot be read or created.
    User(UserError),
}

macro_rules! from_errors {
    ($($error:ty => $variant:ident;)*) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from_errors! {
    ReadBodyError => Body;
    ChangeUserError => ChangeUser;
    ClientAuthError => Client;
    DeviceError => Device;
    FileError => File;
    GrantError => Grant;
    GroupError => Group;
    JobRequestError => JobRequest;
    KickOffError => KickOff;
    LinkError => Link;
    PageError => Page;
    PasskeyError => Passkey;
    PasswordError => Password;
    TooManyPending => Pending;
    ProofError => Proof;
    PushRequestError => PushRequest;
    QuestionRejected => Question;
    ResourceError => Resource;
    StoreError => Store;
    TxError => Terminology;
    BadToken => Token;
    UserError => User;
}

impl From<Response> for Problem {
    fn from(response: Response) -> Self {
        Self::Response(Box::new(response))
    }
}

impl From<BadProof> for Problem {
    fn from(error: BadProof) -> Self {
        Self::Token(BadToken::Proof(error))
    }
}

impl From<ResourceBodyError> for Problem {
    fn from(error: ResourceBodyError) -> Self {
        Self::Resource(ResourceError::Body(error))
    }
}

impl Problem {
    /// Returns an error of an OAuth endpoint.
    pub fn oauth(status: StatusCode, error: &str, text: &str) -> Self {
        oauth_error(status, error, Some(text)).into()
    }

    /// Returns an error of the administration API.
    pub fn admin(status: StatusCode, error: &str, text: &str) -> Self {
        admin_error(status, error, text).into()
    }

    /// Returns an error of a FHIR endpoint.
    pub fn fhir(status: StatusCode, code: IssueCode, text: impl Into<String>) -> Self {
        fhir_error(status, code, text).into()
    }

    /// Returns an error of a page.
    pub fn page(status: StatusCode, text: &str) -> Self {
        pages::error(status, text).into()
    }

    /// Returns the error of the administration API for a record that does not exist.
    pub fn no_such(record: &str) -> Self {
        no_such(record).into()
    }

    /// Returns the error of a FHIR endpoint for a token without the necessary scope.
    pub fn insufficient_scope(text: &str) -> Self {
        insufficient_scope(text).into()
    }

    /// Returns the response in the dialect of the route.
    pub fn into_response(self, dialect: Dialect) -> Response {
        match self {
            Self::Response(response) => *response,
            Self::Body(error) => body_error(dialect, &error),
            Self::ChangeUser(error) => change_user_error(dialect, &error),
            Self::Client(error) => client_error(&error),
            Self::Device(error) => device_error(&error),
            Self::File(error) => file_error(&error),
            Self::Grant(error) => grant_error(&error),
            Self::Group(error) => group_error(&error),
            Self::JobRequest(error) => job_request_error(&error),
            Self::KickOff(error) => kick_off_error(&error),
            Self::Link(error) => link_error(&error),
            Self::Page(error) => page_error(&error),
            Self::Passkey(error) => passkey_error(&error),
            Self::Password(error) => dialect.plain_error(StatusCode::BAD_REQUEST, &error.to_string()),
            Self::Pending(error) => pending_error(dialect, error),
            Self::Proof(error) => proof_error(&error),
            Self::PushRequest(error) => push_request_error(&error),
            Self::Question(error) => question_rejected(error),
            Self::Resource(error) => resource_error(&error),
            Self::Store(error) => store_error(dialect, &error),
            Self::Terminology(error) => terminology_error(&error),
            Self::Token(error) => token_error(dialect, &error),
            Self::User(error) => user_error(dialect, &error),
        }
    }
}

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
    /// Returns the response to an error that does not come from a domain, such as an unknown path, a wrong method or
    /// a large body.
    pub fn plain_error(self, status: StatusCode, text: &str) -> Response {
        match self {
            Self::OAuth | Self::Admin => {
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

/// Returns an error response of the administration API.
fn admin_error(status: StatusCode, error: &str, text: &str) -> Response {
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

/// Returns the response of the administration API to a record that does not exist.
fn no_such(record: &str) -> Response {
    admin_error(StatusCode::NOT_FOUND, "not_found", &format!("there is no such {record}"))
}

/// Returns the response of a FHIR endpoint to a token without the necessary scope.
fn insufficient_scope(text: &str) -> Response {
    let response = fhir_error(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
    reply::with(response, header::WWW_AUTHENTICATE, &bearer_challenge("insufficient_scope", text))
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
fn store_error(dialect: Dialect, error: &StoreError) -> Response {
    let (status, code, text) = store_status(error);
    tracing::error!(%error, "store");
    match dialect {
        Dialect::Fhir => fhir_error(status, code, text),
        _ => dialect.plain_error(status, text),
    }
}

/// Returns the response to a body that could not be read.
fn body_error(dialect: Dialect, error: &ReadBodyError) -> Response {
    let status = match error {
        ReadBodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        ReadBodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        ReadBodyError::Broken => StatusCode::BAD_REQUEST,
        ReadBodyError::Busy(_) => {
            let response = dialect.plain_error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
    };
    dialect.plain_error(status, &error.to_string())
}

/// Returns the response for a client with a Group whose members cannot be read.
fn group_error(error: &GroupError) -> Response {
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
fn client_error(error: &ClientAuthError) -> Response {
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
fn grant_error(error: &GrantError) -> Response {
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
fn device_error(error: &DeviceError) -> Response {
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
fn passkey_error(error: &PasskeyError) -> Response {
    let status = match error {
        PasskeyError::Store(error) => return store_error(Dialect::Page, error),
        PasskeyError::NoHostName => StatusCode::NOT_FOUND,
        PasskeyError::CeremonyExpired | PasskeyError::Rejected(_) => StatusCode::BAD_REQUEST,
        PasskeyError::TooMany | PasskeyError::OnlyWay | PasskeyError::NoPasskey => StatusCode::CONFLICT,
    };
    pages::error(status, &pages::passkey::as_sentence(&error.to_string()))
}

/// Returns the response for a user that could not be read or created.
fn user_error(dialect: Dialect, error: &UserError) -> Response {
    let (status, code, page_text) = match error {
        UserError::Store(error) => return store_error(dialect, error),
        UserError::Unknown(_) => (StatusCode::NOT_FOUND, "not_found", "This account no longer exists."),
        UserError::Exists(_) => (StatusCode::CONFLICT, "conflict", "This name cannot be used."),
        UserError::BadName(_) => (StatusCode::BAD_REQUEST, "invalid_request", "This name cannot be used."),
    };
    match (dialect, error) {
        (Dialect::Page, _) => pages::error(status, page_text),
        (_, UserError::Unknown(_)) => no_such("user"),
        _ => admin_error(status, code, &error.to_string()),
    }
}

/// Returns the response for a user that could not be changed.
fn change_user_error(dialect: Dialect, error: &ChangeUserError) -> Response {
    match (error, dialect) {
        (ChangeUserError::Store(error), _) => store_error(dialect, error),
        (ChangeUserError::User(error), _) => user_error(dialect, error),
        (ChangeUserError::Unknown | ChangeUserError::Stale, Dialect::Page) => {
            pages::error(StatusCode::CONFLICT, "This account was changed elsewhere. Please try again.")
        }
        (ChangeUserError::Unknown, _) => no_such("user"),
        (ChangeUserError::Stale, _) => {
            admin_error(StatusCode::PRECONDITION_FAILED, "precondition_failed", &error.to_string())
        }
    }
}

/// Returns the page for an external account that was not linked.
fn link_error(error: &LinkError) -> Response {
    match error {
        LinkError::Store(error) => store_error(Dialect::Page, error),
        LinkError::Taken | LinkError::OnlyWay => {
            pages::error(StatusCode::CONFLICT, &pages::passkey::as_sentence(&error.to_string()))
        }
    }
}

/// Returns the response to a rejected access token.
fn token_error(dialect: Dialect, error: &BadToken) -> Response {
    match dialect {
        Dialect::Fhir => fhir_token_error(error),
        Dialect::OAuth | Dialect::Admin | Dialect::Page => bearer_token_error(error),
    }
}

/// Returns the response to an access token that a FHIR endpoint rejected.
fn fhir_token_error(error: &BadToken) -> Response {
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

/// Returns the response to an access token that another endpoint rejected (RFC 6750 section 3.1).
fn bearer_token_error(error: &BadToken) -> Response {
    if let BadToken::Store(error) = error {
        return store_error(Dialect::OAuth, error);
    }
    let body =
        serde_json::json!({ "error": token_error_code(error), "error_description": error.to_string() });
    let response = reply::no_store(reply::json(StatusCode::UNAUTHORIZED, &body));
    reply::with(response, header::WWW_AUTHENTICATE, &challenge(error))
}

fn token_error_code(error: &BadToken) -> &'static str {
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
                token_error_code(error),
                error.to_string().replace(['"', '\\'], "'")
            )
        }
        _ => bearer_challenge("invalid_token", &error.to_string()),
    }
}

/// Returns the response to a DPoP proof that an OAuth endpoint rejected (RFC 9449 section 5).
fn proof_error(error: &ProofError) -> Response {
    match error {
        ProofError::Bad(error) => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_dpop_proof", Some(&error.to_string()))
        }
        ProofError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// Returns the response to a rejected pushed authorization request.
fn push_request_error(error: &PushRequestError) -> Response {
    match error {
        PushRequestError::Rejected { error, text } => {
            oauth_error(StatusCode::BAD_REQUEST, error.as_str(), Some(text))
        }
        PushRequestError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// Returns the response to a source with too many pending requests, with `Retry-After`.
fn pending_error(dialect: Dialect, error: TooManyPending) -> Response {
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
fn page_error(error: &PageError) -> Response {
    match error {
        PageError::Client | PageError::RedirectUri | PageError::PushedRequest => {
            pages::error(StatusCode::BAD_REQUEST, &error.to_string())
        }
        PageError::Store(error) => store_error(Dialect::Page, error),
    }
}

/// Returns the response to a failed terminology operation.
fn terminology_error(error: &TxError) -> Response {
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
fn question_rejected(why: QuestionRejected) -> Response {
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
fn resource_error(error: &ResourceError) -> Response {
    if let ResourceError::Store(error) = error {
        return store_error(Dialect::Fhir, error);
    }
    let (status, code) = resource_status(error);
    fhir_error(status, code, error.to_string())
}

/// Returns the status and the issue code of a resource that could not be read or written.
pub fn resource_status(error: &ResourceError) -> (StatusCode, IssueCode) {
    match error {
        ResourceError::Store(error) => {
            let (status, code, _) = store_status(error);
            (status, code)
        }
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
    }
}

/// Returns the response to an export that was not started.
fn kick_off_error(error: &KickOffError) -> Response {
    let (status, code) = match error {
        KickOffError::Parameter { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        KickOffError::Unsupported { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotSupported),
        KickOffError::UnknownPatients { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotFound),
        KickOffError::BadGroup(_) => (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing),
        KickOffError::UnknownGroup { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        KickOffError::Forbidden { .. } => return insufficient_scope(&error.to_string()),
        KickOffError::TooManyExports { retry_after_s, .. } => {
            let response = fhir_error(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, error.to_string());
            return reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
        }
        KickOffError::Resource(error) => return resource_error(error),
        KickOffError::Store(error) => return store_error(Dialect::Fhir, error),
    };
    fhir_error(status, code, error.to_string())
}

/// Returns the response to a failed request on an export job.
fn job_request_error(error: &JobRequestError) -> Response {
    match error {
        JobRequestError::NotFound { .. } => {
            fhir_error(StatusCode::NOT_FOUND, IssueCode::NotFound, error.to_string())
        }
        JobRequestError::Store(error) => {
            // The job did not fail, only this status request: so the issue code is a transient one.
            tracing::error!(%error, "status of an export");
            let text = "the status cannot be read at the moment; try again";
            let response = fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
            reply::with_static(response, header::RETRY_AFTER, "5")
        }
    }
}

/// Returns the response to a file of an export that cannot be sent.
fn file_error(error: &FileError) -> Response {
    let text = match error {
        FileError::NotFound { .. } => {
            let text = "the file does not exist, or its export was deleted or has expired";
            return fhir_error(StatusCode::NOT_FOUND, IssueCode::NotFound, text);
        }
        FileError::Busy => {
            let response =
                fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Throttled, error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
        FileError::BadAddress { why } => {
            let text = format!("the URL is not valid: {why}; read the manifest again for a new one");
            return fhir_error(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
        }
        FileError::Store(error) => return store_error(Dialect::Fhir, error),
        FileError::Damaged { .. } => "the file is corrupt; delete this export and start a new one",
        FileError::Files(_) | FileError::Read(_) | FileError::NoSpace(_) => {
            "the file cannot be read; the server's log has the details"
        }
    };
    tracing::error!(%error, "file of an export");
    fhir_error(StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception, text)
}
