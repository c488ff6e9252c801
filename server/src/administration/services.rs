//! The services that the commands use.

use std::path::Path;

use identity::Identity;
use identity::sign_in::password::{PasswordError, PasswordPolicy};
use resources::Resources;
use terminology::PreferredVersions;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::node::app::App;
use crate::node::backups::BackupSources;
use crate::node::hashing::{PasswordHasher, PasswordToHash};
use crate::records::audit::AuditLog;

/// The services that the commands use.
pub struct AdminServices<'a> {
    /// Users, clients and signing keys.
    pub identity: &'a Identity,
    /// FHIR resources.
    pub resources: &'a Resources,
    /// Path of the data folder.
    pub data: &'a Path,
    /// Source of time and randomness.
    pub clock: &'a Clock,
    /// The audit log.
    pub audit: &'a AuditLog,
    /// Requirements for new passwords.
    pub passwords: PasswordPolicy,
    /// Hashes passwords, beside those of requests if the server runs.
    pub hashing: &'a PasswordHasher,
    /// The parts of a backup besides the store.
    pub backups: &'a BackupSources,
    /// Versions of terminology resources that the operator prefers.
    pub preferred_versions: PreferredVersions,
    /// The running server; `None` if the server is stopped.
    pub app: Option<&'a App>,
    /// Cancelled when the operator presses Ctrl-C: a command that takes long ends early, and says what it has
    /// done.
    pub stop: &'a CancellationToken,
}

impl<'a> AdminServices<'a> {
    /// Checks a new password and hashes it.
    ///
    /// # Errors
    /// Returns [`PasswordError`] if the password does not meet the policy.
    pub async fn hash_new_password(&self, plain: String, username: &str) -> Result<String, PasswordError> {
        let (username, service) = (username.to_owned(), self.identity.issuer.clone());
        let new = PasswordToHash { plain, username, service, policy: self.passwords };
        self.hashing.hash_new_password(new, self.clock.random.clone()).await
    }

    /// The services of a running server.
    pub fn of_running(app: &'a App, stop: &'a CancellationToken) -> Self {
        Self {
            identity: &app.identity,
            resources: &app.resources,
            data: &app.config.data,
            clock: &app.clock,
            audit: &app.logs.audit,
            passwords: app.settings().passwords,
            hashing: &app.capacity.hashing,
            backups: &app.backups,
            preferred_versions: app.settings().preferred_versions.clone(),
            app: Some(app),
            stop,
        }
    }
}
