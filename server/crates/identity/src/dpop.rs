//! DPoP: proof that the sender holds the key that a token is bound to (RFC 9449).
//!
//! A proof is a JWT that carries its own public key. It is judged for one request: its method, its address,
//! the token beside it, a time near now, and an id that was not seen before. What the token is bound to is the
//! key's thumbprint (RFC 7638).

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::{Expect, StoreError};
use url::Url;

use crate::jose::{self, Parts};
use crate::{Identity, ledger};

/// Algorithms of proofs. RS256 is left out on purpose (FAPI 2.0, 5.4).
pub const ALGORITHMS: [&str; 4] = ["ES256", "ES384", "PS256", "EdDSA"];

/// How far `iat` may lie from now, either way, in seconds.
const WINDOW: i64 = 60;

/// What was wrong with a proof.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadProof {
    #[error("send exactly one DPoP header")]
    Count,
    #[error("the proof is no signed JWT")]
    Malformed,
    #[error("typ of the proof must be dpop+jwt")]
    Type,
    #[error("alg of the proof must be ES256, ES384, PS256 or EdDSA")]
    Algorithm,
    #[error("crit in the proof is not understood")]
    Critical,
    #[error("jwk of the proof must be one public key of the alg's kind")]
    Key,
    #[error("the proof is not signed by the key in its header")]
    Signature,
    #[error("htm of the proof is not the method of the request")]
    Method,
    #[error("htu of the proof is not the address of the request")]
    Address,
    #[error("iat of the proof is not within a minute of now")]
    Time,
    #[error("the proof is expired or not yet valid")]
    Validity,
    #[error("jti of the proof is missing or longer than 256 bytes")]
    NoJti,
    #[error("the proof was used before")]
    Replayed,
    #[error("ath of the proof is not the hash of the access token")]
    TokenHash,
}

/// A proof that was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// Judged and refused.
    #[error("{0}")]
    Bad(#[from] BadProof),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The request that a proof came with.
#[derive(Debug, Clone, Copy)]
pub struct Proven<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its address; query and fragment do not matter.
    pub url: &'a str,
    /// The access token beside the proof, where there is one.
    pub access_token: Option<&'a str>,
}

#[derive(Deserialize)]
struct Claims {
    htm: Option<String>,
    htu: Option<String>,
    iat: Option<f64>,
    nbf: Option<f64>,
    exp: Option<f64>,
    jti: Option<String>,
    ath: Option<String>,
}

/// Scheme, host, port and path: what `htu` names (RFC 9449 4.3; case and default ports are normalised).
fn address(url: &str) -> Option<Url> {
    let mut url = Url::parse(url).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url)
}

impl Claims {
    fn check(&self, request: &Proven<'_>, now: Timestamp) -> Result<&str, BadProof> {
        if self.htm.as_deref() != Some(request.method) {
            return Err(BadProof::Method);
        }
        let named = self.htu.as_deref().and_then(address).ok_or(BadProof::Address)?;
        if address(request.url) != Some(named) {
            return Err(BadProof::Address);
        }
        let now = now.as_second();
        let seconds = |time: f64| (time.abs() < 1e15).then_some(time.floor() as i64);
        let iat = self.iat.and_then(seconds).ok_or(BadProof::Time)?;
        if (iat - now).abs() > WINDOW {
            return Err(BadProof::Time);
        }
        let over = self.exp.is_some_and(|exp| seconds(exp).is_none_or(|exp| exp <= now));
        let early = self.nbf.is_some_and(|nbf| seconds(nbf).is_none_or(|nbf| nbf > now + WINDOW));
        if over || early {
            return Err(BadProof::Validity);
        }
        let ath = request.access_token.map(|token| jose::b64(&Sha256::digest(token.as_bytes())));
        if ath.is_some() && ath != self.ath {
            return Err(BadProof::TokenHash);
        }
        self.jti.as_deref().filter(|jti| (1..=256).contains(&jti.len())).ok_or(BadProof::NoJti)
    }
}

/// The thumbprint of a public key (RFC 7638 3); `None` for a private key or one of an unknown kind.
fn thumbprint(jwk: &Value) -> Option<String> {
    const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
    if PRIVATE.iter().any(|member| jwk.get(member).is_some()) {
        return None;
    }
    let members: &[&str] = match jwk["kty"].as_str()? {
        "EC" => &["crv", "kty", "x", "y"],
        "RSA" => &["e", "kty", "n"],
        "OKP" => &["crv", "kty", "x"],
        _ => return None,
    };
    let parts: Option<Vec<String>> = members
        .iter()
        .map(|name| Some(format!("\"{name}\":{}", Value::from(jwk[*name].as_str()?))))
        .collect();
    Some(jose::b64(&Sha256::digest(format!("{{{}}}", parts?.join(",")).as_bytes())))
}

/// Is this the thumbprint of a key: 43 characters of base64url?
pub fn is_thumbprint(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn check(proof: &str, request: &Proven<'_>, now: Timestamp) -> Result<(String, String), BadProof> {
    let parts = Parts::parse(proof).ok_or(BadProof::Malformed)?;
    if parts.header.typ.as_deref() != Some("dpop+jwt") {
        return Err(BadProof::Type);
    }
    let alg = match parts.header.alg.as_str() {
        "ES256" => Algorithm::ES256,
        "ES384" => Algorithm::ES384,
        "PS256" => Algorithm::PS256,
        "EdDSA" => Algorithm::EdDSA,
        _ => return Err(BadProof::Algorithm),
    };
    if parts.header.crit.is_some() {
        return Err(BadProof::Critical);
    }
    let jwk = parts.header.jwk.as_ref().ok_or(BadProof::Key)?;
    let jkt = thumbprint(jwk).ok_or(BadProof::Key)?;
    let key = jose::jwk(jwk).filter(|_| jose::is_strong(jwk)).ok_or(BadProof::Key)?;
    if !jose::fits(&key, alg) {
        return Err(BadProof::Key);
    }
    if !parts.is_signed_by(&key, alg) {
        return Err(BadProof::Signature);
    }
    let claims: Claims = parts.claims().ok_or(BadProof::Malformed)?;
    let jti = claims.check(request, now)?;
    let seen = ledger::digest(&format!("{jkt} {jti}"));
    Ok((jkt, seen))
}

impl Identity {
    /// Judges a proof for one request and spends its `jti`; gives the key's thumbprint.
    ///
    /// # Errors
    /// [`ProofError`]: what was wrong.
    pub async fn check_proof(
        &self,
        proof: &str,
        request: &Proven<'_>,
        now: Timestamp,
    ) -> Result<String, ProofError> {
        let (jkt, seen) = check(proof, request, now)?;
        // For as long as its iat could still be taken.
        let until = now + SignedDuration::from_secs(2 * WINDOW + 1);
        let write = ledger::put(format!("jti/dpop/{seen}"), &true, Some(until), Expect::Absent);
        match self.store.write(vec![write], now).await {
            Ok(_) => Ok(jkt),
            Err(StoreError::Conflict { .. }) => Err(BadProof::Replayed.into()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumbprint_of_rfc_7638_3_1() {
        let jwk = serde_json::json!({
            "kty": "RSA", "e": "AQAB", "alg": "RS256", "kid": "2011-04-29",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        });
        assert_eq!(thumbprint(&jwk).as_deref(), Some("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"));
        let mut private = jwk;
        private["d"] = "AQ".into();
        assert_eq!(thumbprint(&private), None);
    }

    #[track_caller]
    fn judge(change: impl Fn(&mut serde_json::Map<String, Value>), expected: Result<(), BadProof>) {
        let mut claims = serde_json::json!({
            "htm": "POST", "htu": "https://as.example/oauth2/token", "iat": 1_000_000, "jti": "j",
            "ath": "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
        });
        change(claims.as_object_mut().unwrap());
        let claims: Claims = serde_json::from_value(claims).unwrap();
        let request =
            Proven { method: "POST", url: "https://as.example/oauth2/token", access_token: Some("test") };
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(claims.check(&request, now).map(drop), expected);
    }

    #[test]
    fn every_claim_is_judged() {
        let set = |name: &'static str, value: Value| {
            move |claims: &mut serde_json::Map<String, Value>| {
                drop(claims.insert(name.to_owned(), value.clone()))
            }
        };
        judge(|_| {}, Ok(()));
        judge(set("htm", "GET".into()), Err(BadProof::Method));
        judge(set("htm", "post".into()), Err(BadProof::Method));
        judge(set("htu", "https://as.example/oauth2/token?x=1#y".into()), Ok(()));
        judge(set("htu", "HTTPS://AS.example:443/oauth2/token".into()), Ok(()));
        judge(set("htu", "https://as.example/oauth2/Token".into()), Err(BadProof::Address));
        judge(set("htu", "http://as.example/oauth2/token".into()), Err(BadProof::Address));
        judge(set("htu", "/oauth2/token".into()), Err(BadProof::Address));
        for (iat, expected) in
            [(-60, Ok(())), (60, Ok(())), (-61, Err(BadProof::Time)), (61, Err(BadProof::Time))]
        {
            judge(set("iat", (1_000_000 + iat).into()), expected);
        }
        judge(set("exp", 1_000_000.into()), Err(BadProof::Validity));
        judge(set("exp", 1_000_001.into()), Ok(()));
        judge(set("nbf", 1_000_061.into()), Err(BadProof::Validity));
        judge(set("ath", "x".into()), Err(BadProof::TokenHash));
        judge(set("jti", "".into()), Err(BadProof::NoJti));
        for name in ["htm", "htu", "iat", "jti", "ath"] {
            let claims = move |claims: &mut serde_json::Map<String, Value>| drop(claims.remove(name));
            let expected = match name {
                "htm" => BadProof::Method,
                "htu" => BadProof::Address,
                "iat" => BadProof::Time,
                "jti" => BadProof::NoJti,
                _ => BadProof::TokenHash,
            };
            judge(claims, Err(expected));
        }
    }
}
