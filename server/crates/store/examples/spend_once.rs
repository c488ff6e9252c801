//! Stores a code in a folder and spends it once, although two requests try it at the same time.
//!
//! ```sh
//! cargo run -p trefoil-store --example spend_once
//! ```

use jiff::Timestamp;
use trefoil_store::{Expect, Ledger, LedgerWrite, Store, StoreError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path())?;
    let now = Timestamp::now();
    store.write(vec![LedgerWrite::put("code/7", "live", Expect::Absent)], now).await?;

    let (first, second) = tokio::join!(spend(&store, now), spend(&store, now));
    for (request, result) in [("first", first), ("second", second)] {
        match result {
            Ok(()) => println!("{request} request: spent"),
            Err(error) => println!("{request} request: {error}"),
        }
    }
    Ok(())
}

/// Spends the code, if the record has not changed since it was read.
async fn spend(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    let record =
        store.get("code/7", now).await?.ok_or_else(|| StoreError::Conflict { key: "code/7".to_owned() })?;
    store.write(vec![LedgerWrite::put("code/7", "spent", Expect::Revision(record.revision))], now).await?;
    Ok(())
}
