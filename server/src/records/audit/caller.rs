//! Who made a request, for the audit log.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::records::append_log::LogLine;
use crate::records::traces::TraceContext;

/// The caller of a request, and the lines of the request that are not written yet.
#[derive(Debug, Default)]
pub struct AuditCaller {
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<Arc<str>>,
    /// The place of the request in a trace.
    pub trace: Option<TraceContext>,
    pub(super) actor: OnceLock<AuditActor>,
    /// Client of the request, for the log.
    pub(super) client_id: OnceLock<String>,
    pub(super) lines: Mutex<Vec<LogLine>>,
    /// Lines of the request could not be written.
    pub(super) has_failed: AtomicBool,
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

    /// Sets the place of the request in a trace.
    #[must_use]
    pub fn traced(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// The operator on the command line.
    pub fn operator() -> Self {
        Self { actor: AuditActor::Operator.into(), ..Self::default() }
    }

    pub(super) fn take_lines(&self) -> Vec<LogLine> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
