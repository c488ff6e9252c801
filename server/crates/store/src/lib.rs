//! Storage: two ports (traits) and the engines that implement them. It contains no FHIR and no domain rules.
//!
//! | module | contents |
//! |---|---|
//! | [`ports`] | the traits [`Ledger`] (small records) and [`Versions`] (resource bytes by sequence) |
//! | `store` | [`Store`], the handle of one of the engines |
//! | [`types`] | input and output of the ports |
//! | [`error`] | [`StoreError`] |
//! | `plan` | the rules of every engine: checks conditions, assigns versions, revisions and times |
//! | [`blocking`] | work on other threads |
//! | `membership` | the stored form of compartments and source time |
//! | `page` | pages of a scan, filled up to their limit |
//! | [`cpu_budget`] | CPU time of a request, over all threads |
//! | [`folder`] | folders that outlive a power cut |
//! | [`transfer`], [`content`] | the whole content of a store, for backups and copies; reading and replaying it |
//! | [`erasure`], [`erase`] | resources that are erased with all their versions; erasing them |
//! | [`reassignment`], [`reassign`] | other compartments of stored versions; replacing them |
//! | [`closing`] | a store that is closed for writes, because its content moves |
//! | [`space`] | free space on a disk, and its reserve |
//! | [`usage`] | space and connections that a store uses |
//! | [`memory`] | the engine for tests: nothing outlives the process |
//! | [`shared_memory`] | the engine of simulations: several nodes of one process |
//! | [`file`](mod@file) | the engine on a local folder: durable, one process |
//! | [`postgres`] | the engine on a PostgreSQL database: durable, several nodes |
//!
//! [`Store`] is the handle that the domains hold; it is cheap to clone. An operation that must happen once is
//! a compare-and-set ([`Expect`], [`ExpectVersion`]); no lock is held across calls.
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
//! // The write requires the revision that was read, so the code is spent only once.
//! let spend = LedgerWrite::put("code/1", "spent", Expect::Revision(record.revision));
//! store.write(vec![spend.clone()], now).await?;
//! assert!(store.write(vec![spend], now).await.is_err());
//! # Ok(())
//! # }
//! ```

pub mod blocking;
pub mod closing;
pub mod content;
pub mod cpu_budget;
pub mod erase;
pub mod erasure;
pub mod error;
pub mod file;
pub mod folder;
mod membership;
pub mod memory;
mod page;
mod plan;
pub mod ports;
pub mod postgres;
pub mod reassign;
pub mod reassignment;
pub mod shared_memory;
pub mod space;
mod store;
pub mod transfer;
pub mod types;
pub mod usage;

pub use content::LedgerMoment;
pub use cpu_budget::{CpuBudget, CpuBudgetSpent};
pub use erasure::{Compaction, Erasure, ErasureRecord, Histories};
pub use error::StoreError;
pub use file::{FileOptions, FolderFormat};
pub use ports::{Ledger, Versions};
pub use postgres::{
    Announcement, DatabaseLimits, DatabasePassword, DatabaseUrl, NodePresence, TablesVersion,
};
pub use reassignment::Reassignment;
pub use store::{Store, WriteGate};
pub use transfer::{LedgerEntry, ReplayPart, ReplayedVersion, StoreMoment};
pub use types::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, Expect, ExpectVersion, IndexCondition, IndexEntry,
    IndexLookup, IndexRange, IndexTerm, KeyOrder, LedgerRecord, LedgerWrite, LinePage, LineScanRange,
    PageLimit, ResourceDraft, ResourceKey, ScanOptions, ScanPosition, Seq, StoreSnapshot, UpdatedRange,
    Version, VersionHeader, VersionPage, VersionWrite, WriteEffect, WriteResult,
};
pub use usage::{DatabaseUsage, FileUsage, StoreUsage};
