//! `[bulk]`: settings of exports.

use std::time::Duration;

use ::bulk::InFlight;
use jiff::SignedDuration;
use toml::Spanned;

use super::documented::{implicit, settings_table};
use super::{ConfigError, ConfigSource};

settings_table! {
    /// Exports.
    pub struct BulkSection {
        /// Time for which a completed export is kept.
        retention_s: u64 ["seconds"] = 24 * 3600,
        /// Maximum size of an output file. A file with a single resource may be larger.
        file_size: Spanned<u64> ["bytes"] = implicit(128 << 20),
        /// Maximum number of status requests for an export per minute.
        poll_limit: Option<Spanned<u32>> = None,
        /// Maximum total size of the files of all running exports. If it is reached, a kick-off is answered
        /// with 429.
        in_flight_bytes: Option<Spanned<u64>> ["bytes"] = None,
        /// The same maximum for the exports of one client. In any case, at most 500 exports can run, and 50
        /// of one client.
        in_flight_bytes_per_client: Option<Spanned<u64>> ["bytes"] = None,
        /// Time during which a signed URL grants access to its file without a token. Without this setting,
        /// files require a token.
        signed_url_s: Option<Spanned<u64>> ["seconds"] = None,
        /// Time after which another worker resumes the export of a worker that has stopped, 2 to 600. A
        /// worker that is paused for longer loses its export. Several nodes need at least 10, because their
        /// clocks may differ.
        lease_s: Spanned<u32> ["seconds"] = implicit(60),
        /// Version of the Bulk Data guide; 3.0.0 adds manifests in pages.
        guide: ::bulk::GuideVersion = ::bulk::GuideVersion::default(),
        /// Export the members of nested Groups too.
        nested_groups: bool = false,
        /// Exports of Groups without `_type` contain the Practitioners, Organizations and other resources
        /// that the exported ones refer to, as with `includeAssociatedData=_supporting`. Certification tests
        /// of the USA expect this.
        supporting: bool = false,
        /// The list in which an increment (`_since`) reports resources that no longer belong to the export
        /// although they are not deleted: those of Patients who have left the Group, those that now belong to
        /// other patients, and those that no longer match `_typeFilter`. `outcome` names them in an
        /// OperationOutcome under `error`; `deleted` lists them under `deleted`, so that a pipeline that
        /// applies `deleted` keeps an exact copy. A pipeline that loads several Groups into one table should
        /// use `outcome`: a Patient who has left one Group may be in another.
        group_leavers: ::bulk::GroupLeavers = ::bulk::GroupLeavers::default(),
    }
}

impl BulkSection {
    pub(super) fn check(&self, source: &ConfigSource<'_>) -> Result<BulkConfig, ConfigError> {
        let file_size = *self.file_size.as_ref();
        if file_size < 1 << 10 {
            return Err(source.value_error(self.file_size.span(), "file_size", "use 1024 bytes or more"));
        }
        if let Some(limit) = &self.poll_limit
            && *limit.as_ref() == 0
        {
            return Err(source.value_error(limit.span(), "poll_limit", "use 1 or more, or leave it out"));
        }
        if let Some(lifetime) = &self.signed_url_s
            && !(10..=3600).contains(lifetime.as_ref())
        {
            let reason = "use 10 to 3600 seconds, because anyone with the URL can read the file";
            return Err(source.value_error(lifetime.span(), "signed_url_s", reason));
        }
        // 0 would refuse every download.
        let positive = |key, limit: &Option<Spanned<u64>>| match limit {
            Some(limit) if *limit.as_ref() == 0 => {
                Err(source.value_error(limit.span(), key, "use 1 or more, or leave it out"))
            }
            limit => Ok(limit.as_ref().map(|limit| *limit.as_ref())),
        };
        let lease = source.bounded_number("lease_s", &self.lease_s, 2..=600)?;
        Ok(BulkConfig {
            lease: SignedDuration::from_secs(lease.into()),
            in_flight: InFlight {
                of_client: positive("in_flight_bytes_per_client", &self.in_flight_bytes_per_client)?,
                of_all: positive("in_flight_bytes", &self.in_flight_bytes)?,
            },
            signed_urls: self.signed_url_s.as_ref().map(|lifetime| Duration::from_secs(*lifetime.as_ref())),
            retention: Duration::from_secs(self.retention_s),
            file_size,
            poll_limit: self.poll_limit.as_ref().map(|limit| *limit.as_ref()),
            guide: self.guide,
            nested_groups: self.nested_groups,
            supporting: self.supporting,
            group_leavers: self.group_leavers,
        })
    }
}

/// The checked settings of exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkConfig {
    /// Time after which another worker resumes the export of a worker that has stopped.
    pub lease: SignedDuration,
    /// Time for which a completed export is kept.
    pub retention: Duration,
    /// Maximum size of an output file, in bytes.
    pub file_size: u64,
    /// Maximum number of status requests for an export per minute.
    pub poll_limit: Option<u32>,
    /// Maximum sizes of the running exports, for all clients and for one client.
    pub in_flight: InFlight,
    /// Lifetime of signed URLs. `None` means that files require a token.
    pub signed_urls: Option<Duration>,
    /// Version of the Bulk Data guide.
    pub guide: ::bulk::GuideVersion,
    /// `true` if members of nested Groups are exported.
    pub nested_groups: bool,
    /// `true` if exports of Groups without `_type` contain supporting resources.
    pub supporting: bool,
    /// The list in which increments report what has left an export.
    pub group_leavers: ::bulk::GroupLeavers,
}
