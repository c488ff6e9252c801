//! The authorization requests and the sign-ins at providers that are refused. The client receives an error
//! code only, so that a line in the log says what was rejected and what mends it. Strangers can cause
//! refusals without limit: the first of each client, reason and minute has a line, and the others are
//! counted.

use std::sync::Arc;

use identity::audit::AuditEvent;
use identity::authorize::refusal::Refusal;
use jiff::Timestamp;
use serde::Serialize;

use super::audit::{AuditEntry, AuditLog};
use super::minute_counts::{Counted, EndedCount, MinuteCounts};
use super::newest::Newest;

/// Maximum number of different refusals in a minute that have a line.
const MAX_REFUSALS: usize = 200;
/// Number of refusals that the home page shows.
const SHOWN: usize = 10;

/// Logs refused authorization requests.
pub struct RefusalLog {
    audit: Arc<AuditLog>,
    counts: MinuteCounts<RefusalKey>,
    /// The last refusals.
    pub recent: Newest<RecentRefusal>,
}

/// The properties by which refusals are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RefusalKey {
    client_id: String,
    error: &'static str,
    reason: &'static str,
}

/// A refusal that the status shows to administrators and, unless it names a person, the home page to
/// developers.
#[derive(Debug, Clone, Serialize)]
pub struct RecentRefusal {
    /// Time of the refusal.
    pub time: Timestamp,
    /// The client, or the provider of a sign-in.
    pub client_id: String,
    /// Error code, reason, value and remedy.
    pub text: String,
    /// `true` if the text names a person.
    #[serde(skip)]
    pub names_person: bool,
}

/// The user because of whom a sign-in is refused.
#[derive(Debug, Clone, Copy)]
pub struct RefusedUser<'a> {
    /// User name. `None` if the user was deleted.
    pub username: Option<&'a str>,
    /// Subject of the user.
    pub sub: &'a str,
    /// The reason.
    pub reason: &'static str,
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
        Self { audit, counts: MinuteCounts::new(MAX_REFUSALS), recent: Newest::new(SHOWN) }
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
        let text = format!("{error}: {refusal}");
        self.recent.add(RecentRefusal {
            time: now,
            client_id: client_id.to_owned(),
            text,
            names_person: false,
        });
    }

    /// Logs a sign-in with an account of a provider that was refused because of a user. Both are named: a
    /// help desk has no other way to find the user.
    pub fn record_sign_in(&self, provider: &str, account: &str, refusal: &RefusedUser<'_>, now: Timestamp) {
        let RefusedUser { username, sub, reason } = *refusal;
        tracing::warn!(provider, account, username, sub, "sign-in at a provider refused: {reason}");
        let user = username.map_or_else(|| format!("with the subject {sub}"), str::to_owned);
        let text = format!("sign-in of {account} refused: {reason}; user {user}");
        self.recent.add(RecentRefusal {
            time: now,
            client_id: provider.to_owned(),
            text,
            names_person: true,
        });
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
