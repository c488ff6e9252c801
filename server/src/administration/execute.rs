//! Runs one command of an administrator.

use anyhow::{Context as _, Result, ensure};
use resources::assign_stored::assign_all;
use resources::{ImportOptions, ResourceRules};
use terminology_import::StatedVersion;

use super::protocol::{AdminCommand, CommandEvent};
use super::services::{AdminServices, EventSink};
use super::{backups, check, copy, export, import, people, purge, releases, status};
use crate::node::reload::reload_config;

/// Completes the assignment of stored resources to Patients, on which exports and erasures depend. A
/// running server does so itself.
async fn complete_assignment(services: &AdminServices<'_>, events: EventSink<'_>) -> Result<()> {
    let (store, base) = (services.resources.store(), services.resources.fhir_base());
    match services.app {
        Some(app) => ensure!(
            app.patient_assignment.is_complete(),
            "after an upgrade, the server still determines to which patients stored resources belong; repeat the command \
             when `trefoil status` no longer names it"
        ),
        None => {
            let progress = |count| {
                events(CommandEvent::Progress(format!("{count} resources assigned to their patients")));
            };
            assign_all(store, base, services.clock.now(), progress).await?;
        }
    }
    Ok(())
}

/// Executes a command and returns its exit code.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_command(
    services: &AdminServices<'_>,
    command: AdminCommand,
    events: EventSink<'_>,
) -> Result<u8> {
    if matches!(command, AdminCommand::Export(_) | AdminCommand::Purge { .. }) {
        complete_assignment(services, events).await?;
    }
    match command {
        AdminCommand::Import { paths, edition, version, unpublished, keep_bundles } => {
            let stated = StatedVersion { edition, version, is_unpublished: unpublished };
            let defaults = ImportOptions::default();
            let validation = services.resources.rules().validation;
            let rules = ResourceRules { validation, ..defaults.rules };
            let options = ImportOptions { keep_bundles, rules, ..defaults };
            import::run_import(services, paths, stated, options, events).await
        }
        AdminCommand::Export(export) => export::run_export(services, export, events).await.map(|()| 0),
        AdminCommand::User(command) => {
            people::execute_user_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Client(command) => {
            people::execute_client_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Release(command) => {
            releases::execute_release_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Keys(command) => {
            people::execute_keys_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Backup { to, full } => backups::run_backup(services, to, full, events).await,
        AdminCommand::Copy(options) => {
            Box::pin(copy::copy_running(services, &options, events)).await.map(|()| 0)
        }
        AdminCommand::Purge { resource } => purge::run_purge(services, &resource, events).await.map(|()| 0),
        AdminCommand::Compact => purge::run_compact(services, events).await.map(|()| 0),
        AdminCommand::Check => check::run_check(services, events).await,
        AdminCommand::Status => status::show_status(services, events).await,
        // The clock is state of the running process.
        AdminCommand::AcceptClock => {
            let app = services
                .app
                .context("no server runs on this folder; the next start accepts the clock as it is")?;
            let moved = app.clock_check.guard.accept();
            tracing::warn!(moved_s = moved.as_secs(), "an operator accepted the clock");
            events(CommandEvent::Line(format!(
                "accepted the clock, {}; it had moved by {} s",
                app.clock.now(),
                moved.as_secs()
            )));
            Ok(0)
        }
        AdminCommand::Reload => {
            let app =
                services.app.context("no server runs on this folder; its settings are read at the start")?;
            reload_config(app).await?.into_iter().for_each(|line| events(CommandEvent::Line(line)));
            Ok(0)
        }
    }
}
