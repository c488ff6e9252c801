//! The list of open jobs: one empty ledger record for each, under `bulk/open/{job}`.
//!
//! A job is open from its kick-off until it has ended and the files that its manifest does not list are
//! removed. A deleted job is open until all its files are removed. Nodes look here for the work of a node
//! that has stopped, because completed jobs are kept for their clients and can be many.

use jiff::Timestamp;
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

const PREFIX: &str = "bulk/open/";
/// Number of records in one read.
const PAGE: usize = 1_000;

/// The write that adds a job.
pub(crate) fn add(job: &str) -> LedgerWrite {
    LedgerWrite::put(format!("{PREFIX}{job}"), "", Expect::Any)
}

/// The revision of a job's record in the list, if it is open.
pub(crate) async fn revision(store: &Store, job: &str, now: Timestamp) -> Result<Option<u64>, StoreError> {
    Ok(store.get(&format!("{PREFIX}{job}"), now).await?.map(|record| record.revision))
}

/// Removes a job, unless it was added again after its record had this revision.
pub(crate) async fn remove(
    store: &Store,
    job: &str,
    revision: u64,
    now: Timestamp,
) -> Result<(), StoreError> {
    let delete = LedgerWrite::delete(format!("{PREFIX}{job}"), Expect::Revision(revision));
    match store.write(vec![delete], now).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The ids of all open jobs.
pub(crate) async fn ids(store: &Store, now: Timestamp) -> Result<Vec<String>, StoreError> {
    let (mut ids, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = store.scan(PREFIX, after.as_deref(), PAGE, now).await?;
        let Some((last, _)) = page.last() else { return Ok(ids) };
        after = Some(last.clone());
        ids.extend(page.iter().map(|(key, _)| key[PREFIX.len()..].to_owned()));
    }
}
