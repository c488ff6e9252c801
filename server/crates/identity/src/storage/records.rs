//! Typed records in the ledger, stored as JSON.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use store::{Expect, LedgerWrite, StoreError};

/// A record, with the revision that a compare-and-set expects.
pub(crate) struct LedgerEntry<T> {
    pub value: T,
    pub revision: u64,
}

pub(crate) fn decode_record<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })
}

pub(crate) fn put_record(
    key: String,
    value: &impl Serialize,
    expires: Option<Timestamp>,
    expect: Expect,
) -> LedgerWrite {
    let value = serde_json::to_vec(value).expect("a record has string keys only, so it serializes to JSON");
    LedgerWrite::Put { key, value: Bytes::from(value), expires, expect }
}
