//! The private keys that this server signs tokens with: generation and signatures.
//!
//! A signature with ECDSA contains a random number, and so does every new key. Both come from a
//! [`KeyProvider`], so that a simulation can repeat them.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::encoding::encode_base64url;
use crate::jose::SigningAlg;

/// Generates and opens private keys.
pub trait KeyProvider: Send + Sync {
    /// A new private key as DER of PKCS#8 (RFC 5958).
    fn generate(&self, alg: SigningAlg) -> Vec<u8>;

    /// Opens a private key. Returns `None` if it is malformed or belongs to another algorithm.
    fn open(&self, alg: SigningAlg, pkcs8: &[u8]) -> Option<Box<dyn PrivateKey>>;
}

/// A private key in memory.
pub trait PrivateKey: Send + Sync {
    /// The signature of a message, in the form of a JWS (RFC 7518 section 3, RFC 8037 section 3.1).
    fn sign(&self, message: &[u8]) -> Vec<u8>;

    /// The public key as a JWK without `kid`.
    fn public_jwk(&self) -> Value;
}

/// Private keys with the random numbers of the operating system.
pub struct SystemKeys;

impl KeyProvider for SystemKeys {
    fn generate(&self, alg: SigningAlg) -> Vec<u8> {
        let generates = "every supported algorithm can generate and encode keys";
        let ec = |curve| EcdsaKeyPair::generate(curve).and_then(|key| key.to_pkcs8v1()).expect(generates);
        match alg {
            SigningAlg::Es256 => ec(&ECDSA_P256_SHA256_FIXED_SIGNING).as_ref().to_vec(),
            SigningAlg::Es384 => ec(&ECDSA_P384_SHA384_FIXED_SIGNING).as_ref().to_vec(),
            SigningAlg::EdDsa => Ed25519KeyPair::generate()
                .and_then(|key| key.to_pkcs8v1())
                .expect(generates)
                .as_ref()
                .to_vec(),
            SigningAlg::Rs256 => RsaKeyPair::generate(KeySize::Rsa2048)
                .expect(generates)
                .as_der()
                .expect(generates)
                .as_ref()
                .to_vec(),
        }
    }

    fn open(&self, alg: SigningAlg, pkcs8: &[u8]) -> Option<Box<dyn PrivateKey>> {
        Some(match alg {
            SigningAlg::Es256 => Box::new(EcKey {
                curve: "P-256",
                pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).ok()?,
            }),
            SigningAlg::Es384 => Box::new(EcKey {
                curve: "P-384",
                pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, pkcs8).ok()?,
            }),
            SigningAlg::EdDsa => Box::new(Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).ok()?),
            SigningAlg::Rs256 => Box::new(RsaKeyPair::from_pkcs8(pkcs8).ok()?),
        })
    }
}

struct EcKey {
    curve: &'static str,
    pair: EcdsaKeyPair,
}

impl PrivateKey for EcKey {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        signature.expect("a valid key in memory signs any message").as_ref().to_vec()
    }

    fn public_jwk(&self) -> Value {
        // The public key is an uncompressed point: the byte 0x04, then x and y.
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        json!({ "kty": "EC", "crv": self.curve, "x": encode_base64url(x), "y": encode_base64url(y) })
    }
}

impl PrivateKey for Ed25519KeyPair {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        Self::sign(self, message).as_ref().to_vec()
    }

    fn public_jwk(&self) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "x": encode_base64url(self.public_key().as_ref()) })
    }
}

impl PrivateKey for RsaKeyPair {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.public_modulus_len()];
        Self::sign(self, &RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
            .expect("a valid key in memory signs any message");
        signature
    }

    fn public_jwk(&self) -> Value {
        let public = self.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        json!({
            "kty": "RSA",
            "n": encode_base64url(n.big_endian_without_leading_zero()),
            "e": encode_base64url(e.big_endian_without_leading_zero()),
        })
    }
}

/// A private key and its algorithm.
pub(crate) struct SigningKeyPair {
    pub alg: SigningAlg,
    pub key: Box<dyn PrivateKey>,
}

impl SigningKeyPair {
    /// Signs claims and returns a compact JWS.
    pub fn sign(&self, kid: &str, typ: &str, claims: &impl Serialize) -> String {
        let header = serde_json::json!({ "alg": self.alg.name(), "kid": kid, "typ": typ });
        let claims =
            serde_json::to_vec(claims).expect("claims have string keys only, so they serialize to JSON");
        let mut jws =
            format!("{}.{}", encode_base64url(header.to_string().as_bytes()), encode_base64url(&claims));
        let signature = self.key.sign(jws.as_bytes());
        jws.push('.');
        jws.push_str(&encode_base64url(&signature));
        jws
    }
}
