//! Sign-in at an external OpenID Connect provider: the redirect, the callback and the verification of the ID token
//! (OpenID Connect Core section 3.1.3.7). The server, not this crate, sends the HTTP requests to the provider.

use std::sync::Arc;

use jiff::Timestamp;
use jsonwebtoken::Algorithm;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;

use crate::encoding;
use crate::jose::{self, JwsParts};
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::pkce::CodeChallenge;
use crate::model::provider::{ExternalUser, IdentityProvider, ProviderFailure};
use crate::model::user::StandardClaims;
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// Tolerated difference between the clocks of this server and the provider in seconds.
const CLOCK_LEEWAY_S: i64 = 60;

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
    nonce: String,
    /// PKCE code verifier for the token request.
    pub verifier: String,
    browser: String,
}

#[derive(Deserialize)]
struct ProviderIdToken {
    iss: String,
    sub: String,
    aud: TokenAudience,
    azp: Option<String>,
    exp: i64,
    iat: i64,
    nonce: Option<String>,
    #[serde(flatten)]
    claims: StandardClaims,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenAudience {
    One(String),
    Many(Vec<String>),
}

/// The sign-ins in progress at external providers.
pub struct ProviderSignIns {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) issuer: String,
}

impl ProviderSignIns {
    /// Starts a sign-in at a provider and returns the URL for the redirect. `browser` is the value of a cookie: only
    /// the browser that started the sign-in can complete it. `link_to` is the session id of a user who links the
    /// account instead of signing in.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn begin_provider_sign_in(
        &self,
        provider: &IdentityProvider,
        back: &str,
        link_to: Option<&str>,
        browser: &str,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let (state, nonce, verifier) = (self.random.secret(), self.random.secret(), self.random.secret());
        let challenge = CodeChallenge::from_verifier(&verifier);
        let flow = ProviderSignIn {
            provider: provider.name.clone(),
            back: back.to_owned(),
            link_to: link_to.map(str::to_owned),
            nonce: nonce.clone(),
            verifier,
            browser: encoding::sha256_base64url(browser),
        };
        let write = records::put_record(
            ledger_keys::provider_flow(&state),
            &flow,
            Some(now + lifetimes::PROVIDER_SIGN_IN),
            Expect::Absent,
        );
        self.ledger.write(vec![write], now).await?;
        let callback = self.callback_url(provider);
        let pairs = [
            ("response_type", "code"),
            ("client_id", &provider.client_id),
            ("redirect_uri", &callback),
            ("scope", &provider.scopes),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ];
        let join = if provider.authorization_endpoint.contains('?') { '&' } else { '?' };
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        Ok(format!("{}{join}{query}", provider.authorization_endpoint))
    }

    /// Returns the redirect URI for a provider. Each provider has a different redirect URI, so that a response of one
    /// provider is not accepted as a response of another (RFC 9700 section 4.4.2).
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
        let Some(stored) = self.ledger.read_record::<ProviderSignIn>(&key, now).await? else {
            return Ok(None);
        };
        if !is_same_browser(&stored.value.browser, browser) {
            return Ok(None);
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(stored.revision) };
        match self.ledger.write(vec![delete], now).await {
            Ok(_) => Ok(Some(stored.value)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl ProviderSignIn {
    /// Verifies the provider's ID token: signature, issuer, audience, time and nonce (OpenID Connect Core section
    /// 3.1.3.7).
    ///
    /// # Errors
    /// Returns [`ProviderFailure::Other`] with a reason to be logged.
    pub fn verify_id_token(
        &self,
        provider: &IdentityProvider,
        id_token: &str,
        keys: &serde_json::Value,
        now: Timestamp,
    ) -> Result<ExternalUser, ProviderFailure> {
        let bad = ProviderFailure::Other;
        let parts = JwsParts::parse(id_token).ok_or(bad("the ID token is not a signed JWT"))?;
        let alg = match parts.header.alg.as_str() {
            "RS256" => Algorithm::RS256,
            "ES256" => Algorithm::ES256,
            "RS384" => Algorithm::RS384,
            "ES384" => Algorithm::ES384,
            _ => return Err(bad("the ID token's algorithm is not one of RS256, ES256, RS384, ES384")),
        };
        let keys = keys["keys"].as_array().ok_or(bad("the key set has no keys"))?;
        let kid = parts.header.kid.as_deref();
        let signed = keys
            .iter()
            .filter(|key| kid.is_none() || key["kid"].as_str() == kid)
            .filter_map(jose::parse_jwk)
            .any(|key| parts.has_valid_signature(&key, alg));
        if !signed || parts.header.crit.is_some() {
            return Err(bad("the ID token is not signed by a key of the provider"));
        }
        let token: ProviderIdToken = parts.claims().ok_or(bad("the ID token lacks a required claim"))?;
        let for_us = match &token.aud {
            TokenAudience::One(aud) => *aud == provider.client_id,
            TokenAudience::Many(all) => {
                all.contains(&provider.client_id)
                    && (all.len() == 1 || token.azp.as_deref() == Some(provider.client_id.as_str()))
            }
        };
        let now = now.as_second();
        if token.iss != provider.issuer {
            return Err(bad("the issuer of the ID token does not match the provider"));
        }
        if !for_us {
            return Err(bad("the audience of the ID token is not this server"));
        }
        if token.exp.saturating_add(CLOCK_LEEWAY_S) <= now || token.iat > now + CLOCK_LEEWAY_S {
            return Err(bad("the ID token is expired or not yet valid"));
        }
        if token.nonce.as_deref() != Some(self.nonce.as_str()) {
            return Err(bad("the nonce of the ID token does not match the request"));
        }
        Ok(ExternalUser { issuer: token.iss, sub: token.sub, claims: token.claims })
    }
}

pub(super) fn is_same_browser(digest: &str, browser: &str) -> bool {
    digest.as_bytes().ct_eq(encoding::sha256_base64url(browser).as_bytes()).into()
}
