//! `[[provider]]`: external OpenID Connect providers.

use std::path::PathBuf;
use std::time::Duration;

use identity::model::provider::IdentityProvider;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::{ConfigError, ConfigSource};

/// `[[provider]]`: an external OpenID Connect provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSection {
    /// Name, which is also the value of `identity_provider`.
    pub name: Spanned<String>,
    /// `google` sets the endpoints.
    pub preset: Option<Spanned<String>>,
    /// Issuer identifier.
    pub issuer: Option<String>,
    /// URL of the authorization endpoint.
    pub authorization_endpoint: Option<String>,
    /// URL of the token endpoint.
    pub token_endpoint: Option<String>,
    /// URL of the key set.
    pub jwks_uri: Option<String>,
    /// Client id of this server at the provider.
    pub client_id: String,
    /// Rejected: secrets are not allowed in the file.
    pub client_secret: Option<Spanned<IgnoredAny>>,
    /// File with the client secret.
    pub client_secret_file: Option<Spanned<PathBuf>>,
    /// Environment variable with the client secret.
    pub client_secret_env: Option<Spanned<String>>,
    /// Requested scopes; default `openid profile email`.
    pub scopes: Option<String>,
    /// Create a user at the first sign-in of an unknown account; default no.
    #[serde(default)]
    pub create_users: bool,
    /// Link an unknown account to the user with the same verified e-mail address; default no.
    #[serde(default)]
    pub link_by_email: bool,
    /// Maximum wait for the response head and between two parts of the body, in milliseconds; default 8000.
    pub timeout_ms: Option<u64>,
}

/// A provider and its time limit.
#[derive(Debug, Clone)]
pub struct ConfiguredProvider {
    /// The provider as `identity` uses it.
    pub provider: IdentityProvider,
    /// Maximum wait for the response head and between two parts of the body.
    pub timeout: Duration,
}

/// Checks a provider.
///
/// # Errors
/// Returns [`ConfigError`] if a member is missing or a secret is written in the file.
pub(super) fn check_provider(
    section: ProviderSection,
    file: &ConfigSource<'_>,
) -> Result<ConfiguredProvider, ConfigError> {
    let google = match &section.preset {
        None => false,
        Some(preset) if preset.as_ref() == "google" => true,
        Some(other) => {
            let why = format!("'{}' is not known; use google", other.as_ref());
            return Err(file.value_error(other.span(), "preset", why));
        }
    };
    let (span, name) = (section.name.span(), section.name.into_inner());
    let need = |value: Option<String>, key: &'static str, preset: &str| {
        value
            .or_else(|| google.then(|| preset.to_owned()))
            .ok_or_else(|| file.value_error(span.clone(), key, format!("provider '{name}' needs {key}")))
    };
    if let Some(inline) = &section.client_secret {
        let why = "secrets are not allowed in this file; use client_secret_file or client_secret_env";
        return Err(file.value_error(inline.span(), "client_secret", why));
    }
    let client_secret = file.read_secret(
        "client_secret",
        section.client_secret_file.as_ref(),
        section.client_secret_env.as_ref(),
    )?;
    Ok(ConfiguredProvider {
        timeout: Duration::from_millis(section.timeout_ms.unwrap_or(8_000)),
        provider: IdentityProvider {
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
