//! Federated sign-in with external OpenID Connect providers: the rules (SPEC, Errors; DESIGN,
//! providers). The edge makes the calls and tells here what came of them.
//!
//! An account is linked by (issuer, sub): by a user who has signed in here, or by the provider's switches
//! `create_users` and `link_by_email`, which are off. `link/{digest of both}` leads to the user, and
//! `link-of/{sub}/{digest}` lists a user's accounts.

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::Algorithm;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;

use crate::audit::{Action, SignInMethod};
use crate::authorize::ErrorCode;
use crate::jose::{self, Parts};
use crate::pkce::CodeChallenge;
use crate::user::{Claims, User, UserError};
use crate::{Identity, ledger};

/// How long a person may take at the provider.
pub(crate) const FLOW_LIFE: SignedDuration = SignedDuration::from_mins(15);
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
    /// Is somebody who signs in for the first time linked to the one user who has the same e-mail address,
    /// where the provider says that it was verified?
    pub link_by_email: bool,
}

/// A sign-in under way at a provider, under `flow/{digest of state}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// The provider.
    pub provider: String,
    /// The sealed authorization request that it serves.
    pub back: String,
    /// The session whose user wants to link the account; `None` is a sign-in.
    #[serde(default)]
    pub link_to: Option<String>,
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// An external account of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedAccount {
    /// Names the link in forms.
    pub id: String,
    /// The provider's name when it was linked.
    pub provider: String,
    /// What the provider calls the account: e-mail, user name or name.
    pub label: String,
    /// When it was linked.
    pub since: Timestamp,
}

/// Why an account was not linked or unlinked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It is another user's.
    #[error("this account is linked to another user")]
    Taken,
    /// Nobody could sign in afterwards.
    #[error("this is your only way to sign in; set a password or add a passkey first")]
    OnlyWay,
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An account that waits for its user to sign in here once, under `pending-link/{digest of id}`.
#[derive(Serialize, Deserialize)]
struct PendingLink {
    provider: String,
    external: ExternalUser,
    browser: String,
}

impl Identity {
    /// Begins a sign-in at a provider; gives the address to send the browser to. `browser` is a
    /// value of a cookie, so that only the browser that began can end it; `link_to` is the session id of a
    /// user who wants to link the account.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin_flow(
        &self,
        provider: &Provider,
        back: &str,
        link_to: Option<&str>,
        browser: &str,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let (state, nonce, verifier) = (self.random.secret(), self.random.secret(), self.random.secret());
        let challenge = CodeChallenge::of(&verifier);
        let flow = Flow {
            provider: provider.name.clone(),
            back: back.to_owned(),
            link_to: link_to.map(str::to_owned),
            nonce: nonce.clone(),
            verifier,
            browser: ledger::digest(browser),
        };
        let write = ledger::put(flow_key(&state), &flow, Some(now + FLOW_LIFE), Expect::Absent);
        self.store.write(vec![write], now).await?;
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

    /// The redirect URI of a provider. Each has its own, so that the response of one cannot be taken for that of another
    /// (RFC 9700 section 4.4.2).
    pub fn callback_url(&self, provider: &Provider) -> String {
        let name = utf8_percent_encode(&provider.name, NON_ALPHANUMERIC);
        format!("{}/oauth2/idpresponse/{name}", self.issuer)
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
        if !is_browser(&stored.value.browser, browser) {
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
        match ledger::get::<Link>(&self.store, &link_key(&account_id(external)), now).await? {
            Some(link) => self.user(&link.value.sub, now).await,
            None => Ok(None),
        }
    }

    /// The user whom the provider's switches link or make for an account that is linked to nobody.
    ///
    /// # Errors
    /// The store's, and names that cannot be.
    pub async fn admit(
        &self,
        provider: &Provider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<Option<User>, UserError> {
        if provider.link_by_email
            && let Some(user) = self.user_of_email(external, now).await?
        {
            return match self.link(&user, &provider.name, external, now).await {
                Ok(()) => Ok(Some(user)),
                Err(LinkError::Store(error)) => Err(error.into()),
                Err(LinkError::Taken | LinkError::OnlyWay) => Ok(None),
            };
        }
        if provider.create_users {
            return self.create_linked_user(provider, external, now).await.map(Some);
        }
        Ok(None)
    }

    /// The one user who has an e-mail address that the provider has verified, and that an administrator or the same
    /// provider has verified for the user: another provider could have claimed any address. An administrator is never
    /// found so, since whoever holds that mailbox would hold the server.
    async fn user_of_email(
        &self,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        let claims = &external.claims;
        let Some(email) = claims.email.as_deref().filter(|_| claims.email_verified == Some(true)) else {
            return Ok(None);
        };
        let has = |user: &User| {
            let verified = user.claims.email_verified == Some(true);
            let is_trusted = user.email_verified_by.as_ref().is_none_or(|issuer| *issuer == external.issuer);
            verified
                && is_trusted
                && user.claims.email.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(email))
        };
        let mut found = self.users(now).await?.into_iter().filter(has);
        let user = match (found.next(), found.next()) {
            (Some(user), None) if !user.administrator => user,
            _ => return Ok(None),
        };
        self.user(&user.sub, now).await
    }

    /// Makes a user for an external account and links them.
    async fn create_linked_user(
        &self,
        provider: &Provider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<User, UserError> {
        let user = User {
            sub: String::new(),
            username: format!("{}_{}", provider.name.to_lowercase(), account_id(external)),
            claims: external.claims.clone(),
            email_verified_by: Some(external.issuer.clone()),
            allowed_scopes: ["openid", "profile", "email", "phone"].into_iter().collect(),
            fhir_user: None,
            administrator: false,
            password: None,
            disabled: false,
            epoch: 0,
            demo: false,
        };
        let user = self.add_user(user, now).await?;
        self.store.write(link_writes(&user.sub, &provider.name, external, now).into(), now).await?;
        Ok(user)
    }

    /// Links an external account to a user who has signed in here. Linking it once more changes nothing.
    ///
    /// # Errors
    /// [`LinkError::Taken`] and the store's.
    pub async fn link(
        &self,
        user: &User,
        provider: &str,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<(), LinkError> {
        match self.store.write(link_writes(&user.sub, provider, external, now).into(), now).await {
            Ok(_) => {
                self.record_method(Action::Create, &user.sub, SignInMethod::LinkedAccount);
                return Ok(());
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let link = ledger::get::<Link>(&self.store, &link_key(&account_id(external)), now).await?;
        if link.is_some_and(|link| link.value.sub == user.sub) { Ok(()) } else { Err(LinkError::Taken) }
    }

    /// The external accounts of a user.
    ///
    /// # Errors
    /// The store's.
    pub async fn links_of(&self, sub: &str, now: Timestamp) -> Result<Vec<LinkedAccount>, StoreError> {
        ledger::all(&self.store, &link_of_key(sub, ""), now).await
    }

    /// Takes a link away, but never a user's only way to sign in. `false`: the user has no such link.
    ///
    /// # Errors
    /// [`LinkError::OnlyWay`] and the store's.
    pub async fn unlink(&self, user: &User, id: &str, now: Timestamp) -> Result<bool, LinkError> {
        let links = self.links_of(&user.sub, now).await?;
        if !links.iter().any(|link| link.id == id) {
            return Ok(false);
        }
        let has_another =
            user.password.is_some() || links.len() > 1 || !self.passkeys_of(&user.sub, now).await?.is_empty();
        if !has_another {
            return Err(LinkError::OnlyWay);
        }
        self.store.write(unlink_writes(&user.sub, id).into(), now).await?;
        self.record_method(Action::Delete, &user.sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Removes a link, even the last way to sign in. Returns `false` if the user has no such link.
    pub(crate) async fn remove_link(&self, sub: &str, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        if !self.links_of(sub, now).await?.iter().any(|link| link.id == id) {
            return Ok(false);
        }
        self.store.write(unlink_writes(sub, id).into(), now).await?;
        self.record_method(Action::Delete, sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Takes all links of a user away who is being deleted.
    pub(crate) async fn unlink_all(&self, sub: &str, now: Timestamp) -> Result<Vec<LedgerWrite>, StoreError> {
        let links = self.links_of(sub, now).await?;
        Ok(links.iter().flat_map(|link| unlink_writes(sub, &link.id)).collect())
    }

    /// Keeps an account that is linked to nobody, until its user has signed in here in the same browser;
    /// gives what the sign-in form carries.
    ///
    /// # Errors
    /// The store's.
    pub async fn keep_for_linking(
        &self,
        provider: &str,
        external: ExternalUser,
        browser: &str,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let id = self.random.secret();
        let browser = ledger::digest(browser);
        let pending = PendingLink { provider: provider.to_owned(), external, browser };
        let write = ledger::put(pending_key(&id), &pending, Some(now + FLOW_LIFE), Expect::Absent);
        self.store.write(vec![write], now).await?;
        Ok(id)
    }

    /// What is kept under this id for this browser: the provider's name, and what it calls the account.
    ///
    /// # Errors
    /// The store's.
    pub async fn kept_for_linking(
        &self,
        id: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<Option<(String, String)>, StoreError> {
        let found = ledger::get::<PendingLink>(&self.store, &pending_key(id), now).await?;
        let ours = found.map(|stored| stored.value).filter(|pending| is_browser(&pending.browser, browser));
        Ok(ours.map(|pending| (pending.provider, label(&pending.external))))
    }

    /// Links what is kept under this id to the user who has signed in, once.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn link_kept(
        &self,
        id: &str,
        browser: &str,
        user: &User,
        now: Timestamp,
    ) -> Result<(), LinkError> {
        let key = pending_key(id);
        let Some(stored) = ledger::get::<PendingLink>(&self.store, &key, now).await? else { return Ok(()) };
        let pending = stored.value;
        if !is_browser(&pending.browser, browser) {
            return Ok(());
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(stored.revision) };
        match self.store.write(vec![delete], now).await {
            Ok(_) => self.link(user, &pending.provider, &pending.external, now).await,
            Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Both records of a link.
fn link_writes(sub: &str, provider: &str, external: &ExternalUser, now: Timestamp) -> [LedgerWrite; 2] {
    let id = account_id(external);
    let account =
        LinkedAccount { id: id.clone(), provider: provider.to_owned(), label: label(external), since: now };
    [
        ledger::put(link_key(&id), &Link { sub: sub.to_owned() }, None, Expect::Absent),
        ledger::put(link_of_key(sub, &id), &account, None, Expect::Any),
    ]
}

fn unlink_writes(sub: &str, id: &str) -> [LedgerWrite; 2] {
    [link_key(id), link_of_key(sub, id)].map(|key| LedgerWrite::Delete { key, expect: Expect::Any })
}

/// What people know an account by.
fn label(external: &ExternalUser) -> String {
    let claims = &external.claims;
    let known = [&claims.email, &claims.preferred_username, &claims.name].into_iter().flatten().next();
    known.unwrap_or(&external.sub).chars().take(100).collect()
}

fn is_browser(digest: &str, browser: &str) -> bool {
    digest.as_bytes().ct_eq(ledger::digest(browser).as_bytes()).into()
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
        if token.exp.saturating_add(LEEWAY) <= now || token.iat > now + LEEWAY {
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

/// Names an external account.
fn account_id(external: &ExternalUser) -> String {
    ledger::digest(&format!("{} {}", external.issuer, external.sub))
}

fn link_key(id: &str) -> String {
    format!("link/{id}")
}

fn link_of_key(sub: &str, id: &str) -> String {
    format!("link-of/{sub}/{id}")
}

fn pending_key(id: &str) -> String {
    format!("pending-link/{}", ledger::digest(id))
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
            link_by_email: false,
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
