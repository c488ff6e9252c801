//! External OpenID Connect providers, the users whom they authenticate, and the error texts for failed calls.

use serde::{Deserialize, Serialize};

use crate::model::error_code::ErrorCode;
use crate::model::user::StandardClaims;

/// An external provider, as declared in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the addresses are those of OpenID Connect Discovery")]
pub struct IdentityProvider {
    /// Name of the provider: the value of `identity_provider` in requests, and the name displayed to users.
    pub name: String,
    /// Issuer identifier.
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub jwks_uri: String,
    /// Client id of this server at the provider.
    pub client_id: String,
    /// Client secret of this server at the provider.
    pub client_secret: Option<String>,
    /// Scopes to request, separated by spaces.
    pub scopes: String,
    /// `true` if the provider is Google, whose failures have different error texts.
    pub google: bool,
    /// `true` if a sign-in with an unknown account creates a user.
    pub create_users: bool,
    /// `true` if a sign-in with an unknown account links the account to the only user with the same e-mail address,
    /// provided that the provider has verified the address.
    pub link_by_email: bool,
}

/// A failure of a call to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderFailure {
    /// The token endpoint did not send response headers in time.
    TokenTimeout,
    /// The key set endpoint did not send response headers in time.
    KeySetTimeout,
    /// The token endpoint sent an error response.
    Status {
        /// HTTP status.
        status: u16,
        /// OAuth error code in the body, if any.
        code: Option<String>,
    },
    /// The connection was reset or closed before the response was complete.
    Reset,
    /// No further part of the response body arrived in time.
    Stalled,
    /// The user denied access at the provider.
    Denied,
    /// Any other failure, for example a refused connection, a TLS error or an invalid ID token. The text is written to
    /// the log.
    Other(&'static str),
}

impl IdentityProvider {
    /// Returns the error code and the description that the client receives.
    pub fn describe_failure(&self, failure: &ProviderFailure) -> (ErrorCode, Option<String>) {
        let text = match failure {
            ProviderFailure::TokenTimeout => "Timeout occurred in calling IdP token endpoint".to_owned(),
            ProviderFailure::KeySetTimeout => "Timeout in calling jwks uri".to_owned(),
            ProviderFailure::Status { status, code } if self.google => {
                format!("Google Error - {status} {}", code.as_deref().unwrap_or("unknown_error"))
            }
            ProviderFailure::Status { status, .. } => {
                format!("{} Error - {status} error getting token", self.name)
            }
            ProviderFailure::Reset => "Connection reset".to_owned(),
            ProviderFailure::Stalled => "Read timed out".to_owned(),
            ProviderFailure::Denied => return (ErrorCode::AccessDenied, None),
            ProviderFailure::Other(_) => return (ErrorCode::ServerError, None),
        };
        (ErrorCode::InvalidRequest, Some(text))
    }
}

/// A user, as the provider identifies the user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExternalUser {
    /// Issuer of the provider.
    pub issuer: String,
    /// Subject identifier of the user at the provider.
    pub sub: String,
    /// Claims of the ID token.
    pub claims: StandardClaims,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, google: bool) -> IdentityProvider {
        IdentityProvider {
            name: name.to_owned(),
            issuer: "https://idp.example".to_owned(),
            authorization_endpoint: "https://idp.example/authorize".to_owned(),
            token_endpoint: "https://idp.example/token".to_owned(),
            jwks_uri: "https://idp.example/jwks".to_owned(),
            client_id: "trefoil".to_owned(),
            client_secret: None,
            scopes: "openid".to_owned(),
            google,
            create_users: false,
            link_by_email: false,
        }
    }

    #[track_caller]
    fn check(provider: &IdentityProvider, failure: ProviderFailure, expected: (&str, Option<&str>)) {
        let (error, description) = provider.describe_failure(&failure);
        assert_eq!((error.as_str(), description.as_deref()), expected);
    }

    #[test]
    fn each_failure_has_its_error_text() {
        let other = provider("Clinic", false);
        let google = provider("Google", true);
        let status =
            |code: Option<&str>| ProviderFailure::Status { status: 400, code: code.map(str::to_owned) };
        check(
            &other,
            ProviderFailure::TokenTimeout,
            ("invalid_request", Some("Timeout occurred in calling IdP token endpoint")),
        );
        check(
            &other,
            ProviderFailure::KeySetTimeout,
            ("invalid_request", Some("Timeout in calling jwks uri")),
        );
        check(
            &other,
            status(Some("invalid_grant")),
            ("invalid_request", Some("Clinic Error - 400 error getting token")),
        );
        check(
            &google,
            status(Some("invalid_grant")),
            ("invalid_request", Some("Google Error - 400 invalid_grant")),
        );
        check(&other, ProviderFailure::Reset, ("invalid_request", Some("Connection reset")));
        check(&other, ProviderFailure::Stalled, ("invalid_request", Some("Read timed out")));
        check(&other, ProviderFailure::Other("x"), ("server_error", None));
    }
}
