//! The time source of the client: the current time, and waiting. Tests use a fixed time and do not wait.

use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

/// Time between two ticks, in milliseconds: that of the moving marks, and of the samples of rates.
pub const TICK_MS: i64 = 250;

/// Maximum difference between two clocks that servers usually tolerate, in seconds.
const CLOCK_TOLERANCE_S: i64 = 60;

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

/// Returns whether clocks that differ by these seconds cause failures.
pub fn clock_differs(skew_s: i64) -> bool {
    skew_s.abs() > CLOCK_TOLERANCE_S
}

/// How the clock of this machine differs from that of the server, as a sentence. `skew_s` are the seconds by
/// which it is ahead.
pub fn clock_sentence(skew_s: i64) -> String {
    let seconds = skew_s.abs();
    let amount = match seconds {
        0 => return "the clocks agree".to_owned(),
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    };
    let direction = if skew_s > 0 { "ahead of" } else { "behind" };
    format!("this machine is {amount} {direction} the server")
}
