//! Clients: their credentials and what they may request (RFC 6749 section 2; RFC 7591).

use jiff::{SignedDuration, Timestamp};
use store::StoreError;
use subtle::ConstantTimeEq;

use crate::encoding;
use crate::lifetimes;
pub use crate::model::client_values::{
    AssertionAudiencePolicy, AuthMethod, GrantType, ReplacedSecret, ResponseType,
};
pub use crate::model::members::Client;
use crate::{SigningAlg, jose};

/// Reasons why a registration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The id is taken.
    #[error("a client '{0}' exists already; delete it first or choose another id")]
    Exists(String),
    /// A declared client has the id of a client that was added by command.
    #[error(
        "a client '{0}' was added by command; delete it with `trefoil client delete {0}` or declare another id"
    )]
    AddedByCommand(String),
    /// The client is declared in the configuration, so commands cannot change it.
    #[error(
        "the client '{0}' is declared in trefoil.toml; change its [[client]] there, then `trefoil reload`"
    )]
    Declared(String),
    /// The URL of the key set is invalid.
    #[error("jwks_uri '{0}' is not an https:// address; plain http:// is accepted for loopback hosts only")]
    BadKeySetAddress(String),
    /// The algorithm is not supported.
    #[error("'{name}' is not an algorithm for {what}; use {known}")]
    BadAlgorithm {
        /// The rejected name.
        name: String,
        /// `assertions` or `ID tokens`.
        what: &'static str,
        /// The supported names.
        known: String,
    },
    /// A lifetime is too short or too long.
    #[error("{member} must be a number of seconds from {} to {max}", lifetimes::MIN_LIFETIME_S)]
    BadLifetime {
        /// Name of the member.
        member: &'static str,
        /// Maximum in seconds.
        max: u32,
    },
    /// The id is invalid.
    #[error("client id '{0}' must have 1 to 100 characters, each a letter, a digit, '-', '_' or '.'")]
    BadId(String),
    /// The secret is too short.
    #[error("a client secret must have at least 32 characters")]
    WeakSecret,
    /// The key with this index in the JWK Set is invalid.
    #[error(
        "key {0} of the JWK Set is rejected: it must be a public key with a kid, and RSA of at least 2048 bits, EC P-256, EC P-384 or OKP Ed25519"
    )]
    BadKey(usize),
    /// Two members contradict each other, as the text describes.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Client {
    /// Returns a client without permissions, from which every registration starts.
    pub fn new(client_id: impl Into<String>) -> Self {
        let client_id = client_id.into();
        Self { name: client_id.clone(), client_id, pkce_required: true, ..Self::default() }
    }

    /// Returns `true` for a public client, which has neither a secret nor a key.
    pub fn is_public(&self) -> bool {
        self.auth_methods == [AuthMethod::None]
    }

    /// The time during which a used refresh token returns its successor again. A browser with two tabs
    /// refreshes twice at once, and a public client cannot know of the other tab.
    pub fn refresh_grace(&self) -> SignedDuration {
        const PUBLIC_DEFAULT_S: u32 = 10;
        let default = if self.is_public() { PUBLIC_DEFAULT_S } else { 0 };
        SignedDuration::from_secs(self.refresh_grace_s.unwrap_or(default).into())
    }

    /// Returns `true` if one of the client's authentication methods uses a secret.
    pub fn needs_secret(&self) -> bool {
        let with_secret = [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost];
        self.auth_methods.iter().any(|method| with_secret.contains(method))
    }

    /// Returns `true` if `secret` is one of the secrets of the client that are valid now. The comparison
    /// takes constant time.
    pub fn verify_secret(&self, secret: &str, now: Timestamp) -> bool {
        let digest = encoding::sha256_base64url(secret);
        let replaced = self.replaced_secrets.iter().filter(|replaced| now < replaced.until);
        self.secret_digests
            .iter()
            .chain(replaced.map(|replaced| &replaced.digest))
            .fold(false, |is_equal, own| is_equal | bool::from(own.as_bytes().ct_eq(digest.as_bytes())))
    }

    /// Returns the digest that is stored for a secret.
    pub fn secret_digest(secret: &str) -> String {
        encoding::sha256_base64url(secret)
    }

    /// Lifetime of the authorization codes of this client.
    pub fn authorization_code_lifetime(&self) -> SignedDuration {
        match (self.authorization_code_lifetime_s, self.fapi2) {
            (Some(seconds), _) => SignedDuration::from_secs(seconds.into()),
            (None, true) => lifetimes::FAPI2_AUTHORIZATION_CODE,
            (None, false) => lifetimes::AUTHORIZATION_CODE,
        }
    }

    /// Switches on what the FAPI 2.0 Security Profile requires of a client.
    pub(crate) fn apply_fapi2(&mut self) {
        if self.fapi2 {
            self.require_pushed_authorization_requests = true;
            self.dpop_bound_access_tokens = true;
            self.assertion_audience = AssertionAudiencePolicy::Issuer;
        }
    }

    /// Checks what the FAPI 2.0 Security Profile forbids (sections 5.3.2.1 and 5.4).
    fn check_fapi2(&self) -> Result<(), RegistrationError> {
        let refuse = |text| Err(RegistrationError::Contradiction(text));
        if self.auth_methods != [AuthMethod::PrivateKeyJwt] {
            return refuse("a client with fapi2 must authenticate itself by private_key_jwt");
        }
        if self.response_types.iter().any(|response_type| *response_type != ResponseType::Code) {
            return refuse("a client with fapi2 must use the response type code only");
        }
        if !self.pkce_required {
            return refuse("a client with fapi2 must use PKCE");
        }
        if self.authorization_code_lifetime() > lifetimes::FAPI2_AUTHORIZATION_CODE {
            return refuse("authorization_code_lifetime_s must be at most 60 with fapi2");
        }
        if self.assertion_algs.iter().any(|alg| alg == "RS256" || alg == "RS384") {
            return refuse("a client with fapi2 must sign with PS256, ES256 or EdDSA (FAPI 2.0 section 5.4)");
        }
        Ok(())
    }

    /// The way in which an operator gives a member of this registration another value.
    pub(crate) fn registration_remedy(&self, member: &str, flag: &str, value: &str) -> String {
        let id = &self.client_id;
        match self.declared {
            true => format!("set {member} of client '{id}' in trefoil.toml to '{value}'"),
            false => format!("trefoil client change {id} --{flag} '{value}'"),
        }
    }

    /// The origin of the first redirect URI, such as `https://app.example`, at which a person finds the
    /// application again. Native applications have none.
    pub fn web_origin(&self) -> Option<String> {
        let uri = self.redirect_uris.iter().find(|_| !self.native)?;
        Some(url::Url::parse(uri.as_str()).ok()?.origin().ascii_serialization())
    }

    /// Checks a registration.
    ///
    /// # Errors
    /// Returns [`RegistrationError`] for the first violated rule.
    pub fn check_registration(&self) -> Result<(), RegistrationError> {
        let id = &self.client_id;
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if id.is_empty() || id.len() > 100 || !id.bytes().all(legal) {
            return Err(RegistrationError::BadId(id.clone()));
        }
        if self.auth_methods.is_empty() {
            return Err(RegistrationError::Contradiction(
                "a client must have a method of authentication, or 'none'",
            ));
        }
        if self.is_public() && self.grant_types.contains(&GrantType::ClientCredentials) {
            return Err(RegistrationError::Contradiction(
                "client_credentials requires a client with a secret or a key",
            ));
        }
        if !self.response_types.is_empty() && self.redirect_uris.is_empty() {
            return Err(RegistrationError::Contradiction(
                "a client with a response type must have a redirect URI",
            ));
        }
        for (index, key) in self.jwks.iter().enumerate() {
            // A private key that was registered by mistake must not be stored.
            let private = key.get("d").is_some();
            if private
                || key["kid"].as_str().is_none_or(str::is_empty)
                || !jose::is_strong_key(key)
                || jose::parse_jwk(key).is_none()
            {
                return Err(RegistrationError::BadKey(index));
            }
        }
        if self.fapi2 {
            self.check_fapi2()?;
        }
        if self.authorization_code_lifetime_s.is_some_and(|seconds| !(10..=300).contains(&seconds)) {
            let text = "authorization_code_lifetime_s must be 10 to 300";
            return Err(RegistrationError::Contradiction(text));
        }
        let has_keys = !self.jwks.is_empty() || self.jwks_uri.is_some();
        if self.auth_methods.contains(&AuthMethod::PrivateKeyJwt) && !has_keys {
            return Err(RegistrationError::Contradiction("private_key_jwt requires a JWK Set or a jwks_uri"));
        }
        if !self.jwks.is_empty() && self.jwks_uri.is_some() {
            return Err(RegistrationError::Contradiction("jwks and jwks_uri must not be used together"));
        }
        if self.auth_methods.len() > 1 && self.auth_methods.contains(&AuthMethod::None) {
            return Err(RegistrationError::Contradiction(
                "'none' must not be combined with another method of authentication",
            ));
        }
        if self.refresh_grace_s.is_some_and(|seconds| seconds > 60) {
            return Err(RegistrationError::Contradiction("refresh_grace_s must be at most 60"));
        }
        for (member, seconds, max) in [
            ("access_token_lifetime_s", self.access_token_lifetime_s, lifetimes::MAX_TOKEN_LIFETIME_S),
            ("id_token_lifetime_s", self.id_token_lifetime_s, lifetimes::MAX_TOKEN_LIFETIME_S),
            ("refresh_token_lifetime_s", self.refresh_token_lifetime_s, lifetimes::MAX_REFRESH_LIFETIME_S),
        ] {
            if seconds.is_some_and(|seconds| !(lifetimes::MIN_LIFETIME_S..=max).contains(&seconds)) {
                return Err(RegistrationError::BadLifetime { member, max });
            }
        }
        if let Some(address) = &self.jwks_uri
            && !is_key_set_address(address)
        {
            return Err(RegistrationError::BadKeySetAddress(address.clone()));
        }
        for name in &self.assertion_algs {
            if !jose::assertion_algorithms().any(|candidate| candidate == name) {
                let names = jose::assertion_algorithms().collect::<Vec<_>>().join(", ");
                return Err(RegistrationError::BadAlgorithm {
                    name: name.clone(),
                    what: "assertions",
                    known: names,
                });
            }
        }
        if let Some(name) = &self.id_token_alg
            && SigningAlg::parse(name).is_none()
        {
            let names = SigningAlg::ALL.map(SigningAlg::name).join(", ");
            return Err(RegistrationError::BadAlgorithm {
                name: name.clone(),
                what: "ID tokens",
                known: names,
            });
        }
        Ok(())
    }
}

/// `true` for an HTTPS URL, and for a plain HTTP URL with a loopback host. The configuration decides whether
/// URLs with a loopback host are fetched.
fn is_key_set_address(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| {
        let is_loopback = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let scheme = url.scheme() == "https" || (url.scheme() == "http" && is_loopback);
        scheme && url.host_str().is_some() && url.username().is_empty() && url.password().is_none()
    })
}
