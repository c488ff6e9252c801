//! Creation and verification of JWTs as a client does (RFC 7515, RFC 7518). The suite signs with ES256,
//! ES384, RS256 and RS384, and verifies all algorithms of public keys.
//!
//! Only the crypto library is used, because a fault of the server's JWT library would not be detected if both
//! used it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P256K1_SHA256_FIXED,
    ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED, ED25519, EcdsaKeyPair,
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// Reasons why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A member of the JWK is missing or is not base64url.
    #[error("the JWK has no member '{0}' in base64url")]
    Member(&'static str),
    /// The crypto library rejects the key.
    #[error("the JWK is not a {0} key")]
    Refused(&'static str),
}

/// The header and the claims of a JWT.
#[derive(Debug, Clone)]
pub struct JwtParts {
    /// Header of the JWT.
    pub header: Value,
    /// Claims of the JWT.
    pub claims: Value,
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn member(jwk: &Value, name: &'static str) -> Result<Vec<u8>, KeyError> {
    let text = jwk[name].as_str().ok_or(KeyError::Member(name))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| KeyError::Member(name))
}

/// An uncompressed point: 0x04, x, y.
fn point(jwk: &Value) -> Result<Vec<u8>, KeyError> {
    Ok([vec![4], member(jwk, "x")?, member(jwk, "y")?].concat())
}

/// Signs a JWT with a private JWK. The `kty` and `crv` of the key determine the algorithm: ES256, ES384 or
/// RS384; an RSA key also signs with RS256 if the header says so. The header is used unchanged, even if it
/// contradicts the key.
///
/// # Errors
/// [`KeyError`] if the key is invalid.
pub fn sign(jwk: &Value, header: &Value, claims: &Value) -> Result<String, KeyError> {
    let message = format!("{}.{}", encode(header), encode(claims));
    let random = SystemRandom::new();
    let signature = if jwk["kty"] == "RSA" {
        let key = RsaKeyPair::from_components(&KeyPairComponents {
            public_key: PublicKeyComponents { n: member(jwk, "n")?, e: member(jwk, "e")? },
            d: member(jwk, "d")?,
            p: member(jwk, "p")?,
            q: member(jwk, "q")?,
            dP: member(jwk, "dp")?,
            dQ: member(jwk, "dq")?,
            qInv: member(jwk, "qi")?,
        })
        .map_err(|_| KeyError::Refused("RSA"))?;
        let mut signature = vec![0; key.public_modulus_len()];
        let padding = if header["alg"] == "RS256" { &RSA_PKCS1_SHA256 } else { &RSA_PKCS1_SHA384 };
        key.sign(padding, &random, message.as_bytes(), &mut signature)
            .map_err(|_| KeyError::Refused("RSA"))?;
        signature
    } else {
        let alg = match jwk["crv"].as_str() {
            Some("P-384") => &ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &ECDSA_P256_SHA256_FIXED_SIGNING,
        };
        let key = EcdsaKeyPair::from_private_key_and_public_key(alg, &member(jwk, "d")?, &point(jwk)?)
            .map_err(|_| KeyError::Refused("EC"))?;
        key.sign(&random, message.as_bytes()).map_err(|_| KeyError::Refused("EC"))?.as_ref().to_vec()
    };
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Generates a private JWK for ES256.
///
/// # Errors
/// [`KeyError::Refused`] if the crypto library cannot generate a key.
pub fn fresh_key(kid: &str) -> Result<Value, KeyError> {
    use aws_lc_rs::encoding::AsBigEndian as _;
    let refusal = KeyError::Refused("P-256");
    let key =
        EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyError::Refused("P-256"))?;
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let d = key.private_key().as_be_bytes().map_err(|_| refusal)?;
    let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    Ok(json!({
        "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": kid,
        "x": b64(x), "y": b64(y), "d": b64(d.as_ref()),
    }))
}

/// The public key of a private EC key.
pub fn public_half(jwk: &Value) -> Value {
    let mut public = jwk.clone();
    if let Some(members) = public.as_object_mut() {
        members.remove("d");
    }
    public
}

/// Decodes a JWT without verifying it.
pub fn parts(token: &str) -> Option<JwtParts> {
    let mut parts = token.split('.');
    let mut next = || serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
    let (header, claims) = (next()?, next()?);
    (token.split('.').count() == 3).then_some(JwtParts { header, claims })
}

/// Returns whether a JWT is signed by a key of the set. A header or a key may lack `kid` (RFC 7515 4.1.4,
/// OpenID Connect Core 10.1); then every key that fits the algorithm is tried.
pub fn is_signed(token: &str, keys: &Value) -> bool {
    let Some(parts) = parts(token) else { return false };
    let Some((message, signature)) = token.rsplit_once('.') else { return false };
    let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
    let kid = &parts.header["kid"];
    let fits = |key: &&Value| kid.is_null() || key["kid"].is_null() || key["kid"] == *kid;
    let mut candidates = keys["keys"].as_array().into_iter().flatten().filter(fits);
    candidates.any(|key| verify(key, &parts.header["alg"], message.as_bytes(), &signature).unwrap_or(false))
}

const ALGORITHMS: [&str; 12] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA",
    "Ed25519",
];

/// The algorithm of a JWT, if it is one that cannot be verified here: for example of a MAC, whose key is the
/// secret of the client.
pub fn unknown_algorithm(token: &str) -> Option<String> {
    let parts = parts(token)?;
    let alg = parts.header["alg"].as_str()?;
    // An unsigned token is never accepted.
    (!ALGORITHMS.contains(&alg) && alg != "none").then(|| alg.to_owned())
}

fn verify(jwk: &Value, alg: &Value, message: &[u8], signature: &[u8]) -> Result<bool, KeyError> {
    let rsa = |parameters| -> Result<bool, KeyError> {
        let key = PublicKeyComponents { n: member(jwk, "n")?, e: member(jwk, "e")? };
        Ok(key.verify(parameters, message, signature).is_ok())
    };
    let ec = |algorithm| -> Result<bool, KeyError> {
        Ok(UnparsedPublicKey::new(algorithm, point(jwk)?).verify(message, signature).is_ok())
    };
    match (alg.as_str(), jwk["kty"].as_str()) {
        (Some("RS256"), Some("RSA")) => rsa(&RSA_PKCS1_2048_8192_SHA256),
        (Some("RS384"), Some("RSA")) => rsa(&RSA_PKCS1_2048_8192_SHA384),
        (Some("RS512"), Some("RSA")) => rsa(&RSA_PKCS1_2048_8192_SHA512),
        (Some("PS256"), Some("RSA")) => rsa(&RSA_PSS_2048_8192_SHA256),
        (Some("PS384"), Some("RSA")) => rsa(&RSA_PSS_2048_8192_SHA384),
        (Some("PS512"), Some("RSA")) => rsa(&RSA_PSS_2048_8192_SHA512),
        (Some("ES256"), Some("EC")) => ec(&ECDSA_P256_SHA256_FIXED),
        (Some("ES384"), Some("EC")) => ec(&ECDSA_P384_SHA384_FIXED),
        (Some("ES512"), Some("EC")) => ec(&ECDSA_P521_SHA512_FIXED),
        (Some("ES256K"), Some("EC")) => ec(&ECDSA_P256K1_SHA256_FIXED),
        // RFC 9864 names the curve in the algorithm.
        (Some("EdDSA" | "Ed25519"), Some("OKP")) => {
            let key = UnparsedPublicKey::new(&ED25519, member(jwk, "x")?);
            Ok(key.verify(message, signature).is_ok())
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_verified_and_changes_detected() {
        let key = fresh_key("k1").unwrap();
        let token = sign(&key, &json!({ "alg": "ES256", "kid": "k1" }), &json!({ "sub": "s" })).unwrap();
        let keys = json!({ "keys": [public_half(&key)] });
        assert!(is_signed(&token, &keys));
        assert_eq!(parts(&token).unwrap().claims["sub"], "s");
        let (_, signature) = token.rsplit_once('.').unwrap();
        let other =
            format!("{}.{}.{signature}", encode(&json!({ "alg": "ES256", "kid": "k1" })), encode(&json!({})));
        assert!(!is_signed(&other, &keys));
        assert!(!is_signed(&token, &json!({ "keys": [public_half(&fresh_key("k1").unwrap())] })));
    }

    #[test]
    fn a_key_needs_no_id() {
        let (key, other) = (fresh_key("k1").unwrap(), fresh_key("k2").unwrap());
        let unnamed = sign(&key, &json!({ "alg": "ES256" }), &json!({})).unwrap();
        let token = sign(&key, &json!({ "alg": "ES256", "kid": "k1" }), &json!({})).unwrap();
        let both = json!({ "keys": [public_half(&other), public_half(&key)] });
        let mut nameless = public_half(&key);
        nameless.as_object_mut().unwrap().remove("kid");
        assert!(is_signed(&unnamed, &both) && is_signed(&token, &both));
        assert!(is_signed(&token, &json!({ "keys": [nameless] })));
        assert!(!is_signed(&unnamed, &json!({ "keys": [public_half(&other)] })));
        let renamed = sign(&key, &json!({ "alg": "ES256", "kid": "k2" }), &json!({})).unwrap();
        assert!(!is_signed(&renamed, &both), "the header names another key");
        let of_secret = format!("{}.{}.AA", encode(&json!({ "alg": "HS256" })), encode(&json!({})));
        assert_eq!(unknown_algorithm(&of_secret).as_deref(), Some("HS256"));
        assert_eq!(unknown_algorithm(&token), None);
    }
}
