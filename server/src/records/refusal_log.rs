//! The authorization requests that are refused. The client receives an error code only, so that a line in the
//! log says what was rejected and what mends it. Strangers can cause refusals without limit: the first of
//! each client, reason and minute has a line, and the others are counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use identity::audit::AuditEvent;
use identity::authorize::refusal::Refusal;
use jiff::Timestamp;
use serde::Serialize;

use super::audit::{AuditEntry, AuditLog};
use super::minute_counts::{Counted, EndedCount, MinuteCounts};

/// Maximum number of different refusals in a minute that have a line.
const MAX_REFUSALS: usize = 200;
/// Number of refusals that the home page shows.
const SHOWN: usize = 10;

/// Logs refused authorization requests.
pub struct RefusalLog {
    audit: Arc<AuditLog>,
    counts: MinuteCounts<RefusalKey>,
    recent: Mutex<VecDeque<RecentRefusal>>,
}

/// The properties by which refusals are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RefusalKey {
    client_id: String,
    error: &'static str,
    reason: &'static str,
}

/// A refusal that the home page shows to developers.
#[derive(Debug, Clone, Serialize)]
pub struct RecentRefusal {
    /// Time of the refusal.
    pub time: Timestamp,
    /// The client.
    pub client_id: String,
    /// Error code, reason, value and remedy.
    pub text: String,
}

impl RefusalKey {
    fn event(&self, value: Option<String>) -> AuditEvent {
        let Self { client_id, error, reason } = self.clone();
        AuditEvent::RequestRefused { client_id, error, reason, value }
    }
}

impl RefusalLog {
    /// A log that also records in the audit log.
    pub fn new(audit: Arc<AuditLog>) -> Self {
        Self { audit, counts: MinuteCounts::new(MAX_REFUSALS), recent: Mutex::default() }
    }

    /// Logs a refusal, or counts it. A refusal without a reason is not the fault of the application.
    pub fn record(&self, client_id: &str, refusal: &Refusal, now: Timestamp) {
        let Some(reason) = refusal.reason else { return };
        self.add(client_id, refusal.error.as_str(), reason, refusal, now);
    }

    /// Logs that requested scopes were not granted, although the request was.
    pub fn record_dropped(&self, client_id: &str, dropped: &Refusal, now: Timestamp) {
        if let Some(reason) = dropped.reason {
            self.add(client_id, "granted in part", reason, dropped, now);
        }
    }

    fn add(
        &self,
        client_id: &str,
        error: &'static str,
        reason: &'static str,
        refusal: &Refusal,
        now: Timestamp,
    ) {
        let key = RefusalKey { client_id: client_id.to_owned(), error, reason };
        if self.counts.count(&key, 1, now) != Counted::Written {
            return;
        }
        tracing::info!(client_id, error, "authorization request: {refusal}");
        self.audit.add(&AuditEntry::Identity(key.event(refusal.value.clone())));
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(SHOWN - 1);
        let text = format!("{error}: {refusal}");
        recent.push_front(RecentRefusal { time: now, client_id: client_id.to_owned(), text });
    }

    /// The last refusals, the newest first.
    pub fn recent(&self) -> Vec<RecentRefusal> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Logs the counts of the minutes that have ended. Call it a few times a minute.
    pub fn write_counts(&self, now: Timestamp) {
        for EndedCount { key, minute, further } in self.counts.take_ended(1, now) {
            let (client_id, error, reason) = (&key.client_id, key.error, key.reason);
            let begin = fhir::instant::format(minute);
            tracing::info!(client_id, error, minute = begin, count = further, "further: {reason}");
            self.audit.add_count(EndedCount { key: key.event(None), minute, further });
        }
    }
}
