//! Compact JWS (RFC 7515): parsing, and verification with keys of clients and providers.
//!
//! This module checks signatures only. The module for each kind of token checks the claims, so that one kind
//! of token is not accepted as another.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::encoding::{decode_base64url, encode_base64url};

/// Algorithms that this server signs with (RFC 7518 3.1, RFC 8037 3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningAlg {
    /// RSASSA-PKCS1-v1_5 with SHA-256, which OpenID Connect requires every client to support.
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
    /// All algorithms, the default first.
    pub const ALL: [Self; 4] = [Self::Rs256, Self::Es256, Self::Es384, Self::EdDsa];

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm with this registered name, or `None` for any other name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.name() == name)
    }

    pub(crate) fn jws_algorithm(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// Algorithms of signatures that this server verifies: client assertions, and ID tokens of providers. A
/// client assertion with RS256 is accepted only if the client registered this algorithm. `Ed25519` is the
/// fully specified name of `EdDSA` with that curve (RFC 9864 section 2.2), the only one that is supported.
pub(crate) const VERIFIED_ALGORITHMS: [(&str, Algorithm); 8] = [
    ("RS384", Algorithm::RS384),
    ("ES384", Algorithm::ES384),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("ES256", Algorithm::ES256),
    ("EdDSA", Algorithm::EdDSA),
    ("Ed25519", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
];

/// The algorithm with this name, or `None` if its signatures are not verified.
pub(crate) fn verified_algorithm(name: &str) -> Option<Algorithm> {
    VERIFIED_ALGORITHMS.into_iter().find(|(key, _)| *key == name).map(|(_, alg)| alg)
}

/// The left half of the hash of a text in base64url, with the hash of this algorithm (OpenID Connect Core
/// section 3.1.3.6).
pub(crate) fn left_half_hash(alg: Algorithm, text: &str) -> String {
    let text = text.as_bytes();
    match alg {
        Algorithm::RS384 | Algorithm::ES384 | Algorithm::PS384 => {
            encode_base64url(&Sha384::digest(text)[..24])
        }
        Algorithm::EdDSA => encode_base64url(&Sha512::digest(text)[..32]),
        _ => encode_base64url(&Sha256::digest(text)[..16]),
    }
}

/// The names of the algorithms that can be registered for client assertions.
pub fn assertion_algorithms() -> impl Iterator<Item = &'static str> {
    VERIFIED_ALGORITHMS.into_iter().map(|(name, _)| name)
}

/// The members of a JWS header that this server reads.
#[derive(Debug, Deserialize)]
pub(crate) struct JwsHeader {
    pub alg: String,
    #[serde(default)]
    pub kid: Option<String>,
    #[serde(default)]
    pub typ: Option<String>,
    #[serde(default)]
    pub jku: Option<String>,
    /// A public key in the header, which only DPoP proofs may contain.
    #[serde(default)]
    pub jwk: Option<serde_json::Value>,
    #[serde(default)]
    pub crit: Option<serde_json::Value>,
}

/// The parts of a JWS whose signature is not verified yet.
pub(crate) struct JwsParts<'a> {
    pub header: JwsHeader,
    signed: &'a str,
    payload: Vec<u8>,
    signature: &'a str,
}

/// Maximum length of a JWS in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

impl<'a> JwsParts<'a> {
    /// Splits a compact JWS into its parts. Returns `None` if it is malformed.
    pub fn parse(jws: &'a str) -> Option<Self> {
        if jws.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = jws.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let header = serde_json::from_slice(&decode_base64url(header)?).ok()?;
        Some(Self { header, signed, payload: decode_base64url(payload)?, signature })
    }

    /// The claims. Do not trust them before [`JwsParts::has_valid_signature`] has returned `true`.
    pub fn claims<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.payload).ok()
    }

    /// Returns `true` if the signature is valid for this key and algorithm.
    pub fn has_valid_signature(&self, jwk: &Jwk, alg: Algorithm) -> bool {
        supports_algorithm(jwk, alg)
            && DecodingKey::from_jwk(jwk).is_ok_and(|key| {
                jsonwebtoken::crypto::verify(self.signature, self.signed.as_bytes(), &key, alg)
                    .unwrap_or(false)
            })
    }
}

/// `true` if the key supports the algorithm. The algorithm of a JWS header is used only after this check.
pub(crate) fn supports_algorithm(jwk: &Jwk, alg: Algorithm) -> bool {
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

/// Parses a JWK. Returns `None` for an unsupported kind of key.
pub(crate) fn parse_jwk(value: &serde_json::Value) -> Option<Jwk> {
    let mut key = value.clone();
    // `alg` may be a name that the library does not know, such as `Ed25519`. `supports_algorithm` checks the
    // key type.
    key.as_object_mut()?.remove("alg");
    serde_json::from_value(key).ok()
}

/// The key if signatures with this algorithm may be verified with it. `use`, `key_ops` and `alg` restrict a
/// key (RFC 7517 section 4), so that a key for encryption verifies nothing.
pub(crate) fn verification_key(value: &serde_json::Value, alg: Algorithm) -> Option<Jwk> {
    let is_for_signatures = value["use"].as_str().is_none_or(|usage| usage == "sig")
        && value["key_ops"].as_array().is_none_or(|all| all.iter().any(|operation| operation == "verify"));
    let is_for_algorithm = value["alg"].as_str().is_none_or(|name| verified_algorithm(name) == Some(alg));
    let key = (is_for_signatures && is_for_algorithm && is_strong_key(value)).then(|| parse_jwk(value))??;
    supports_algorithm(&key, alg).then_some(key)
}

/// `true` if a public key is strong enough: RSA with 2048 bits or more, P-256, P-384 or Ed25519.
pub(crate) fn is_strong_key(key: &serde_json::Value) -> bool {
    match key["kty"].as_str() {
        Some("RSA") => key["n"].as_str().and_then(decode_base64url).is_some_and(|n| n.len() >= 256),
        Some("EC") => matches!(key["crv"].as_str(), Some("P-256" | "P-384")),
        Some("OKP") => key["crv"] == "Ed25519",
        _ => false,
    }
}
