//! `[audit]`: which requests are recorded, and how durably.

use serde::Deserialize;

use super::documented::settings_table;

settings_table! {
    /// The audit log.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct AuditConfig {
        /// State of the audit lines of a request when its response is sent: in memory, passed to the
        /// operating system, or on the disk.
        durability: Durability = Durability::default(),
        /// Requests for FHIR resources that are recorded. `off`: none. `changes`: creates, updates and
        /// deletes. `all`: also reads, histories, searches and downloads of exports.
        resources: RecordedRequests = RecordedRequests::default(),
        /// Number of days for which audit files are kept; 0 for all.
        keep_days: u32 ["days"] = 0,
        /// Maximum size of all audit files; 0 for none. Above it, and before the reserve of the disk is used,
        /// the oldest files are removed and the server's log says so; with `durability = "synced"` never.
        max_bytes: u64 ["bytes"] = 8 << 30,
    }
}

/// State of the audit lines of a request when its response is sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the memory of the process. A crash of the server loses them.
    Queued,
    /// Passed to the operating system. They survive a crash of the server, but not always a power failure.
    #[default]
    Written,
    /// On the disk. If the lines cannot be written, the response is an error.
    Synced,
}

/// The kinds of requests for FHIR resources that are recorded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedRequests {
    /// No requests.
    Off,
    /// Creates, updates and deletes.
    #[default]
    Changes,
    /// Also reads, histories, searches and downloads of exports.
    All,
}
