//! Values of client metadata that specifications enumerate, and replaced secrets.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Declares an enum of values that specifications name. Registration, metadata, dispatch, error texts and
/// documents use its names, and a `match` of its variants has a place for each.
macro_rules! named_values {
    ($(
        $(#[doc = $about:literal])+
        $type:ident { $($(#[doc = $meaning:literal])+ $variant:ident = $name:literal,)+ }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $type {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $variant,)+
        }

        impl $type {
            /// The names of all values.
            pub const NAMES: &[&str] = &[$($name),+];

            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name, as the specification writes it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The value with this name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }

        impl NamedValue for $type {
            const NAMES: &[&str] = Self::NAMES;

            fn named(name: &str) -> Option<Self> {
                Self::named(name)
            }

            fn name(self) -> &'static str {
                Self::name(self)
            }
        }
    )+};
}
pub(crate) use named_values;

/// A value that specifications name.
pub(crate) trait NamedValue: Copy {
    const NAMES: &[&str];

    fn named(name: &str) -> Option<Self>;

    fn name(self) -> &'static str;
}

/// Names as a part of a sentence, such as `a, b or 'c d'`.
pub fn one_of(names: &[&str]) -> String {
    let quoted = |name: &&str| if name.contains(' ') { format!("'{name}'") } else { (*name).to_owned() };
    match names {
        [] => String::new(),
        [only] => quoted(only),
        [first @ .., last] => {
            format!("{} or {}", first.iter().map(quoted).collect::<Vec<_>>().join(", "), quoted(last))
        }
    }
}

named_values! {
    /// Authentication methods of a client at the token endpoint (RFC 7591 section 2).
    AuthMethod {
        /// A public client, identified by its `client_id` only.
        None = "none",
        /// `Authorization: Basic`.
        ClientSecretBasic = "client_secret_basic",
        /// `client_id` and `client_secret` in the form body.
        ClientSecretPost = "client_secret_post",
        /// A client assertion (RFC 7523).
        PrivateKeyJwt = "private_key_jwt",
    }

    /// Grant types of the token endpoint.
    GrantType {
        /// RFC 6749 section 4.1.
        AuthorizationCode = "authorization_code",
        /// RFC 6749 section 6.
        RefreshToken = "refresh_token",
        /// RFC 6749 section 4.4.
        ClientCredentials = "client_credentials",
        /// RFC 8628.
        DeviceCode = "urn:ietf:params:oauth:grant-type:device_code",
    }

    /// Response types of the authorization endpoint.
    ResponseType {
        /// An authorization code.
        Code = "code",
        /// An access token, and an ID token if `openid` is requested.
        Token = "token",
        /// An ID token.
        IdToken = "id_token",
        /// Both tokens, as OpenID Connect spells the combination.
        IdTokenToken = "id_token token",
    }

    /// Audiences that a client assertion may have.
    AssertionAudiencePolicy {
        /// The token endpoint or the issuer (SMART App Launch 2.2).
        TokenEndpointOrIssuer = "token_endpoint_or_issuer",
        /// The issuer as a single string (FAPI 2.0; update of RFC 7523).
        Issuer = "issuer",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro derives the same traits for all types")]
impl Default for AssertionAudiencePolicy {
    fn default() -> Self {
        Self::TokenEndpointOrIssuer
    }
}

/// A client secret that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedSecret {
    /// SHA-256 in base64url.
    pub digest: String,
    /// Time until which the secret is valid.
    pub until: Timestamp,
}
