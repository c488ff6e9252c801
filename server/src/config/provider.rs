//! `[[provider]]`: an external OpenID Connect provider, checked.

use std::path::PathBuf;
use std::time::Duration;

use identity::provider::Provider;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::{ConfigError, File};

/// `[[provider]]`: an external OpenID Connect provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSection {
    /// Name: value of `identity_provider`.
    pub name: Spanned<String>,
    /// `google` fills in the addresses.
    pub preset: Option<Spanned<String>>,
    /// Issuer identifier.
    pub issuer: Option<String>,
    /// Where the browser goes.
    pub authorization_endpoint: Option<String>,
    /// Where the code is exchanged.
    pub token_endpoint: Option<String>,
    /// Its keys.
    pub jwks_uri: Option<String>,
    /// Our id there.
    pub client_id: String,
    /// Refused: a secret does not stand here.
    pub client_secret: Option<Spanned<IgnoredAny>>,
    /// File that holds our secret there.
    pub client_secret_file: Option<Spanned<PathBuf>>,
    /// Environment variable that holds the secret.
    pub client_secret_env: Option<Spanned<String>>,
    /// Scopes to ask for; default `openid profile email`.
    pub scopes: Option<String>,
    /// Make a user for somebody who signs in for the first time; default no.
    #[serde(default)]
    pub create_users: bool,
    /// Link somebody who signs in for the first time to the user with the same verified e-mail; default no.
    #[serde(default)]
    pub link_by_email: bool,
    /// Longest wait for an answer head and between two pieces of a body, in milliseconds; default 8000.
    pub timeout_ms: Option<u64>,
}

/// A provider with its time limit.
#[derive(Debug, Clone)]
pub struct ConfiguredProvider {
    /// The rules' view.
    pub provider: Provider,
    /// Longest wait.
    pub timeout: Duration,
}

/// Checks a provider.
///
/// # Errors
/// What is missing, or a secret that stands in the file.
pub(super) fn provider(section: ProviderSection, file: &File<'_>) -> Result<ConfiguredProvider, ConfigError> {
    let google = match &section.preset {
        None => false,
        Some(preset) if preset.as_ref() == "google" => true,
        Some(other) => {
            let why = format!("'{}' is not known; use google", other.as_ref());
            return Err(file.wrong(other.span(), "preset", why));
        }
    };
    let (span, name) = (section.name.span(), section.name.into_inner());
    let need = |value: Option<String>, key: &'static str, preset: &str| {
        value
            .or_else(|| google.then(|| preset.to_owned()))
            .ok_or_else(|| file.wrong(span.clone(), key, format!("provider '{name}' needs {key}")))
    };
    if let Some(inline) = &section.client_secret {
        let why = "a secret does not stand in this file; use client_secret_file or client_secret_env";
        return Err(file.wrong(inline.span(), "client_secret", why));
    }
    let client_secret = file.secret(
        "client_secret",
        section.client_secret_file.as_ref(),
        section.client_secret_env.as_ref(),
    )?;
    Ok(ConfiguredProvider {
        timeout: Duration::from_millis(section.timeout_ms.unwrap_or(8_000)),
        provider: Provider {
            issuer: need(section.issuer, "issuer", "https://accounts.google.com")?,
            authorization_endpoint: need(
                section.authorization_endpoint,
                "authorization_endpoint",
                "https://accounts.google.com/o/oauth2/v2/auth",
            )?,
            token_endpoint: need(
                section.token_endpoint,
                "token_endpoint",
                "https://oauth2.googleapis.com/token",
            )?,
            jwks_uri: need(section.jwks_uri, "jwks_uri", "https://www.googleapis.com/oauth2/v3/certs")?,
            name,
            client_id: section.client_id,
            client_secret,
            scopes: section.scopes.unwrap_or_else(|| "openid profile email".to_owned()),
            google,
            create_users: section.create_users,
            link_by_email: section.link_by_email,
        },
    })
}
