//! The space and the connections that a store uses, for metrics.

/// The resources that a store uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// The files of a folder.
    pub files: Option<FileUsage>,
    /// The connections to a database.
    pub database: Option<DatabaseUsage>,
}

/// The files of a store in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileUsage {
    /// Length of the tables in bytes.
    pub table_bytes: u64,
    /// Length of the journals in bytes.
    pub journal_bytes: u64,
    /// Number of merges of files since the start.
    pub compactions: u64,
}

/// The connections of a node to its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseUsage {
    /// Number of open connections.
    pub open: usize,
    /// Number of open connections that no request uses.
    pub idle: usize,
    /// Number of requests that wait for a connection.
    pub waiting: usize,
    /// Number of transactions and queries since the start.
    pub round_trips: u64,
}
