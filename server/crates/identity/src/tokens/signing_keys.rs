//! Rotation of the signing keys (OpenID Connect Core section 10.1.1).
//!
//! A key is `next` (published, not used), `active` (signs tokens), `retiring` (published until the last token
//! that it signed has expired), and is then removed. A rotation changes every key to its next stage. It
//! requires that the next keys have been published for as long as clients may cache the key set. There is one
//! slot for access tokens (ES256), and one for each algorithm that a client can register for ID tokens.
//!
//! A retiring key only verifies signatures: its private part is removed when it stops signing. Keys that were
//! stored in plain before a key-encryption key was configured may have been read by others, so all of them
//! retire immediately.
//!
//! All keys are stored in one ledger record. If several nodes rotate concurrently, the compare-and-set lets
//! only one succeed.

use std::sync::{Arc, RwLock};

use jiff::{SignedDuration, Timestamp};
use store::{Expect, Ledger as _, StoreError};

use crate::audit::{AuditEvent, AuditSink};
use crate::directory::lifetime_settings::longest_lifetimes;
use crate::ledger_keys;
use crate::lifetimes;
use crate::private_key::KeyProvider;
use crate::storage::encryption::{SecretEncryption, SecretStorageError};
use crate::storage::epoch_ledger::EpochLedger;
use crate::tokens::key_ring::{KeyRing, fill_empty_slots};
use crate::tokens::signing_key::{self, KEY_SLOTS, KeyStage, SigningKey};

/// Reasons why keys cannot be rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The next keys were published too recently.
    #[error(
        "the next keys were published at {published}, and clients may cache the previous key set until {ready}; \
         rotate after that, or use --now (some clients will reject tokens until they fetch the key set again)"
    )]
    TooSoon {
        /// Time at which the most recent of the next keys was published.
        published: Timestamp,
        /// Time from which the next keys may sign.
        ready: Timestamp,
    },
    /// The keys cannot be read or written.
    #[error(transparent)]
    Open(#[from] SecretStorageError),
}

impl From<StoreError> for RotateError {
    fn from(error: StoreError) -> Self {
        Self::Open(SecretStorageError::Store(error))
    }
}

/// The signing keys of this server.
pub struct SigningKeys {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) encryption: Arc<SecretEncryption>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) provider: Arc<dyn KeyProvider>,
    pub(crate) ring: RwLock<Arc<KeyRing>>,
    /// Held while the keys are read and installed, so that a read that is delayed does not replace later
    /// keys.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// Held while the keys are generated that a request needs.
    pub(crate) completing: tokio::sync::Mutex<()>,
}

impl SigningKeys {
    pub(crate) fn current_ring(&self) -> Arc<KeyRing> {
        self.ring.read().expect("no thread panics while it holds the lock").clone()
    }

    /// The keys of all slots, which are generated now if they do not exist.
    ///
    /// # Errors
    /// [`SecretStorageError`] if the keys cannot be read or written.
    pub(crate) async fn complete_ring(&self, now: Timestamp) -> Result<Arc<KeyRing>, SecretStorageError> {
        if !self.current_ring().is_complete() {
            // One generation for all requests that wait.
            let _turn = self.completing.lock().await;
            if !self.current_ring().is_complete() {
                Box::pin(self.change_keys(now, |keys| Ok::<_, SecretStorageError>(Some(keys)))).await?;
            }
        }
        Ok(self.current_ring())
    }

    async fn reload_keys(&self, now: Timestamp) -> Result<(), SecretStorageError> {
        let _turn = self.loading.lock().await;
        let ring = KeyRing::open(&self.ledger, &self.encryption, &*self.provider, now).await?;
        *self.ring.write().expect("no thread panics while it holds the lock") = Arc::new(ring);
        Ok(())
    }

    /// Changes the keys by compare-and-set, and retries if another node has changed them first. Writes
    /// nothing if `change` returns `None`.
    async fn change_keys<E: From<SecretStorageError>>(
        &self,
        now: Timestamp,
        change: impl Fn(Vec<SigningKey>) -> Result<Option<Vec<SigningKey>>, E> + Send,
    ) -> Result<bool, E> {
        loop {
            let secret = self
                .encryption
                .read_secret::<Vec<SigningKey>>(&self.ledger, ledger_keys::SIGNING_KEYS, now)
                .await?;
            let expect = secret.as_ref().map_or(Expect::Absent, |record| Expect::Revision(record.revision));
            let Some(mut keys) = change(secret.map(|record| record.value).unwrap_or_default())? else {
                return Ok(false);
            };
            fill_empty_slots(KEY_SLOTS, &mut keys, &*self.provider, now);
            match self
                .ledger
                .write(vec![self.encryption.put_secret(ledger_keys::SIGNING_KEYS, &keys, expect)], now)
                .await
            {
                Ok(_) => {
                    self.reload_keys(now).await?;
                    return Ok(true);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(SecretStorageError::Store(error).into()),
            }
        }
    }

    /// Returns how long a key stays published after it has stopped signing.
    async fn retirement_time(&self, now: Timestamp) -> Result<SignedDuration, StoreError> {
        Ok(signing_key::retirement_time(longest_lifetimes(&self.ledger, now).await?))
    }

    /// Returns the public keys of all published keys as a JWK Set (RFC 7517).
    ///
    /// # Errors
    /// Returns [`StoreError`] if the keys cannot be read or written.
    pub async fn published_key_set(&self, now: Timestamp) -> Result<serde_json::Value, StoreError> {
        let ring = self.complete_ring(now).await?;
        let keys: Vec<_> =
            ring.keys.iter().filter(|l| l.key.is_published(now)).map(|l| l.public.clone()).collect();
        Ok(serde_json::json!({ "keys": keys }))
    }

    /// Returns all keys. Callers cannot access the private parts.
    ///
    /// # Errors
    /// Returns [`SecretStorageError`] if the keys cannot be read or written.
    pub async fn list_keys(&self, now: Timestamp) -> Result<Vec<SigningKey>, SecretStorageError> {
        self.complete_ring(now).await?;
        let secret = self
            .encryption
            .read_secret::<Vec<SigningKey>>(&self.ledger, ledger_keys::SIGNING_KEYS, now)
            .await?;
        Ok(secret.map(|record| record.value).unwrap_or_default())
    }

    /// Changes every key to its next stage: next keys become active, active keys retire, and new next keys
    /// are generated and published. Expired keys are removed.
    ///
    /// # Errors
    /// Returns [`RotateError::TooSoon`] if the next keys have been published for less than
    /// [`lifetimes::PUBLISHED_KEY_SET`] and `at_once` is `false`.
    pub async fn rotate_keys(&self, at_once: bool, now: Timestamp) -> Result<(), RotateError> {
        let retirement = self.retirement_time(now).await?;
        self.change_keys(now, |keys| {
            check_published(&keys, at_once, now)?;
            Ok::<_, RotateError>(Some(advance_keys(keys, retirement, now)))
        })
        .await?;
        self.audit.record(AuditEvent::KeysRotated);
        Ok(())
    }

    /// Maintains the keys of a running server: removes expired keys, rotates if the active keys have signed
    /// for the interval `every`, and loads changes of other nodes. Returns `true` if the keys were rotated.
    ///
    /// # Errors
    /// Returns [`SecretStorageError`] if the keys cannot be read or written.
    pub async fn maintain_keys(
        &self,
        every: SignedDuration,
        now: Timestamp,
    ) -> Result<bool, SecretStorageError> {
        let is_due = |keys: &[SigningKey]| {
            let mut since =
                keys.iter().filter_map(|key| key.active_since.filter(|_| key.stage == KeyStage::Active));
            since.any(|since| now >= since + every) && check_published(keys, false, now).is_ok()
        };
        let retirement = self.retirement_time(now).await?;
        let rotated = self
            .change_keys(now, |keys| {
                Ok::<_, SecretStorageError>(is_due(&keys).then(|| advance_keys(keys, retirement, now)))
            })
            .await?;
        if rotated {
            self.audit.record(AuditEvent::KeysRotated);
            return Ok(true);
        }
        let remove_expired = |keys: Vec<SigningKey>| {
            let remaining: Vec<_> = keys.iter().filter(|key| key.is_published(now)).cloned().collect();
            Ok::<_, SecretStorageError>((remaining.len() < keys.len()).then_some(remaining))
        };
        if !self.change_keys(now, remove_expired).await? {
            self.load_changes(now).await?;
        }
        Ok(false)
    }

    /// Loads the keys if another node has changed them.
    ///
    /// # Errors
    /// [`SecretStorageError`] if the keys cannot be read.
    pub(crate) async fn load_changes(&self, now: Timestamp) -> Result<(), SecretStorageError> {
        let revision = self.ledger.get(ledger_keys::SIGNING_KEYS, now).await?.map(|record| record.revision);
        if revision != Some(self.current_ring().revision) {
            self.reload_keys(now).await?;
        }
        Ok(())
    }

    /// Removes a key, which invalidates all tokens that it has signed. If the key was active, the next key of
    /// its slot becomes active. Returns `false` if there is no such key.
    ///
    /// # Errors
    /// Returns [`SecretStorageError`] if the keys cannot be read or written.
    pub async fn revoke_key(&self, kid: &str, now: Timestamp) -> Result<bool, SecretStorageError> {
        let retirement = self.retirement_time(now).await?;
        let revoke = |mut keys: Vec<SigningKey>| {
            let Some(index) = keys.iter().position(|key| key.kid == kid) else {
                return Ok::<_, SecretStorageError>(None);
            };
            let removed = keys.remove(index);
            if removed.stage == KeyStage::Active {
                for key in
                    keys.iter_mut().filter(|key| key.slot() == removed.slot() && key.stage == KeyStage::Next)
                {
                    key.advance_stage(retirement, now);
                }
            }
            Ok(Some(keys))
        };
        let revoked = self.change_keys(now, revoke).await?;
        if revoked {
            self.audit.record(AuditEvent::KeyRevoked { kid: kid.to_owned() });
        }
        Ok(revoked)
    }
}

fn advance_keys(mut keys: Vec<SigningKey>, retirement: SignedDuration, now: Timestamp) -> Vec<SigningKey> {
    keys.retain_mut(|key| key.advance_stage(retirement, now));
    keys
}

/// Checks that clients have had enough time to fetch all next keys, unless `at_once` is `true`.
fn check_published(keys: &[SigningKey], at_once: bool, now: Timestamp) -> Result<(), RotateError> {
    let youngest = keys.iter().filter(|key| key.stage == KeyStage::Next).map(|key| key.created).max();
    match youngest {
        Some(published) if !at_once && now < published + lifetimes::PUBLISHED_KEY_SET => {
            Err(RotateError::TooSoon { published, ready: published + lifetimes::PUBLISHED_KEY_SET })
        }
        _ => Ok(()),
    }
}
