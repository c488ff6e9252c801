//! Bulk Data export (Bulk Data Access 2.0.0): kick-off, jobs, selection, manifest, NDJSON. No HTTP.
//!
//! A kick-off is checked whole before a job exists. A job is a record in the ledger: the sequence
//! number of its snapshot, what was asked for, and what is done. It works type by type; each type
//! is one part that becomes durable with its file, so a process that was killed goes on with the
//! first part that is not done and gives the same bytes.
//!
//! | module | what lives there |
//! |---|---|
//! | [`kick_off`] | the request: parameters, access, refusals |
//! | [`group`] | members of a Group at a moment |
//! | [`job`] | the record of a job and its states |
//! | [`manifest`] | what a finished job answers |
//! | [`service`] | [`Bulk`]: begin, ask, delete, download |
//! | `selection` | which resources belong to a part, in order |
//! | `worker` | carries a job out |

pub mod group;
pub mod job;
pub mod kick_off;
pub mod manifest;
mod selection;
pub mod service;
mod worker;

pub use job::{JobError, Status};
pub use kick_off::{KickOff, KickOffError, Level, TypeAccess};
pub use service::{Bulk, ByteStream, Clock, File, FileError, Options};
