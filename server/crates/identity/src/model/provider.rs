//! External OpenID Connect providers, the users whom they authenticate, and the error texts for failed calls.

use serde::{Deserialize, Serialize};

use crate::SigningAlg;
use crate::model::claim_mapping::{ClaimMapping, MappedRights};
use crate::model::error_code::ErrorCode;
use crate::model::user::StandardClaims;

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the addresses are those of OpenID Connect Discovery")]
pub struct ProviderEndpoints {
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub jwks_uri: String,
    /// `None` if the claims of the ID token are all that is used.
    pub userinfo_endpoint: Option<String>,
    /// `true` if the provider declares that its responses contain `iss` (RFC 9207 section 3).
    pub sends_issuer: bool,
}

impl ProviderEndpoints {
    /// Reads a discovery document (OpenID Connect Discovery 1.0 sections 3 and 4.3). The endpoints of a
    /// provider with an HTTPS issuer must be HTTPS, too.
    ///
    /// # Errors
    /// Returns [`ProviderFailure::Other`] with a reason to be logged.
    pub fn from_discovery(issuer: &str, document: &serde_json::Value) -> Result<Self, ProviderFailure> {
        let bad = ProviderFailure::Other;
        if document["issuer"].as_str() != Some(issuer) {
            return Err(bad("the discovery document names another issuer"));
        }
        let endpoint = |name: &str| {
            let address = document[name].as_str().filter(|address| address.len() <= 2_048)?;
            let url = url::Url::parse(address).ok()?;
            let plain = url.scheme() == "http" && issuer.starts_with("http://");
            (url.scheme() == "https" || plain).then(|| address.to_owned())
        };
        let missing = bad("the discovery document lacks the HTTPS URL of an endpoint");
        let all = (endpoint("authorization_endpoint"), endpoint("token_endpoint"), endpoint("jwks_uri"));
        let (Some(authorization_endpoint), Some(token_endpoint), Some(jwks_uri)) = all else {
            return Err(missing);
        };
        let sends_issuer = document["authorization_response_iss_parameter_supported"] == true;
        let userinfo_endpoint = endpoint("userinfo_endpoint");
        Ok(Self { authorization_endpoint, token_endpoint, jwks_uri, userinfo_endpoint, sends_issuer })
    }
}

/// Authentication of this server at the token endpoint of a provider (OpenID Connect Core section 9).
#[derive(Clone, PartialEq, Eq)]
pub enum ProviderClientAuth {
    /// This server is a public client of the provider.
    None,
    /// The client secret is sent in the header `Authorization`.
    SecretBasic(String),
    /// The client secret is sent in the form.
    SecretPost(String),
    /// A client assertion that is signed with this server's key for ID tokens of that algorithm.
    PrivateKeyJwt {
        /// Algorithm of the signature.
        alg: SigningAlg,
        /// Audience of the assertion.
        audience: AssertionTarget,
    },
}

impl std::fmt::Debug for ProviderClientAuth {
    // The secret is not written.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::SecretBasic(_) => "SecretBasic",
            Self::SecretPost(_) => "SecretPost",
            Self::PrivateKeyJwt { .. } => "PrivateKeyJwt",
        })
    }
}

/// Audience of a client assertion that this server sends to a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AssertionTarget {
    /// The issuer, which is the same for all endpoints of a provider.
    #[default]
    Issuer,
    /// The URL of the token endpoint, which some providers require.
    TokenEndpoint,
}

/// An external provider, as declared in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityProvider {
    /// Name of the provider: the value of `identity_provider` in requests, and the name displayed to users.
    pub name: String,
    /// Issuer identifier.
    pub issuer: String,
    /// Endpoints. `None` if they are read from the discovery document of the issuer.
    pub endpoints: Option<ProviderEndpoints>,
    /// Client id of this server at the provider.
    pub client_id: String,
    /// Authentication of this server at the provider.
    pub client_auth: ProviderClientAuth,
    /// Scopes to request, separated by spaces.
    pub scopes: String,
    /// `true` if the provider is Google, whose failures have different error texts.
    pub google: bool,
    /// `true` if a sign-in with an unknown account creates a user.
    pub create_users: bool,
    /// `true` if a sign-in with an unknown account links the account to the only user with the same e-mail
    /// address, provided that the provider has verified the address.
    pub link_by_email: bool,
    /// `false` if users with an account of the provider cannot sign in with a password, a passkey or a
    /// recovery code of this server.
    pub own_methods: bool,
    /// Time for which the rights of a sign-in count.
    pub rights_max_age: jiff::SignedDuration,
    /// The rights that claims of the provider give.
    pub mapping: ClaimMapping,
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
    /// The user was not authenticated as recently as the client requires (`max_age`, `prompt=login`).
    NotRecent,
    /// Any other failure, for example a refused connection, a TLS error or an invalid ID token. The text is
    /// written to the log.
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
            ProviderFailure::NotRecent => return (ErrorCode::LoginRequired, None),
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
    /// Claims of the ID token and of the userinfo endpoint.
    pub claims: StandardClaims,
    /// The rights that further claims give.
    #[serde(default)]
    pub rights: MappedRights,
}

impl ExternalUser {
    /// A text by which people recognize the account.
    pub fn label(&self) -> String {
        let claims = &self.claims;
        let label = [&claims.email, &claims.preferred_username, &claims.name].into_iter().flatten().next();
        label.unwrap_or(&self.sub).chars().take(100).collect()
    }
}

/// A verified sign-in at a provider.
#[derive(Debug, Clone)]
pub struct ExternalSignIn {
    /// The user who signed in.
    pub user: ExternalUser,
    /// Time of the authentication, if the provider sent it. It is not later than the time of the callback.
    pub auth_time: Option<jiff::Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, google: bool) -> IdentityProvider {
        IdentityProvider {
            name: name.to_owned(),
            issuer: "https://idp.example".to_owned(),
            endpoints: None,
            client_id: "trefoil".to_owned(),
            client_auth: ProviderClientAuth::None,
            scopes: "openid".to_owned(),
            google,
            create_users: false,
            link_by_email: false,
            own_methods: true,
            rights_max_age: jiff::SignedDuration::from_hours(24),
            mapping: ClaimMapping::default(),
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
        check(&other, ProviderFailure::NotRecent, ("login_required", None));
        check(&other, ProviderFailure::Other("x"), ("server_error", None));
    }

    #[test]
    fn a_discovery_document_is_of_the_issuer_and_has_https_endpoints() {
        let document = |issuer: &str, token: &str| {
            serde_json::json!({
                "issuer": issuer, "authorization_endpoint": "https://idp.example/authorize",
                "token_endpoint": token, "jwks_uri": "https://keys.example/jwks",
                "authorization_response_iss_parameter_supported": true,
            })
        };
        let read = |document| ProviderEndpoints::from_discovery("https://idp.example", &document);
        let read_token = |token: &str| read(document("https://idp.example", token));
        let endpoints = read_token("https://idp.example/token").unwrap();
        assert_eq!(
            (endpoints.token_endpoint.as_str(), endpoints.sends_issuer),
            ("https://idp.example/token", true)
        );
        assert!(read(document("https://idp.example/", "https://idp.example/token")).is_err());
        for bad in ["http://idp.example/token", "/token", "javascript:alert(1)", ""] {
            assert!(read_token(bad).is_err(), "{bad}");
        }
        assert!(read(serde_json::json!([])).is_err());
    }
}
