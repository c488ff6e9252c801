//! A configuration file, and errors with their places in it.

use std::borrow::Cow;
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use toml::Spanned;

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
    #[error("{}: line {line}: {key}: {reason}", path.display())]
    Value {
        /// Path of the file.
        path: PathBuf,
        /// Line of the value, counted from 1.
        line: usize,
        /// Key of the value.
        key: Cow<'static, str>,
        /// Description of the defect and the remedy.
        reason: String,
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
    /// The line of a value, counted from 1.
    pub(super) fn line_of(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn value_error(
        &self,
        span: Range<usize>,
        key: impl Into<Cow<'static, str>>,
        reason: impl Display,
    ) -> ConfigError {
        let (key, reason) = (key.into(), reason.to_string());
        ConfigError::Value { path: self.path.to_owned(), line: self.line_of(span), key, reason }
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
        let text = read.map_err(|reason| self.value_error(span, key, reason))?;
        Ok(Some(text.trim().to_owned()))
    }

    /// A number, if it is within bounds.
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
        let reason = format!("{number} is not in {} to {}", bounds.start(), bounds.end());
        Err(self.value_error(value.span(), key, reason))
    }

    /// Parses IP networks and single IP addresses.
    pub(super) fn parse_networks(
        &self,
        key: &'static str,
        texts: &[Spanned<String>],
    ) -> Result<Vec<IpNet>, ConfigError> {
        texts.iter().map(|text| self.parse_network(key, text)).collect()
    }

    /// Parses an IP network or a single IP address.
    fn parse_network(&self, key: &'static str, text: &Spanned<String>) -> Result<IpNet, ConfigError> {
        let network = text.as_ref().parse::<IpNet>().ok();
        let network = network.or_else(|| text.as_ref().parse::<IpAddr>().ok().map(IpNet::from));
        network.ok_or_else(|| {
            let reason = format!("'{}' is not a network such as 10.0.0.0/8", text.as_ref());
            self.value_error(text.span(), key, reason)
        })
    }
}
