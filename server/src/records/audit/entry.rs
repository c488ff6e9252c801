//! An entry of the audit log: who did what, from where.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use identity::audit::AuditEvent;
use jiff::Timestamp;

use super::rest::RestEvent;
use crate::records::append_log::LogLine;

/// The caller of a request, and the lines of the request that are not written yet.
#[derive(Debug, Default)]
pub struct AuditCaller {
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<Arc<str>>,
    pub(super) actor: OnceLock<AuditActor>,
    pub(super) lines: Mutex<Vec<LogLine>>,
    /// Lines of the request could not be written.
    pub(super) has_failed: AtomicBool,
    /// The request has valid credentials.
    pub(super) is_authenticated: AtomicBool,
}

/// The party on whose behalf something is done, if the event itself does not contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditActor {
    /// A person with access to the data folder, on the command line.
    Operator,
    /// A user, by the subject of a token.
    User(String),
    /// A client, by its id.
    Client(String),
}

impl AuditCaller {
    /// The client of a request.
    pub fn of_request(address: Option<IpAddr>, request_id: Arc<str>) -> Self {
        Self { address, request_id: Some(request_id), ..Self::default() }
    }

    /// The operator on the command line.
    pub fn operator() -> Self {
        Self { actor: AuditActor::Operator.into(), ..Self::default() }
    }

    pub(super) fn take_lines(&self) -> Vec<LogLine> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

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
