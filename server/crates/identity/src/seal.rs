//! Secrets at rest: what stands under `secret/` in the ledger is sealed when a key-encryption key is
//! configured (AES-256-GCM, the record's key as associated data).
//!
//! When the identity leaf is opened, records that are encrypted with the previous key are encrypted with the current
//! one, or stored in plain if there is only a previous key. A record that is stored in plain although there is a
//! current key is *exposed*: others may have read it from the disk or a backup, so `keys` and `secret` replace its
//! content. The server refuses to start if no given key decrypts a record.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use crate::jose::{b64, unb64};
/// Where sealed records stand.
const PREFIX: &str = "secret/";

/// Why a sealed record cannot be read, or a key cannot seal.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The text is no key.
    #[error("a key-encryption key is 32 bytes in base64, as `openssl rand -base64 32` makes one")]
    BadKey,
    /// A record is sealed and there is no key.
    #[error(
        "the record '{0}' is encrypted; [identity] key_encryption_key_file or key_encryption_key_env must name its key"
    )]
    Missing(String),
    /// A record is sealed under another key.
    #[error(
        "the record '{0}' is encrypted with another key than the one that is configured; give that one as \
         previous_key_encryption_key_file"
    )]
    WrongKey(String),
    /// A record was changed on the disk.
    #[error("the encrypted record '{0}' was changed or damaged; restore it from a backup")]
    Damaged(String),
}

/// Why the identity leaf cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A matter of configuration.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A key-encryption key.
pub struct SealKey {
    /// Tells keys apart: the head of a digest.
    id: String,
    key: RandomizedNonceKey,
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealKey({})", self.id)
    }
}

impl SealKey {
    /// Reads 32 bytes of base64.
    ///
    /// # Errors
    /// [`SealError::BadKey`].
    pub fn from_base64(text: &str) -> Result<Self, SealError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| SealError::BadKey)?;
        if bytes.len() != 32 {
            return Err(SealError::BadKey);
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError::BadKey)?;
        let named = Sha256::new().chain_update(b"trefoil key id").chain_update(&bytes).finalize();
        Ok(Self { id: b64(&named[..9]), key })
    }
}

/// A sealed record as it stands in the ledger.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    /// Id of the key.
    sealed: String,
    nonce: String,
    text: String,
}

/// A record that was read, in plain.
pub(crate) struct Unsealed<T> {
    pub value: T,
    pub revision: u64,
    /// Was it stored in plain, although there is a current key?
    pub exposed: bool,
}

/// The keys that seal and open records. Without keys records stay as they are.
#[derive(Debug, Default)]
pub struct Seal {
    /// Seals, and opens.
    pub current: Option<SealKey>,
    /// Only opens: the key before the current one.
    pub previous: Option<SealKey>,
}

impl Seal {
    fn close(&self, key: &str, plain: Vec<u8>) -> Bytes {
        let Some(current) = &self.current else { return plain.into() };
        let mut text = plain;
        let nonce = current
            .key
            .seal_in_place_append_tag(Aad::from(key.as_bytes()), &mut text)
            .expect("the library seals a short text");
        let sealed = Sealed { sealed: current.id.clone(), nonce: b64(nonce.as_ref()), text: b64(&text) };
        serde_json::to_vec(&sealed).expect("our own records serialise").into()
    }

    fn open(&self, key: &str, stored: &[u8]) -> Result<Vec<u8>, SealError> {
        let Ok(sealed) = serde_json::from_slice::<Sealed>(stored) else { return Ok(stored.to_vec()) };
        let mut keys = self.current.iter().chain(&self.previous).peekable();
        if keys.peek().is_none() {
            return Err(SealError::Missing(key.to_owned()));
        }
        let named = keys.find(|known| known.id == sealed.sealed);
        let named = named.ok_or_else(|| SealError::WrongKey(key.to_owned()))?;
        let damaged = || SealError::Damaged(key.to_owned());
        let nonce = unb64(&sealed.nonce).and_then(|nonce| <[u8; NONCE_LEN]>::try_from(nonce).ok());
        let mut text = unb64(&sealed.text).ok_or_else(damaged)?;
        let nonce = Nonce::assume_unique_for_key(nonce.ok_or_else(damaged)?);
        let plain = named.key.open_in_place(nonce, Aad::from(key.as_bytes()), &mut text);
        plain.map(|plain| plain.to_vec()).map_err(|_| damaged())
    }

    /// Is this record as the current key (or none) would have it?
    fn is_current(&self, stored: &[u8]) -> bool {
        let by = serde_json::from_slice::<Sealed>(stored).ok().map(|sealed| sealed.sealed);
        by.as_ref() == self.current.as_ref().map(|key| &key.id)
    }

    fn is_exposed(&self, stored: &[u8]) -> bool {
        self.current.is_some() && serde_json::from_slice::<Sealed>(stored).is_err()
    }

    /// Reads a record.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        store: &Store,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Unsealed<T>>, OpenError> {
        let Some(record) = store.get(key, now).await? else { return Ok(None) };
        let plain = self.open(key, &record.value)?;
        let value = serde_json::from_slice(&plain)
            .map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })?;
        let exposed = self.is_exposed(&record.value);
        Ok(Some(Unsealed { value, revision: record.revision, exposed }))
    }

    /// The write of a record.
    pub(crate) fn put(&self, key: &str, value: &impl Serialize, expect: Expect) -> LedgerWrite {
        let plain = serde_json::to_vec(value).expect("our own records serialise");
        LedgerWrite::put(key, self.close(key, plain), expect)
    }

    /// Brings every record under the current key, except exposed ones.
    pub(crate) async fn renew(&self, store: &Store, now: Timestamp) -> Result<(), OpenError> {
        // They are a handful; one page holds them.
        for (key, record) in store.scan(PREFIX, None, 256, now).await? {
            let plain = self.open(&key, &record.value)?;
            if self.is_current(&record.value) || self.is_exposed(&record.value) {
                continue;
            }
            let renewed = LedgerWrite::put(&key, self.close(&key, plain), Expect::Revision(record.revision));
            match store.write(vec![renewed], now).await {
                // Another node wrote it meanwhile, with the same keys.
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

    fn key(byte: u8) -> SealKey {
        SealKey::from_base64(&STANDARD.encode([byte; 32])).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_in_its_place_only() {
        let seal = Seal { current: Some(key(1)), previous: None };
        let sealed = seal.close("secret/a", b"{\"x\":1}".to_vec());
        assert!(!String::from_utf8_lossy(&sealed).contains("\"x\""));
        assert_eq!(seal.open("secret/a", &sealed).unwrap(), b"{\"x\":1}");
        assert!(matches!(seal.open("secret/b", &sealed), Err(SealError::Damaged(_))));
        let other = Seal { current: Some(key(2)), previous: None };
        assert!(matches!(other.open("secret/a", &sealed), Err(SealError::WrongKey(_))));
        assert!(matches!(Seal::default().open("secret/a", &sealed), Err(SealError::Missing(_))));
        let turned = Seal { current: Some(key(2)), previous: Some(key(1)) };
        assert_eq!(turned.open("secret/a", &sealed).unwrap(), b"{\"x\":1}");
        assert!(!turned.is_current(&sealed));
        assert!(seal.is_current(&sealed));
    }

    #[test]
    fn only_32_bytes_are_a_key() {
        for bad in ["", "abc", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            assert!(matches!(SealKey::from_base64(bad), Err(SealError::BadKey)), "{bad}");
        }
        assert!(SealKey::from_base64(&format!("{}\n", STANDARD.encode([1; 32]))).is_ok());
    }
}
