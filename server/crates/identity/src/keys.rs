//! Signing keys and their stages (DESIGN, tokens; OpenID Connect Core 10.1.1).
//!
//! A key is `next` (published, not used), `active` (signs), `retiring` (published until the last
//! token signed by it has expired) and then gone. Rotation moves every key one stage on. There is
//! one key of each stage for access tokens (ES256) and for ID tokens (RS256, which every client
//! can read).

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RsaKeyPair};
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use store::{Expect, Ledger, LedgerWrite, Store, StoreError};

use crate::jose::{self, Signer};
use crate::{Identity, ledger};

/// How long a retiring key stays published: the longest life of a token that it signed.
const RETIRING: SignedDuration = SignedDuration::from_secs(3600);

/// What a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Access tokens, ES256.
    AccessToken,
    /// ID tokens, RS256.
    IdToken,
}

/// Where a key stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Published, not yet used.
    Next,
    /// Signs.
    Active,
    /// Published until `gone_at`.
    Retiring,
}

/// A key as it stands in the ledger, under `key/{kid}`.
#[derive(Clone, Serialize, Deserialize)]
pub struct SigningKey {
    /// Key id: a digest of the public key.
    pub kid: String,
    /// What it signs.
    pub purpose: Purpose,
    /// Its stage.
    pub stage: Stage,
    /// When it was made.
    pub created: Timestamp,
    /// When a retiring key is taken away.
    pub gone_at: Option<Timestamp>,
    /// PKCS#8 in base64url.
    pkcs8: String,
}

impl SigningKey {
    fn generate(purpose: Purpose, stage: Stage, now: Timestamp) -> Self {
        let pkcs8 = match purpose {
            Purpose::AccessToken => EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
                .expect("the library makes P-256 keys")
                .to_pkcs8v1()
                .expect("a fresh key encodes")
                .as_ref()
                .to_vec(),
            Purpose::IdToken => RsaKeyPair::generate(KeySize::Rsa2048)
                .expect("the library makes RSA keys")
                .as_der()
                .expect("a fresh key encodes")
                .as_ref()
                .to_vec(),
        };
        let mut key = Self {
            kid: String::new(),
            purpose,
            stage,
            created: now,
            gone_at: None,
            pkcs8: jose::b64(&pkcs8),
        };
        let public = key.signer().expect("a fresh key reads back").public_jwk().to_string();
        key.kid = jose::b64(&Sha256::digest(public.as_bytes())[..12]);
        key
    }

    fn signer(&self) -> Option<Signer> {
        let pkcs8 = jose::unb64(&self.pkcs8)?;
        Some(match self.purpose {
            Purpose::AccessToken => {
                Signer::Es256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8).ok()?)
            }
            Purpose::IdToken => Signer::Rs256(RsaKeyPair::from_pkcs8(&pkcs8).ok()?),
        })
    }

    fn record_key(&self) -> String {
        format!("key/{}", self.kid)
    }

    fn is_published(&self, now: Timestamp) -> bool {
        self.gone_at.is_none_or(|at| now < at)
    }
}

/// A key ready for use.
pub(crate) struct Loaded {
    pub key: SigningKey,
    pub signer: Signer,
    pub jwk: Jwk,
    public: serde_json::Value,
}

/// All keys that are not gone.
pub(crate) struct KeyRing {
    pub keys: Vec<Loaded>,
}

impl KeyRing {
    /// Reads the keys, and makes the first ones where there are none.
    pub(crate) async fn open(store: &Store, now: Timestamp) -> Result<Self, StoreError> {
        let mut keys: Vec<SigningKey> = ledger::all(store, "key/", now).await?;
        for purpose in [Purpose::AccessToken, Purpose::IdToken] {
            for stage in [Stage::Active, Stage::Next] {
                if !keys.iter().any(|key| key.purpose == purpose && key.stage == stage) {
                    let key = SigningKey::generate(purpose, stage, now);
                    store.write(vec![ledger::put(key.record_key(), &key, None, Expect::Absent)], now).await?;
                    keys.push(key);
                }
            }
        }
        let keys = keys
            .into_iter()
            .map(|key| {
                let broken = || StoreError::Corrupt {
                    what: format!("{}: the private key cannot be read", key.record_key()),
                };
                let signer = key.signer().ok_or_else(broken)?;
                let mut public = signer.public_jwk();
                public["kid"] = key.kid.as_str().into();
                public["use"] = "sig".into();
                public["alg"] = signer.alg().into();
                let jwk = jose::jwk(&public).ok_or_else(broken)?;
                Ok(Loaded { signer, jwk, public, key })
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(Self { keys })
    }

    /// The key that signs now.
    pub fn active(&self, purpose: Purpose) -> &Loaded {
        self.keys
            .iter()
            .find(|loaded| loaded.key.purpose == purpose && loaded.key.stage == Stage::Active)
            .expect("a ring is opened with an active key of each purpose")
    }

    /// The published key of this id, with the algorithm that it signs with.
    pub fn published(&self, kid: &str, now: Timestamp) -> Option<(&Loaded, Algorithm)> {
        let loaded = self.keys.iter().find(|loaded| loaded.key.kid == kid && loaded.key.is_published(now))?;
        let alg = match loaded.key.purpose {
            Purpose::AccessToken => Algorithm::ES256,
            Purpose::IdToken => Algorithm::RS256,
        };
        Some((loaded, alg))
    }
}

impl Identity {
    pub(crate) fn ring(&self) -> Arc<KeyRing> {
        self.keys.read().expect("no thread panics while it holds the ring").clone()
    }

    async fn reload_keys(&self, now: Timestamp) -> Result<(), StoreError> {
        let ring = KeyRing::open(&self.store, now).await?;
        *self.keys.write().expect("no thread panics while it holds the ring") = Arc::new(ring);
        self.verified.clear();
        Ok(())
    }

    /// The published keys as a JWK Set (RFC 7517): public halves only.
    pub fn jwks(&self, now: Timestamp) -> serde_json::Value {
        let ring = self.ring();
        let keys: Vec<_> =
            ring.keys.iter().filter(|l| l.key.is_published(now)).map(|l| l.public.clone()).collect();
        serde_json::json!({ "keys": keys })
    }

    /// All keys with their stages; private halves are not in the answer's public face.
    ///
    /// # Errors
    /// The store's.
    pub async fn list_keys(&self, now: Timestamp) -> Result<Vec<SigningKey>, StoreError> {
        ledger::all(&self.store, "key/", now).await
    }

    /// Moves every key one stage on: `next` signs from now, `active` retires, fresh `next` keys are
    /// published. Gone keys are removed.
    ///
    /// # Errors
    /// The store's.
    pub async fn rotate_keys(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        for mut key in self.list_keys(now).await? {
            match key.stage {
                Stage::Next => key.stage = Stage::Active,
                Stage::Active => {
                    key.stage = Stage::Retiring;
                    key.gone_at = Some(now + RETIRING);
                }
                Stage::Retiring if !key.is_published(now) => {
                    writes.push(LedgerWrite::Delete { key: key.record_key(), expect: Expect::Any });
                    continue;
                }
                Stage::Retiring => continue,
            }
            writes.push(ledger::put(key.record_key(), &key, None, Expect::Any));
        }
        for purpose in [Purpose::AccessToken, Purpose::IdToken] {
            let key = SigningKey::generate(purpose, Stage::Next, now);
            writes.push(ledger::put(key.record_key(), &key, None, Expect::Absent));
        }
        self.store.write(writes, now).await?;
        self.reload_keys(now).await
    }

    /// Takes a key away at once: tokens that it signed are worth nothing from now. Where it was the
    /// active one, its successor takes over. Gives `false` when there is no such key.
    ///
    /// # Errors
    /// The store's.
    pub async fn revoke_key(&self, kid: &str, now: Timestamp) -> Result<bool, StoreError> {
        let keys = self.list_keys(now).await?;
        let Some(gone) = keys.iter().find(|key| key.kid == kid) else { return Ok(false) };
        let mut writes = vec![LedgerWrite::Delete { key: gone.record_key(), expect: Expect::Any }];
        if gone.stage == Stage::Active {
            for key in keys.iter().filter(|key| key.stage == Stage::Next && key.purpose == gone.purpose) {
                let successor = SigningKey { stage: Stage::Active, ..key.clone() };
                writes.push(ledger::put(key.record_key(), &successor, None, Expect::Any));
            }
        }
        self.store.write(writes, now).await?;
        self.reload_keys(now).await?;
        Ok(true)
    }
}
