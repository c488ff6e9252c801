//! `[bulk]`: settings of exports.

use std::path::PathBuf;
use std::time::Duration;

use ::bulk::InFlight;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, ConfigSource};

/// `[bulk]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkSection {
    /// Retention of a finished export, in seconds; default one day.
    pub retention_s: Option<u64>,
    /// Maximum size of an output file, in bytes; only a single larger resource exceeds it. Default 128 MiB.
    pub file_size: Option<Spanned<u64>>,
    /// Maximum number of status requests for an export per minute; default unlimited.
    pub poll_limit: Option<Spanned<u32>>,
    /// Maximum size of the files of all running exports when another one begins, in bytes; default unlimited.
    pub in_flight_bytes: Option<Spanned<u64>>,
    /// The same maximum for the exports of one client.
    pub in_flight_bytes_per_client: Option<Spanned<u64>>,
    /// Folder of the export log; without it no log is written.
    pub export_log: Option<PathBuf>,
    /// Seconds during which a signed URL opens its file without a token; without it, files require a token.
    pub signed_url_s: Option<Spanned<u64>>,
    /// Supported version of the guide: `2.0.0` (the default) or `3.0.0`.
    pub guide: ::bulk::GuideVersion,
    /// Count members of nested Groups as members; default no.
    pub nested_groups: bool,
}

impl BulkSection {
    pub(super) fn check(&self, at: &ConfigSource<'_>) -> Result<BulkConfig, ConfigError> {
        let file_size = match &self.file_size {
            None => 128 << 20,
            Some(size) if *size.as_ref() >= 1 << 10 => *size.as_ref(),
            Some(size) => return Err(at.value_error(size.span(), "file_size", "use 1024 bytes or more")),
        };
        if let Some(limit) = &self.poll_limit
            && *limit.as_ref() == 0
        {
            return Err(at.value_error(limit.span(), "poll_limit", "use 1 or more, or leave it out"));
        }
        if let Some(lifetime) = &self.signed_url_s
            && !(10..=3600).contains(lifetime.as_ref())
        {
            let why = "use 10 to 3600 seconds, because anyone with the URL can read the file";
            return Err(at.value_error(lifetime.span(), "signed_url_s", why));
        }
        let positive = |key, limit: &Option<Spanned<u64>>| match limit {
            Some(limit) if *limit.as_ref() == 0 => {
                Err(at.value_error(limit.span(), key, "use 1 or more, or leave it out"))
            }
            limit => Ok(limit.as_ref().map(|limit| *limit.as_ref())),
        };
        Ok(BulkConfig {
            in_flight: InFlight {
                of_client: positive("in_flight_bytes_per_client", &self.in_flight_bytes_per_client)?,
                of_all: positive("in_flight_bytes", &self.in_flight_bytes)?,
            },
            export_log: self.export_log.as_ref().map(|folder| at.resolve_path(folder)),
            signed_urls: self.signed_url_s.as_ref().map(|lifetime| Duration::from_secs(*lifetime.as_ref())),
            retention: Duration::from_secs(self.retention_s.unwrap_or(24 * 3600)),
            file_size,
            poll_limit: self.poll_limit.as_ref().map(|limit| *limit.as_ref()),
            guide: self.guide,
            nested_groups: self.nested_groups,
        })
    }
}

/// The checked settings of exports.
#[derive(Debug, Clone)]
pub struct BulkConfig {
    /// Retention of a finished export.
    pub retention: Duration,
    /// Maximum size of an output file, in bytes.
    pub file_size: u64,
    /// Maximum number of status requests for an export per minute.
    pub poll_limit: Option<u32>,
    /// Maximum size of the running exports.
    pub in_flight: InFlight,
    /// Folder of the export log.
    pub export_log: Option<PathBuf>,
    /// Lifetime of signed URLs; without it, files require a token.
    pub signed_urls: Option<Duration>,
    /// Supported version of the guide.
    pub guide: ::bulk::GuideVersion,
    /// Count members of nested Groups as members.
    pub nested_groups: bool,
}
