//! Creation and verification of JWTs as a client does (RFC 7515, RFC 7518): ES256, ES384, RS256, RS384.
//!
//! Only the crypto library is used, because a fault of the server's JWT library would not be detected if both
//! used it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, UnparsedPublicKey,
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
    let refused = KeyError::Refused("P-256");
    let key =
        EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyError::Refused("P-256"))?;
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let d = key.private_key().as_be_bytes().map_err(|_| refused)?;
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

/// Returns whether a JWT is signed by the key of the set that its header names.
pub fn is_signed(token: &str, keys: &Value) -> bool {
    let Some(parts) = parts(token) else { return false };
    let Some((message, signature)) = token.rsplit_once('.') else { return false };
    let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
    let named = |key: &&Value| key["kid"] == parts.header["kid"];
    let mut candidates = keys["keys"].as_array().into_iter().flatten().filter(named);
    candidates.any(|key| verify(key, &parts.header["alg"], message.as_bytes(), &signature).unwrap_or(false))
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
        (Some("ES256"), Some("EC")) => ec(&ECDSA_P256_SHA256_FIXED),
        (Some("ES384"), Some("EC")) => ec(&ECDSA_P384_SHA384_FIXED),
        (Some("EdDSA"), Some("OKP")) => {
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
}
