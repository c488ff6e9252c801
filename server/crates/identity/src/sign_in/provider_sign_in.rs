//! Sign-in at an external OpenID Connect provider: the redirect, the callback and the content of the token
//! request (OpenID Connect Core section 3.1). The server, not this crate, sends the HTTP requests to the
//! provider. [`provider_id_token`](crate::sign_in::provider_id_token) verifies the ID token.

use std::sync::Arc;

use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;

use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::pkce::CodeChallenge;
use crate::model::provider::{AssertionTarget, IdentityProvider, ProviderClientAuth, ProviderEndpoints};
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::tokens::signing_key::KeyPurpose;
use crate::tokens::signing_keys::SigningKeys;

/// Lifetime of a client assertion for a provider in seconds.
const ASSERTION_LIFETIME_S: i64 = 60;

/// A sign-in that was started at a provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProviderSignIn {
    /// Name of the provider.
    pub provider: String,
    /// Continuation of the authorization request that required the sign-in.
    pub back: String,
    /// Session id of the user who wants to link the account. `None` for a sign-in.
    #[serde(default)]
    pub link_to: Option<String>,
    /// `true` if the client requires that the user is authenticated again (`prompt=login`).
    #[serde(default)]
    pub(super) login: bool,
    /// Maximum age of the authentication in seconds, if the client requires one.
    #[serde(default)]
    pub(super) max_age: Option<i64>,
    /// Time of the redirect to the provider.
    pub(super) begun: Timestamp,
    pub(super) nonce: String,
    verifier: String,
    browser: String,
}

/// Content of a new sign-in at a provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProviderSignInStart<'a> {
    /// Continuation of the authorization request that required the sign-in.
    pub back: &'a str,
    /// Session id of the user who links the account instead of signing in.
    pub link_to: Option<&'a str>,
    /// Value of a cookie: only the browser that started the sign-in can complete it.
    pub browser: &'a str,
    /// Requirements of the client on the authentication.
    pub freshness: RequiredFreshness,
}

/// Requirements of a client on the authentication at a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequiredFreshness {
    /// The user must be authenticated again (`prompt=login`).
    pub login: bool,
    /// The user must be able to choose an account (`prompt=select_account`).
    pub select_account: bool,
    /// Maximum age of the authentication in seconds (`max_age`).
    pub max_age: Option<i64>,
}

/// Content of a request to the token endpoint of a provider.
pub struct ProviderTokenRequest {
    /// Parameters of the form.
    pub form: Vec<(&'static str, String)>,
    /// User name and password of the header `Authorization: Basic`.
    pub basic: Option<(String, String)>,
}

#[derive(Serialize)]
struct ProviderAssertion<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    iat: i64,
    exp: i64,
    jti: String,
}

/// The sign-ins in progress at external providers.
pub struct ProviderSignIns {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) signing_keys: Arc<SigningKeys>,
    pub(crate) issuer: String,
}

impl ProviderSignIns {
    /// Starts a sign-in at a provider and returns the URL for the redirect.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn begin_provider_sign_in(
        &self,
        provider: &IdentityProvider,
        endpoints: &ProviderEndpoints,
        start: ProviderSignInStart<'_>,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let freshness = start.freshness;
        let (state, nonce, verifier) = (self.random.secret(), self.random.secret(), self.random.secret());
        let challenge = CodeChallenge::from_verifier(&verifier);
        let flow = ProviderSignIn {
            provider: provider.name.clone(),
            back: start.back.to_owned(),
            link_to: start.link_to.map(str::to_owned),
            login: freshness.login,
            max_age: freshness.max_age,
            begun: now,
            nonce: nonce.clone(),
            verifier,
            browser: encoding::sha256_base64url(start.browser),
        };
        let write = records::put_record(
            ledger_keys::provider_flow(&state),
            &flow,
            Some(now + lifetimes::PROVIDER_SIGN_IN),
            Expect::Absent,
        );
        self.ledger.write(vec![write], now).await?;
        let callback = self.callback_url(provider);
        let max_age = freshness.max_age.map(|seconds| seconds.to_string());
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", provider.client_id.as_str()),
            ("redirect_uri", &callback),
            ("scope", &provider.scopes),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ];
        if freshness.login {
            pairs.push(("prompt", "login"));
        } else if freshness.select_account {
            pairs.push(("prompt", "select_account"));
        }
        pairs.extend(max_age.as_deref().map(|seconds| ("max_age", seconds)));
        // An authorization endpoint may have a query of its own, which must be kept (RFC 6749 section 3.1).
        let to = &endpoints.authorization_endpoint;
        let join = if to.contains('?') { '&' } else { '?' };
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        Ok(format!("{to}{join}{query}"))
    }

    /// Returns the content of the token request for an authorization code of a provider.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the key that signs the request cannot be read.
    pub async fn token_request(
        &self,
        provider: &IdentityProvider,
        endpoints: &ProviderEndpoints,
        flow: &ProviderSignIn,
        code: &str,
        now: Timestamp,
    ) -> Result<ProviderTokenRequest, StoreError> {
        let client_id = || provider.client_id.clone();
        let mut form = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code.to_owned()),
            ("redirect_uri", self.callback_url(provider)),
            ("code_verifier", flow.verifier.clone()),
        ];
        let mut basic = None;
        match &provider.client_auth {
            ProviderClientAuth::None => form.push(("client_id", client_id())),
            ProviderClientAuth::SecretBasic(secret) => basic = Some((client_id(), secret.clone())),
            ProviderClientAuth::SecretPost(secret) => {
                form.extend([("client_id", client_id()), ("client_secret", secret.clone())]);
            }
            ProviderClientAuth::PrivateKeyJwt { alg, audience } => {
                let claims = ProviderAssertion {
                    iss: &provider.client_id,
                    sub: &provider.client_id,
                    // Providers differ in which of the two they expect.
                    aud: match audience {
                        AssertionTarget::Issuer => &provider.issuer,
                        AssertionTarget::TokenEndpoint => &endpoints.token_endpoint,
                    },
                    iat: now.as_second(),
                    exp: now.as_second() + ASSERTION_LIFETIME_S,
                    jti: self.random.id(),
                };
                let ring = self.signing_keys.complete_ring(now).await?;
                let (kid, signer) = ring.active_key_pair(KeyPurpose::IdToken, *alg);
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer".to_owned();
                form.extend([
                    ("client_id", client_id()),
                    ("client_assertion_type", kind),
                    ("client_assertion", signer.sign(kid, "JWT", &claims)),
                ]);
            }
        }
        Ok(ProviderTokenRequest { form, basic })
    }

    /// Returns the redirect URI for a provider. Each provider has a different redirect URI, so that a
    /// response of one provider is not accepted as a response of another (RFC 9700 section 4.4.2).
    pub fn callback_url(&self, provider: &IdentityProvider) -> String {
        let name = utf8_percent_encode(&provider.name, NON_ALPHANUMERIC);
        format!("{}/oauth2/idpresponse/{name}", self.issuer)
    }

    /// Removes and returns the sign-in with this state, if it was started in this browser.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the record cannot be read or deleted.
    pub async fn take_provider_sign_in(
        &self,
        state: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<Option<ProviderSignIn>, StoreError> {
        let key = ledger_keys::provider_flow(state);
        let Some(record) = self.ledger.read_record::<ProviderSignIn>(&key, now).await? else {
            return Ok(None);
        };
        if !is_same_browser(&record.value.browser, browser) {
            return Ok(None);
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(record.revision) };
        match self.ledger.write(vec![delete], now).await {
            Ok(_) => Ok(Some(record.value)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn is_same_browser(digest: &str, browser: &str) -> bool {
    digest.as_bytes().ct_eq(encoding::sha256_base64url(browser).as_bytes()).into()
}
