//! `[node]`: this server among several ones.

use serde::Deserialize;
use toml::Spanned;

use super::documented::settings_table;
use super::{ConfigError, ConfigSource};

/// Maximum length of a name, which is in every line of the audit log.
const MAX_LENGTH: usize = 100;

settings_table! {
    /// This server among several ones.
    pub struct NodeSection {
        /// Name of this server in the lines of its audit log. Without this setting, the name
        /// of the machine.
        name: Option<Spanned<String>> = None,
    }
}

/// Reaction when the clock of the machine jumps ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockJump {
    /// Writes are refused until the clock is corrected or accepted.
    #[default]
    Refuse,
    /// The new time is accepted, and logged.
    Accept,
}

impl NodeSection {
    pub(super) fn check(&self, source: &ConfigSource<'_>) -> Result<String, ConfigError> {
        let Some(name) = &self.name else { return Ok(host_name()) };
        let text = name.as_ref();
        if text.trim().is_empty() || text.len() > MAX_LENGTH || text.chars().any(char::is_control) {
            let reason = format!("use 1 to {MAX_LENGTH} bytes without control characters");
            return Err(source.value_error(name.span(), "name", reason));
        }
        Ok(text.clone())
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
