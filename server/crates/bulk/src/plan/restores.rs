//! Exports and restores: an increment from a time whose writes a restore has lost would leave the client with
//! resources that the server does not have.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use crate::job::{Job, decode};
use crate::request::kick_off::KickOffError;

/// Beginning of the keys of the records; the time of the restore in milliseconds follows.
const PREFIX: &str = "bulk/restored/";
/// Maximum number of restores that are compared, the first ones.
const MAX_RESTORES: usize = 10_000;

/// A restore of the store to an earlier state.
#[derive(Serialize, Deserialize)]
struct Restore {
    /// The time of the last write that the store has.
    moment: Timestamp,
    restored: Timestamp,
}

/// Records that the store was restored, and lacks what was written after a moment.
///
/// # Errors
/// Returns [`StoreError`] if the record cannot be written.
pub async fn record_restore(store: &Store, moment: Timestamp, now: Timestamp) -> Result<(), StoreError> {
    let value = serde_json::to_vec(&Restore { moment, restored: now }).expect("times serialise to JSON");
    let key = format!("{PREFIX}{:020}", now.as_millisecond());
    store.write(vec![LedgerWrite::put(key, value, Expect::Any)], now).await.map(drop)
}

/// Checks that `_since` is not a time whose writes were lost.
pub(crate) async fn check_restores(job: &Job, store: &Store, now: Timestamp) -> Result<(), KickOffError> {
    let Some(since) = job.parameters.since else { return Ok(()) };
    for (key, record) in store.scan(PREFIX, None, MAX_RESTORES, now).await? {
        let Restore { moment, restored }: Restore = decode(&key, &record.value)?;
        if moment < since && since < restored {
            let reason = format!(
                "at {restored} the server was restored to its state of {moment}, so that it lacks what an export of {since} may \
                 contain; export without _since, and replace all earlier files"
            );
            return Err(KickOffError::Parameter { name: "_since".to_owned(), reason });
        }
    }
    Ok(())
}
