//! The timers of a connection, and the phase in which a server answers.

use std::time::Duration;

/// Maximum durations of the phases of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionTimers {
    /// TLS handshake; also the first byte.
    pub first: Duration,
    /// A request head, from its first byte.
    pub head: Duration,
    /// Idle time in both directions; a connection ends after one to two times this duration.
    pub idle: Duration,
    /// From [`ServingPhase::Stopping`] until open connections are closed.
    pub drain: Duration,
}

impl Default for ConnectionTimers {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(10),
            head: Duration::from_secs(15),
            idle: Duration::from_secs(75),
            drain: Duration::from_secs(5),
        }
    }
}

/// Phases of the accept loop, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServingPhase {
    /// Connections are accepted and kept.
    Serving,
    /// Connections are accepted; each response asks the client to close its connection.
    Closing,
    /// Clients that the kernel has accepted are served; no connection is accepted after that.
    Stopping,
}
