//! Reads `trefoil.toml`: its text, secrets from other files and the environment, and errors with line and key.

use std::borrow::Cow;
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use identity::lifetimes::{self, Lifetimes};
use identity::model::client_metadata::nearest_name;
use identity::sign_in::password::PasswordPolicy;
use identity::sign_in::throttle::ThrottleLimits;
use identity::storage::encryption::{KeyEncryptionKey, SecretEncryption};
use ipnet::IpNet;
use jiff::SignedDuration;
use toml::Spanned;

use super::sections::{ConfigFile, IdentitySection, LifetimesSection, TerminologySection, ThrottleSection};
use terminology::PreferredVersions;

/// The error for an invalid configuration. The exit code is 3.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("failed to read {}: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the failure.
        error: std::io::Error,
    },
    /// The file is not valid TOML or has unknown members. The text contains the line.
    #[error("{}: {text}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Line, column and description of the defect.
        text: String,
    },
    /// A value is not valid.
    #[error("{}: line {line}: {key}: {why}", path.display())]
    Value {
        /// Path of the file.
        path: PathBuf,
        /// Line of the value, counted from 1.
        line: usize,
        /// Key of the value.
        key: Cow<'static, str>,
        /// Description of the defect and the remedy.
        why: String,
    },
    /// A setting from a command-line option or the environment is not valid.
    #[error("{0}")]
    Setting(String),
}

/// The configuration file that is being read: its path and text, for errors with a line.
pub struct ConfigSource<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl ConfigSource<'_> {
    /// Returns the line of a value, counted from 1.
    pub(super) fn line_of(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn value_error(
        &self,
        span: Range<usize>,
        key: impl Into<Cow<'static, str>>,
        why: impl Display,
    ) -> ConfigError {
        let (key, why) = (key.into(), why.to_string());
        ConfigError::Value { path: self.path.to_owned(), line: self.line_of(span), key, why }
    }

    /// Resolves a path against the folder of the configuration file.
    pub(super) fn resolve_path(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Reads a secret from a file or from the environment.
    pub(super) fn read_secret(
        &self,
        key: &'static str,
        file: Option<&Spanned<PathBuf>>,
        variable: Option<&Spanned<String>>,
    ) -> Result<Option<String>, ConfigError> {
        let (span, read) = match (file, variable) {
            (None, None) => return Ok(None),
            (Some(file), None) => {
                let path = self.resolve_path(file.as_ref());
                let read = std::fs::read_to_string(&path);
                (file.span(), read.map_err(|error| format!("failed to read {}: {error}", path.display())))
            }
            (None, Some(variable)) => {
                let name = variable.as_ref();
                (
                    variable.span(),
                    std::env::var(name).map_err(|_| format!("the environment variable {name} is not set")),
                )
            }
            (Some(_), Some(variable)) => {
                (variable.span(), Err("use the file or the environment variable, not both".to_owned()))
            }
        };
        let text = read.map_err(|why| self.value_error(span, key, why))?;
        Ok(Some(text.trim().to_owned()))
    }

    fn key_encryption_key(
        &self,
        key: &'static str,
        file: Option<&Spanned<PathBuf>>,
        variable: Option<&Spanned<String>>,
    ) -> Result<Option<KeyEncryptionKey>, ConfigError> {
        let span = file.map(Spanned::span).or(variable.map(Spanned::span)).unwrap_or_default();
        let text = self.read_secret(key, file, variable)?;
        text.map(|text| {
            KeyEncryptionKey::from_base64(&text).map_err(|error| self.value_error(span, key, error))
        })
        .transpose()
    }

    pub(super) fn encryption_keys(&self, section: &IdentitySection) -> Result<SecretEncryption, ConfigError> {
        Ok(SecretEncryption {
            current: self.key_encryption_key(
                "key_encryption_key",
                section.key_encryption_key_file.as_ref(),
                section.key_encryption_key_env.as_ref(),
            )?,
            previous: self.key_encryption_key(
                "previous_key_encryption_key",
                section.previous_key_encryption_key_file.as_ref(),
                section.previous_key_encryption_key_env.as_ref(),
            )?,
        })
    }

    /// Returns a number, if it is within bounds.
    pub(super) fn bounded_number(
        &self,
        key: &'static str,
        value: &Spanned<u32>,
        bounds: RangeInclusive<u32>,
    ) -> Result<u32, ConfigError> {
        let number = *value.as_ref();
        if bounds.contains(&number) {
            return Ok(number);
        }
        let why = format!("{number} is not in {} to {}", bounds.start(), bounds.end());
        Err(self.value_error(value.span(), key, why))
    }

    pub(super) fn password_policy(&self, section: &IdentitySection) -> Result<PasswordPolicy, ConfigError> {
        let length = self.bounded_number("password_min_length", &section.password_min_length, 8..=64)?;
        let strength = self.bounded_number("password_min_strength", &section.password_min_strength, 0..=4)?;
        let min_strength = u8::try_from(strength).unwrap_or(u8::MAX);
        Ok(PasswordPolicy { min_length: length as usize, min_strength })
    }

    pub(super) fn throttle_limits(&self, section: &ThrottleSection) -> Result<ThrottleLimits, ConfigError> {
        let free = |key, value| self.bounded_number(key, value, 1..=1_000_000);
        let lockout = self.bounded_number("max_lockout_s", &section.max_lockout_s, 1..=86_400)?;
        Ok(ThrottleLimits {
            per_pair: free("free_failures_per_pair", &section.free_failures_per_pair)?,
            per_user: free("free_failures_per_user", &section.free_failures_per_user)?,
            per_address: free("free_failures_per_address", &section.free_failures_per_address)?,
            max_lockout: SignedDuration::from_secs(lockout.into()),
        })
    }

    pub(super) fn lifetimes(&self, section: &LifetimesSection) -> Result<Lifetimes, ConfigError> {
        let lifetime = |key, value, max| {
            let seconds = self.bounded_number(key, value, lifetimes::MIN_LIFETIME_S..=max)?;
            Ok(SignedDuration::from_secs(seconds.into()))
        };
        let (token, session) = (lifetimes::MAX_TOKEN_LIFETIME_S, lifetimes::MAX_SESSION_LIFETIME_S);
        let refresh = lifetimes::MAX_REFRESH_LIFETIME_S;
        Ok(Lifetimes {
            access_token: lifetime("access_token_s", &section.access_token_s, token)?,
            backend_access_token: lifetime("backend_access_token_s", &section.backend_access_token_s, token)?,
            id_token: lifetime("id_token_s", &section.id_token_s, token)?,
            refresh_token_family: lifetime("refresh_token_s", &section.refresh_token_s, refresh)?,
            idle_session: lifetime("idle_session_s", &section.idle_session_s, session)?,
            session: lifetime("session_s", &section.session_s, session)?,
        })
    }

    /// Parses an IP network or a single IP address.
    pub(super) fn parse_network(&self, text: &Spanned<String>) -> Result<IpNet, ConfigError> {
        let network = text.as_ref().parse::<IpNet>().ok();
        let network = network.or_else(|| text.as_ref().parse::<IpAddr>().ok().map(IpNet::from));
        network.ok_or_else(|| {
            let why = format!("'{}' is not a network such as 10.0.0.0/8", text.as_ref());
            self.value_error(text.span(), "trusted_proxies", why)
        })
    }

    /// Reads the versions that are preferred if a request names none.
    pub(super) fn preferred_versions(
        &self,
        section: &TerminologySection,
    ) -> Result<PreferredVersions, ConfigError> {
        let mut preferred = PreferredVersions::default();
        for canonical in &section.preferred_versions {
            if !preferred.add(canonical.as_ref()) {
                let why = format!("'{}' has no version; write url|version", canonical.as_ref());
                return Err(self.value_error(canonical.span(), "preferred_versions", why));
            }
        }
        Ok(preferred)
    }
}

pub(super) fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })
}

pub(super) fn parse(path: &Path, text: &str) -> Result<ConfigFile, ConfigError> {
    toml::from_str(text)
        .map_err(|error| ConfigError::Syntax { path: path.to_owned(), text: with_nearest(error.to_string()) })
}

/// Adds a suggestion to an error text of the form "unknown field `x`, expected one of `y`, `z`".
pub(super) fn with_nearest(text: String) -> String {
    let rest = text.split_once("unknown field ").or_else(|| text.split_once("unknown variant "));
    let Some((_, rest)) = rest else { return text };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return text };
    let known: Vec<_> = names.collect();
    match nearest_name(unknown, known.iter().copied()) {
        // The text already names the only one.
        Some(_) if known.len() == 1 => text,
        Some(name) => format!("{}; did you mean `{name}`?", text.trim_end()),
        None => text,
    }
}
