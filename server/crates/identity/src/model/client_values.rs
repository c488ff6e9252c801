//! Values of client metadata that specifications enumerate, and replaced secrets.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Authentication methods of a client at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// A public client, identified by its `client_id` only.
    None,
    /// `Authorization: Basic`.
    ClientSecretBasic,
    /// `client_id` and `client_secret` in the form body.
    ClientSecretPost,
    /// A client assertion (RFC 7523).
    PrivateKeyJwt,
}

impl AuthMethod {
    /// The name in client metadata (RFC 7591 section 2).
    pub(crate) fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// Grant types of the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// RFC 6749 section 4.1.
    AuthorizationCode,
    /// RFC 6749 section 6.
    RefreshToken,
    /// RFC 6749 section 4.4.
    ClientCredentials,
    /// RFC 8628.
    #[serde(rename = "urn:ietf:params:oauth:grant-type:device_code")]
    DeviceCode,
}

/// Response types of the authorization endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ResponseType {
    /// An authorization code.
    #[serde(rename = "code")]
    Code,
    /// An access token, and an ID token if `openid` is requested.
    #[serde(rename = "token")]
    Token,
    /// An ID token.
    #[serde(rename = "id_token")]
    IdToken,
    /// Both tokens, as OpenID Connect spells the combination.
    #[serde(rename = "id_token token")]
    IdTokenToken,
}

/// Audiences that a client assertion may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionAudiencePolicy {
    /// The token endpoint or the issuer (SMART App Launch 2.2).
    #[default]
    TokenEndpointOrIssuer,
    /// The issuer as a single string (FAPI 2.0; update of RFC 7523).
    Issuer,
}

/// A client secret that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedSecret {
    /// SHA-256 in base64url.
    pub digest: String,
    /// Time until which the secret is valid.
    pub until: Timestamp,
}
