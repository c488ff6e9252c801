//! Counts of the events since the start, for metrics. Events that only have a count in the log are included.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use identity::audit::AuditEvent;

use super::AuditEntry;

/// The counts of events, and of refusals by their reasons.
#[derive(Debug, Default)]
pub struct EventCounts(Mutex<CountTables>);

#[derive(Debug, Default, Clone)]
struct CountTables {
    events: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<(&'static str, &'static str), u64>,
    exported_bytes: u64,
}

/// A kind of refusals with its reason, and their number.
pub type RefusalCount = (&'static str, &'static str, u64);

impl EventCounts {
    /// Counts an entry. All names are fixed texts, so that their number is limited.
    pub(super) fn count(&self, entry: &AuditEntry) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *tables.events.entry(name(entry)).or_default() += 1;
        let refusal = match entry {
            AuditEntry::Identity(AuditEvent::SignInFailed { reason, .. }) => Some(("sign-in", *reason)),
            AuditEntry::Identity(AuditEvent::RequestRefused { error, .. }) => Some(("authorization", *error)),
            AuditEntry::Identity(AuditEvent::ClientRejected { .. }) => Some(("client", "invalid_client")),
            AuditEntry::Identity(AuditEvent::Reused { kind, .. }) => Some(("reuse", *kind)),
            _ => None,
        };
        if let AuditEntry::ExportCompleted { bytes, .. } = entry {
            tables.exported_bytes += bytes;
        }
        if let Some(refusal) = refusal {
            *tables.refusals.entry(refusal).or_default() += 1;
        }
    }

    /// The number of events of each kind.
    pub fn events(&self) -> Vec<(&'static str, u64)> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.events.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// The length of the files of all exports that were completed, in bytes.
    pub fn exported_bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).exported_bytes
    }

    /// The number of refusals by kind and reason.
    pub fn refusals(&self) -> Vec<RefusalCount> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.refusals.iter().map(|((kind, reason), count)| (*kind, *reason, *count)).collect()
    }
}

fn name(entry: &AuditEntry) -> &'static str {
    use AuditEvent as Event;
    match entry {
        AuditEntry::Identity(event) => match event {
            Event::SignIn { .. } => "sign-in",
            Event::SignInFailed { .. } => "sign-in-failed",
            Event::SignOut { .. } => "sign-out",
            Event::SignOutEverywhere { .. } => "sign-out-everywhere",
            Event::OneTimeLink { .. } => "one-time-link",
            Event::Consent { .. } => "consent",
            Event::Granted { .. } => "granted",
            Event::TokenIssued { .. } => "token-issued",
            Event::ClientRejected { .. } => "client-rejected",
            Event::RequestRefused { .. } => "request-refused",
            Event::Reused { .. } => "reused",
            Event::Revoked { .. } => "revoked",
            Event::KeysRotated => "keys-rotated",
            Event::KeyRevoked { .. } => "key-revoked",
            Event::User { .. } => "user",
            Event::SignInMethod { .. } => "sign-in-method",
            Event::DeviceAnswered { .. } => "device-answered",
            Event::Client { .. } => "client",
            _ => "other",
        },
        AuditEntry::Further { .. } => "other",
        AuditEntry::Export { .. } => "export-accepted",
        AuditEntry::ExportCompleted { .. } => "export-completed",
        AuditEntry::Download { .. } => "file-sent",
        AuditEntry::Import { .. } => "import",
        AuditEntry::ReleaseRemoved { .. } => "release-removed",
        AuditEntry::StoreAccepted { .. } => "store-accepted",
        AuditEntry::Erased { .. } => "erased",
        AuditEntry::Rest(_) => "resource-access",
    }
}
