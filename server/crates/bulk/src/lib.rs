//! Bulk Data export (Bulk Data Access 2.0.0 and 3.0.0): kick-off, jobs, selection, manifest, NDJSON. No HTTP.
//!
//! A kick-off is checked whole before a job exists. A job is a record in the ledger: the sequence
//! number of its snapshot, what was asked for, and what is done. The files follow from the snapshot: by
//! type in alphabetical order, within a type in the store's order, each file up to a size, then what was
//! deleted. A process that was killed goes on behind the last file that is on the disk and gives the same
//! bytes. Whoever works on a job holds a lease; every write of the record is a compare-and-set.
//!
//! | module | what lives there |
//! |---|---|
//! | [`kick_off`] | the request: level, access, refusals |
//! | [`parameters`] | its parameters, checked |
//! | [`group`] | members of a Group at a moment |
//! | [`supporting`] | resources that exported ones refer to |
//! | `elements` | resources with some of their elements |
//! | `criteria` | what a job asks for, made ready |
//! | [`job`] | the record of a job and its states |
//! | `manifest` | what a job answers, by version of the guide |
//! | [`address`] | where files are found, and signatures of addresses |
//! | [`service`] | [`Bulk`]: begin, ask, delete, download |
//! | [`operator`] | an export into a folder, without a job |
//! | `files` | where files lie, and how they are written |
//! | `file_stream` | a file as it is sent |
//! | [`format`](mod@format) | how output is written: NDJSON, Parquet |
//! | `rows` | Parquet, with the feature of that name |
//! | [`download`] | a file of a finished job, as it is or as gzip |
//! | `gzip` | one gzip member of many blocks |
//! | `organized` | output in blocks, each for one resource of a type |
//! | `deleted` | Bundles that name what was deleted |
//! | `selection` | which resources belong to a part, in order |
//! | `ahead` | reads them as lines before they are written |
//! | `worker` | carries a job out |

pub mod address;
mod ahead;
mod criteria;
mod deleted;
pub mod download;
mod elements;
mod file_stream;
mod files;
pub mod format;
pub mod group;
mod gzip;
pub mod job;
pub mod kick_off;
mod manifest;
pub mod operator;
mod organized;
pub mod parameters;
#[cfg(feature = "parquet")]
mod rows;
mod selection;
pub mod service;
pub mod supporting;
mod task;
mod worker;

pub use address::{Signature, Signing};
pub use criteria::MembersError;
pub use download::{Encoding, File, FileError};
pub use file_stream::FileStream;
pub use format::Format;
pub use job::{JobError, Status};
pub use kick_off::{KickOff, KickOffError, Level, Method, TypeAccess};
pub use service::{Bulk, Clock, InFlight, Options};

use serde::{Deserialize, Serialize};

/// The version of the guide that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Guide {
    /// Bulk Data Access 2.0.0 (STU2).
    #[default]
    #[serde(rename = "2.0.0")]
    V2,
    /// Bulk Data Access 3.0.0 (STU3): more parameters, and a manifest that may come in pages.
    #[serde(rename = "3.0.0")]
    V3,
}
