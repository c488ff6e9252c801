//! The time source of the client: the current time, and waiting. Tests use a fixed time and do not wait.

use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

/// Time between two ticks, in milliseconds: that of the moving marks, and of the samples of rates.
pub const TICK_MS: i64 = 250;

pub type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug)]
pub struct ClientClock {
    pub now: fn() -> Timestamp,
    /// Completes after the duration.
    pub wait: fn(Duration) -> Wait,
}

impl ClientClock {
    /// The clock of the operating system.
    pub const SYSTEM: Self =
        Self { now: Timestamp::now, wait: |duration| Box::pin(tokio::time::sleep(duration)) };
}
