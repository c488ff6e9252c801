//! Trefoil's storage: two ports and their engines. No FHIR and no rules of any domain live here.
//!
//! | module | what lives there |
//! |---|---|
//! | [`ports`] | the traits [`Ledger`] (small records) and [`Versions`] (resource bytes by sequence) |
//! | [`types`] | what goes in and out of them |
//! | [`error`] | [`StoreError`] |
//! | `plan` | one rule book for every engine: checks conditions, gives versions, revisions and times |
//! | [`space`] | free space on a disk, and its reserve |
//! | [`memory`] | the engine for tests and trials: nothing outlives the process |
//! | [`file`](mod@file) | the engine on a local folder: durable, one process |
//!
//! [`Store`] is the handle that the domains hold; it is cheap to clone. What must happen once is a
//! compare-and-set ([`Expect`], [`ExpectVersion`]); no lock is held across calls.
//!
//! ```
//! use jiff::Timestamp;
//! use trefoil_store::{Expect, Ledger, LedgerWrite, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), trefoil_store::StoreError> {
//! let store = Store::memory();
//! let now = Timestamp::UNIX_EPOCH;
//! store.write(vec![LedgerWrite::put("code/1", "live", Expect::Absent)], now).await?;
//! let record = store.get("code/1", now).await?.expect("it was just written");
//! // The revision that was read is the condition: a code is spent once.
//! let spend = LedgerWrite::put("code/1", "spent", Expect::Revision(record.revision));
//! store.write(vec![spend.clone()], now).await?;
//! assert!(store.write(vec![spend], now).await.is_err());
//! # Ok(())
//! # }
//! ```

pub mod error;
pub mod file;
pub mod memory;
mod page;
mod plan;
pub mod ports;
pub mod space;
mod store;
pub mod types;

pub use error::StoreError;
pub use file::FileOptions;
pub use ports::{Ledger, Versions};
pub use store::{Store, WriteGate};
pub use types::{
    Change, Commit, Draft, Effect, Expect, ExpectVersion, LedgerWrite, Limit, Lines, Mark, Page, Record,
    ResourceKey, Scan, Seen, Seq, Snapshot, Version, VersionWrite, Whole, Written,
};
