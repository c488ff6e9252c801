//! `[[provider]]`: external OpenID Connect providers.

use std::path::PathBuf;
use std::time::Duration;

use identity::model::provider::IdentityProvider;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::documented::{Required, settings_table};
use super::{ConfigError, ConfigSource};

settings_table! {
    /// An external OpenID Connect provider. Its redirect URI is `https://id.example/oauth2/idpresponse/NAME`.
    pub struct ProviderSection {
        /// Name of the provider, and the value of `identity_provider` in requests.
        name: Required<Spanned<String>> = Required::MISSING,
        /// `google` sets issuer and endpoints.
        preset: Option<Spanned<String>> = None,
        /// Issuer identifier. Without a preset, the issuer and the endpoints are required.
        issuer: Option<String> = None,
        /// URL of the authorization endpoint.
        authorization_endpoint: Option<String> = None,
        /// URL of the token endpoint.
        token_endpoint: Option<String> = None,
        /// URL of the key set.
        jwks_uri: Option<String> = None,
        /// Client id of this server at the provider.
        client_id: Required<String> = Required::MISSING,
        /// Not allowed: secrets must not be in this file.
        client_secret: Option<Spanned<IgnoredAny>> = None,
        /// File with the client secret.
        client_secret_file: Option<Spanned<PathBuf>> = None,
        /// Environment variable with the client secret.
        client_secret_env: Option<Spanned<String>> = None,
        /// Scopes to request, separated by spaces.
        scopes: String = "openid profile email".to_owned(),
        /// Create a user at the first sign-in with an unknown account. Otherwise users must link accounts themselves.
        create_users: bool = false,
        /// Link an unknown account to the user with the same verified e-mail address.
        link_by_email: bool = false,
        /// Maximum wait for the response headers, and between two parts of the body.
        timeout_ms: u64 ["milliseconds"] = 8_000,
    }
}

/// A provider with the time limit for requests to it.
#[derive(Debug, Clone)]
pub struct ConfiguredProvider {
    /// The provider, as the identity crate uses it.
    pub provider: IdentityProvider,
    /// Maximum wait for the response headers, and between two parts of the body.
    pub timeout: Duration,
}

/// Checks a provider.
///
/// # Errors
/// Returns [`ConfigError`] if a member is missing or a secret is written in the file.
pub(super) fn check_provider(
    section: Spanned<ProviderSection>,
    file: &ConfigSource<'_>,
) -> Result<ConfiguredProvider, ConfigError> {
    let table = section.span();
    let section = section.into_inner();
    let google = match &section.preset {
        None => false,
        Some(preset) if preset.as_ref() == "google" => true,
        Some(other) => {
            let why = format!("'{}' is not known; use google", other.as_ref());
            return Err(file.value_error(other.span(), "preset", why));
        }
    };
    let name = section.name.get(file, &table, "name")?;
    let (span, name) = (name.span(), name.into_inner());
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
        timeout: Duration::from_millis(section.timeout_ms),
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
            client_id: section.client_id.get(file, &table, "client_id")?,
            client_secret,
            scopes: section.scopes,
            google,
            create_users: section.create_users,
            link_by_email: section.link_by_email,
        },
    })
}
