//! Stores that must not be used: those that are not complete, and those whose content is elsewhere now.

use anyhow::{Result, bail};
use backup::{Unfinished, unfinished};
use jiff::Timestamp;
use store::Store;

/// Checks that a store can be used.
///
/// # Errors
/// An error with the reason and the remedy if the store is incomplete or was moved.
pub async fn check_usable(store: &Store, now: Timestamp) -> Result<()> {
    match unfinished(store, now).await? {
        None => Ok(()),
        Some(Unfinished::Incomplete { from }) => bail!(
            "the store contains only a part of {from}, because its transfer did not end; remove the store, and restore or \
             copy again"
        ),
        Some(Unfinished::Moved { to }) => bail!(
            "the store was moved to {to}; use that one, or run `trefoil serve --use-moved-store` once to use this one \
             again, without what was written there"
        ),
    }
}
