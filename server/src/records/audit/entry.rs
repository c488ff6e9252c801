//! An entry of the audit log: who did what, from where.

use identity::audit::AuditEvent;
use jiff::Timestamp;

use super::rest::RestEvent;

/// An event of the server, besides those of `identity`.
#[derive(Debug)]
pub enum AuditEntry {
    /// An event of `identity`.
    Identity(AuditEvent),
    /// Further equal events of strangers in one minute.
    Further {
        /// One of the events.
        event: AuditEvent,
        /// Number of events that have no line of their own.
        count: u64,
        /// Begin of the minute.
        minute: Timestamp,
    },
    /// An export was accepted.
    Export {
        /// The client.
        client_id: String,
        /// The job.
        job: String,
        /// The kick-off URL.
        request: String,
    },
    /// This server has completed an export.
    ExportCompleted {
        /// The client.
        client_id: String,
        /// The job.
        job: String,
        /// Number of files.
        files: usize,
        /// Number of lines of all files.
        lines: u64,
        /// Number of bytes of all files.
        bytes: u64,
    },
    /// A file of an export was sent.
    Download {
        /// The job.
        job: String,
        /// The name of the file.
        file: String,
    },
    /// Resources were imported by the command line.
    Import {
        /// Number of resources that were stored.
        stored: u64,
        /// The files and folders.
        paths: Vec<String>,
    },
    /// An imported release of a code system was removed by the command line.
    ReleaseRemoved {
        /// The release.
        id: String,
    },
    /// A database that went back in time was accepted by the command line.
    StoreAccepted {
        /// Time of the last write that the store has.
        moment: Timestamp,
    },
    /// A resource was erased with all its versions by the command line, and a Patient with its compartment.
    Erased {
        /// The resource.
        resource: String,
        /// Number of resources, with those of the compartment.
        resources: u64,
    },
    /// A resource was read or changed.
    Rest(RestEvent),
}

/// The source of all events of a log.
#[derive(Debug, Clone)]
pub struct AuditSource {
    /// Base URL of the server, which observes the events.
    pub observer: String,
    /// Name of the server among several ones with this base URL.
    pub node: String,
}
