//! `private_key_jwt`: client assertions (RFC 7523 3; SMART Backend Services; DESIGN, client
//! assertions). The signature proves the key; everything else is judged here.

use jiff::Timestamp;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::Value;
use store::{Expect, StoreError};

use crate::client::{AuthMethod, Client};
use crate::client_auth::ClientAuthError;
use crate::jose::{self, Parts};
use crate::{Identity, ledger};

/// How far ahead `exp` may lie, in seconds.
const LONGEST: i64 = 300;
/// How far two clocks may be apart, in seconds.
const LEEWAY: i64 = 10;

/// What was wrong with an assertion.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadAssertion {
    #[error("it is no signed JWT")]
    Malformed,
    #[error("alg is none that the client is registered for; without other words that is RS384 and ES384")]
    Algorithm,
    #[error("typ must be JWT")]
    Type,
    #[error("crit is not understood")]
    Critical,
    #[error("jku is not the registered address")]
    Jku,
    #[error("kid is missing")]
    NoKid,
    #[error("kid names no registered key")]
    UnknownKid,
    #[error("the key of this kid is for another algorithm or use")]
    WrongKey,
    #[error("the signature is not by the registered key")]
    Signature,
    #[error("iss and sub must both be the client_id")]
    Issuer,
    #[error("aud must be the token endpoint or the issuer, alone")]
    Audience,
    #[error("exp is missing or no number of seconds")]
    NoExpiry,
    #[error("it is expired")]
    Expired,
    #[error("exp is more than 5 minutes ahead")]
    TooLong,
    #[error("iat or nbf lies in the future")]
    Future,
    #[error("jti is missing or longer than 256 bytes")]
    NoJti,
    #[error("jti was used before")]
    Replayed,
}

#[derive(Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    jti: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// Judges all claims but the identity of the client; gives the expiry and the `jti`.
    fn check(&self, audiences: [&str; 2], now: Timestamp) -> Result<(i64, &str), BadAssertion> {
        let aud = match &self.aud {
            Some(Audience::One(one)) => one,
            Some(Audience::Many(many)) if many.len() == 1 => &many[0],
            _ => return Err(BadAssertion::Audience),
        };
        if !audiences.contains(&aud.as_str()) {
            return Err(BadAssertion::Audience);
        }
        let now = now.as_second();
        let seconds = |time: f64| (time.abs() < 1e15).then_some(time.floor() as i64);
        let exp = self.exp.and_then(seconds).ok_or(BadAssertion::NoExpiry)?;
        if exp + LEEWAY <= now {
            return Err(BadAssertion::Expired);
        }
        if exp > now + LONGEST + LEEWAY {
            return Err(BadAssertion::TooLong);
        }
        for time in [self.nbf, self.iat].into_iter().flatten() {
            if seconds(time).is_none_or(|time| time > now + LEEWAY) {
                return Err(BadAssertion::Future);
            }
        }
        let jti =
            self.jti.as_deref().filter(|jti| (1..=256).contains(&jti.len())).ok_or(BadAssertion::NoJti)?;
        Ok((exp, jti))
    }
}

/// The algorithms that a client may be registered for, by name. RS256 is there for those who say so.
const ALGORITHMS: [(&str, Algorithm); 7] = [
    ("RS384", Algorithm::RS384),
    ("ES384", Algorithm::ES384),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("ES256", Algorithm::ES256),
    ("EdDSA", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
];

/// Those of a client that says nothing (SMART Backend Services).
const SMART_ALGORITHMS: [&str; 2] = ["RS384", "ES384"];

/// The names of the algorithms that assertions may be signed with.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.into_iter().map(|(name, _)| name)
}

/// The algorithm that the header names, where the client may use it.
fn algorithm(name: &str, client: &Client) -> Option<Algorithm> {
    let may = match client.assertion_algs.as_slice() {
        [] => SMART_ALGORITHMS.contains(&name),
        registered => registered.iter().any(|known| known == name),
    };
    ALGORITHMS.into_iter().find(|(known, _)| may && *known == name).map(|(_, alg)| alg)
}

/// Is it signed by the key that it names? Keys are chosen by kid, kty and alg (SMART Backend Services).
fn check_signature(parts: &Parts<'_>, kid: &str, alg: Algorithm, keys: &[Value]) -> Result<(), BadAssertion> {
    let mut named = keys.iter().filter(|key| key["kid"] == kid).peekable();
    if named.peek().is_none() {
        return Err(BadAssertion::UnknownKid);
    }
    let says_else =
        |key: &Value, member: &str, wanted: &str| key[member].as_str().is_some_and(|is| is != wanted);
    let name = parts.header.alg.as_str();
    let mut fitting = named
        .filter(|key| !says_else(key, "alg", name) && !says_else(key, "use", "sig"))
        .filter(|key| jose::is_strong(key))
        .filter_map(jose::jwk)
        .filter(|key| jose::fits(key, alg))
        .peekable();
    if fitting.peek().is_none() {
        return Err(BadAssertion::WrongKey);
    }
    if fitting.any(|key| parts.is_signed_by(&key, alg)) { Ok(()) } else { Err(BadAssertion::Signature) }
}

impl Identity {
    /// Judges a client assertion and spends its `jti`.
    pub(crate) async fn check_assertion(
        &self,
        assertion: &str,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let bad = ClientAuthError::BadAssertion;
        let parts = Parts::parse(assertion).ok_or(bad(BadAssertion::Malformed))?;
        if !algorithms().any(|known| known == parts.header.alg) {
            return Err(bad(BadAssertion::Algorithm));
        }
        if parts.header.typ.as_deref().is_some_and(|typ| !typ.eq_ignore_ascii_case("jwt")) {
            return Err(bad(BadAssertion::Type));
        }
        if parts.header.crit.is_some() {
            return Err(bad(BadAssertion::Critical));
        }
        let kid = parts.header.kid.as_deref().ok_or(bad(BadAssertion::NoKid))?;
        let claims: Claims = parts.claims().ok_or(bad(BadAssertion::Malformed))?;
        let iss = claims
            .iss
            .as_deref()
            .filter(|iss| claims.sub.as_deref() == Some(iss))
            .ok_or(bad(BadAssertion::Issuer))?;
        let client = self.client(iss, now).await?.ok_or(ClientAuthError::InvalidClient)?;
        if !client.auth_methods.contains(&AuthMethod::PrivateKeyJwt) {
            return Err(ClientAuthError::InvalidClient);
        }
        let alg = algorithm(&parts.header.alg, &client).ok_or(bad(BadAssertion::Algorithm))?;
        if parts.header.jku.is_some() && parts.header.jku != client.jwks_uri {
            return Err(bad(BadAssertion::Jku));
        }
        // All that needs no key comes first: a stranger's nonsense makes nobody fetch.
        let token_url = self.token_url();
        let (exp, jti) = claims.check([&token_url, &self.issuer], now).map_err(bad)?;
        match &client.jwks_uri {
            Some(address) => {
                let keys = self.key_sets.get(address, kid, now).await?;
                check_signature(&parts, kid, alg, &keys).map_err(bad)?;
            }
            None => check_signature(&parts, kid, alg, &client.jwks).map_err(bad)?,
        }
        // Only now, so that a stranger cannot spend the owner's jti.
        let expires = Timestamp::from_second(exp + LEEWAY + 1).map_err(|_| bad(BadAssertion::NoExpiry))?;
        let key = format!("jti/{}/{}", client.client_id, ledger::digest(jti));
        match self.store.write(vec![ledger::put(key, &true, Some(expires), Expect::Absent)], now).await {
            Ok(_) => Ok(client),
            Err(StoreError::Conflict { .. }) => Err(bad(BadAssertion::Replayed)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIENCES: [&str; 2] = ["https://as.example/oauth2/token", "https://as.example"];

    #[track_caller]
    fn check(claims: serde_json::Value, expected: Result<(), BadAssertion>) {
        let claims: Claims = serde_json::from_value(claims).unwrap();
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(claims.check(AUDIENCES, now).map(drop), expected);
    }

    #[test]
    fn times_and_audience_are_judged() {
        let good = |exp: i64| serde_json::json!({ "aud": AUDIENCES[0], "exp": exp, "jti": "j" });
        check(good(1_000_300), Ok(()));
        check(good(1_000_310), Ok(()));
        check(good(1_000_311), Err(BadAssertion::TooLong));
        check(good(999_991), Ok(()));
        check(good(999_990), Err(BadAssertion::Expired));
        check(serde_json::json!({ "aud": [AUDIENCES[1]], "exp": 1_000_100, "jti": "j" }), Ok(()));
        check(
            serde_json::json!({ "aud": AUDIENCES, "exp": 1_000_100, "jti": "j" }),
            Err(BadAssertion::Audience),
        );
        check(serde_json::json!({ "aud": [], "exp": 1_000_100, "jti": "j" }), Err(BadAssertion::Audience));
        check(
            serde_json::json!({ "aud": "https://other.example", "exp": 1_000_100, "jti": "j" }),
            Err(BadAssertion::Audience),
        );
        check(serde_json::json!({ "aud": AUDIENCES[0], "jti": "j" }), Err(BadAssertion::NoExpiry));
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1e300, "jti": "j" }),
            Err(BadAssertion::NoExpiry),
        );
        check(serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100 }), Err(BadAssertion::NoJti));
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100, "jti": "j", "iat": 1_000_010 }),
            Ok(()),
        );
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100, "jti": "j", "iat": 1_000_011 }),
            Err(BadAssertion::Future),
        );
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100, "jti": "j", "nbf": 1_000_060 }),
            Err(BadAssertion::Future),
        );
    }
}
