//! Verification of the ID token of an external provider (OpenID Connect Core section 3.1.3.7), and the claims
//! that only its userinfo endpoint has. A provider that issues an access token need not send the claims of
//! `profile` and `email` in the ID token (section 5.4).

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::jose::{self, JwsParts};
use crate::model::claim_mapping::VERIFIED_CLAIMS;
use crate::model::members::{CLAIMS, MemberType};
use crate::model::provider::{ExternalSignIn, ExternalUser, IdentityProvider, ProviderFailure};
use crate::model::user::StandardClaims;
use crate::sign_in::provider_sign_in::ProviderSignIn;

/// Tolerated difference between the clocks of this server and the provider in seconds.
pub const CLOCK_LEEWAY_S: i64 = 60;
/// Maximum length of a subject identifier (OpenID Connect Core section 2).
const MAX_SUB_BYTES: usize = 255;

/// The members of a provider's token response that this server reads.
#[derive(Deserialize)]
pub struct ProviderTokens {
    /// The ID token.
    pub id_token: String,
    /// The access token, which the check of `at_hash` and the userinfo endpoint use.
    pub access_token: Option<String>,
}

#[derive(Deserialize)]
struct ProviderIdToken {
    iss: String,
    sub: String,
    aud: TokenAudience,
    azp: Option<String>,
    exp: i64,
    iat: i64,
    auth_time: Option<i64>,
    nonce: Option<String>,
    at_hash: Option<String>,
}

/// The claims of a verified ID token.
#[derive(Debug)]
pub struct VerifiedIdToken {
    issuer: String,
    sub: String,
    auth_time: Option<Timestamp>,
    claims: Map<String, Value>,
}

/// Claims that this server uses and an ID token lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LackingClaims {
    /// Nothing.
    None,
    /// The name or the e-mail address of the user.
    Names,
    /// A claim that gives rights.
    Rights,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenAudience {
    One(String),
    Many(Vec<String>),
}

impl TokenAudience {
    fn contains(&self, client_id: &str) -> bool {
        match self {
            Self::One(aud) => aud == client_id,
            Self::Many(all) => all.iter().any(|aud| aud == client_id),
        }
    }

    fn is_single(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(all) => all.len() == 1,
        }
    }
}

impl VerifiedIdToken {
    /// Returns what is missing in the claims. A user without a role may lack its claim, too.
    pub fn lacking(&self, provider: &IdentityProvider) -> LackingClaims {
        let has = |name: &str| self.claims.contains_key(name);
        if provider.mapping.lacks_claim(&self.claims) {
            return LackingClaims::Rights;
        }
        let wants_email = provider.scopes.split_whitespace().any(|scope| scope == "email");
        let has_name = ["name", "given_name", "preferred_username"].into_iter().any(has);
        if has_name && (has("email") || !wants_email) { LackingClaims::None } else { LackingClaims::Names }
    }

    /// Adds the claims of the userinfo endpoint that the ID token lacks. An address and its flag come from
    /// one document: the flag of one address says nothing about another.
    ///
    /// # Errors
    /// [`ProviderFailure::Other`] if they are those of another user (OpenID Connect Core section 5.3.2).
    pub fn add_userinfo(&mut self, mut userinfo: Map<String, Value>) -> Result<(), ProviderFailure> {
        if userinfo.get("sub").and_then(Value::as_str) != Some(&self.sub) {
            return Err(ProviderFailure::Other(
                "the claims of the userinfo endpoint are those of another user",
            ));
        }
        for (address, flag) in VERIFIED_CLAIMS {
            let (from, to) = match is_present(&self.claims, address) {
                true => (&mut userinfo, &mut self.claims),
                false => (&mut self.claims, &mut userinfo),
            };
            // A flag without an address in its own document would mark the address of the other one.
            from.remove(address);
            from.remove(flag);
            if !is_present(to, address) {
                to.remove(flag);
            }
        }
        for (name, value) in userinfo {
            self.claims.entry(name).or_insert(value);
        }
        Ok(())
    }

    /// The user, with the rights that the claims give.
    ///
    /// # Errors
    /// [`ProviderFailure::Other`] if a claim has another type than OpenID Connect Core section 5.1 says.
    pub fn into_sign_in(mut self, provider: &IdentityProvider) -> Result<ExternalSignIn, ProviderFailure> {
        // Some providers send booleans as the texts `true` and `false`.
        for row in CLAIMS.iter().filter(|row| row.kind == MemberType::Boolean) {
            if let Some(value) = self.claims.get_mut(row.name) {
                match value.as_str() {
                    Some("true") => *value = true.into(),
                    Some("false") => *value = false.into(),
                    _ => {}
                }
            }
        }
        let rights = provider.mapping.rights(&self.claims);
        let claims: StandardClaims = serde_json::from_value(self.claims.into())
            .map_err(|_| ProviderFailure::Other("a claim of the provider is malformed"))?;
        let user = ExternalUser { issuer: self.issuer, sub: self.sub, claims, rights };
        Ok(ExternalSignIn { user, auth_time: self.auth_time })
    }
}

/// `true` if a claim has a value: some providers send `null` or an empty text for a person without one.
fn is_present(claims: &Map<String, Value>, name: &str) -> bool {
    claims.get(name).is_some_and(|value| !value.is_null() && value != "")
}

impl ProviderSignIn {
    /// Verifies the ID token of the provider: signature, issuer, audience, times, nonce and the hash of the
    /// access token.
    ///
    /// # Errors
    /// Returns [`ProviderFailure::NotRecent`] if the user was not authenticated as recently as the client
    /// requires, and [`ProviderFailure::Other`] with a reason to be logged for every other defect.
    pub fn verify_id_token(
        &self,
        provider: &IdentityProvider,
        tokens: &ProviderTokens,
        keys: &Value,
        now: Timestamp,
    ) -> Result<VerifiedIdToken, ProviderFailure> {
        let bad = ProviderFailure::Other;
        let parts = JwsParts::parse(&tokens.id_token).ok_or(bad("the ID token is not a signed JWT"))?;
        let alg = jose::verified_algorithm(&parts.header.alg)
            .ok_or(bad("the signature algorithm of the ID token is not supported"))?;
        let keys = keys["keys"].as_array().ok_or(bad("the key set has no keys"))?;
        let kid = parts.header.kid.as_deref();
        let is_signed = keys
            .iter()
            .filter(|key| kid.is_none() || key["kid"].as_str() == kid)
            .filter_map(|key| jose::verification_key(key, alg))
            .any(|key| parts.has_valid_signature(&key, alg));
        if !is_signed || parts.header.crit.is_some() {
            return Err(bad("the ID token is not signed by a signing key of the provider"));
        }
        let malformed = bad("a claim of the ID token is missing or malformed");
        let claims: Map<String, Value> = parts.claims().ok_or(malformed.clone())?;
        let token: ProviderIdToken = serde_json::from_value(claims.clone().into()).map_err(|_| malformed)?;
        if token.iss != provider.issuer {
            return Err(bad("the issuer of the ID token does not match the provider"));
        }
        if !(1..=MAX_SUB_BYTES).contains(&token.sub.len()) {
            return Err(bad("the subject of the ID token must have 1 to 255 characters"));
        }
        // OpenID Connect Core 1.0 section 3.1.3.7: a token for several audiences must name the party that it
        // is for.
        let azp = token.azp.as_deref();
        let is_for_this_client = token.aud.contains(&provider.client_id)
            && (azp == Some(&provider.client_id) || (azp.is_none() && token.aud.is_single()));
        if !is_for_this_client {
            return Err(bad("the audience or the authorized party of the ID token is not this server"));
        }
        let now_s = now.as_second();
        if token.exp.saturating_add(CLOCK_LEEWAY_S) <= now_s || token.iat > now_s + CLOCK_LEEWAY_S {
            return Err(bad("the ID token is expired or not yet valid"));
        }
        if token.nonce.as_deref() != Some(self.nonce.as_str()) {
            return Err(bad("the nonce of the ID token does not match the request"));
        }
        // at_hash is optional in the code flow; a wrong one means that the tokens do not belong together.
        if let Some(at_hash) = &token.at_hash
            && tokens.access_token.as_deref().map(|text| jose::left_half_hash(alg, text)).as_ref()
                != Some(at_hash)
        {
            return Err(bad("at_hash of the ID token does not match the access token"));
        }
        let auth_time = self.check_auth_time(token.auth_time, now)?;
        Ok(VerifiedIdToken { issuer: token.iss, sub: token.sub, auth_time, claims })
    }

    /// Checks the time of the authentication against `max_age` and `prompt=login` of the request. A provider
    /// must send the time if `max_age` was sent (OpenID Connect Core section 2). Without it, the user was
    /// authenticated after the redirect if that asked for it by `prompt=login`, and otherwise at a time that
    /// nobody knows.
    fn check_auth_time(
        &self,
        auth_time: Option<i64>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, ProviderFailure> {
        let bad = ProviderFailure::Other;
        let Some(auth_time) = auth_time else {
            return match self.max_age {
                None => Ok(self.login.then_some(self.begun)),
                Some(_) => Err(bad("the ID token lacks auth_time, which max_age requires")),
            };
        };
        let latest = now.as_second();
        if auth_time > latest + CLOCK_LEEWAY_S {
            return Err(bad("auth_time of the ID token is in the future"));
        }
        let is_old = self.max_age.is_some_and(|max| auth_time < latest - max - CLOCK_LEEWAY_S);
        let is_earlier_sign_in = self.login && auth_time < self.begun.as_second() - CLOCK_LEEWAY_S;
        if is_old || is_earlier_sign_in {
            return Err(ProviderFailure::NotRecent);
        }
        let auth_time = Timestamp::from_second(auth_time.min(latest))
            .map_err(|_| bad("auth_time of the ID token is not a time"))?;
        Ok(Some(auth_time))
    }
}
