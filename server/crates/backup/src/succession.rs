//! The place of a store after a transfer: a restored store may be a drill, or take the place of the one that
//! was backed up. Until the operator has decided, no backups are made by schedule: those of a drill would be
//! taken for those of the earlier store.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use crate::{BackupError, Manifest};

/// Beginning of the keys of records about backups, which are not those of a restored store.
pub(crate) const RECORDS: &str = "backup/";
/// Key of the record of a restored or copied store.
const SUCCESSION: &str = "backup/succession";

/// Purpose of a restored store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorePurpose {
    /// The operator has not decided.
    #[default]
    Undecided,
    /// The store is a trial, and makes no backups by schedule.
    Drill,
    /// The store takes the place of the earlier ones: their schedule and retention continue.
    Successor,
}

/// The record of a restored or copied store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succession {
    /// Purpose of the store.
    pub purpose: StorePurpose,
    /// The ids of the stores of before, the last one first.
    pub earlier: Vec<String>,
}

impl Succession {
    /// The succession of a store that was restored from a backup.
    pub(crate) fn of_restored(backup: &Manifest, purpose: StorePurpose) -> Self {
        let earlier = [std::slice::from_ref(&backup.store_id), &backup.continues].concat();
        Self { purpose, earlier }
    }

    pub(crate) async fn write(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let value = serde_json::to_vec(self).expect("a succession has string keys only");
        store.write(vec![LedgerWrite::put(SUCCESSION, value, Expect::Any)], now).await.map(drop)
    }

    /// Reads the record of a store; `None` if the store was neither restored nor copied.
    ///
    /// # Errors
    /// The error of the store if the record cannot be read.
    pub async fn read(store: &Store, now: Timestamp) -> Result<Option<Self>, StoreError> {
        let Some(record) = store.get(SUCCESSION, now).await? else { return Ok(None) };
        let wrong = |error| StoreError::Corrupt { what: format!("the record {SUCCESSION}: {error}") };
        serde_json::from_slice(&record.value).map(Some).map_err(wrong)
    }

    /// Records the decision of the operator about a restored store.
    ///
    /// # Errors
    /// Returns [`BackupError::Refused`] if the store was not restored.
    pub async fn decide(store: &Store, purpose: StorePurpose, now: Timestamp) -> Result<(), BackupError> {
        let Some(succession) = Self::read(store, now).await? else {
            let text = "this store was not restored: its backups by schedule are its own";
            return Err(BackupError::Refused(text.to_owned()));
        };
        Ok(Self { purpose, ..succession }.write(store, now).await?)
    }

    /// Makes a copy the successor of its source, unless the source stays in use.
    pub(crate) async fn copy(
        source: &Store,
        target: &Store,
        keeps_source: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // A copy of a drill is one.
        let (purpose, earlier) = match Self::read(source, now).await? {
            Some(Self { purpose, earlier }) => (purpose, earlier),
            None => (StorePurpose::Successor, Vec::new()),
        };
        let purpose = match purpose {
            StorePurpose::Successor if keeps_source => StorePurpose::Undecided,
            purpose => purpose,
        };
        let earlier = [vec![source.id()], earlier].concat();
        Self { purpose, earlier }.write(target, now).await
    }

    /// The earlier stores whose place a store takes.
    pub fn continued(&self) -> &[String] {
        match self.purpose {
            StorePurpose::Successor => &self.earlier,
            StorePurpose::Undecided | StorePurpose::Drill => &[],
        }
    }
}
