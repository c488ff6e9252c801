//! Randomness and keys that a seed repeats.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::signature::Ed25519KeyPair;
use fastrand::Rng;
use identity::private_key::PrivateKey;
use identity::{KeyProvider, Random, SigningAlg, SystemKeys};
use p256::ecdsa::signature::Signer as _;
use p256::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _};
use serde_json::{Value, json};
use test_parties::base64url;

/// Private keys for RS256. To generate one takes too long, so they are used in turn.
const RSA_KEYS: [&[u8]; 4] = [
    include_bytes!("../keys/rsa-1.der"),
    include_bytes!("../keys/rsa-2.der"),
    include_bytes!("../keys/rsa-3.der"),
    include_bytes!("../keys/rsa-4.der"),
];

/// Random numbers from a seed.
pub struct SeededRandom(Mutex<Rng>);

impl SeededRandom {
    /// Starts the numbers of a seed.
    pub fn new(random: Rng) -> Self {
        Self(Mutex::new(random))
    }

    fn lock(&self) -> MutexGuard<'_, Rng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        self.lock().fill(buffer);
    }
}

/// Private keys from a seed. Signatures with ECDSA derive their number from the key and the message (RFC
/// 6979).
pub struct SeededKeys {
    random: SeededRandom,
    rsa_keys: Mutex<usize>,
}

impl SeededKeys {
    /// Starts the keys of a seed.
    pub fn new(random: Rng) -> Self {
        Self { random: SeededRandom::new(random), rsa_keys: Mutex::default() }
    }

    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }
}

impl KeyProvider for SeededKeys {
    fn generate(&self, alg: SigningAlg) -> Vec<u8> {
        let encoded = "a private key can be encoded";
        match alg {
            SigningAlg::Es256 => loop {
                // Nearly all texts of this length are private keys.
                if let Ok(key) = p256::SecretKey::from_slice(&self.bytes::<32>()) {
                    return key.to_pkcs8_der().expect(encoded).as_bytes().to_vec();
                }
            },
            SigningAlg::Es384 => loop {
                if let Ok(key) = p384::SecretKey::from_slice(&self.bytes::<48>()) {
                    return key.to_pkcs8_der().expect(encoded).as_bytes().to_vec();
                }
            },
            SigningAlg::EdDsa => {
                let key = Ed25519KeyPair::from_seed_unchecked(&self.bytes::<32>()).expect(encoded);
                key.to_pkcs8v1().expect(encoded).as_ref().to_vec()
            }
            SigningAlg::Rs256 => {
                let mut next = self.rsa_keys.lock().unwrap_or_else(PoisonError::into_inner);
                *next += 1;
                RSA_KEYS[*next % RSA_KEYS.len()].to_vec()
            }
        }
    }

    fn open(&self, alg: SigningAlg, pkcs8: &[u8]) -> Option<Box<dyn PrivateKey>> {
        Some(match alg {
            SigningAlg::Es256 => Box::new(P256Key(p256::ecdsa::SigningKey::from_pkcs8_der(pkcs8).ok()?)),
            SigningAlg::Es384 => Box::new(P384Key(p384::ecdsa::SigningKey::from_pkcs8_der(pkcs8).ok()?)),
            SigningAlg::EdDsa | SigningAlg::Rs256 => return SystemKeys.open(alg, pkcs8),
        })
    }
}

struct P256Key(p256::ecdsa::SigningKey);

impl PrivateKey for P256Key {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature: p256::ecdsa::Signature = self.0.sign(message);
        signature.to_bytes().to_vec()
    }

    fn public_jwk(&self) -> Value {
        ec_jwk("P-256", self.0.verifying_key().to_sec1_point(false).as_bytes())
    }
}

struct P384Key(p384::ecdsa::SigningKey);

impl PrivateKey for P384Key {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature: p384::ecdsa::Signature = self.0.sign(message);
        signature.to_bytes().to_vec()
    }

    fn public_jwk(&self) -> Value {
        ec_jwk("P-384", self.0.verifying_key().to_sec1_point(false).as_bytes())
    }
}

fn ec_jwk(curve: &str, point: &[u8]) -> Value {
    // The byte 0x04, then x and y.
    let (x, y) = point[1..].split_at(point.len() / 2);
    json!({ "kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y) })
}
