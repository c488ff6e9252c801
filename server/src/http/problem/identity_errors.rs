//! Errors of identity as responses, in the dialects of OAuth, administration and pages.

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::authorize::device::DeviceError;
use identity::authorize::pushed_request::PushRequestError;
use identity::authorize::reply::PageError;
use identity::client_auth::error::ClientAuthError;
use identity::directory::client_registry::ChangeClientError;
use identity::directory::user_directory::{ChangeUserError, UserError};
use identity::model::client::RegistrationError;
use identity::sign_in::linked_account::LinkError;
use identity::sign_in::passkey_error::PasskeyError;
use identity::tokens::access_token::BadToken;
use identity::tokens::dpop::ProofError;
use identity::tokens::grant::GrantError;

use super::dialect::{Dialect, admin_error, bearer_challenge, fhir_error, no_such, oauth_error};
use super::store_errors::store_error;
use crate::http::pages::error_page;
use crate::http::pages::page_request::request_id;
use crate::http::pages::texts::as_sentence;
use crate::http::reply::{self, Response};

/// The response to a failed client authentication.
pub(super) fn client_error(error: &ClientAuthError) -> Response {
    match error {
        ClientAuthError::InvalidRequest(text) => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_request", Some(text))
        }
        ClientAuthError::InvalidClient
        | ClientAuthError::UnregisteredMethod { .. }
        | ClientAuthError::BadAssertion(_)
        | ClientAuthError::KeySet(_) => {
            oauth_error(StatusCode::UNAUTHORIZED, "invalid_client", Some(&error.to_string()))
        }
        ClientAuthError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// The response to a rejected authorization code or refresh token.
pub(super) fn grant_error(error: &GrantError) -> Response {
    match error {
        GrantError::Store(error) => store_error(Dialect::OAuth, error),
        GrantError::Scope => oauth_error(StatusCode::BAD_REQUEST, "invalid_scope", Some(&error.to_string())),
        GrantError::Resource => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_target", Some(&error.to_string()))
        }
        GrantError::Unknown
        | GrantError::Reused
        | GrantError::RedirectUri
        | GrantError::Verifier
        | GrantError::Key
        | GrantError::Revoked
        | GrantError::Withdrawn
        | GrantError::RightsEnded
        | GrantError::Patient => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_grant", Some(&error.to_string()))
        }
    }
}

/// The response to a device code for which there is no token (RFC 8628 section 3.5).
pub(super) fn device_error(error: &DeviceError) -> Response {
    let code = match error {
        DeviceError::Grant(error) => return grant_error(error),
        DeviceError::Pending => "authorization_pending",
        DeviceError::SlowDown => "slow_down",
        DeviceError::Expired => "expired_token",
        DeviceError::Denied => "access_denied",
    };
    oauth_error(StatusCode::BAD_REQUEST, code, Some(&error.to_string()))
}

/// The response to a failed passkey ceremony.
pub(super) fn passkey_error(error: &PasskeyError) -> Response {
    let status = match error {
        PasskeyError::Store(error) => return store_error(Dialect::Page, error),
        PasskeyError::NoHostName => StatusCode::NOT_FOUND,
        PasskeyError::CeremonyExpired | PasskeyError::Rejected(_) => StatusCode::BAD_REQUEST,
        PasskeyError::TooMany | PasskeyError::OnlyWay | PasskeyError::NoPasskey => StatusCode::CONFLICT,
    };
    error_page::error(status, &as_sentence(&error.to_string()))
}

/// The response for a user that could not be read or created.
pub(super) fn user_error(dialect: Dialect, error: &UserError) -> Response {
    let (status, code, page_text) = match error {
        UserError::Store(error) => return store_error(dialect, error),
        UserError::Unknown(_) => (StatusCode::NOT_FOUND, "not_found", "This account no longer exists."),
        UserError::Exists(_) => (StatusCode::CONFLICT, "conflict", "This name cannot be used."),
        UserError::BadName { .. } => {
            (StatusCode::BAD_REQUEST, "invalid_request", "This name cannot be used.")
        }
    };
    match (dialect, error) {
        (Dialect::Page, _) => error_page::error(status, page_text),
        (_, UserError::Unknown(_)) => no_such("user"),
        _ => admin_error(status, code, &error.to_string()),
    }
}

/// The response for a user that could not be changed.
pub(super) fn change_user_error(dialect: Dialect, error: &ChangeUserError) -> Response {
    match (error, dialect) {
        (ChangeUserError::Store(error), _) => store_error(dialect, error),
        (ChangeUserError::User(error), _) => user_error(dialect, error),
        (ChangeUserError::Unknown | ChangeUserError::Stale, Dialect::Page) => {
            error_page::error(StatusCode::CONFLICT, "This account was changed elsewhere. Please try again.")
        }
        (ChangeUserError::Unknown, _) => no_such("user"),
        (ChangeUserError::Stale, _) => {
            admin_error(StatusCode::PRECONDITION_FAILED, "precondition_failed", &error.to_string())
        }
    }
}

/// The response for a client that could not be added, changed or deleted.
pub(super) fn change_client_error(dialect: Dialect, error: &ChangeClientError) -> Response {
    let (status, code) = match error {
        ChangeClientError::Store(error)
        | ChangeClientError::Registration(RegistrationError::Store(error)) => {
            return store_error(dialect, error);
        }
        ChangeClientError::Unknown(_) => return no_such("client"),
        ChangeClientError::Stale => (StatusCode::PRECONDITION_FAILED, "precondition_failed"),
        ChangeClientError::Registration(
            RegistrationError::Exists(_)
            | RegistrationError::AddedByCommand(_)
            | RegistrationError::Declared(_),
        )
        | ChangeClientError::TooManySecrets => (StatusCode::CONFLICT, "conflict"),
        ChangeClientError::NoSecret(_)
        | ChangeClientError::Malformed(_)
        | ChangeClientError::Metadata(_)
        | ChangeClientError::Registration(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
    };
    admin_error(status, code, &error.to_string())
}

/// The page for an external account that was not linked.
pub(super) fn link_error(error: &LinkError) -> Response {
    match error {
        LinkError::Store(error) => store_error(Dialect::Page, error),
        LinkError::Taken | LinkError::OnlyWay => {
            error_page::error(StatusCode::CONFLICT, &as_sentence(&error.to_string()))
        }
    }
}

/// The response to a rejected access token.
pub(super) fn token_error(dialect: Dialect, error: &BadToken) -> Response {
    match dialect {
        Dialect::Fhir => fhir_token_error(error),
        Dialect::OAuth | Dialect::Admin | Dialect::Page => bearer_token_error(error),
    }
}

/// The response to an access token that a FHIR endpoint rejected.
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

/// The response to an access token that another endpoint rejected (RFC 6750 section 3.1).
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

/// `WWW-Authenticate` for a rejected token, with the scheme that would be accepted (RFC 6750 section 3; RFC
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

/// The response to a DPoP proof that an OAuth endpoint rejected (RFC 9449 section 5).
pub(super) fn proof_error(error: &ProofError) -> Response {
    match error {
        ProofError::Bad(error) => {
            oauth_error(StatusCode::BAD_REQUEST, "invalid_dpop_proof", Some(&error.to_string()))
        }
        ProofError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// The response to a rejected pushed authorization request.
pub(super) fn push_request_error(error: &PushRequestError) -> Response {
    match error {
        PushRequestError::Rejected { error, text } => {
            oauth_error(StatusCode::BAD_REQUEST, error.as_str(), Some(text))
        }
        PushRequestError::Store(error) => store_error(Dialect::OAuth, error),
    }
}

/// The page for an authorization request whose error must not be sent to the client.
pub(super) fn page_error(error: &PageError) -> Response {
    let details = match error {
        PageError::Client { client_id } => vec![("Client", printable(client_id.as_deref()))],
        PageError::RedirectUri { client_id, sent } => vec![
            ("Client", printable(Some(client_id.as_str()))),
            ("Rejected address", printable(sent.as_deref())),
        ],
        PageError::PushedRequest | PageError::Ended => Vec::new(),
        PageError::Store(error) => return store_error(Dialect::Page, error),
    };
    let value = |name: &str| details.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
    tracing::info!(
        client_id = value("Client"),
        redirect_uri = value("Rejected address"),
        request_id = request_id(),
        "authorization request rejected: {error}"
    );
    let details: Vec<_> = details.iter().map(|(name, value)| (*name, value.as_str())).collect();
    error_page::detailed_error(StatusCode::BAD_REQUEST, &error.to_string(), &details)
}

/// Shortens a value of the request, and removes control characters.
fn printable(value: Option<&str>) -> String {
    value.unwrap_or_default().chars().filter(|c| !c.is_control()).take(300).collect()
}
