//! ID tokens (OpenID Connect Core section 2).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::jose::{self, JwsParts, SigningAlg};
use crate::model::client::Client;
use crate::model::declared_claim::ClaimPlace;
use crate::model::scope::NamedScope;
use crate::model::user::User;
use crate::model::user_claims;
use crate::tokens::acr::acr_of;
use crate::tokens::grant::Grant;
use crate::tokens::signing_key::KeyPurpose;
use crate::tokens::token_service::TokenService;

#[derive(Serialize, Deserialize)]
struct IdToken {
    iss: String,
    sub: String,
    aud: String,
    exp: i64,
    iat: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auth_time: Option<i64>,
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

/// Content of an ID token that is not part of the grant.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdTokenContext<'a> {
    /// Access token that is issued together with the ID token, for the claim `at_hash`.
    pub access_token: Option<&'a str>,
    /// User whose claims are included. If there is an access token, most claims are available only from
    /// userinfo (OpenID Connect Core section 5.4).
    pub user: Option<&'a User>,
}

impl TokenService {
    /// Mints an ID token, signed with the algorithm registered for the client.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the signing keys cannot be read or written.
    pub async fn mint_id_token(
        &self,
        client: &Client,
        grant: &Grant,
        context: IdTokenContext<'_>,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let alg = client.id_token_alg.as_deref().and_then(SigningAlg::parse).unwrap_or_default();
        let scopes = match context.access_token {
            // With an access token, the client reads the other claims from userinfo.
            Some(_) if !client.claims_in_id_token => {
                grant.scopes.filter(|scope| scope == NamedScope::FhirUser.name())
            }
            _ => grant.scopes.clone(),
        };
        let all = context.access_token.is_none() || client.claims_in_id_token;
        let claims = |user| {
            let declared = self.declared_claims(user, &grant.scopes, ClaimPlace::IdToken { all });
            user_claims::claims_for_scopes(user, &scopes, declared, &self.fhir_base)
        };
        let user = context.user.map(|user| serde_json::to_value(claims(user)));
        let user = match user.transpose().expect("claims have string keys only, so they serialize to JSON") {
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
            exp: (now + self.lifetimes.for_client(client).id_token).as_second(),
            iat: now.as_second(),
            auth_time: grant.auth_time.map(Timestamp::as_second),
            sid: grant.sid.clone(),
            nonce: grant.nonce.clone(),
            at_hash: context.access_token.map(|token| jose::left_half_hash(alg.jws_algorithm(), token)),
            amr: grant.amr.clone(),
            acr: Some(acr_of(&grant.amr).to_owned()),
            user,
        };
        let ring = self.signing_keys.complete_ring(now).await?;
        let (kid, signer) = ring.active_key_pair(KeyPurpose::IdToken, alg);
        Ok(signer.sign(kid, "JWT", &claims))
    }

    /// Verifies an `id_token_hint`: an ID token of this server, which may have expired. Returns its subject,
    /// client id and session id.
    pub fn verify_id_token_hint(&self, hint: &str, now: Timestamp) -> Option<(String, String, String)> {
        let parts = JwsParts::parse(hint)?;
        let ring = self.signing_keys.current_ring();
        let (loaded, alg) = ring.published_key(parts.header.kid.as_deref()?, now)?;
        let is_genuine = loaded.key.purpose == KeyPurpose::IdToken
            && parts.header.alg == loaded.key.alg.name()
            && parts.header.typ.as_deref() == Some("JWT")
            && parts.has_valid_signature(&loaded.jwk, alg);
        let claims: IdToken = parts.claims().filter(|_| is_genuine)?;
        (claims.iss == self.issuer).then_some((claims.sub, claims.aud, claims.sid))
    }
}
