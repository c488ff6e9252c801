//! Access tokens and ID tokens: claims, minting, judging (RFC 9068; OpenID Connect Core 2; RFC 8725).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::StoreError;

use crate::client::Client;
use crate::grant::Grant;
use crate::jose::{self, Parts};
use crate::keys::Purpose;
use crate::scope::Scopes;
use crate::{Identity, ledger};

/// Life of an access token of a user (SPEC, Limits).
pub const ACCESS_LIFE: SignedDuration = SignedDuration::from_secs(3600);
/// Life of an access token from client_credentials (SMART Backend Services: at most 300 s).
pub const BACKEND_LIFE: SignedDuration = SignedDuration::from_secs(300);
/// Life of an ID token.
pub const ID_LIFE: SignedDuration = SignedDuration::from_secs(3600);

/// Claims of an access token (RFC 9068 2.2) and, below the line, ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    /// Issuer.
    pub iss: String,
    /// The user, or the client itself.
    pub sub: String,
    /// The issuer with `openid`, the FHIR base with any SMART scope.
    pub aud: Vec<String>,
    /// The client.
    pub client_id: String,
    /// Granted scopes.
    pub scope: String,
    /// Issued at, in seconds.
    pub iat: i64,
    /// Expires at, in seconds.
    pub exp: i64,
    /// Token id.
    pub jti: String,
    /// When the user signed in, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_time: Option<i64>,
    /// The browser session that this token ends with; none under `offline_access`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// The family (see [`crate::grant`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The user's epoch; `None` for tokens without a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

impl AccessToken {
    /// The granted scopes.
    pub fn scopes(&self) -> Scopes {
        Scopes::parse(&self.scope).unwrap_or_default()
    }

    /// Is it meant for this audience?
    pub fn is_for(&self, audience: &str) -> bool {
        self.aud.iter().any(|aud| aud == audience)
    }
}

#[derive(Serialize, Deserialize)]
struct IdToken {
    iss: String,
    sub: String,
    aud: String,
    exp: i64,
    iat: i64,
    auth_time: i64,
    sid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_hash: Option<String>,
}

/// Why an access token is not accepted. To the caller all are `invalid_token`.
#[derive(Debug, thiserror::Error)]
pub enum BadToken {
    /// No JWS of ours.
    #[error("the access token is malformed or was not issued here")]
    Malformed,
    /// Too late.
    #[error("the access token is expired")]
    Expired,
    /// Revoked by its client, with its family or with its session.
    #[error("the access token is revoked")]
    Revoked,
    /// The client is gone.
    #[error("the client of the access token is deleted or disabled")]
    ClientGone,
    /// The user is gone.
    #[error("the user of the access token is deleted or disabled")]
    UserGone,
    /// Global sign-out.
    #[error("the user of the access token has signed out globally")]
    SignedOut,
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What of a user or client decides whether a token stands: read on every request, so no more of the
/// record is taken apart.
#[derive(Deserialize)]
struct Standing {
    #[serde(default)]
    demo: bool,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    epoch: u64,
}

/// Tokens whose signature was checked before, by SHA-256 of the token. Bounded; what can change
/// (expiry, revocation) is checked every time.
pub(crate) struct Verified(Cache<[u8; 32], Arc<AccessToken>>);

impl Verified {
    pub fn new() -> Self {
        Self(Cache::new(10_000))
    }

    pub fn clear(&self) {
        self.0.clear();
    }
}

impl Identity {
    /// Mints an access token for a user's grant.
    pub fn mint_access_token(&self, grant: &Grant, now: Timestamp) -> String {
        let offline = grant.scopes.has("offline_access");
        self.sign_access_token(&AccessToken {
            iss: self.issuer.clone(),
            sub: grant.sub.clone(),
            aud: self.audience(&grant.scopes),
            client_id: grant.client_id.clone(),
            scope: grant.scopes.to_string(),
            iat: now.as_second(),
            exp: (now + ACCESS_LIFE).as_second(),
            jti: self.random.id(),
            auth_time: Some(grant.auth_time.as_second()),
            sid: (!offline).then(|| grant.sid.clone()),
            family: Some(grant.family.clone()),
            epoch: Some(grant.epoch),
        })
    }

    /// Mints an access token for a client itself (client_credentials).
    pub fn mint_backend_token(&self, client: &Client, scopes: &Scopes, now: Timestamp) -> String {
        self.sign_access_token(&AccessToken {
            iss: self.issuer.clone(),
            sub: client.client_id.clone(),
            aud: self.audience(scopes),
            client_id: client.client_id.clone(),
            scope: scopes.to_string(),
            iat: now.as_second(),
            exp: (now + BACKEND_LIFE).as_second(),
            jti: self.random.id(),
            auth_time: None,
            sid: None,
            family: None,
            epoch: None,
        })
    }

    /// Mints an ID token; with the access token that goes with it, `at_hash` ties them together.
    pub fn mint_id_token(&self, grant: &Grant, access_token: Option<&str>, now: Timestamp) -> String {
        let claims = IdToken {
            iss: self.issuer.clone(),
            sub: grant.sub.clone(),
            aud: grant.client_id.clone(),
            exp: (now + ID_LIFE).as_second(),
            iat: now.as_second(),
            auth_time: grant.auth_time.as_second(),
            sid: grant.sid.clone(),
            nonce: grant.nonce.clone(),
            at_hash: access_token.map(|token| jose::b64(&Sha256::digest(token.as_bytes())[..16])),
        };
        let ring = self.ring();
        let active = ring.active(Purpose::IdToken);
        active.signer.sign(&active.key.kid, "JWT", &claims)
    }

    /// The session and client that an `id_token_hint` names: an ID token of ours, expired or not.
    pub fn read_id_token_hint(&self, hint: &str, now: Timestamp) -> Option<(String, String, String)> {
        let parts = Parts::parse(hint)?;
        let ring = self.ring();
        let (loaded, alg) = ring.published(parts.header.kid.as_deref()?, now)?;
        let ours = loaded.key.purpose == Purpose::IdToken
            && parts.header.alg == loaded.signer.alg()
            && parts.header.typ.as_deref() == Some("JWT")
            && parts.is_signed_by(&loaded.jwk, alg);
        let claims: IdToken = parts.claims().filter(|_| ours)?;
        (claims.iss == self.issuer).then_some((claims.sub, claims.aud, claims.sid))
    }

    fn audience(&self, scopes: &Scopes) -> Vec<String> {
        let smart = scopes.smart().next().is_some();
        let mut audience = Vec::new();
        if scopes.has("openid") || !smart {
            audience.push(self.issuer.clone());
        }
        if smart {
            audience.push(self.fhir_base.clone());
        }
        audience
    }

    fn sign_access_token(&self, claims: &AccessToken) -> String {
        let ring = self.ring();
        let active = ring.active(Purpose::AccessToken);
        active.signer.sign(&active.key.kid, "at+jwt", claims)
    }

    /// Judges an access token: form, signature, type, issuer, time, and whether it still stands.
    ///
    /// # Errors
    /// [`BadToken`]: why not.
    pub async fn verify_access_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Arc<AccessToken>, BadToken> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let access = match self.verified.0.get(&digest) {
            Some(access) => access,
            None => {
                let access = Arc::new(self.check_access_token(token, now).ok_or(BadToken::Malformed)?);
                self.verified.0.insert(digest, access.clone());
                access
            }
        };
        if now.as_second() >= access.exp {
            return Err(BadToken::Expired);
        }
        self.check_access_stands(&access, now).await?;
        Ok(access)
    }

    fn check_access_token(&self, token: &str, now: Timestamp) -> Option<AccessToken> {
        let parts = Parts::parse(token)?;
        let ring = self.ring();
        let (loaded, alg) = ring.published(parts.header.kid.as_deref()?, now)?;
        let ours = loaded.key.purpose == Purpose::AccessToken
            && parts.header.alg == loaded.signer.alg()
            && parts.header.typ.as_deref() == Some("at+jwt")
            && parts.header.crit.is_none()
            && parts.is_signed_by(&loaded.jwk, alg);
        parts.claims::<AccessToken>().filter(|claims| ours && claims.iss == self.issuer)
    }

    async fn check_access_stands(&self, access: &AccessToken, now: Timestamp) -> Result<(), BadToken> {
        if self.is_revoked("jti", &access.jti, now).await? {
            return Err(BadToken::Revoked);
        }
        let client =
            ledger::get::<Standing>(&self.store, &format!("client/{}", access.client_id), now).await?;
        if client.is_none_or(|client| client.value.demo && !self.demo) {
            return Err(BadToken::ClientGone);
        }
        for (what, id) in [("family", &access.family), ("sid", &access.sid)] {
            if let Some(id) = id
                && self.is_revoked(what, id, now).await?
            {
                return Err(BadToken::Revoked);
            }
        }
        if let Some(epoch) = access.epoch {
            let user = ledger::get::<Standing>(&self.store, &format!("user/{}", access.sub), now).await?;
            let user =
                user.map(|stored| stored.value).filter(|user| !user.disabled && (self.demo || !user.demo));
            if user.ok_or(BadToken::UserGone)?.epoch != epoch {
                return Err(BadToken::SignedOut);
            }
        }
        Ok(())
    }
}
