//! Reading `trefoil.toml`: its text, secrets that stand elsewhere, and what is wrong with its line and key.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use identity::password::PasswordPolicy;
use identity::seal::{Seal, SealKey};
use identity::throttle::ThrottleLimits;
use ipnet::IpNet;
use jiff::SignedDuration;
use toml::Spanned;

use super::sections::{ConfigFile, IdentitySection, ThrottleSection};
use crate::registration::nearest;

/// A configuration that cannot work: exit code 3.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("failed to read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file says something that is not understood; the text shows the line.
    #[error("{}: {text}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what was wrong.
        text: String,
    },
    /// A value that cannot work.
    #[error("{}: line {line}: {key}: {why}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Where it stands.
        line: usize,
        /// The key.
        key: &'static str,
        /// What to change.
        why: String,
    },
    /// A setting that cannot work.
    #[error("{0}")]
    Setting(String),
}

/// The file that is being read: its place and its text, for errors with a line.
pub struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl File<'_> {
    /// The line of a value, from 1.
    pub(super) fn line(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn wrong(&self, span: Range<usize>, key: &'static str, why: impl Display) -> ConfigError {
        ConfigError::Value { path: self.path.to_owned(), line: self.line(span), key, why: why.to_string() }
    }

    /// A path of the file, which lies beside it where it is relative.
    pub(super) fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A secret from a file or from the environment.
    pub(super) fn secret(
        &self,
        key: &'static str,
        file: Option<&Spanned<PathBuf>>,
        variable: Option<&Spanned<String>>,
    ) -> Result<Option<String>, ConfigError> {
        let (span, read) = match (file, variable) {
            (None, None) => return Ok(None),
            (Some(file), None) => {
                let path = self.beside(file.as_ref());
                let read = std::fs::read_to_string(&path);
                (file.span(), read.map_err(|error| format!("failed to read {}: {error}", path.display())))
            }
            (None, Some(variable)) => {
                let name = variable.as_ref();
                (variable.span(), std::env::var(name).map_err(|_| format!("the environment has no {name}")))
            }
            (Some(_), Some(variable)) => (variable.span(), Err("give it in one way only".to_owned())),
        };
        let text = read.map_err(|why| self.wrong(span, key, why))?;
        Ok(Some(text.trim().to_owned()))
    }

    fn seal_key(
        &self,
        key: &'static str,
        file: Option<&Spanned<PathBuf>>,
        variable: Option<&Spanned<String>>,
    ) -> Result<Option<SealKey>, ConfigError> {
        let span = file.map(Spanned::span).or(variable.map(Spanned::span)).unwrap_or_default();
        let text = self.secret(key, file, variable)?;
        text.map(|text| SealKey::from_base64(&text).map_err(|error| self.wrong(span, key, error))).transpose()
    }

    pub(super) fn seal(&self, section: &IdentitySection) -> Result<Seal, ConfigError> {
        Ok(Seal {
            current: self.seal_key(
                "key_encryption_key",
                section.key_encryption_key_file.as_ref(),
                section.key_encryption_key_env.as_ref(),
            )?,
            previous: self.seal_key(
                "previous_key_encryption_key",
                section.previous_key_encryption_key_file.as_ref(),
                section.previous_key_encryption_key_env.as_ref(),
            )?,
        })
    }

    /// A number within bounds, or the default.
    fn number(
        &self,
        key: &'static str,
        value: Option<&Spanned<u32>>,
        bounds: RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, ConfigError> {
        match value {
            None => Ok(default),
            Some(number) if bounds.contains(number.as_ref()) => Ok(*number.as_ref()),
            Some(number) => {
                let why = format!("{} is not in {} to {}", number.as_ref(), bounds.start(), bounds.end());
                Err(self.wrong(number.span(), key, why))
            }
        }
    }

    pub(super) fn passwords(&self, section: &IdentitySection) -> Result<PasswordPolicy, ConfigError> {
        let length = section.password_min_length.as_ref();
        let strength = section.password_min_strength.as_ref();
        let min_strength = self.number("password_min_strength", strength, 0..=4, 3)?;
        Ok(PasswordPolicy {
            min_length: self.number("password_min_length", length, 8..=64, 8)? as usize,
            min_strength: u8::try_from(min_strength).unwrap_or(u8::MAX),
        })
    }

    pub(super) fn throttle(&self, section: &ThrottleSection) -> Result<ThrottleLimits, ConfigError> {
        let free = |key, value: &Option<Spanned<u32>>, default| {
            self.number(key, value.as_ref(), 1..=1_000_000, default)
        };
        let lockout = self.number("max_lockout_s", section.max_lockout_s.as_ref(), 1..=86_400, 900)?;
        Ok(ThrottleLimits {
            per_pair: free("free_failures_per_pair", &section.free_failures_per_pair, 5)?,
            per_user: free("free_failures_per_user", &section.free_failures_per_user, 25)?,
            per_address: free("free_failures_per_address", &section.free_failures_per_address, 50)?,
            max_lockout: SignedDuration::from_secs(lockout.into()),
        })
    }

    /// A network, or one address.
    pub(super) fn network(&self, text: &Spanned<String>) -> Result<IpNet, ConfigError> {
        let network = text.as_ref().parse::<IpNet>().ok();
        let network = network.or_else(|| text.as_ref().parse::<IpAddr>().ok().map(IpNet::from));
        network.ok_or_else(|| {
            let why = format!("'{}' is no network such as 10.0.0.0/8", text.as_ref());
            self.wrong(text.span(), "trusted_proxies", why)
        })
    }
}

pub(super) fn text_of(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })
}

pub(super) fn parse(path: &Path, text: &str) -> Result<ConfigFile, ConfigError> {
    toml::from_str(text)
        .map_err(|error| ConfigError::Syntax { path: path.to_owned(), text: with_nearest(error.to_string()) })
}

/// Adds the nearest known name to a text that says "unknown field `x`, expected one of `y`, `z`".
fn with_nearest(text: String) -> String {
    let rest = text.split_once("unknown field ").or_else(|| text.split_once("unknown variant "));
    let Some((_, rest)) = rest else { return text };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return text };
    match nearest(unknown, names) {
        Some(name) => format!("{}; did you mean `{name}`?", text.trim_end()),
        None => text,
    }
}
