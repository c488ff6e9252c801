//! Reads the configuration again while the server runs (SIGHUP, `trefoil reload`). A file with a fault changes
//! nothing; what needs a restart is named.

use anyhow::{Context as _, Result};
use identity::Identity;
use identity::client::RegistrationError;
use jiff::Timestamp;

use crate::app::App;
use crate::config::declared::Declared;
use crate::config::{Config, ConfigError, Flags};

/// Writes the declared clients to the ledger.
///
/// # Errors
/// What to change in the file, and the store's.
pub async fn declare(identity: &Identity, flags: &Flags, clients: &[Declared], now: Timestamp) -> Result<()> {
    let records: Vec<_> = clients.iter().map(|declared| declared.client.clone()).collect();
    identity.declare_clients(&records, now).await.map_err(|error| match &error {
        RegistrationError::AddedByCommand(id) => {
            let found = clients.iter().find(|declared| declared.client.client_id == *id);
            anyhow::Error::from(ConfigError::Value {
                path: flags.config.clone().unwrap_or_default(),
                line: found.map_or(0, |declared| declared.line),
                key: "client_id",
                why: error.to_string(),
            })
        }
        _ => error.into(),
    })
}

/// Takes over what the file says now; gives lines that tell what was done.
///
/// # Errors
/// What is wrong with the file; then nothing was changed.
pub async fn reload(app: &App) -> Result<Vec<String>> {
    let config = Config::load(&app.flags).context("nothing was changed")?;
    declare(&app.identity, &app.flags, &config.clients, app.clock.now())
        .await
        .context("nothing was changed")?;
    let fixed = config.fixed();
    let mut lines: Vec<_> = fixed
        .iter()
        .filter(|setting| !app.fixed.contains(setting))
        .map(|(name, _)| format!("{name} was changed; that needs a restart"))
        .collect();
    let settings = &config.settings;
    let (clients, providers, scopes) =
        (config.clients.len(), settings.providers.len(), settings.scopes.len());
    lines.push(format!("reloaded: {clients} declared clients, {providers} providers, {scopes} scopes"));
    app.take_over(config.settings);
    Ok(lines)
}
