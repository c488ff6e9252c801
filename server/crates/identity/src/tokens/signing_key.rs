//! A signing key and the stages of its life.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::encoding;
use crate::jose::SigningAlg;
use crate::lifetimes::Lifetimes;
use crate::private_key::{KeyProvider, SigningKeyPair, SystemKeys};

/// Tolerated difference between the clocks of nodes.
const CLOCK_LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Returns how long a retiring key stays published: the longest lifetime of a token that it may have signed.
pub(super) fn retirement_time(longest: Lifetimes) -> SignedDuration {
    longest.signed_token() + CLOCK_LEEWAY
}

/// The kind of tokens that a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyPurpose {
    /// Access tokens.
    AccessToken,
    /// ID tokens.
    IdToken,
}

/// A combination of purpose and algorithm.
pub type KeySlot = (KeyPurpose, SigningAlg);

/// All slots. Each has an active key and a next key.
pub const KEY_SLOTS: [KeySlot; 5] = [
    (KeyPurpose::AccessToken, SigningAlg::Es256),
    (KeyPurpose::IdToken, SigningAlg::Rs256),
    (KeyPurpose::IdToken, SigningAlg::Es256),
    (KeyPurpose::IdToken, SigningAlg::Es384),
    (KeyPurpose::IdToken, SigningAlg::EdDsa),
];

/// A stage in the life of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyStage {
    /// Published, but not yet used for signing.
    Next,
    /// Published, and used for signing.
    Active,
    /// Published until `gone_at`, and no longer used for signing.
    Retiring,
}

/// A signing key.
#[derive(Clone, Serialize, Deserialize)]
pub struct SigningKey {
    /// Key id: a digest of the public key.
    pub kid: String,
    /// Kind of tokens that the key signs.
    pub purpose: KeyPurpose,
    /// Algorithm of the key's signatures.
    pub alg: SigningAlg,
    /// Current stage.
    pub stage: KeyStage,
    /// Time at which the key was generated and published.
    pub created: Timestamp,
    /// Time at which the key became active.
    pub active_since: Option<Timestamp>,
    /// Time at which a retiring key is removed.
    pub gone_at: Option<Timestamp>,
    #[serde(flatten)]
    pub(super) material: KeyMaterial,
}

/// The stored form of a key.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum KeyMaterial {
    /// PKCS#8 in base64url, of an active or next key.
    #[serde(rename = "pkcs8")]
    Private(String),
    /// JWK without `kid`, of a retiring key.
    #[serde(rename = "public")]
    Public(serde_json::Value),
}

impl SigningKey {
    pub(super) fn generate(
        provider: &dyn KeyProvider,
        (purpose, alg): KeySlot,
        stage: KeyStage,
        now: Timestamp,
    ) -> Self {
        let pkcs8 = provider.generate(alg);
        let mut key = Self {
            kid: String::new(),
            purpose,
            alg,
            stage,
            created: now,
            active_since: (stage == KeyStage::Active).then_some(now),
            gone_at: None,
            material: KeyMaterial::Private(encoding::encode_base64url(&pkcs8)),
        };
        let signer = key.signer(provider).expect("a generated key can be decoded");
        let public = signer.key.public_jwk().to_string();
        key.kid = encoding::encode_base64url(&Sha256::digest(public.as_bytes())[..12]);
        key
    }

    /// Opens the private key. Returns `None` if the key has none, or if it is malformed.
    pub(super) fn signer(&self, provider: &dyn KeyProvider) -> Option<SigningKeyPair> {
        let KeyMaterial::Private(pkcs8) = &self.material else { return None };
        let pkcs8 = encoding::decode_base64url(pkcs8)?;
        Some(SigningKeyPair { alg: self.alg, key: provider.open(self.alg, &pkcs8)? })
    }

    pub(super) fn is_published(&self, now: Timestamp) -> bool {
        self.gone_at.is_none_or(|end| now < end)
    }

    pub(super) fn slot(&self) -> KeySlot {
        (self.purpose, self.alg)
    }

    /// Changes the key to its next stage. A key that retires stays published for the time `retirement`.
    /// Returns `false` if the key must be removed.
    pub(super) fn advance_stage(&mut self, retirement: SignedDuration, now: Timestamp) -> bool {
        match self.stage {
            KeyStage::Next => (self.stage, self.active_since) = (KeyStage::Active, Some(now)),
            KeyStage::Active => self.retire(retirement, now),
            KeyStage::Retiring => {}
        }
        self.is_published(now)
    }

    /// Makes the key a retiring key, which stays published for the time `retirement`, and removes its private
    /// part.
    pub(super) fn retire(&mut self, retirement: SignedDuration, now: Timestamp) {
        self.stage = KeyStage::Retiring;
        self.gone_at.get_or_insert(now + retirement);
        // If the private part cannot be decoded, the key keeps it, and loading the ring returns an error.
        if let Some(signer) = self.signer(&SystemKeys) {
            self.material = KeyMaterial::Public(signer.key.public_jwk());
        }
    }
}
