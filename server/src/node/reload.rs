//! Reads the configuration again while the server runs (SIGHUP, `trefoil reload`). A faulty file changes
//! nothing; settings that need a restart are reported.

use anyhow::{Context as _, Result};
use identity::Identity;
use identity::model::client::RegistrationError;
use jiff::Timestamp;
use store::blocking::run_blocking;

use crate::config::declared::DeclaredClient;
use crate::config::restart_settings::RestartSettings;
use crate::config::{Config, ConfigError, ServeFlags};
use crate::node::app::App;

/// Writes the declared clients to the ledger.
///
/// # Errors
/// An error that says what to change in the file, or the error of the store.
pub async fn store_declared_clients(
    identity: &Identity,
    flags: &ServeFlags,
    clients: &[DeclaredClient],
    edition: u64,
    now: Timestamp,
) -> Result<()> {
    let records: Vec<_> = clients.iter().map(|declared| declared.client.clone()).collect();
    let applied =
        identity.clients.declare_clients(&records, edition, now).await.map_err(|error| match &error {
            RegistrationError::AddedByCommand(id) => {
                let declared_client = clients.iter().find(|declared| declared.client.client_id == *id);
                anyhow::Error::from(ConfigError::Value {
                    path: flags.config.clone().unwrap_or_default(),
                    line: declared_client.map_or(0, |declared| declared.line),
                    key: "client_id".into(),
                    reason: error.to_string(),
                })
            }
            _ => error.into(),
        })?;
    if !applied {
        tracing::warn!(
            edition,
            "another node has applied a later edition of the configuration; its clients stay"
        );
    }
    Ok(())
}

/// Applies the present content of the file. Returns lines that report the changes.
///
/// # Errors
/// An error if the file is not valid; then nothing is changed.
pub async fn reload_config(app: &App) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    if let Some(certificate) = app.certificate.get().cloned() {
        let (files, now) = (certificate.clone(), app.clock.now());
        run_blocking(move || files.refresh(now)).await?.context("nothing was changed")?;
        lines.push(certificate.description());
    }
    let config = Config::load(&app.config.flags).context("nothing was changed")?;
    store_declared_clients(
        &app.identity,
        &app.config.flags,
        &config.clients,
        config.edition,
        app.clock.now(),
    )
    .await
    .context("nothing was changed")?;
    let changes = app.config.fixed.changed(&RestartSettings::of(&config));
    lines.extend(changes.iter().map(|name| format!("{name} was changed; that needs a restart")));
    let settings = &config.settings;
    let (clients, providers, scopes) =
        (config.clients.len(), settings.providers.len(), settings.scopes.len());
    lines.push(format!("reloaded: {clients} declared clients, {providers} providers, {scopes} scopes"));
    app.identity.lifetimes.configure(config.settings.lifetimes, app.clock.now()).await?;
    app.replace_settings(config.settings);
    Ok(lines)
}
