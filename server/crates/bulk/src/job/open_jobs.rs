//! The list of open jobs: one empty ledger record for each, under `bulk/open/{job}`.
//!
//! A job is open from its kick-off until it has ended and the files that its manifest does not list are removed. A
//! deleted job is open until all its files are removed. Nodes look here for the work of a node that has stopped, because
//! completed jobs are kept for their clients and can be many.

use jiff::Timestamp;
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

const PREFIX: &str = "bulk/open/";
/// Number of records in one read.
const PAGE: usize = 1_000;

/// Returns the write that adds a job.
pub(crate) fn add(job: &str) -> LedgerWrite {
    LedgerWrite::put(format!("{PREFIX}{job}"), "", Expect::Any)
}

/// Returns the write that removes a job.
pub(crate) fn remove(job: &str) -> LedgerWrite {
    LedgerWrite::delete(format!("{PREFIX}{job}"), Expect::Any)
}

/// Returns the ids of all open jobs.
pub(crate) async fn ids(store: &Store, now: Timestamp) -> Result<Vec<String>, StoreError> {
    let (mut ids, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = store.scan(PREFIX, after.as_deref(), PAGE, now).await?;
        let Some((last, _)) = page.last() else { return Ok(ids) };
        after = Some(last.clone());
        ids.extend(page.iter().map(|(key, _)| key[PREFIX.len()..].to_owned()));
    }
}
