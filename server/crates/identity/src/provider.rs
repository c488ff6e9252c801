//! Federated sign-in with external OpenID Connect providers: the rules (SPEC, Errors; DESIGN,
//! providers). The edge makes the calls and tells here what came of them.
//!
//! An account is linked by (issuer, sub); an e-mail address never links by itself.

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::Algorithm;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;

use crate::authorize::ErrorCode;
use crate::jose::{self, Parts};
use crate::pkce::CodeChallenge;
use crate::user::{Claims, User, UserError};
use crate::{Identity, ledger};

/// How long a person may take at the provider.
const FLOW_LIFE: SignedDuration = SignedDuration::from_mins(15);
/// How far two clocks may be apart, in seconds.
const LEEWAY: i64 = 60;

/// An external provider, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Name: value of `identity_provider`, and shown to people and in error texts.
    pub name: String,
    /// Its issuer identifier.
    pub issuer: String,
    /// Where the browser goes.
    pub authorization_endpoint: String,
    /// Where the code is exchanged.
    pub token_endpoint: String,
    /// Its keys.
    pub jwks_uri: String,
    /// Our id there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Option<String>,
    /// Scopes to ask for.
    pub scopes: String,
    /// Is it Google, whose errors are worded differently?
    pub google: bool,
    /// Is a user made for somebody who signs in for the first time?
    pub create_users: bool,
}

/// A sign-in under way at a provider, under `flow/{digest of state}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// The provider.
    pub provider: String,
    /// The sealed authorization request that it serves.
    pub back: String,
    nonce: String,
    /// For the token request.
    pub verifier: String,
    browser: String,
}

/// What failed at a provider. Each is one row of SPEC's error table, or `server_error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderFailure {
    /// No answer head from the token endpoint in time.
    TokenTimeout,
    /// No answer head from the key set in time.
    KeySetTimeout,
    /// An error answer.
    Status {
        /// HTTP status.
        status: u16,
        /// The OAuth error code of the body, where it has one.
        code: Option<String>,
    },
    /// The connection was reset or ended early.
    Reset,
    /// The body stalled.
    Stalled,
    /// The person said no there.
    Denied,
    /// Anything else: refused, name not found, TLS, an ID token that does not hold.
    Other(&'static str),
}

impl Provider {
    /// How a failure is told to the client: error code and, where SPEC's row has one, description.
    pub fn describe(&self, failure: &ProviderFailure) -> (ErrorCode, Option<String>) {
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

#[derive(Deserialize)]
struct ProviderIdToken {
    iss: String,
    sub: String,
    aud: OneOrMany,
    azp: Option<String>,
    exp: i64,
    iat: i64,
    nonce: Option<String>,
    #[serde(flatten)]
    claims: Claims,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Who a provider says has signed in.
#[derive(Debug)]
pub struct ExternalUser {
    /// The provider's issuer.
    pub issuer: String,
    /// The subject there.
    pub sub: String,
    /// Claims of the ID token.
    pub claims: Claims,
}

#[derive(Serialize, Deserialize)]
struct Link {
    sub: String,
}

impl Identity {
    /// Begins a sign-in at a provider; gives the address to send the browser to. `browser` is a
    /// value of a cookie, so that only the browser that began can end it.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin_flow(
        &self,
        provider: &Provider,
        back: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let (state, nonce, verifier) = (self.random.secret(), self.random.secret(), self.random.secret());
        let challenge = CodeChallenge::of(&verifier);
        let flow = Flow {
            provider: provider.name.clone(),
            back: back.to_owned(),
            nonce: nonce.clone(),
            verifier,
            browser: ledger::digest(browser),
        };
        let write = ledger::put(flow_key(&state), &flow, Some(now + FLOW_LIFE), Expect::Absent);
        self.store.write(vec![write], now).await?;
        let callback = self.callback_url();
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

    /// Our address that providers send the browser back to.
    pub fn callback_url(&self) -> String {
        format!("{}/oauth2/idpresponse", self.issuer)
    }

    /// Takes the sign-in of this state, once, for the browser that began it.
    ///
    /// # Errors
    /// The store's.
    pub async fn take_flow(
        &self,
        state: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<Option<Flow>, StoreError> {
        let key = flow_key(state);
        let Some(stored) = ledger::get::<Flow>(&self.store, &key, now).await? else { return Ok(None) };
        if !bool::from(stored.value.browser.as_bytes().ct_eq(ledger::digest(browser).as_bytes())) {
            return Ok(None);
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(stored.revision) };
        match self.store.write(vec![delete], now).await {
            Ok(_) => Ok(Some(stored.value)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The user who is linked to an external account, where there is one who may sign in.
    ///
    /// # Errors
    /// The store's.
    pub async fn linked_user(
        &self,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        match ledger::get::<Link>(&self.store, &link_key(external), now).await? {
            Some(link) => self.user(&link.value.sub, now).await,
            None => Ok(None),
        }
    }

    /// Makes a user for an external account and links them.
    ///
    /// # Errors
    /// The store's, and names that cannot be.
    pub async fn create_linked_user(
        &self,
        provider: &Provider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<User, UserError> {
        let user = User {
            sub: String::new(),
            username: format!("{}_{}", provider.name.to_lowercase(), ledger::digest(&link_key(external))),
            claims: external.claims.clone(),
            allowed_scopes: ["openid", "profile", "email", "phone"].into_iter().collect(),
            fhir_user: None,
            administrator: false,
            password: None,
            disabled: false,
            epoch: 0,
            demo: false,
        };
        let user = self.add_user(user, now).await?;
        let link = Link { sub: user.sub.clone() };
        self.store.write(vec![ledger::put(link_key(external), &link, None, Expect::Absent)], now).await?;
        Ok(user)
    }
}

impl Flow {
    /// Judges the provider's ID token: signature by one of its keys, issuer, audience, time, nonce
    /// (OpenID Connect Core 3.1.3.7).
    ///
    /// # Errors
    /// [`ProviderFailure::Other`] with what did not hold, for the log.
    pub fn check_id_token(
        &self,
        provider: &Provider,
        id_token: &str,
        keys: &serde_json::Value,
        now: Timestamp,
    ) -> Result<ExternalUser, ProviderFailure> {
        let bad = ProviderFailure::Other;
        let parts = Parts::parse(id_token).ok_or(bad("the ID token is no signed JWT"))?;
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
            .filter_map(jose::jwk)
            .any(|key| parts.is_signed_by(&key, alg));
        if !signed || parts.header.crit.is_some() {
            return Err(bad("the ID token is not signed by a key of the provider"));
        }
        let token: ProviderIdToken = parts.claims().ok_or(bad("the ID token lacks a required claim"))?;
        let for_us = match &token.aud {
            OneOrMany::One(aud) => *aud == provider.client_id,
            OneOrMany::Many(all) => {
                all.contains(&provider.client_id)
                    && (all.len() == 1 || token.azp.as_deref() == Some(provider.client_id.as_str()))
            }
        };
        let now = now.as_second();
        if token.iss != provider.issuer {
            return Err(bad("the ID token is of another issuer"));
        }
        if !for_us {
            return Err(bad("the ID token is for another client"));
        }
        if token.exp + LEEWAY <= now || token.iat > now + LEEWAY {
            return Err(bad("the ID token is expired or from the future"));
        }
        if token.nonce.as_deref() != Some(self.nonce.as_str()) {
            return Err(bad("the ID token has another nonce"));
        }
        Ok(ExternalUser { issuer: token.iss, sub: token.sub, claims: token.claims })
    }
}

fn flow_key(state: &str) -> String {
    format!("flow/{}", ledger::digest(state))
}

fn link_key(external: &ExternalUser) -> String {
    format!("link/{}", ledger::digest(&format!("{} {}", external.issuer, external.sub)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, google: bool) -> Provider {
        Provider {
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
        }
    }

    #[track_caller]
    fn check(provider: &Provider, failure: ProviderFailure, expected: (&str, Option<&str>)) {
        let (error, description) = provider.describe(&failure);
        assert_eq!((error.as_str(), description.as_deref()), expected);
    }

    #[test]
    fn each_failure_has_its_row() {
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
