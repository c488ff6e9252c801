//! The key ring: all signing keys, stored in one ledger record that is encrypted at rest.

use jiff::Timestamp;
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use store::{Expect, StoreError};

use crate::directory::lifetime_settings::longest_lifetimes;
use crate::jose::{self, SigningAlg};
use crate::ledger_keys;
use crate::private_key::{KeyProvider, SigningKeyPair};
use crate::storage::encryption::{SecretEncryption, SecretStorageError};
use crate::storage::epoch_ledger::EpochLedger;
use crate::tokens::signing_key::{self, KEY_SLOTS, KeyMaterial, KeyPurpose, KeySlot, KeyStage, SigningKey};

/// A signing key, decoded for use.
pub(crate) struct LoadedKey {
    pub key: SigningKey,
    /// Private key. `None` for a retiring key, which only verifies.
    signer: Option<SigningKeyPair>,
    pub jwk: Jwk,
    pub(super) public: serde_json::Value,
}

/// All signing keys: next, active and retiring.
pub(crate) struct KeyRing {
    pub keys: Vec<LoadedKey>,
    pub revision: u64,
}

/// Generates a key for each of these slots without an active or a next key. Returns `true` if a key was
/// generated.
pub(super) fn fill_empty_slots(
    slots: impl IntoIterator<Item = KeySlot>,
    keys: &mut Vec<SigningKey>,
    provider: &dyn KeyProvider,
    now: Timestamp,
) -> bool {
    let before = keys.len();
    for slot in slots {
        for stage in [KeyStage::Active, KeyStage::Next] {
            if !keys.iter().any(|key| key.slot() == slot && key.stage == stage) {
                keys.push(SigningKey::generate(provider, slot, stage, now));
            }
        }
    }
    keys.len() > before
}

impl KeyRing {
    /// Reads the keys and generates the missing ones, except those with RSA (see [`KeyRing::is_complete`]).
    /// Retires all keys of an exposed record (see [`crate::storage::encryption`]).
    pub(crate) async fn open(
        ledger: &EpochLedger,
        encryption: &SecretEncryption,
        provider: &dyn KeyProvider,
        now: Timestamp,
    ) -> Result<Self, SecretStorageError> {
        loop {
            let secret =
                encryption.read_secret::<Vec<SigningKey>>(ledger, ledger_keys::SIGNING_KEYS, now).await?;
            let expect = secret.as_ref().map_or(Expect::Absent, |record| Expect::Revision(record.revision));
            let revision = secret.as_ref().map_or(0, |record| record.revision);
            let exposed = secret.as_ref().is_some_and(|record| record.exposed);
            let mut keys = secret.map(|record| record.value).unwrap_or_default();
            if exposed {
                keys.retain(|key| key.stage != KeyStage::Next && key.is_published(now));
                let retirement = signing_key::retirement_time(longest_lifetimes(ledger, now).await?);
                keys.iter_mut().for_each(|key| key.retire(retirement, now));
            }
            let at_once = KEY_SLOTS.into_iter().filter(|(_, alg)| *alg != SigningAlg::Rs256);
            if !fill_empty_slots(at_once, &mut keys, provider, now) {
                return Ok(Self { keys: load_keys(keys, provider)?, revision });
            }
            match ledger
                .write(vec![encryption.put_secret(ledger_keys::SIGNING_KEYS, &keys, expect)], now)
                .await
            {
                // Read the record again: this node or a concurrent one has written it.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether each slot has an active key. Those with RSA are generated when they are first needed,
    /// because that takes as long as everything else at the start of a server.
    pub fn is_complete(&self) -> bool {
        KEY_SLOTS.iter().all(|slot| {
            let in_slot = |loaded: &&LoadedKey| loaded.key.slot() == *slot;
            self.keys.iter().filter(in_slot).any(|loaded| loaded.key.stage == KeyStage::Active)
        })
    }

    /// Returns the key id and the private key that currently sign with this algorithm. If that is RSA, the
    /// ring must be complete.
    pub fn active_key_pair(&self, purpose: KeyPurpose, alg: SigningAlg) -> (&str, &SigningKeyPair) {
        self.keys
            .iter()
            .filter(|loaded| loaded.key.slot() == (purpose, alg) && loaded.key.stage == KeyStage::Active)
            .find_map(|loaded| Some((loaded.key.kid.as_str(), loaded.signer.as_ref()?)))
            .expect("`fill_empty_slots` has generated an active key for each slot")
    }

    /// Returns the published key with this id, and its algorithm.
    pub fn published_key(&self, kid: &str, now: Timestamp) -> Option<(&LoadedKey, Algorithm)> {
        let loaded = self.keys.iter().find(|loaded| loaded.key.kid == kid && loaded.key.is_published(now))?;
        Some((loaded, loaded.key.alg.jws_algorithm()))
    }
}

fn load_keys(keys: Vec<SigningKey>, provider: &dyn KeyProvider) -> Result<Vec<LoadedKey>, StoreError> {
    let load_key = |key: SigningKey| {
        let unreadable = || StoreError::Corrupt {
            what: format!("{}: the key {} cannot be decoded", ledger_keys::SIGNING_KEYS, key.kid),
        };
        let (signer, mut public) = match &key.material {
            KeyMaterial::Private(_) => {
                let signer = key.signer(provider).ok_or_else(unreadable)?;
                let public = signer.key.public_jwk();
                (Some(signer), public)
            }
            KeyMaterial::Public(public) if key.stage == KeyStage::Retiring => (None, public.clone()),
            KeyMaterial::Public(_) => return Err(unreadable()),
        };
        public["kid"] = key.kid.as_str().into();
        public["use"] = "sig".into();
        public["alg"] = key.alg.name().into();
        let jwk = jose::parse_jwk(&public).ok_or_else(unreadable)?;
        Ok(LoadedKey { signer, jwk, public, key })
    };
    keys.into_iter().map(load_key).collect()
}
