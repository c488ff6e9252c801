//! The server secret: a random key, one for each store. It authenticates values that clients return to the
//! server, such as continuations and device cookies, and derives the successors of refresh tokens.

use std::sync::{Arc, RwLock};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, StoreError};
use subtle::ConstantTimeEq;

use crate::audit::{AuditEvent, AuditSink};
use crate::ledger_keys;
use crate::random::Random;
use crate::storage::encryption::{SecretEncryption, SecretStorageError};
use crate::storage::epoch_ledger::EpochLedger;

#[derive(Serialize, Deserialize)]
struct ServerSecretRecord {
    secret: String,
}

impl ServerSecretRecord {
    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes())
    }
}

/// Computes message authentication codes with the server secret.
pub struct ServerSecret {
    ledger: Arc<EpochLedger>,
    encryption: Arc<SecretEncryption>,
    random: Arc<dyn Random>,
    audit: Arc<dyn AuditSink>,
    key: RwLock<hmac::Key>,
    /// Held while the secret is read and installed, so that a read that is delayed does not replace a later
    /// secret.
    loading: tokio::sync::Mutex<()>,
}

impl ServerSecret {
    /// Reads the secret. Creates a new one if it is missing or exposed (see [`crate::storage::encryption`]).
    /// If two nodes create a secret concurrently, both use the one that was written first.
    pub(crate) async fn open(
        ledger: Arc<EpochLedger>,
        encryption: Arc<SecretEncryption>,
        random: Arc<dyn Random>,
        audit: Arc<dyn AuditSink>,
        now: Timestamp,
    ) -> Result<Self, SecretStorageError> {
        let key = read_or_create(&ledger, &encryption, &*random, now).await?;
        Ok(Self {
            ledger,
            encryption,
            random,
            audit,
            key: RwLock::new(key),
            loading: tokio::sync::Mutex::default(),
        })
    }

    /// Loads the secret, which another node may have replaced.
    ///
    /// # Errors
    /// [`SecretStorageError`] if the secret cannot be read.
    pub(crate) async fn reload(&self, now: Timestamp) -> Result<(), SecretStorageError> {
        let _turn = self.loading.lock().await;
        let key = read_or_create(&self.ledger, &self.encryption, &*self.random, now).await?;
        *self.key.write().expect("no thread panics while it holds the lock") = key;
        Ok(())
    }

    /// Replaces the secret. All values authenticated with the old secret become invalid: continuations of
    /// sign-ins, device cookies, user codes of devices, search cursors, and unused successors of refresh
    /// tokens.
    ///
    /// # Errors
    /// Returns [`SecretStorageError`] if the write fails.
    pub async fn rotate(&self, now: Timestamp) -> Result<(), SecretStorageError> {
        let record = ServerSecretRecord { secret: self.random.secret() };
        self.ledger
            .write(vec![self.encryption.put_secret(ledger_keys::SERVER_SECRET, &record, Expect::Any)], now)
            .await?;
        // If two rotations are simultaneous, the later one counts.
        self.reload(now).await?;
        self.audit.record(AuditEvent::KeysRotated);
        Ok(())
    }

    /// Returns the message authentication code of a text for one purpose: HMAC-SHA256 in base64url. The code
    /// is not valid for any other purpose.
    pub fn mac(&self, purpose: &str, text: &str) -> String {
        let key = self.key.read().expect("no thread panics while it holds the lock");
        let mut context = hmac::Context::with_key(&key);
        context.update(purpose.as_bytes());
        // A purpose contains no zero byte, so two different pairs of purpose and text never have the same
        // input.
        context.update(&[0]);
        context.update(text.as_bytes());
        URL_SAFE_NO_PAD.encode(context.sign())
    }

    /// Returns `true` if `mac` is the message authentication code of the text. The comparison takes constant
    /// time.
    pub fn verify_mac(&self, purpose: &str, text: &str, mac: &str) -> bool {
        self.mac(purpose, text).as_bytes().ct_eq(mac.as_bytes()).into()
    }
}

async fn read_or_create(
    ledger: &EpochLedger,
    encryption: &SecretEncryption,
    random: &dyn Random,
    now: Timestamp,
) -> Result<hmac::Key, SecretStorageError> {
    loop {
        let expect = match encryption
            .read_secret::<ServerSecretRecord>(ledger, ledger_keys::SERVER_SECRET, now)
            .await?
        {
            Some(secret) if !secret.exposed => return Ok(secret.value.key()),
            Some(secret) => Expect::Revision(secret.revision),
            None => Expect::Absent,
        };
        let record = ServerSecretRecord { secret: random.secret() };
        let write = encryption.put_secret(ledger_keys::SERVER_SECRET, &record, expect);
        match ledger.write(vec![write], now).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
