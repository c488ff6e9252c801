//! Bulk Data export (Bulk Data Access 2.0.0): kick-off, jobs, selection, manifest, NDJSON. No HTTP.
//!
//! A kick-off is checked whole before a job exists. A job is a record in the ledger: the sequence
//! number of its snapshot, what was asked for, and what is done. It works type by type; each type
//! is one part that becomes durable with its file, so a process that was killed goes on with the
//! first part that is not done and gives the same bytes.
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
//! | [`manifest`] | what a finished job answers |
//! | [`service`] | [`Bulk`]: begin, ask, delete, download |
//! | `selection` | which resources belong to a part, in order |
//! | `worker` | carries a job out |

mod criteria;
mod elements;
pub mod group;
pub mod job;
pub mod kick_off;
pub mod manifest;
pub mod parameters;
mod selection;
pub mod service;
pub mod supporting;
mod worker;

pub use job::{JobError, Status};
pub use kick_off::{KickOff, KickOffError, Level, Method, TypeAccess};
pub use service::{Bulk, ByteStream, Clock, File, FileError, Options};

use serde::{Deserialize, Serialize};

/// The version of the guide that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Guide {
    /// Bulk Data Access 2.0.0 (STU2).
    #[default]
    #[serde(rename = "2.0.0")]
    V2,
    /// Bulk Data Access 3.0.0 (STU3): more parameters.
    #[serde(rename = "3.0.0")]
    V3,
}
