//! Signing keys and their stages (DESIGN, tokens; OpenID Connect Core 10.1.1).
//!
//! A key is `next` (published, not used), `active` (signs), `retiring` (published until the last token
//! signed by it has expired) and then gone. Rotation moves every key one stage on, and only when the next
//! ones have been published for as long as anybody may keep the key set. There is one slot for access tokens
//! (ES256) and one for each algorithm that a client may choose for its ID tokens.
//!
//! A retiring key only verifies: its private half is dropped the moment it stops signing. A ring that was stored in
//! plain before a key-encryption key was configured may have been read by others, so its keys retire at once.
//!
//! The ring is one record of the ledger, so that every change is one compare-and-set and of several nodes
//! that rotate at once one does.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RsaKeyPair,
};
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use store::{Expect, Ledger, Store, StoreError};

use crate::Identity;
use crate::audit::Event;
use crate::jose::{self, Signer, SigningAlg};
use crate::seal::{OpenError, Seal};
use crate::token::{ACCESS_LIFE, ID_LIFE};

/// How long others may keep the key set, and so how long a key is published before it signs.
pub const KEY_SET_LIFE: SignedDuration = SignedDuration::from_secs(300);
/// How far the clocks of nodes may be apart.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// Where the ring stands.
const RING: &str = "secret/keys";

/// How long a retiring key stays published: the longest life of a token that it signed.
fn retiring() -> SignedDuration {
    ACCESS_LIFE.max(ID_LIFE) + LEEWAY
}

/// What a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Access tokens.
    AccessToken,
    /// ID tokens.
    IdToken,
}

/// What has a key of each stage.
pub const SLOTS: [(Purpose, SigningAlg); 5] = [
    (Purpose::AccessToken, SigningAlg::Es256),
    (Purpose::IdToken, SigningAlg::Rs256),
    (Purpose::IdToken, SigningAlg::Es256),
    (Purpose::IdToken, SigningAlg::Es384),
    (Purpose::IdToken, SigningAlg::EdDsa),
];

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

/// A key of the ring.
#[derive(Clone, Serialize, Deserialize)]
pub struct SigningKey {
    /// Key id: a digest of the public key.
    pub kid: String,
    /// What it signs.
    pub purpose: Purpose,
    /// With which algorithm.
    pub alg: SigningAlg,
    /// Its stage.
    pub stage: Stage,
    /// When it was made and published.
    pub created: Timestamp,
    /// When it began to sign.
    pub active_since: Option<Timestamp>,
    /// When a retiring key is taken away.
    pub gone_at: Option<Timestamp>,
    #[serde(flatten)]
    material: KeyMaterial,
}

/// The stored half of a key.
#[derive(Clone, Serialize, Deserialize)]
enum KeyMaterial {
    /// PKCS#8 in base64url, of a key that signs or will sign.
    #[serde(rename = "pkcs8")]
    Private(String),
    /// A JWK without `kid`, of a retiring key.
    #[serde(rename = "public")]
    Public(serde_json::Value),
}

/// Why keys were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The next keys are too young.
    #[error(
        "the next keys were published at {published}; who fetched the key set before may keep it until {ready}. \
         Rotate then, or at once with --now: some clients will refuse tokens until they fetch the keys again"
    )]
    TooSoon {
        /// When the youngest of them was published.
        published: Timestamp,
        /// From when on they can sign.
        ready: Timestamp,
    },
    /// The record cannot be read, or the store's.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<StoreError> for RotateError {
    fn from(error: StoreError) -> Self {
        Self::Open(OpenError::Store(error))
    }
}

impl SigningKey {
    fn generate((purpose, alg): (Purpose, SigningAlg), stage: Stage, now: Timestamp) -> Self {
        let made = "the library makes keys and encodes them";
        let ec = |curve| EcdsaKeyPair::generate(curve).and_then(|key| key.to_pkcs8v1()).expect(made);
        let pkcs8 = match alg {
            SigningAlg::Es256 => ec(&ECDSA_P256_SHA256_FIXED_SIGNING).as_ref().to_vec(),
            SigningAlg::Es384 => ec(&ECDSA_P384_SHA384_FIXED_SIGNING).as_ref().to_vec(),
            SigningAlg::EdDsa => {
                Ed25519KeyPair::generate().and_then(|key| key.to_pkcs8v1()).expect(made).as_ref().to_vec()
            }
            SigningAlg::Rs256 => {
                RsaKeyPair::generate(KeySize::Rsa2048).expect(made).as_der().expect(made).as_ref().to_vec()
            }
        };
        let mut key = Self {
            kid: String::new(),
            purpose,
            alg,
            stage,
            created: now,
            active_since: (stage == Stage::Active).then_some(now),
            gone_at: None,
            material: KeyMaterial::Private(jose::b64(&pkcs8)),
        };
        let public = key.signer().expect("a fresh key reads back").public_jwk().to_string();
        key.kid = jose::b64(&Sha256::digest(public.as_bytes())[..12]);
        key
    }

    fn signer(&self) -> Option<Signer> {
        let KeyMaterial::Private(pkcs8) = &self.material else { return None };
        let pkcs8 = jose::unb64(pkcs8)?;
        Some(match self.alg {
            SigningAlg::Es256 => {
                Signer::Es256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8).ok()?)
            }
            SigningAlg::Es384 => {
                Signer::Es384(EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &pkcs8).ok()?)
            }
            SigningAlg::EdDsa => Signer::EdDsa(Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8).ok()?),
            SigningAlg::Rs256 => Signer::Rs256(RsaKeyPair::from_pkcs8(&pkcs8).ok()?),
        })
    }

    fn is_published(&self, now: Timestamp) -> bool {
        self.gone_at.is_none_or(|at| now < at)
    }

    fn slot(&self) -> (Purpose, SigningAlg) {
        (self.purpose, self.alg)
    }

    /// One stage on; `false` for a key that is gone.
    fn step(&mut self, now: Timestamp) -> bool {
        match self.stage {
            Stage::Next => (self.stage, self.active_since) = (Stage::Active, Some(now)),
            Stage::Active => self.retire(now),
            Stage::Retiring => {}
        }
        self.is_published(now)
    }

    /// Stops signing, and drops the private half.
    fn retire(&mut self, now: Timestamp) {
        self.stage = Stage::Retiring;
        self.gone_at.get_or_insert(now + retiring());
        // A private half that cannot be read is reported when the ring is loaded.
        if let Some(signer) = self.signer() {
            self.material = KeyMaterial::Public(signer.public_jwk());
        }
    }
}

/// A key ready for use.
pub(crate) struct Loaded {
    pub key: SigningKey,
    /// `None` for a retiring key.
    signer: Option<Signer>,
    pub jwk: Jwk,
    public: serde_json::Value,
}

/// All keys that are not gone.
pub(crate) struct KeyRing {
    pub keys: Vec<Loaded>,
    pub revision: u64,
}

/// Fills every slot that lacks an active or a next key. Gives `true` where something was made.
fn fill(keys: &mut Vec<SigningKey>, now: Timestamp) -> bool {
    let before = keys.len();
    for slot in SLOTS {
        for stage in [Stage::Active, Stage::Next] {
            if !keys.iter().any(|key| key.slot() == slot && key.stage == stage) {
                keys.push(SigningKey::generate(slot, stage, now));
            }
        }
    }
    keys.len() > before
}

impl KeyRing {
    /// Reads the keys, and makes those that are missing. Keys that were stored in plain although records are
    /// encrypted now are replaced.
    pub(crate) async fn open(store: &Store, seal: &Seal, now: Timestamp) -> Result<Self, OpenError> {
        loop {
            let stored = seal.get::<Vec<SigningKey>>(store, RING, now).await?;
            let expect = stored.as_ref().map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
            let revision = stored.as_ref().map_or(0, |stored| stored.revision);
            let exposed = stored.as_ref().is_some_and(|stored| stored.exposed);
            let mut keys = stored.map(|stored| stored.value).unwrap_or_default();
            if exposed {
                keys.retain(|key| key.stage != Stage::Next && key.is_published(now));
                keys.iter_mut().for_each(|key| key.retire(now));
            }
            if !fill(&mut keys, now) {
                return Ok(Self { keys: load(keys)?, revision });
            }
            match store.write(vec![seal.put(RING, &keys, expect)], now).await {
                // Read again what was written, or what another node was faster to write.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The id of the key that signs now with this algorithm, and its private half.
    pub fn active(&self, purpose: Purpose, alg: SigningAlg) -> (&str, &Signer) {
        self.keys
            .iter()
            .filter(|loaded| loaded.key.slot() == (purpose, alg) && loaded.key.stage == Stage::Active)
            .find_map(|loaded| Some((loaded.key.kid.as_str(), loaded.signer.as_ref()?)))
            .expect("a ring is opened with an active key for each slot")
    }

    /// The published key of this id, with the algorithm that it signs with.
    pub fn published(&self, kid: &str, now: Timestamp) -> Option<(&Loaded, Algorithm)> {
        let loaded = self.keys.iter().find(|loaded| loaded.key.kid == kid && loaded.key.is_published(now))?;
        Some((loaded, loaded.key.alg.jose()))
    }
}

fn load(keys: Vec<SigningKey>) -> Result<Vec<Loaded>, StoreError> {
    let load = |key: SigningKey| {
        let broken = || StoreError::Corrupt { what: format!("{RING}: the key {} cannot be read", key.kid) };
        let (signer, mut public) = match &key.material {
            KeyMaterial::Private(_) => {
                let signer = key.signer().ok_or_else(broken)?;
                let public = signer.public_jwk();
                (Some(signer), public)
            }
            KeyMaterial::Public(public) if key.stage == Stage::Retiring => (None, public.clone()),
            KeyMaterial::Public(_) => return Err(broken()),
        };
        public["kid"] = key.kid.as_str().into();
        public["use"] = "sig".into();
        public["alg"] = key.alg.name().into();
        let jwk = jose::jwk(&public).ok_or_else(broken)?;
        Ok(Loaded { signer, jwk, public, key })
    };
    keys.into_iter().map(load).collect()
}

impl Identity {
    pub(crate) fn ring(&self) -> Arc<KeyRing> {
        self.keys.read().expect("no thread panics while it holds the ring").clone()
    }

    async fn reload_keys(&self, now: Timestamp) -> Result<(), OpenError> {
        let ring = KeyRing::open(&self.store, &self.seal, now).await?;
        *self.keys.write().expect("no thread panics while it holds the ring") = Arc::new(ring);
        self.verified.clear();
        Ok(())
    }

    /// Changes the ring in one compare-and-set, tried again when another node was faster. The change gives
    /// `None` to leave all as it is.
    async fn change_keys<E: From<OpenError>>(
        &self,
        now: Timestamp,
        change: impl Fn(Vec<SigningKey>) -> Result<Option<Vec<SigningKey>>, E> + Send,
    ) -> Result<bool, E> {
        loop {
            let stored = self.seal.get::<Vec<SigningKey>>(&self.store, RING, now).await?;
            let expect = stored.as_ref().map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
            let Some(mut keys) = change(stored.map(|stored| stored.value).unwrap_or_default())? else {
                return Ok(false);
            };
            fill(&mut keys, now);
            match self.store.write(vec![self.seal.put(RING, &keys, expect)], now).await {
                Ok(_) => {
                    self.reload_keys(now).await?;
                    return Ok(true);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(OpenError::Store(error).into()),
            }
        }
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
    pub async fn list_keys(&self, now: Timestamp) -> Result<Vec<SigningKey>, OpenError> {
        let stored = self.seal.get::<Vec<SigningKey>>(&self.store, RING, now).await?;
        Ok(stored.map(|stored| stored.value).unwrap_or_default())
    }

    /// Moves every key one stage on: `next` signs from now, `active` retires, fresh `next` keys are
    /// published. Gone keys are removed.
    ///
    /// # Errors
    /// [`RotateError::TooSoon`] where the next keys were not published for [`KEY_SET_LIFE`], unless it is
    /// to be done `at_once`; the store's.
    pub async fn rotate_keys(&self, at_once: bool, now: Timestamp) -> Result<(), RotateError> {
        self.change_keys(now, |keys| {
            check_published(&keys, at_once, now)?;
            Ok::<_, RotateError>(Some(stepped(keys, now)))
        })
        .await?;
        self.record(Event::KeysRotated);
        Ok(())
    }

    /// What a running server does every now and then: takes gone keys away, rotates when the active ones have
    /// signed for `every`, and takes over what another node did. Gives `true` when it rotated.
    ///
    /// # Errors
    /// The store's.
    pub async fn tend_keys(&self, every: SignedDuration, now: Timestamp) -> Result<bool, OpenError> {
        let is_due = |keys: &[SigningKey]| {
            let mut since =
                keys.iter().filter_map(|key| key.active_since.filter(|_| key.stage == Stage::Active));
            since.any(|since| now >= since + every) && check_published(keys, false, now).is_ok()
        };
        let rotated = self
            .change_keys(now, |keys| Ok::<_, OpenError>(is_due(&keys).then(|| stepped(keys, now))))
            .await?;
        if rotated {
            self.record(Event::KeysRotated);
            return Ok(true);
        }
        let swept = |keys: Vec<SigningKey>| {
            let left: Vec<_> = keys.iter().filter(|key| key.is_published(now)).cloned().collect();
            Ok::<_, OpenError>((left.len() < keys.len()).then_some(left))
        };
        if !self.change_keys(now, swept).await? {
            let revision = self.store.get(RING, now).await?.map(|record| record.revision);
            if revision != Some(self.ring().revision) {
                self.reload_keys(now).await?;
            }
        }
        Ok(false)
    }

    /// Takes a key away at once: tokens that it signed are worth nothing from now. Where it was the
    /// active one, its successor takes over. Gives `false` when there is no such key.
    ///
    /// # Errors
    /// The store's.
    pub async fn revoke_key(&self, kid: &str, now: Timestamp) -> Result<bool, OpenError> {
        let revoke = |mut keys: Vec<SigningKey>| {
            let Some(at) = keys.iter().position(|key| key.kid == kid) else {
                return Ok::<_, OpenError>(None);
            };
            let gone = keys.remove(at);
            if gone.stage == Stage::Active {
                for key in keys.iter_mut().filter(|key| key.slot() == gone.slot() && key.stage == Stage::Next)
                {
                    key.step(now);
                }
            }
            Ok(Some(keys))
        };
        let revoked = self.change_keys(now, revoke).await?;
        if revoked {
            self.record(Event::KeyRevoked { kid: kid.to_owned() });
        }
        Ok(revoked)
    }
}

fn stepped(mut keys: Vec<SigningKey>, now: Timestamp) -> Vec<SigningKey> {
    keys.retain_mut(|key| key.step(now));
    keys
}

/// Have all next keys been published for long enough?
fn check_published(keys: &[SigningKey], at_once: bool, now: Timestamp) -> Result<(), RotateError> {
    let youngest = keys.iter().filter(|key| key.stage == Stage::Next).map(|key| key.created).max();
    match youngest {
        Some(published) if !at_once && now < published + KEY_SET_LIFE => {
            Err(RotateError::TooSoon { published, ready: published + KEY_SET_LIFE })
        }
        _ => Ok(()),
    }
}
