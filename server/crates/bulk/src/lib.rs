//! Bulk Data export (Bulk Data Access 2.0.0 and 3.0.0), without HTTP.
//!
//! A kick-off request is checked completely before a job is created. A job is a record in the ledger: the
//! sequence number of its snapshot, the request, and the files written so far. The snapshot determines the
//! files: types in alphabetical order, resources in the order of the store, each file up to a maximum size,
//! then the deleted resources. After a crash, a worker resumes after the last synced file and writes the same
//! bytes. A worker holds a lease, and every update of the record is a compare-and-set.
//!
//! | module | contents |
//! |---|---|
//! | [`group`] | members of a Group at a moment |
//! | [`files`] | files: writing, formats, gzip, reading in pieces |
//! | [`request`] | the kick-off request and its parameters, checked |
//! | [`job`] | the record of a job and its states |
//! | `plan` | the resources that a job exports |
//! | `read` | reads them from the store in a fixed order |
//! | `write` | runs a job: writes the files and records the progress |
//! | [`serve`] | [`Bulk`]: start, poll, delete, download; export into a folder |
//! | `abort_on_drop` | spawned tasks |
//!
//! Each module uses only modules above it in this table.

mod abort_on_drop;
pub mod files;
pub mod group;
pub mod job;
mod plan;
mod read;
pub mod request;
pub mod serve;
mod write;

pub use files::bucket_requests::BucketRequests;
pub use files::file_location::{FileLocation, ObjectBucket};
pub use files::file_stream::FileStream;
pub use files::format::Format;
pub use group::{CurrentMembers, GroupError};
pub use job::{JobRequestError, JobStatus};
pub use plan::restores::record_restore;
pub use request::kick_off::{ExportLevel, KickOff, KickOffError, KickOffMethod, TypeAccess};
pub use request::parameter_table::{ExportParameter, ExportParameterRow};
pub use request::parameters::{MAX_PATIENTS, MAX_TYPE_FILTERS};
pub use serve::address::{AddressMac, AddressSignature, AddressSigning};
pub use serve::download::{ContentEncoding, ExportFile, FileError};
pub use serve::service::kick_off::{MAX_CLIENT_EXPORTS, MAX_EXPORTS};
pub use serve::service::{Bulk, BulkClock, BulkOptions, InFlight, OpenExport};
pub use write::worker::CompletionObserver;

use serde::{Deserialize, Serialize};

/// The list of the manifest in which an increment reports the resources that a client must remove although
/// they are not deleted: those of Patients who have left the Group, those that now belong to another Patient,
/// and those that no longer match `_typeFilter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupLeavers {
    /// An informational OperationOutcome under `error` names them.
    #[default]
    Outcome,
    /// They are listed under `deleted`.
    Deleted,
}

/// The version of the guide that the server follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GuideVersion {
    /// Bulk Data Access 2.0.0 (STU2).
    #[default]
    #[serde(rename = "2.0.0")]
    V2,
    /// Bulk Data Access 3.0.0 (STU3): manifests with pages.
    #[serde(rename = "3.0.0")]
    V3,
}
