//! The part of the database that the decisions of a round depend on, read in advance.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::plan::{PresentState, StoredRecord};
use crate::{IndexRange, ResourceKey, Seq, StoreError, Version};

/// The content that a round has read. Anything that is missing in it does not exist.
#[derive(Default)]
pub(super) struct Prefetched {
    pub versions: HashMap<ResourceKey, Version>,
    /// The conditions on the search index that do not hold.
    pub indexed: Vec<(IndexRange, Seq)>,
    pub records: HashMap<String, StoredRecord>,
}

impl PresentState for Prefetched {
    fn newest(&self, key: &ResourceKey) -> Result<Option<Version>, StoreError> {
        Ok(self.versions.get(key).cloned())
    }

    fn is_indexed_since(&self, range: &IndexRange, since: Seq) -> Result<bool, StoreError> {
        Ok(self.indexed.iter().any(|(key, indexed_seq)| key == range && *indexed_seq == since))
    }

    fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        Ok(self.records.get(key).cloned())
    }

    /// A sweep is a statement of its own, outside of the rounds.
    fn expired(&self, _: i64, _: usize) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

/// The sequence number in the type of the database. All numbers of the database are below [`Seq::LATEST`].
pub(super) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}

/// The time of a column with milliseconds.
pub(super) fn time(ms: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millisecond(ms)
        .map_err(|error| StoreError::Corrupt { what: format!("a time in the database: {error}") })
}

/// The text of a column with bytes.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(bytes)
        .map_err(|error| StoreError::Corrupt { what: format!("a text in the database: {error}") })
}

/// A copy of the text of a column with bytes.
pub(super) fn text(bytes: &[u8]) -> Result<String, StoreError> {
    utf8(bytes).map(str::to_owned)
}
