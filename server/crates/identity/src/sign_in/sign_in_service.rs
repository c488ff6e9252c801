//! The records that the sign-in methods beside the password share.

use std::sync::Arc;

use webauthn_rs::Webauthn;

use crate::audit::{AuditEvent, AuditSink, RecordAction, SignInMethod};
use crate::directory::user_directory::UserDirectory;
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;

/// Manages the passkeys, recovery codes and linked accounts of all users.
pub struct SignInService {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) users: Arc<UserDirectory>,
    /// Relying party of passkeys. `None` if the host of the issuer is an IP address.
    pub(crate) relying_party: Option<Webauthn>,
}

impl SignInService {
    /// Emits the audit event for a changed sign-in method.
    pub(super) fn record_method(&self, action: RecordAction, sub: &str, method: SignInMethod) {
        self.audit.record(AuditEvent::SignInMethod { action, sub: sub.to_owned(), method });
    }
}
