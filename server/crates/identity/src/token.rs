//! Access tokens and ID tokens: claims, minting, judging (RFC 9068; OpenID Connect Core 2; RFC 8725).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::Identity;
use crate::audit::Event;
use crate::client::Client;
use crate::dpop::{BadProof, ProofError, Proven};
use crate::grant::{Grant, still_granted};
use crate::jose::{Parts, SigningAlg};
use crate::keys::{KeyRing, Purpose};
use crate::scope::{Context, Permissions, Scopes};
use crate::user::User;
use crate::userinfo::{self, UserClaims};

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
    /// How strongly the user signed in (see [`acr`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acr: Option<String>,
    /// The browser session that this token ends with; none under `offline_access`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// The family (see [`crate::grant`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The user's epoch; `None` for tokens without a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The client's registration (see [`Client::generation`]).
    #[serde(default)]
    pub generation: String,
    /// The launch patient's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patient: Option<String>,
    /// The key that the token is bound to (RFC 7800; RFC 9449 6.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cnf: Option<Confirmation>,
}

/// `cnf`: the thumbprint of the key that the holder must prove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// RFC 7638 thumbprint.
    pub jkt: String,
}

/// The values of `acr`, the weaker first.
pub const ACR_VALUES: [&str; 2] = ["1", "2"];

/// The authentication context class of a sign-in (OpenID Connect Core 2): `2` where there was more than
/// one factor, `1` else; what an external provider asked for is not known here.
fn acr(amr: &[String]) -> &'static str {
    ACR_VALUES[usize::from(amr.iter().any(|method| method == "mfa"))]
}

impl AccessToken {
    /// Is it meant for this audience?
    pub fn is_for(&self, audience: &str) -> bool {
        self.aud.iter().any(|aud| aud == audience)
    }
}

/// An access token that stands, with what it was judged by.
#[derive(Debug)]
pub struct Access {
    /// Its claims.
    pub token: Arc<AccessToken>,
    /// What is left of its scopes: those that its client and its user still have.
    pub scopes: Scopes,
    /// Its user; `None` for a client's own token.
    pub user: Option<User>,
}

/// Whose resources of a type a token opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach<'a> {
    /// None.
    Nothing,
    /// Those in the compartments of these Patients.
    Patients(Vec<&'a str>),
    /// All.
    All,
}

impl Access {
    /// Whose resources of a type the token opens for this (DESIGN, who may what): `system/` all; `user/` what
    /// the user may see, which for a Patient without more is its own compartment; `patient/` that of the
    /// launch patient, while the user may see it.
    pub fn reach(&self, kind: &str, permissions: Permissions) -> Reach<'_> {
        let mut patients = Vec::new();
        for scope in self.scopes.smart().filter(|scope| scope.allows(kind, permissions)) {
            match (scope.context, &self.user) {
                (Context::System, _) => return Reach::All,
                (Context::User, Some(user)) => {
                    if user.allowed_scopes.allow(Context::User, kind, permissions) {
                        return Reach::All;
                    }
                    patients.extend(user.own_patient());
                }
                (Context::Patient, Some(user)) => {
                    patients.extend(self.token.patient.as_deref().filter(|id| user.may_see_patient(id)));
                }
                (Context::User | Context::Patient, None) => {}
            }
        }
        if patients.is_empty() { Reach::Nothing } else { Reach::Patients(patients) }
    }
}

/// How an access token was sent.
#[derive(Debug, Clone, Copy)]
pub struct Presented<'a> {
    /// The token.
    pub token: &'a str,
    /// The proof beside it: `Authorization: DPoP`, not `Bearer`.
    pub proof: Option<&'a str>,
    /// Method of the request.
    pub method: &'a str,
    /// Path of the request, as it was sent.
    pub path: &'a str,
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    amr: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acr: Option<String>,
    #[serde(flatten)]
    user: serde_json::Map<String, serde_json::Value>,
}

/// What an ID token says beside the grant.
#[derive(Debug, Default, Clone, Copy)]
pub struct Beside<'a> {
    /// The access token that goes with it; `at_hash` ties them together.
    pub access_token: Option<&'a str>,
    /// The user whose claims stand in it; where there is an access token, userinfo gives most of them
    /// (OpenID Connect Core 5.4).
    pub user: Option<&'a User>,
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
    /// It is bound to a key, and was sent as a bearer token.
    #[error("the access token is bound to a key; send it as 'Authorization: DPoP' with a proof")]
    NeedsProof,
    /// A bearer token that was sent with a proof.
    #[error("the access token is bound to no key; send it as 'Authorization: Bearer'")]
    NotBound,
    /// The proof is by another key than the one the token is bound to.
    #[error("the proof is by another key than the one that the access token is bound to")]
    OtherKey,
    /// The proof does not hold.
    #[error("{0}")]
    Proof(BadProof),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ProofError> for BadToken {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::Bad(error) => Self::Proof(error),
            ProofError::Store(error) => Self::Store(error),
        }
    }
}

/// Tokens that were judged before, and in which age of the records (see `records`). Bounded; expiry is checked
/// every time. The key is the whole token: a digest of it would cost more than all the rest of a hit.
pub(crate) struct Verified(Cache<Box<str>, Arc<Verdict>>);

struct Verdict {
    access: Arc<Access>,
    age: u64,
    /// Revision of the keys that the signature was checked with.
    ring: u64,
}

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
            acr: Some(acr(&grant.amr).to_owned()),
            sid: (!offline).then(|| grant.sid.clone()),
            family: Some(grant.family.clone()),
            epoch: Some(grant.epoch),
            generation: grant.generation.clone(),
            patient: grant.patient.clone(),
            cnf: grant.jkt.clone().map(|jkt| Confirmation { jkt }),
        })
    }

    /// Mints an access token for a client itself (client_credentials), bound to a key where one was proven.
    pub fn mint_backend_token(
        &self,
        client: &Client,
        scopes: &Scopes,
        jkt: Option<String>,
        now: Timestamp,
    ) -> String {
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
            acr: None,
            sid: None,
            family: None,
            epoch: None,
            generation: client.generation.clone(),
            patient: None,
            cnf: jkt.map(|jkt| Confirmation { jkt }),
        })
    }

    /// Mints an ID token, signed with the algorithm that the client chose.
    pub fn mint_id_token(
        &self,
        client: &Client,
        grant: &Grant,
        beside: Beside<'_>,
        now: Timestamp,
    ) -> String {
        let alg = client.id_token_alg.as_deref().and_then(SigningAlg::parse).unwrap_or_default();
        let scopes = match beside.access_token {
            // Userinfo gives the rest to whoever has an access token.
            Some(_) => grant.scopes.filter(|scope| scope == "fhirUser"),
            None => grant.scopes.clone(),
        };
        let user = beside.user.map(|user| serde_json::to_value(self.user_claims(user, &scopes)));
        let user = match user.transpose().expect("our own claims serialise") {
            Some(serde_json::Value::Object(mut members)) => {
                members.remove("sub");
                members
            }
            _ => serde_json::Map::new(),
        };
        let claims = IdToken {
            iss: self.issuer.clone(),
            sub: grant.sub.clone(),
            aud: grant.client_id.clone(),
            exp: (now + ID_LIFE).as_second(),
            iat: now.as_second(),
            auth_time: grant.auth_time.as_second(),
            sid: grant.sid.clone(),
            nonce: grant.nonce.clone(),
            at_hash: beside.access_token.map(|token| alg.half_hash(token)),
            amr: grant.amr.clone(),
            acr: Some(acr(&grant.amr).to_owned()),
            user,
        };
        let ring = self.ring();
        let (kid, signer) = ring.active(Purpose::IdToken, alg);
        signer.sign(kid, "JWT", &claims)
    }

    /// The session and client that an `id_token_hint` names: an ID token of ours, expired or not.
    pub fn read_id_token_hint(&self, hint: &str, now: Timestamp) -> Option<(String, String, String)> {
        let parts = Parts::parse(hint)?;
        let ring = self.ring();
        let (loaded, alg) = ring.published(parts.header.kid.as_deref()?, now)?;
        let ours = loaded.key.purpose == Purpose::IdToken
            && parts.header.alg == loaded.key.alg.name()
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
        self.record(Event::TokenIssued {
            jti: claims.jti.clone(),
            sub: claims.sub.clone(),
            client_id: claims.client_id.clone(),
            scope: claims.scope.clone(),
        });
        let ring = self.ring();
        let (kid, signer) = ring.active(Purpose::AccessToken, SigningAlg::Es256);
        signer.sign(kid, "at+jwt", claims)
    }

    /// Judges an access token as it was sent: whether it stands, and whether it is bound to a key that the
    /// sender proved (RFC 6750 2.1; RFC 9449 7).
    ///
    /// # Errors
    /// [`BadToken`]: why not.
    pub async fn judge(&self, sent: &Presented<'_>, now: Timestamp) -> Result<Arc<Access>, BadToken> {
        let access = self.verify_access_token(sent.token, now).await?;
        match (&access.token.cnf, sent.proof) {
            (None, None) => {}
            (None, Some(_)) => return Err(BadToken::NotBound),
            (Some(_), None) => return Err(BadToken::NeedsProof),
            (Some(bound), Some(proof)) => {
                let url = format!("{}{}", self.issuer, sent.path);
                let request = Proven { method: sent.method, url: &url, access_token: Some(sent.token) };
                if self.check_proof(proof, &request, now).await? != bound.jkt {
                    return Err(BadToken::OtherKey);
                }
            }
        }
        Ok(access)
    }

    /// Judges an access token by itself: form, signature, type, issuer, time, and whether it still stands.
    ///
    /// # Errors
    /// [`BadToken`]: why not.
    pub async fn verify_access_token(&self, token: &str, now: Timestamp) -> Result<Arc<Access>, BadToken> {
        let age = self.store.age();
        let ring = self.ring();
        let known = self.verified.0.get(token).filter(|verdict| verdict.ring == ring.revision);
        let key = token;
        let token = match &known {
            Some(verdict) => verdict.access.token.clone(),
            None => Arc::new(self.check_access_token(token, &ring, now).ok_or(BadToken::Malformed)?),
        };
        if now.as_second() >= token.exp {
            return Err(BadToken::Expired);
        }
        if let Some(verdict) = known.filter(|verdict| verdict.age == age) {
            return Ok(verdict.access.clone());
        }
        let (client, user) = self.check_access_stands(&token, now).await?;
        let scopes = Scopes::parse(&token.scope).map_err(|_| BadToken::Malformed)?;
        let scopes = still_granted(&scopes, &client, user.as_ref());
        let access = Arc::new(Access { token, scopes, user });
        let verdict = Verdict { access: access.clone(), age, ring: ring.revision };
        self.verified.0.insert(key.into(), Arc::new(verdict));
        Ok(access)
    }

    fn check_access_token(&self, token: &str, ring: &KeyRing, now: Timestamp) -> Option<AccessToken> {
        let parts = Parts::parse(token)?;
        let (loaded, alg) = ring.published(parts.header.kid.as_deref()?, now)?;
        let ours = loaded.key.purpose == Purpose::AccessToken
            && parts.header.alg == loaded.key.alg.name()
            && parts.header.typ.as_deref() == Some("at+jwt")
            && parts.header.crit.is_none()
            && parts.is_signed_by(&loaded.jwk, alg);
        parts.claims::<AccessToken>().filter(|claims| ours && claims.iss == self.issuer)
    }

    /// Does what the token came from still stand? Gives its client and its user.
    async fn check_access_stands(
        &self,
        access: &AccessToken,
        now: Timestamp,
    ) -> Result<(Client, Option<User>), BadToken> {
        let client = self.client(&access.client_id, now).await?;
        let client = client.filter(|client| client.generation == access.generation);
        let client = client.ok_or(BadToken::ClientGone)?;
        let ends_with =
            [("jti", Some(&access.jti)), ("family", access.family.as_ref()), ("sid", access.sid.as_ref())];
        for (what, id) in ends_with {
            if let Some(id) = id
                && self.is_revoked(what, id, now).await?
            {
                return Err(BadToken::Revoked);
            }
        }
        let Some(epoch) = access.epoch else { return Ok((client, None)) };
        let issued = Timestamp::from_second(access.iat).map_err(|_| BadToken::Malformed)?;
        if self.is_withdrawn(&access.sub, &access.client_id, issued, now).await? {
            return Err(BadToken::Revoked);
        }
        let user = self.user(&access.sub, now).await?.ok_or(BadToken::UserGone)?;
        if user.epoch != epoch {
            return Err(BadToken::SignedOut);
        }
        Ok((client, Some(user)))
    }

    /// The claims about a user that these scopes open (see [`userinfo::claims`]); `fhirUser` is an address.
    pub fn user_claims<'a>(&self, user: &'a User, scopes: &Scopes) -> UserClaims<'a> {
        userinfo::claims(user, scopes, &self.fhir_base)
    }
}
