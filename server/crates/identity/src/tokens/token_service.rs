//! Minting and verification of access tokens (RFC 9068; RFC 8725), with a cache of verified tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use serde_json::Value;

use crate::audit::{AuditEvent, AuditSink};
use crate::directory::client_registry::ClientRegistry;
use crate::directory::lifetime_settings::LifetimeSettings;
use crate::directory::user_directory::UserDirectory;
use crate::jose::{JwsParts, SigningAlg};
use crate::model::client::Client;
use crate::model::declared_claim::{self, ClaimPlace};
use crate::model::scope::{NamedScope, Scopes};
use crate::model::user::User;
use crate::model::user_claims::{self, UserClaims};
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::tokens::access_token::{AccessToken, BadToken, KeyConfirmation, TokenAccess, TokenCredentials};
use crate::tokens::acr::acr_of;
use crate::tokens::dpop::{DpopRequest, DpopVerifier};
use crate::tokens::grant::{Grant, still_granted};
use crate::tokens::grant_store::GrantStore;
use crate::tokens::key_ring::KeyRing;
use crate::tokens::revocation::RevocationList;
use crate::tokens::signing_key::KeyPurpose;
use crate::tokens::signing_keys::SigningKeys;

/// A bounded cache of verified tokens. An entry is valid in the cache epoch in which it was verified (see
/// `storage::epoch_ledger`), and for the signing keys that verified it. The expiry is checked on every use.
/// The cache key is the whole token, because computing a digest of it would take longer than the rest of a
/// cache hit.
pub(crate) struct TokenCache(Cache<Box<str>, Arc<CachedToken>>);

struct CachedToken {
    access: Arc<TokenAccess>,
    epoch: u64,
    /// Revision of the key ring that verified the signature.
    ring: u64,
    rules: u64,
}

impl TokenCache {
    pub fn new() -> Self {
        Self(Cache::new(10_000))
    }
}

/// Mints, verifies, introspects and revokes tokens.
pub struct TokenService {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) clients: Arc<ClientRegistry>,
    pub(crate) users: Arc<UserDirectory>,
    pub(crate) signing_keys: Arc<SigningKeys>,
    pub(crate) grants: Arc<GrantStore>,
    pub(crate) revocations: RevocationList,
    pub(crate) dpop: Arc<DpopVerifier>,
    pub(crate) verified: TokenCache,
    pub(crate) lifetimes: Arc<LifetimeSettings>,
    pub(crate) issuer: String,
    pub(crate) fhir_base: String,
}

impl TokenService {
    /// Mints an access token for a grant from a user. The token contains the claims of the user that are
    /// declared for access tokens, if the user is given.
    pub fn mint_access_token(
        &self,
        grant: &Grant,
        user: Option<&User>,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> String {
        let claims = |user| self.declared_claims(user, &grant.scopes, ClaimPlace::AccessToken);
        let offline = grant.scopes.has(NamedScope::OfflineAccess);
        self.sign_access_token(&AccessToken {
            iss: self.issuer.clone(),
            sub: grant.sub.clone(),
            aud: self.token_audience(&grant.scopes, grant.resource.as_deref()),
            client_id: grant.client_id.clone(),
            scope: grant.scopes.to_string(),
            iat: now.as_second(),
            exp: (now + lifetime).as_second(),
            jti: self.random.id(),
            auth_time: grant.auth_time.map(Timestamp::as_second),
            acr: Some(acr_of(&grant.amr).to_owned()),
            provider: grant.provider.clone(),
            sid: (!offline).then(|| grant.sid.clone()),
            family: Some(grant.family.clone()),
            epoch: Some(grant.epoch),
            generation: grant.generation.clone(),
            patient: grant.patient.clone(),
            encounter: grant.encounter.clone(),
            cnf: grant.jkt.clone().map(|jkt| KeyConfirmation { jkt }),
            claims: user.map(claims).unwrap_or_default(),
        })
    }

    /// Mints an access token for a client itself (`client_credentials`). The token is bound to the key with
    /// the thumbprint `jkt`, if given, and only for `resource`, if given.
    pub fn mint_backend_token(
        &self,
        client: &Client,
        scopes: &Scopes,
        jkt: Option<String>,
        resource: Option<&str>,
        now: Timestamp,
    ) -> String {
        self.sign_access_token(&AccessToken {
            iss: self.issuer.clone(),
            sub: client.client_id.clone(),
            aud: self.token_audience(scopes, resource),
            client_id: client.client_id.clone(),
            scope: scopes.to_string(),
            iat: now.as_second(),
            exp: (now + self.lifetimes.for_client(client).backend_access_token).as_second(),
            jti: self.random.id(),
            auth_time: None,
            acr: None,
            provider: None,
            sid: None,
            family: None,
            epoch: None,
            generation: client.generation.clone(),
            patient: None,
            encounter: None,
            cnf: jkt.map(|jkt| KeyConfirmation { jkt }),
            claims: BTreeMap::new(),
        })
    }

    /// Returns the audience that the values of `resource` name (RFC 8707 section 2): the issuer or the FHIR
    /// base URL, also with a slash at its end. Returns `None` if they name neither or both, which is the
    /// default.
    ///
    /// # Errors
    /// Returns the first value that is no resource of this server.
    pub fn named_audience<'a>(
        &self,
        resources: impl Iterator<Item = &'a str>,
    ) -> Result<Option<&str>, &'a str> {
        let own = [self.issuer.as_str(), self.fhir_base.as_str()];
        let mut audiences = BTreeSet::new();
        for resource in resources {
            let is_same = |own: &&str| resource.strip_suffix('/').unwrap_or(resource) == *own;
            audiences.insert(own.into_iter().find(is_same).ok_or(resource)?);
        }
        Ok(audiences.pop_first().filter(|_| audiences.is_empty()))
    }

    fn token_audience(&self, scopes: &Scopes, resource: Option<&str>) -> Vec<String> {
        if let Some(resource) = resource {
            return vec![resource.to_owned()];
        }
        let smart = scopes.smart_scopes().next().is_some();
        let mut audience = Vec::new();
        if scopes.has(NamedScope::Openid) || !smart {
            audience.push(self.issuer.clone());
        }
        if smart {
            audience.push(self.fhir_base.clone());
        }
        audience
    }

    fn sign_access_token(&self, claims: &AccessToken) -> String {
        self.audit.record(AuditEvent::TokenIssued {
            jti: claims.jti.clone(),
            sub: claims.sub.clone(),
            client_id: claims.client_id.clone(),
            scope: claims.scope.clone(),
        });
        let ring = self.signing_keys.current_ring();
        let (kid, signer) = ring.active_key_pair(KeyPurpose::AccessToken, SigningAlg::Es256);
        signer.sign(kid, "at+jwt", claims)
    }

    /// Verifies an access token and, if it is bound to a key, the DPoP proof of the request (RFC 6750 section
    /// 2.1; RFC 9449 section 7).
    ///
    /// # Errors
    /// Returns [`BadToken`] if the token or the proof is rejected.
    pub async fn authenticate_token(
        &self,
        credentials: &TokenCredentials<'_>,
        now: Timestamp,
    ) -> Result<Arc<TokenAccess>, BadToken> {
        let access = self.verify_access_token(credentials.token, now).await?;
        match (&access.token.cnf, credentials.proof) {
            (None, None) => {}
            (None, Some(_)) => return Err(BadToken::NotBound),
            (Some(_), None) => return Err(BadToken::NeedsProof),
            (Some(bound), Some(proof)) => {
                let url = format!("{}{}", self.issuer, credentials.path);
                let request = DpopRequest {
                    method: credentials.method,
                    url: &url,
                    access_token: Some(credentials.token),
                };
                if Box::pin(self.dpop.verify_proof(proof, &request, now)).await? != bound.jkt {
                    return Err(BadToken::OtherKey);
                }
            }
        }
        Ok(access)
    }

    /// Verifies an access token without a DPoP proof: format, signature, type, issuer, expiry and revocation.
    ///
    /// # Errors
    /// Returns [`BadToken`] if the token is rejected.
    pub async fn verify_access_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Arc<TokenAccess>, BadToken> {
        let (epoch, rules) = (self.ledger.cache_epoch(), self.users.providers.generation());
        if epoch.is_none() {
            Box::pin(self.signing_keys.load_changes(now)).await.map_err(store::StoreError::from)?;
        }
        let ring = self.signing_keys.current_ring();
        let cached_token = self.verified.0.get(token).filter(|cached| cached.ring == ring.revision);
        let key = token;
        let token = match &cached_token {
            Some(cached) => cached.access.token.clone(),
            None => Arc::new(self.verify_signature(token, &ring, now).ok_or(BadToken::Malformed)?),
        };
        if now.as_second() >= token.exp {
            return Err(BadToken::Expired);
        }
        if let Some(cached) = cached_token.filter(|cached| {
            let until = cached.access.user.as_ref().and_then(|user| user.rights_until);
            Some(cached.epoch) == epoch && cached.rules == rules && until.is_none_or(|until| now < until)
        }) {
            return Ok(cached.access.clone());
        }
        // Boxed, because only the first request with a token needs the memory of this future.
        let (client, user) = Box::pin(self.ensure_token_active(&token, now)).await?;
        let scopes = Scopes::parse(&token.scope).map_err(|_| BadToken::Malformed)?;
        let scopes = still_granted(&scopes, &client, user.as_ref());
        let access = Arc::new(TokenAccess { token, scopes, user });
        // The patients of a carer follow from resources, whose changes the epoch does not count.
        let depends_on_resources = access.user.as_ref().is_some_and(User::depends_on_resources);
        if let Some(epoch) = epoch.filter(|_| !depends_on_resources) {
            let cached = CachedToken { access: access.clone(), epoch, ring: ring.revision, rules };
            self.verified.0.insert(key.into(), Arc::new(cached));
        }
        Ok(access)
    }

    fn verify_signature(&self, token: &str, ring: &KeyRing, now: Timestamp) -> Option<AccessToken> {
        let parts = JwsParts::parse(token)?;
        let (loaded, alg) = ring.published_key(parts.header.kid.as_deref()?, now)?;
        let is_genuine = loaded.key.purpose == KeyPurpose::AccessToken
            && parts.header.alg == loaded.key.alg.name()
            && parts.header.typ.as_deref() == Some("at+jwt")
            && parts.header.crit.is_none()
            && parts.has_valid_signature(&loaded.jwk, alg);
        parts.claims::<AccessToken>().filter(|claims| is_genuine && claims.iss == self.issuer)
    }

    /// Checks that the token was not revoked, that its client and user are active and that the user has not
    /// signed out. Returns client and user.
    async fn ensure_token_active(
        &self,
        access: &AccessToken,
        now: Timestamp,
    ) -> Result<(Client, Option<User>), BadToken> {
        let client = self.clients.active_client(&access.client_id, now).await?;
        let client = client.filter(|client| client.generation == access.generation);
        let client = client.ok_or(BadToken::ClientGone)?;
        // A token that was revoked may not be so in a restored database. Tokens count in seconds, so that one
        // of the same second may be older.
        let restored = self.revocations.restored_at(now).await?;
        if restored.is_some_and(|time| access.iat <= time.as_second()) {
            return Err(BadToken::Revoked);
        }
        let ends_with =
            [("jti", Some(&access.jti)), ("family", access.family.as_ref()), ("sid", access.sid.as_ref())];
        for (what, id) in ends_with {
            if let Some(id) = id
                && self.revocations.is_revoked(what, id, now).await?
            {
                return Err(BadToken::Revoked);
            }
        }
        let Some(epoch) = access.epoch else { return Ok((client, None)) };
        let issued = Timestamp::from_second(access.iat).map_err(|_| BadToken::Malformed)?;
        if self.revocations.is_consent_withdrawn(&access.sub, &access.client_id, issued, now).await? {
            return Err(BadToken::Revoked);
        }
        let user = self.users.signed_in_user(&access.sub, access.signed_in_by(), now).await?;
        let user = user.ok_or(BadToken::UserGone)?;
        if user.epoch != epoch {
            return Err(BadToken::SignedOut);
        }
        Ok((client, Some(user)))
    }

    /// Returns the claims about a user that these scopes grant access to, as userinfo contains them.
    pub fn user_claims<'a>(&self, user: &'a User, scopes: &'a Scopes) -> UserClaims<'a> {
        let declared = self.declared_claims(user, scopes, ClaimPlace::Userinfo);
        user_claims::claims_for_scopes(user, scopes, declared, &self.fhir_base)
    }

    /// Returns the declared claims about a user that these scopes grant access to, in one place.
    pub(super) fn declared_claims(
        &self,
        user: &User,
        scopes: &Scopes,
        place: ClaimPlace,
    ) -> BTreeMap<String, Value> {
        declared_claim::declared_claims(&self.users.providers.claims(), user, scopes, place)
    }
}
