//! Reads `trefoil.toml`: its text, secrets from other files and the environment, and errors with line and
//! key.

use std::path::{Path, PathBuf};

use identity::lifetimes::{self, Lifetimes};
use identity::model::nearest_name::nearest_name;
use identity::sign_in::password::PasswordPolicy;
use identity::sign_in::throttle::ThrottleLimits;
use identity::storage::encryption::{KeyEncryptionKey, SecretEncryption};
use jiff::SignedDuration;
use terminology::{PreferredVersions, SnomedDialects};
use toml::Spanned;

use super::sections::{ConfigFile, IdentitySection, LifetimesSection, TerminologySection, ThrottleSection};
use super::source::ConfigError;
use crate::config::ConfigSource;

impl ConfigSource<'_> {
    pub(super) fn key_encryption_key(
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

    /// Reads the versions that are preferred if a request names none.
    pub(super) fn preferred_versions(
        &self,
        section: &TerminologySection,
    ) -> Result<PreferredVersions, ConfigError> {
        let mut preferred = PreferredVersions::default();
        for canonical in &section.preferred_versions {
            if !preferred.add(canonical.as_ref()) {
                let reason = format!("'{}' has no version; write url|version", canonical.as_ref());
                return Err(self.value_error(canonical.span(), "preferred_versions", reason));
            }
        }
        Ok(preferred)
    }

    /// Reads the dialects of SNOMED CT that are preferred.
    pub(super) fn snomed_dialects(
        &self,
        section: &TerminologySection,
    ) -> Result<SnomedDialects, ConfigError> {
        let mut dialects = SnomedDialects::default();
        for dialect in &section.snomed_dialects {
            if !dialects.add(dialect.as_ref()) {
                let reason = format!(
                    "'{}' is not a dialect; write an alias such as en-gb, or the id of a language reference set",
                    dialect.as_ref()
                );
                return Err(self.value_error(dialect.span(), "snomed_dialects", reason));
            }
        }
        Ok(dialects)
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
    let valid_names: Vec<_> = names.collect();
    match nearest_name(unknown, valid_names.iter().copied()) {
        // The text already names the only one.
        Some(_) if valid_names.len() == 1 => text,
        Some(name) => format!("{}; did you mean `{name}`?", text.trim_end()),
        None => text,
    }
}
