//! Encryption of secrets at rest: records under `secret/` are encrypted with AES-256-GCM if a key-encryption
//! key is configured. The ledger key of the record is the associated data.
//!
//! When the services are opened, records encrypted with the previous key are re-encrypted with the current
//! key, or stored in plain if there is only a previous key. A record is *exposed* if it was stored in plain
//! and a current key is configured now: someone may have read it from the disk or a backup. The signing keys
//! and the server secret therefore replace the content of exposed records. The server refuses to start if no
//! configured key decrypts a record.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use crate::encoding::{decode_base64url, encode_base64url};
use crate::ledger_keys;

/// Reasons why a record cannot be decrypted, or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The text is not a base64 key of 32 bytes.
    #[error("a key-encryption key must be 32 bytes in base64; `openssl rand -base64 32` generates one")]
    BadKey,
    /// The record is encrypted, but no key is configured.
    #[error(
        "the record '{0}' is encrypted, but no key is configured; set [identity] key_encryption_key_file or key_encryption_key_env"
    )]
    Missing(String),
    /// The record is encrypted with another key.
    #[error(
        "the record '{0}' is encrypted with a key that is not configured; set that key as \
         previous_key_encryption_key_file"
    )]
    WrongKey(String),
    /// The encrypted record was modified.
    #[error("the encrypted record '{0}' is corrupt; restore it from a backup")]
    Damaged(String),
}

/// Reasons why secrets cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SecretStorageError {
    /// The configured keys do not decrypt the records.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<SecretStorageError> for StoreError {
    fn from(error: SecretStorageError) -> Self {
        match error {
            SecretStorageError::Store(error) => error,
            SecretStorageError::Encryption(error) => Self::Corrupt { what: error.to_string() },
        }
    }
}

/// A key that encrypts records.
pub struct KeyEncryptionKey {
    /// Id of the key: the first 9 bytes of a digest of it, in base64url.
    id: String,
    key: RandomizedNonceKey,
}

impl std::fmt::Debug for KeyEncryptionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyEncryptionKey({})", self.id)
    }
}

impl KeyEncryptionKey {
    /// Decodes a key of 32 bytes from base64.
    ///
    /// # Errors
    /// Returns [`EncryptionError::BadKey`] if the text is not base64 of 32 bytes.
    pub fn from_base64(text: &str) -> Result<Self, EncryptionError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| EncryptionError::BadKey)?;
        if bytes.len() != 32 {
            return Err(EncryptionError::BadKey);
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| EncryptionError::BadKey)?;
        let digest = Sha256::new().chain_update(b"trefoil key id").chain_update(&bytes).finalize();
        Ok(Self { id: encode_base64url(&digest[..9]), key })
    }
}

/// An encrypted record in the ledger.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncryptedRecord {
    #[serde(rename = "sealed")]
    key_id: String,
    nonce: String,
    text: String,
}

/// A decrypted record, and how it was stored.
pub(crate) struct DecryptedRecord<T> {
    pub value: T,
    pub revision: u64,
    /// `true` if the record was stored in plain and a current key is configured.
    pub exposed: bool,
}

/// The key-encryption keys. Without keys, records are stored in plain.
#[derive(Debug, Default)]
pub struct SecretEncryption {
    /// Key that encrypts and decrypts records.
    pub current: Option<KeyEncryptionKey>,
    /// Key that only decrypts records: the current key before the last change.
    pub previous: Option<KeyEncryptionKey>,
}

impl SecretEncryption {
    /// The ids of the current and of the previous key.
    pub fn key_ids(&self) -> [Option<String>; 2] {
        [&self.current, &self.previous].map(|key| key.as_ref().map(|key| key.id.clone()))
    }

    fn encrypt(&self, key: &str, plain: Vec<u8>) -> Bytes {
        let Some(current) = &self.current else { return plain.into() };
        let mut text = plain;
        let nonce = current
            .key
            .seal_in_place_append_tag(Aad::from(key.as_bytes()), &mut text)
            .expect("AES-GCM encrypts every text of less than 64 GiB");
        let encrypted = EncryptedRecord {
            key_id: current.id.clone(),
            nonce: encode_base64url(nonce.as_ref()),
            text: encode_base64url(&text),
        };
        serde_json::to_vec(&encrypted)
            .expect("a record has string keys only, so it serializes to JSON")
            .into()
    }

    fn decrypt(&self, key: &str, bytes: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let Ok(encrypted) = serde_json::from_slice::<EncryptedRecord>(bytes) else {
            return Ok(bytes.to_vec());
        };
        let mut keys = self.current.iter().chain(&self.previous).peekable();
        if keys.peek().is_none() {
            return Err(EncryptionError::Missing(key.to_owned()));
        }
        let key_result = keys.find(|candidate| candidate.id == encrypted.key_id);
        let key_result = key_result.ok_or_else(|| EncryptionError::WrongKey(key.to_owned()))?;
        let damaged = || EncryptionError::Damaged(key.to_owned());
        let nonce =
            decode_base64url(&encrypted.nonce).and_then(|nonce| <[u8; NONCE_LEN]>::try_from(nonce).ok());
        let mut text = decode_base64url(&encrypted.text).ok_or_else(damaged)?;
        let nonce = Nonce::assume_unique_for_key(nonce.ok_or_else(damaged)?);
        let plain = key_result.key.open_in_place(nonce, Aad::from(key.as_bytes()), &mut text);
        plain.map(|plain| plain.to_vec()).map_err(|_| damaged())
    }

    /// `true` if the record is encrypted with the current key, or stored in plain if there is none.
    fn is_current(&self, bytes: &[u8]) -> bool {
        let by = serde_json::from_slice::<EncryptedRecord>(bytes).ok().map(|encrypted| encrypted.key_id);
        by.as_ref() == self.current.as_ref().map(|key| &key.id)
    }

    fn is_exposed(&self, bytes: &[u8]) -> bool {
        self.current.is_some() && serde_json::from_slice::<EncryptedRecord>(bytes).is_err()
    }

    pub(crate) async fn read_secret<T: DeserializeOwned>(
        &self,
        store: &Store,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<DecryptedRecord<T>>, SecretStorageError> {
        let Some(record) = store.get(key, now).await? else { return Ok(None) };
        let plain = self.decrypt(key, &record.value)?;
        let value = serde_json::from_slice(&plain)
            .map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })?;
        let exposed = self.is_exposed(&record.value);
        Ok(Some(DecryptedRecord { value, revision: record.revision, exposed }))
    }

    /// The ledger write of a record, encrypted with the current key.
    pub(crate) fn put_secret(&self, key: &str, value: &impl Serialize, expect: Expect) -> LedgerWrite {
        let plain =
            serde_json::to_vec(value).expect("a record has string keys only, so it serializes to JSON");
        LedgerWrite::put(key, self.encrypt(key, plain), expect)
    }

    /// Encrypts every record with the current key. Exposed records are skipped, because their content is
    /// replaced later.
    pub(crate) async fn reencrypt_records(
        &self,
        store: &Store,
        now: Timestamp,
    ) -> Result<(), SecretStorageError> {
        // There are only two such records, so one page is enough.
        for (key, record) in store.scan(ledger_keys::SECRETS, None, 256, now).await? {
            let plain = self.decrypt(&key, &record.value)?;
            if self.is_current(&record.value) || self.is_exposed(&record.value) {
                continue;
            }
            let renewed =
                LedgerWrite::put(&key, self.encrypt(&key, plain), Expect::Revision(record.revision));
            match store.write(vec![renewed], now).await {
                // Another node with the same keys has already written the record.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> KeyEncryptionKey {
        KeyEncryptionKey::from_base64(&STANDARD.encode([byte; 32])).unwrap()
    }

    #[test]
    fn a_record_is_decrypted_with_its_key_under_its_ledger_key_only() {
        let encryption = SecretEncryption { current: Some(key(1)), previous: None };
        let encrypted = encryption.encrypt("secret/a", b"{\"x\":1}".to_vec());
        assert!(!String::from_utf8_lossy(&encrypted).contains("\"x\""));
        assert_eq!(encryption.decrypt("secret/a", &encrypted).unwrap(), b"{\"x\":1}");
        assert!(matches!(encryption.decrypt("secret/b", &encrypted), Err(EncryptionError::Damaged(_))));
        let other = SecretEncryption { current: Some(key(2)), previous: None };
        assert!(matches!(other.decrypt("secret/a", &encrypted), Err(EncryptionError::WrongKey(_))));
        assert!(matches!(
            SecretEncryption::default().decrypt("secret/a", &encrypted),
            Err(EncryptionError::Missing(_))
        ));
        let rotated = SecretEncryption { current: Some(key(2)), previous: Some(key(1)) };
        assert_eq!(rotated.decrypt("secret/a", &encrypted).unwrap(), b"{\"x\":1}");
        assert!(!rotated.is_current(&encrypted));
        assert!(encryption.is_current(&encrypted));
    }

    #[test]
    fn a_key_has_32_bytes() {
        for bad in ["", "abc", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            assert!(matches!(KeyEncryptionKey::from_base64(bad), Err(EncryptionError::BadKey)), "{bad}");
        }
        assert!(KeyEncryptionKey::from_base64(&format!("{}\n", STANDARD.encode([1; 32]))).is_ok());
    }
}
