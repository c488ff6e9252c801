//! `[bulk]`: how exports are made and kept.

use std::path::PathBuf;
use std::time::Duration;

use ::bulk::InFlight;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, File};

/// `[bulk]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkSection {
    /// How long a finished export is kept, in seconds; default one day.
    pub retention_s: Option<u64>,
    /// Longest output file, in bytes, but for a single longer resource; default 128 MiB.
    pub file_size: Option<Spanned<u64>>,
    /// How often the status of an export may be asked for within a minute; default without limit.
    pub poll_limit: Option<Spanned<u32>>,
    /// Most bytes that the files of all exports under way may have when one more begins; default without limit.
    pub in_flight_bytes: Option<Spanned<u64>>,
    /// The same for the exports of the client that asks.
    pub in_flight_bytes_per_client: Option<Spanned<u64>>,
    /// Folder of the export log; without it there is none.
    pub export_log: Option<PathBuf>,
    /// How long a signed address opens its file without a token, in seconds; without it files want a token.
    pub signed_url_s: Option<Spanned<u64>>,
    /// Version of the guide whose parameters and manifest are spoken: `2.0.0` (the default) or `3.0.0`.
    pub guide: ::bulk::Guide,
    /// Are members of Groups within a Group its members? Default no.
    pub nested_groups: bool,
}

impl BulkSection {
    pub(super) fn read(&self, at: &File<'_>) -> Result<BulkConfig, ConfigError> {
        let file_size = match &self.file_size {
            None => 128 << 20,
            Some(size) if *size.as_ref() >= 1 << 10 => *size.as_ref(),
            Some(size) => return Err(at.wrong(size.span(), "file_size", "use 1024 bytes or more")),
        };
        if let Some(limit) = &self.poll_limit
            && *limit.as_ref() == 0
        {
            return Err(at.wrong(limit.span(), "poll_limit", "use 1 or more, or leave it out"));
        }
        if let Some(lifetime) = &self.signed_url_s
            && !(10..=3600).contains(lifetime.as_ref())
        {
            let why = "use 10 to 3600 seconds: whoever has such an address can read the file";
            return Err(at.wrong(lifetime.span(), "signed_url_s", why));
        }
        let positive = |key, limit: &Option<Spanned<u64>>| match limit {
            Some(limit) if *limit.as_ref() == 0 => {
                Err(at.wrong(limit.span(), key, "use 1 or more, or leave it out"))
            }
            limit => Ok(limit.as_ref().map(|limit| *limit.as_ref())),
        };
        Ok(BulkConfig {
            in_flight: InFlight {
                of_client: positive("in_flight_bytes_per_client", &self.in_flight_bytes_per_client)?,
                of_all: positive("in_flight_bytes", &self.in_flight_bytes)?,
            },
            export_log: self.export_log.as_ref().map(|folder| at.beside(folder)),
            signed_urls: self.signed_url_s.as_ref().map(|lifetime| Duration::from_secs(*lifetime.as_ref())),
            retention: Duration::from_secs(self.retention_s.unwrap_or(24 * 3600)),
            file_size,
            poll_limit: self.poll_limit.as_ref().map(|limit| *limit.as_ref()),
            guide: self.guide,
            nested_groups: self.nested_groups,
        })
    }
}

/// How exports are made and kept.
#[derive(Debug, Clone)]
pub struct BulkConfig {
    /// How long a finished export is kept.
    pub retention: Duration,
    /// Longest output file in bytes.
    pub file_size: u64,
    /// How often the status of an export may be asked for within a minute.
    pub poll_limit: Option<u32>,
    /// How much may be under way.
    pub in_flight: InFlight,
    /// Folder of the export log.
    pub export_log: Option<PathBuf>,
    /// How long signed addresses work; without it files want a token.
    pub signed_urls: Option<Duration>,
    /// Version of the guide whose parameters and manifest are spoken.
    pub guide: ::bulk::Guide,
    /// Are members of Groups within a Group its members?
    pub nested_groups: bool,
}
