//! Compact JWS: parts, signing with keys of ours, checking with keys of others (RFC 7515).
//!
//! Signatures only. What the claims must say is judged where the kind of token is known, so that no
//! token can pass for another.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// base64url without padding.
pub(crate) fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads base64url without padding.
pub(crate) fn unb64(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Algorithms that this server signs with (RFC 7518 3.1, RFC 8037 3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningAlg {
    /// RSASSA-PKCS1-v1_5 with SHA-256: what every client can read.
    #[default]
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl SigningAlg {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::Rs256, Self::Es256, Self::Es384, Self::EdDsa];

    /// The standards' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Finds one by its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.name() == name)
    }

    pub(crate) fn jose(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }

    /// The left half of the hash that goes with the algorithm (OpenID Connect Core 3.1.3.6): SHA-512 for
    /// Ed25519, which is built on it.
    pub(crate) fn half_hash(self, text: &str) -> String {
        match self {
            Self::Rs256 | Self::Es256 => b64(&Sha256::digest(text.as_bytes())[..16]),
            Self::Es384 => b64(&Sha384::digest(text.as_bytes())[..24]),
            Self::EdDsa => b64(&Sha512::digest(text.as_bytes())[..32]),
        }
    }
}

/// A private key that is ready to sign.
pub(crate) enum Signer {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    pub fn alg(&self) -> SigningAlg {
        match self {
            Self::Es256(_) => SigningAlg::Es256,
            Self::Es384(_) => SigningAlg::Es384,
            Self::EdDsa(_) => SigningAlg::EdDsa,
            Self::Rs256(_) => SigningAlg::Rs256,
        }
    }

    /// Signs claims into a compact JWS.
    pub fn sign(&self, kid: &str, typ: &str, claims: &impl Serialize) -> String {
        let header = serde_json::json!({ "alg": self.alg().name(), "kid": kid, "typ": typ });
        let claims = serde_json::to_vec(claims).expect("our own claims serialise");
        let mut jws = format!("{}.{}", b64(header.to_string().as_bytes()), b64(&claims));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Es256(key) | Self::Es384(key) => {
                key.sign(&random, jws.as_bytes()).expect("a key in memory signs").as_ref().to_vec()
            }
            Self::EdDsa(key) => key.sign(jws.as_bytes()).as_ref().to_vec(),
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
            Self::Es256(key) => ec_jwk("P-256", key),
            Self::Es384(key) => ec_jwk("P-384", key),
            Self::EdDsa(key) => {
                serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": b64(key.public_key().as_ref()) })
            }
            Self::Rs256(key) => {
                let public = key.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                serde_json::json!({ "kty": "RSA", "n": b64(n.big_endian_without_leading_zero()), "e": b64(e.big_endian_without_leading_zero()) })
            }
        }
    }
}

fn ec_jwk(curve: &str, key: &EcdsaKeyPair) -> serde_json::Value {
    // An uncompressed point: 0x04, then x and y.
    let point = &key.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    serde_json::json!({ "kty": "EC", "crv": curve, "x": b64(x), "y": b64(y) })
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
