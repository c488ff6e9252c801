//! DPoP: proof that the sender holds the key that a token is bound to (RFC 9449).
//!
//! A proof is a JWT with its public key in the header. It is valid for one request: its method, URL and
//! access token must match the request, its time must be within 60 seconds of the server's time, and its id
//! must not have been used before. A token is bound to the thumbprint of the key (RFC 7638).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::{Expect, StoreError};
use url::Url;

use crate::encoding;
use crate::jose::{self, JwsParts};
use crate::ledger_keys;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// Algorithms of proofs. RS256 is excluded, as FAPI 2.0 section 5.4 requires.
pub const PROOF_ALGORITHMS: [&str; 5] = ["ES256", "ES384", "PS256", "EdDSA", "Ed25519"];

/// Maximum difference between `iat` and the current time in seconds.
const TIME_WINDOW_S: i64 = 60;

/// Reasons why a proof is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadProof {
    #[error("send exactly one DPoP header")]
    Count,
    #[error("the proof is not a signed JWT")]
    Malformed,
    #[error("typ of the proof must be dpop+jwt")]
    Type,
    #[error("alg of the proof must be ES256, ES384, PS256, EdDSA or Ed25519")]
    Algorithm,
    #[error("crit in the proof is not supported")]
    Critical,
    #[error("jwk of the proof must be a public key that supports alg")]
    Key,
    #[error("the proof is not signed by the key in its header")]
    Signature,
    #[error("htm of the proof is not the method of the request")]
    Method,
    #[error("htu of the proof is not the address of the request")]
    Address,
    #[error("iat of the proof must be within 60 seconds of the time of the server")]
    Time,
    #[error("the proof is expired or not yet valid")]
    Validity,
    #[error("jti of the proof must have 1 to 256 bytes")]
    NoJti,
    #[error("the proof was used before")]
    Replayed,
    #[error("ath of the proof is not the hash of the access token")]
    TokenHash,
}

/// Reasons why a proof is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The proof is invalid.
    #[error("{0}")]
    Bad(#[from] BadProof),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The request that a proof must have been created for.
#[derive(Debug, Clone, Copy)]
pub struct DpopRequest<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// URL. Query and fragment are ignored.
    pub url: &'a str,
    /// Access token of the request, if it has one.
    pub access_token: Option<&'a str>,
}

#[derive(Deserialize)]
struct ProofClaims {
    htm: Option<String>,
    htu: Option<String>,
    iat: Option<f64>,
    nbf: Option<f64>,
    exp: Option<f64>,
    jti: Option<String>,
    ath: Option<String>,
}

/// The scheme, host, port and path of a URL, normalized for the comparison with `htu` (RFC 9449 section 4.3).
fn normalize_url(url: &str) -> Option<Url> {
    let mut url = Url::parse(url).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url)
}

impl ProofClaims {
    fn check_claims(&self, request: &DpopRequest<'_>, now: Timestamp) -> Result<&str, BadProof> {
        if self.htm.as_deref() != Some(request.method) {
            return Err(BadProof::Method);
        }
        let address = self.htu.as_deref().and_then(normalize_url).ok_or(BadProof::Address)?;
        if normalize_url(request.url) != Some(address) {
            return Err(BadProof::Address);
        }
        let now = now.as_second();
        let seconds = |time: f64| (time.abs() < 1e15).then_some(time.floor() as i64);
        let iat = self.iat.and_then(seconds).ok_or(BadProof::Time)?;
        if (iat - now).abs() > TIME_WINDOW_S {
            return Err(BadProof::Time);
        }
        let is_expired = self.exp.is_some_and(|exp| seconds(exp).is_none_or(|exp| exp <= now));
        let is_early = self.nbf.is_some_and(|nbf| seconds(nbf).is_none_or(|nbf| nbf > now + TIME_WINDOW_S));
        if is_expired || is_early {
            return Err(BadProof::Validity);
        }
        let ath =
            request.access_token.map(|token| encoding::encode_base64url(Sha256::digest(token.as_bytes())));
        if ath.is_some() && ath != self.ath {
            return Err(BadProof::TokenHash);
        }
        self.jti.as_deref().filter(|jti| (1..=256).contains(&jti.len())).ok_or(BadProof::NoJti)
    }
}

/// The thumbprint of a public key (RFC 7638 section 3), or `None` for a private key or an unsupported key
/// type.
fn jwk_thumbprint(jwk: &Value) -> Option<String> {
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
    Some(encoding::encode_base64url(Sha256::digest(format!("{{{}}}", parts?.join(",")).as_bytes())))
}

/// Returns `true` if the text has the form of a thumbprint: 43 characters of base64url.
pub fn is_thumbprint(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn parse_proof(proof: &str, request: &DpopRequest<'_>, now: Timestamp) -> Result<(String, String), BadProof> {
    let parts = JwsParts::parse(proof).ok_or(BadProof::Malformed)?;
    if parts.header.typ.as_deref() != Some("dpop+jwt") {
        return Err(BadProof::Type);
    }
    let name = PROOF_ALGORITHMS.into_iter().find(|name| *name == parts.header.alg);
    let alg = name.and_then(jose::verified_algorithm).ok_or(BadProof::Algorithm)?;
    if parts.header.crit.is_some() {
        return Err(BadProof::Critical);
    }
    let jwk = parts.header.jwk.as_ref().ok_or(BadProof::Key)?;
    let jkt = jwk_thumbprint(jwk).ok_or(BadProof::Key)?;
    let key = jose::parse_jwk(jwk).filter(|_| jose::is_strong_key(jwk)).ok_or(BadProof::Key)?;
    if !jose::supports_algorithm(&key, alg) {
        return Err(BadProof::Key);
    }
    if !parts.has_valid_signature(&key, alg) {
        return Err(BadProof::Signature);
    }
    let claims: ProofClaims = parts.claims().ok_or(BadProof::Malformed)?;
    let jti = claims.check_claims(request, now)?;
    let proof_id = encoding::sha256_base64url(&format!("{jkt} {jti}"));
    Ok((jkt, proof_id))
}

/// Verifies DPoP proofs and accepts each proof only once.
pub struct DpopVerifier {
    pub(crate) ledger: Arc<EpochLedger>,
}

impl DpopVerifier {
    /// Verifies a proof for one request, marks its `jti` as used and returns the thumbprint of the proof's
    /// key.
    ///
    /// # Errors
    /// Returns [`ProofError`] if the proof is invalid or was used before.
    pub async fn verify_proof(
        &self,
        proof: &str,
        request: &DpopRequest<'_>,
        now: Timestamp,
    ) -> Result<String, ProofError> {
        let (jkt, seen) = parse_proof(proof, request, now)?;
        // The `jti` is stored until `iat` is outside of the time window.
        let until = now + SignedDuration::from_secs(2 * TIME_WINDOW_S + 1);
        let write = records::put_record(ledger_keys::used_proof(&seen), &true, Some(until), Expect::Absent);
        match self.ledger.write(vec![write], now).await {
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
    fn the_thumbprint_example_of_rfc_7638_3_1_is_computed() {
        let jwk = serde_json::json!({
            "kty": "RSA", "e": "AQAB", "alg": "RS256", "kid": "2011-04-29",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        });
        assert_eq!(jwk_thumbprint(&jwk).as_deref(), Some("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"));
        let mut private = jwk;
        private["d"] = "AQ".into();
        assert_eq!(jwk_thumbprint(&private), None);
    }

    #[track_caller]
    fn check_claim(change: impl Fn(&mut serde_json::Map<String, Value>), expected: Result<(), BadProof>) {
        let mut claims = serde_json::json!({
            "htm": "POST", "htu": "https://as.example/oauth2/token", "iat": 1_000_000, "jti": "j",
            "ath": "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
        });
        change(claims.as_object_mut().unwrap());
        let claims: ProofClaims = serde_json::from_value(claims).unwrap();
        let request = DpopRequest {
            method: "POST",
            url: "https://as.example/oauth2/token",
            access_token: Some("test"),
        };
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(claims.check_claims(&request, now).map(drop), expected);
    }

    #[test]
    fn every_claim_is_checked() {
        let set = |name: &'static str, value: Value| {
            move |claims: &mut serde_json::Map<String, Value>| {
                drop(claims.insert(name.to_owned(), value.clone()))
            }
        };
        check_claim(|_| {}, Ok(()));
        check_claim(set("htm", "GET".into()), Err(BadProof::Method));
        check_claim(set("htm", "post".into()), Err(BadProof::Method));
        check_claim(set("htu", "https://as.example/oauth2/token?x=1#y".into()), Ok(()));
        check_claim(set("htu", "HTTPS://AS.example:443/oauth2/token".into()), Ok(()));
        check_claim(set("htu", "https://as.example/oauth2/Token".into()), Err(BadProof::Address));
        check_claim(set("htu", "http://as.example/oauth2/token".into()), Err(BadProof::Address));
        check_claim(set("htu", "/oauth2/token".into()), Err(BadProof::Address));
        for (iat, expected) in
            [(-60, Ok(())), (60, Ok(())), (-61, Err(BadProof::Time)), (61, Err(BadProof::Time))]
        {
            check_claim(set("iat", (1_000_000 + iat).into()), expected);
        }
        check_claim(set("exp", 1_000_000.into()), Err(BadProof::Validity));
        check_claim(set("exp", 1_000_001.into()), Ok(()));
        check_claim(set("nbf", 1_000_061.into()), Err(BadProof::Validity));
        check_claim(set("ath", "x".into()), Err(BadProof::TokenHash));
        check_claim(set("jti", "".into()), Err(BadProof::NoJti));
        for name in ["htm", "htu", "iat", "jti", "ath"] {
            let claims = move |claims: &mut serde_json::Map<String, Value>| drop(claims.remove(name));
            let expected = match name {
                "htm" => BadProof::Method,
                "htu" => BadProof::Address,
                "iat" => BadProof::Time,
                "jti" => BadProof::NoJti,
                _ => BadProof::TokenHash,
            };
            check_claim(claims, Err(expected));
        }
    }
}
