//! The services that the commands use, and the receiver of their events.

use std::path::Path;

use identity::Identity;
use identity::sign_in::password::PasswordPolicy;
use resources::Resources;
use tokio_util::sync::CancellationToken;

use super::protocol::CommandEvent;
use crate::clock::Clock;
use crate::node::app::App;
use crate::node::backups::BackupSources;
use crate::records::audit::AuditLog;

/// A function that receives the events of a command.
pub type EventSink<'a> = &'a mut (dyn FnMut(CommandEvent) + Send);

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
    /// The parts of a backup besides the store.
    pub backups: &'a BackupSources,
    /// The running server; `None` if the server is stopped.
    pub app: Option<&'a App>,
    /// Cancelled when the operator presses Ctrl-C: a command that takes long ends early, and says what it has
    /// done.
    pub stop: &'a CancellationToken,
}

impl<'a> AdminServices<'a> {
    /// The services of a running server.
    pub fn of_running(app: &'a App, stop: &'a CancellationToken) -> Self {
        Self {
            identity: &app.identity,
            resources: &app.resources,
            data: &app.config.data,
            clock: &app.clock,
            audit: &app.logs.audit,
            passwords: app.settings().passwords,
            backups: &app.backups,
            app: Some(app),
            stop,
        }
    }
}
