//! Compact JWS: parts, signing with keys of ours, checking with keys of others (RFC 7515).
//!
//! Signatures only. What the claims must say is judged where the kind of token is known, so that no
//! token can pass for another.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// base64url without padding.
pub(crate) fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads base64url without padding.
pub(crate) fn unb64(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// A private key that is ready to sign.
pub(crate) enum Signer {
    /// ECDSA on P-256 with SHA-256.
    Es256(EcdsaKeyPair),
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256(RsaKeyPair),
}

impl Signer {
    pub fn alg(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Rs256(_) => "RS256",
        }
    }

    /// Signs claims into a compact JWS.
    pub fn sign(&self, kid: &str, typ: &str, claims: &impl Serialize) -> String {
        let header = serde_json::json!({ "alg": self.alg(), "kid": kid, "typ": typ });
        let claims = serde_json::to_vec(claims).expect("our own claims serialise");
        let mut jws = format!("{}.{}", b64(header.to_string().as_bytes()), b64(&claims));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Es256(key) => {
                key.sign(&random, jws.as_bytes()).expect("a key in memory signs").as_ref().to_vec()
            }
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, jws.as_bytes(), &mut signature)
                    .expect("a key in memory signs");
                signature
            }
        };
        jws.push('.');
        jws.push_str(&b64(&signature));
        jws
    }

    /// The public half as a JWK without `kid`.
    pub fn public_jwk(&self) -> serde_json::Value {
        match self {
            Self::Es256(key) => {
                // An uncompressed point: 0x04, then x and y.
                let point = key.public_key().as_ref();
                serde_json::json!({ "kty": "EC", "crv": "P-256", "x": b64(&point[1..33]), "y": b64(&point[33..65]) })
            }
            Self::Rs256(key) => {
                let public = key.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                serde_json::json!({ "kty": "RSA", "n": b64(n.big_endian_without_leading_zero()), "e": b64(e.big_endian_without_leading_zero()) })
            }
        }
    }
}

/// The protected header of a JWS, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub alg: String,
    #[serde(default)]
    pub kid: Option<String>,
    #[serde(default)]
    pub typ: Option<String>,
    #[serde(default)]
    pub jku: Option<String>,
    /// A key inside the header: meant for DPoP proofs alone.
    #[serde(default)]
    pub jwk: Option<serde_json::Value>,
    #[serde(default)]
    pub crit: Option<serde_json::Value>,
}

/// A JWS cut into its parts, nothing verified.
pub(crate) struct Parts<'a> {
    pub header: Header,
    signed: &'a str,
    payload: Vec<u8>,
    signature: &'a str,
}

/// Longest token that is looked at, in bytes.
const LONGEST: usize = 16 * 1024;

impl<'a> Parts<'a> {
    /// Cuts a compact JWS; `None` when it is none.
    pub fn parse(jws: &'a str) -> Option<Self> {
        if jws.len() > LONGEST {
            return None;
        }
        let (signed, signature) = jws.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let header = serde_json::from_slice(&unb64(header)?).ok()?;
        Some(Self { header, signed, payload: unb64(payload)?, signature })
    }

    /// The claims. Believe them only after [`Parts::is_signed_by`].
    pub fn claims<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.payload).ok()
    }

    /// Is the signature by this key, with this algorithm?
    pub fn is_signed_by(&self, jwk: &Jwk, alg: Algorithm) -> bool {
        fits(jwk, alg)
            && DecodingKey::from_jwk(jwk).is_ok_and(|key| {
                jsonwebtoken::crypto::verify(self.signature, self.signed.as_bytes(), &key, alg)
                    .unwrap_or(false)
            })
    }
}

/// Can this key be used with this algorithm? The key decides, never the header alone.
pub(crate) fn fits(jwk: &Jwk, alg: Algorithm) -> bool {
    match (&jwk.algorithm, alg) {
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES384) => key.curve == EllipticCurve::P384,
        (
            AlgorithmParameters::RSA(_),
            Algorithm::RS256 | Algorithm::RS384 | Algorithm::PS256 | Algorithm::PS384,
        ) => true,
        (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
        _ => false,
    }
}

/// Reads a JWK leniently: keys of kinds that we do not know are passed over.
pub(crate) fn jwk(value: &serde_json::Value) -> Option<Jwk> {
    serde_json::from_value(value.clone()).ok()
}

/// Is a public key strong enough: RSA of 2048 bits or more, P-256, P-384 or Ed25519?
pub(crate) fn is_strong(key: &serde_json::Value) -> bool {
    match key["kty"].as_str() {
        Some("RSA") => key["n"].as_str().and_then(unb64).is_some_and(|n| n.len() >= 256),
        Some("EC") => matches!(key["crv"].as_str(), Some("P-256" | "P-384")),
        Some("OKP") => key["crv"] == "Ed25519",
        _ => false,
    }
}
