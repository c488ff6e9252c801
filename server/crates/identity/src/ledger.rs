//! Typed records on the ledger: JSON values under keys `family/id`.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use store::{Expect, Ledger, LedgerWrite, Store, StoreError};

/// A record as it was read, with the revision that a compare-and-set needs.
pub(crate) struct Stored<T> {
    pub value: T,
    pub revision: u64,
}

pub(crate) async fn get<T: DeserializeOwned>(
    store: &Store,
    key: &str,
    now: Timestamp,
) -> Result<Option<Stored<T>>, StoreError> {
    let Some(record) = store.get(key, now).await? else { return Ok(None) };
    Ok(Some(Stored { value: decode(key, &record.value)?, revision: record.revision }))
}

pub(crate) async fn all<T: DeserializeOwned>(
    store: &Store,
    prefix: &str,
    now: Timestamp,
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.scan(prefix, after.as_deref(), 256, now).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = Some(last.clone());
        for (key, record) in &page {
            found.push(decode(key, &record.value)?);
        }
    }
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })
}

pub(crate) fn put(
    key: String,
    value: &impl Serialize,
    expires: Option<Timestamp>,
    expect: Expect,
) -> LedgerWrite {
    let value = serde_json::to_vec(value).expect("our own records serialise");
    LedgerWrite::Put { key, value: Bytes::from(value), expires, expect }
}

/// SHA-256 in base64url: what is kept of a secret.
pub(crate) fn digest(secret: &str) -> String {
    crate::jose::b64(&Sha256::digest(secret.as_bytes()))
}
