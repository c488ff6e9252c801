//! [`Problem`]: why a handler does not answer as requested, and its response.
//!
//! This module is the one home of the statuses of domain errors, by exhaustive matches. A route has a
//! dialect, in which its problems are rendered: OAuth JSON, administration JSON, OperationOutcome, page. The
//! details of an internal error are only logged; the client gets a generic text.
//!
//! | module | contents |
//! |---|---|
//! | `dialect` | the dialects, and the responses that have the same form for all errors of one |
//! | `identity_errors` | errors of identity, in the dialects of OAuth, administration and pages |
//! | `fhir_errors` | errors of the FHIR endpoints: resources, terminology, exports |
//! | `store_errors` | errors of the store, in all dialects |

mod dialect;
mod fhir_errors;
mod identity_errors;
mod store_errors;

use bulk::{FileError, GroupError, JobRequestError, KickOffError};
use fhir::IssueCode;
use http::{StatusCode, header};
use identity::authorize::device::DeviceError;
use identity::authorize::pushed_request::PushRequestError;
use identity::authorize::reply::PageError;
use identity::client_auth::error::ClientAuthError;
use identity::directory::client_registry::ChangeClientError;
use identity::directory::user_directory::{ChangeUserError, UserError};
use identity::sign_in::linked_account::LinkError;
use identity::sign_in::passkey_error::PasskeyError;
use identity::sign_in::password::PasswordError;
use identity::sign_in::pending_quota::TooManyPending;
use identity::tokens::access_token::BadToken;
use identity::tokens::dpop::{BadProof, ProofError};
use identity::tokens::grant::GrantError;
use resources::{ResourceBodyError, ResourceError};
use store::StoreError;
use terminology::TxError;

use self::dialect::{admin_error, insufficient_scope, no_such};
use self::store_errors::store_error;
use super::extract::ReadBodyError;
use super::reply::{self, Response};
use crate::http::pages::error_page;
use crate::http::pages::texts::as_sentence;
use crate::node::byte_budget::BudgetExhausted;
use crate::node::question_pool::QuestionRejected;

pub use self::dialect::{Dialect, bearer_challenge, fhir_error, oauth_error, outcome_response};
pub use self::fhir_errors::{resource_issues, resource_outcome, terminology_status};
pub(crate) use self::store_errors::log_store_error;

/// Why a handler does not answer as requested. `?` converts the errors of the domains.
pub enum Problem {
    /// The response of the handler itself: an error that only the handler knows, or a page or redirect that
    /// must precede the answer.
    Response(Box<Response>),
    /// The body cannot be read.
    Body(ReadBodyError),
    /// There is no memory for the answer.
    AnswerMemory(BudgetExhausted),
    /// A change of a client failed.
    ChangeClient(ChangeClientError),
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
    BudgetExhausted => AnswerMemory;
    ChangeClientError => ChangeClient;
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
    /// An error of an OAuth endpoint.
    pub fn oauth(status: StatusCode, error: &str, text: &str) -> Self {
        oauth_error(status, error, Some(text)).into()
    }

    /// An error of the administration API.
    pub fn admin(status: StatusCode, error: &str, text: &str) -> Self {
        admin_error(status, error, text).into()
    }

    /// An error of a FHIR endpoint.
    pub fn fhir(status: StatusCode, code: IssueCode, text: impl Into<String>) -> Self {
        fhir_error(status, code, text).into()
    }

    /// The error of a FHIR endpoint that is not available for some time.
    pub fn fhir_later(text: impl Into<String>, retry_after: &'static str) -> Self {
        let response = fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
        reply::with_static(response, header::RETRY_AFTER, retry_after).into()
    }

    /// An error of a page.
    pub fn page(status: StatusCode, text: &str) -> Self {
        error_page::error(status, text).into()
    }

    /// The error of the administration API for a record that does not exist.
    pub fn no_such(record: &str) -> Self {
        no_such(record).into()
    }

    /// The error of a FHIR endpoint for a token without the necessary scope, and a scope that would suffice,
    /// if there is one.
    pub fn insufficient_scope(text: &str, scope: Option<&str>) -> Self {
        insufficient_scope(text, scope).into()
    }

    /// The response in the dialect of the route.
    pub fn into_response(self, dialect: Dialect) -> Response {
        match self {
            Self::Response(response) => *response,
            Self::Body(error) => body_error(dialect, &error),
            Self::AnswerMemory(BudgetExhausted) => answer_memory_error(dialect),
            Self::ChangeClient(error) => identity_errors::change_client_error(dialect, &error),
            Self::ChangeUser(error) => identity_errors::change_user_error(dialect, &error),
            Self::Client(error) => identity_errors::client_error(&error),
            Self::Device(error) => identity_errors::device_error(&error),
            Self::File(error) => fhir_errors::file_error(&error),
            Self::Grant(error) => identity_errors::grant_error(&error),
            Self::Group(error) => fhir_errors::group_error(&error),
            Self::JobRequest(error) => fhir_errors::job_request_error(&error),
            Self::KickOff(error) => fhir_errors::kick_off_error(&error),
            Self::Link(error) => identity_errors::link_error(&error),
            Self::Page(error) => identity_errors::page_error(&error),
            Self::Passkey(error) => identity_errors::passkey_error(&error),
            Self::Password(error) => dialect.plain_error(StatusCode::BAD_REQUEST, &error.to_string()),
            Self::Pending(error) => pending_error(dialect, error),
            Self::Proof(error) => identity_errors::proof_error(&error),
            Self::PushRequest(error) => identity_errors::push_request_error(&error),
            Self::Question(error) => fhir_errors::question_rejected(error),
            Self::Resource(error) => fhir_errors::resource_error(&error),
            Self::Store(error) => store_error(dialect, &error),
            Self::Terminology(error) => fhir_errors::terminology_error(&error),
            Self::Token(error) => identity_errors::token_error(dialect, &error),
            Self::User(error) => identity_errors::user_error(dialect, &error),
        }
    }
}

/// The response to a body that could not be read.
fn body_error(dialect: Dialect, error: &ReadBodyError) -> Response {
    let status = match error {
        ReadBodyError::TooLarge(_) | ReadBodyError::TooManyEntries { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ReadBodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        ReadBodyError::Broken => StatusCode::BAD_REQUEST,
        ReadBodyError::Busy(_) => {
            let response = dialect.plain_error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
    };
    dialect.plain_error(status, &error.to_string())
}

/// The response to a request for whose answer there is no memory.
fn answer_memory_error(dialect: Dialect) -> Response {
    let text = "too many large answers are being sent, or one client reads too many at the same time; try again in a few seconds";
    let response = match dialect {
        Dialect::Fhir => fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Throttled, text),
        _ => dialect.plain_error(StatusCode::SERVICE_UNAVAILABLE, text),
    };
    reply::with_static(response, header::RETRY_AFTER, "5")
}

/// The response to a source with too many pending requests, with `Retry-After`.
fn pending_error(dialect: Dialect, error: TooManyPending) -> Response {
    let response = match dialect {
        Dialect::OAuth => {
            oauth_error(StatusCode::TOO_MANY_REQUESTS, "temporarily_unavailable", Some(&error.to_string()))
        }
        _ => dialect.plain_error(StatusCode::TOO_MANY_REQUESTS, &as_sentence(&error.to_string())),
    };
    reply::with(response, header::RETRY_AFTER, &error.retry_after_s.to_string())
}
