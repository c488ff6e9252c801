//! Time limits and sizes.

use std::time::Duration;

/// Time limits and sizes.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseLimits {
    /// Maximum number of connections of this process.
    pub connections: usize,
    /// Time to wait for a connection.
    pub connect: Duration,
    /// Time that a read of a request may wait for the database before it fails. A link that has stalled is
    /// noticed by it.
    pub read: Duration,
    /// Time that one attempt to write may take, besides [`write_mib`](Self::write_mib). It is longer than
    /// [`idle_transaction`](Self::idle_transaction), so that a write succeeds which has waited for a node
    /// that fell silent.
    pub write: Duration,
    /// Additional time for each MiB that is written at once.
    pub write_mib: Duration,
    /// Time that a page of an export and maintenance may wait for the database, because nobody waits for
    /// their answer.
    pub background: Duration,
    /// Time after which the database ends a transaction whose node is silent. Its locks stop the writes of
    /// all nodes.
    pub idle_transaction: Duration,
    /// Time for which a write is repeated after its arrival while the database is away. Writes that arrive
    /// after the first one has failed end with it, and later ones fail at once.
    pub retry: Duration,
}

impl Default for DatabaseLimits {
    fn default() -> Self {
        Self {
            connections: 16,
            connect: Duration::from_secs(2),
            read: Duration::from_secs(5),
            write: Duration::from_secs(6),
            write_mib: Duration::from_secs(1),
            background: Duration::from_secs(30),
            idle_transaction: Duration::from_secs(4),
            retry: Duration::from_secs(4),
        }
    }
}
