//! Progress of the downloads of an export, shared by the servers on one database. A ledger record for each
//! job contains the files that all servers have sent, and names the log in which `export_complete` is
//! recorded.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use super::job_log::SentFiles;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct SharedProgress {
    sent: SentFiles,
    /// Id of the log that records the completion of the export.
    completed_by: Option<String>,
}

/// Adds what a server has sent of a job to its record, which then expires at `expires`. Returns what all
/// servers have sent, if the export is complete and the log with this id must record that.
///
/// # Errors
/// [`StoreError`] if the record cannot be read or written. The next call writes the same data.
pub(super) async fn add_sent(
    store: &Store,
    job: &str,
    log: &str,
    sent: &SentFiles,
    expires: Timestamp,
    now: Timestamp,
) -> Result<Option<SentFiles>, StoreError> {
    let key = format!("export-log/{job}");
    loop {
        let record = store.get(&key, now).await?;
        let mut progress: SharedProgress = match &record {
            Some(record) => serde_json::from_slice(&record.value)
                .map_err(|error| StoreError::Corrupt { what: format!("{key}: {error}") })?,
            None => SharedProgress::default(),
        };
        progress.sent.add(sent);
        if progress.completed_by.is_none() && progress.sent.is_complete() {
            progress.completed_by = Some(log.to_owned());
        }
        // The record is written even if it has not changed, so that it outlives each log.
        let expect = record.map_or(Expect::Absent, |record| Expect::Revision(record.revision));
        let value = serde_json::to_vec(&progress).expect("a record has string keys only");
        match store.write(vec![LedgerWrite::put(&key, value, expect).expiring(expires)], now).await {
            Ok(_) => {
                let is_ours = progress.completed_by.as_deref() == Some(log);
                return Ok(is_ours.then_some(progress.sent));
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
