//! The key of a client or of a provider, which signs JWTs.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::base64url::base64url;

/// The Ed25519 key of a client or of a provider.
pub struct ClientKey {
    pair: Ed25519KeyPair,
    kid: String,
}

impl ClientKey {
    /// Generates a key.
    pub fn new(kid: &str, random: &mut Rng) -> Self {
        let mut seed = [0; 32];
        random.fill(&mut seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a private key");
        Self { pair, kid: kid.to_owned() }
    }

    /// The public key as a JWK.
    pub fn jwk(&self) -> Value {
        let mut jwk = self.bare_jwk();
        jwk["kid"] = self.kid.as_str().into();
        jwk["alg"] = "EdDSA".into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// The public key as a JWK of the header of a DPoP proof.
    pub fn bare_jwk(&self) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(self.pair.public_key()) })
    }

    /// A signed JWT of this type.
    pub fn sign(&self, typ: &str, claims: &Value) -> String {
        self.sign_with_header(&json!({ "alg": "EdDSA", "kid": self.kid, "typ": typ }), claims)
    }

    /// A signed JWT with this header.
    pub fn sign_with_header(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        let signature = self.pair.sign(message.as_bytes());
        format!("{message}.{}", base64url(signature))
    }
}
