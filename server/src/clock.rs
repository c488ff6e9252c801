//! The system's clock and randomness. Nobody else asks for the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use identity::{Random, SystemRandom};
use jiff::{SignedDuration, Timestamp};

use crate::clock_guard::{BootTime, ClockGuard};

/// What time it is and what chance says; tests pass their own.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    boot: BootTime,
    /// Random bytes.
    pub random: Arc<dyn Random>,
}

impl Clock {
    /// The system's.
    pub fn system() -> Self {
        Self::ahead(0)
    }

    /// The system's, so many seconds ahead.
    pub fn ahead(seconds: i64) -> Self {
        let ahead = SignedDuration::from_secs(seconds);
        let now = Arc::new(move || Timestamp::now() + ahead);
        Self { now, boot: Arc::new(since_boot), random: Arc::new(SystemRandom) }
    }

    /// Any other source of time, which may jump.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, random: Arc<dyn Random>) -> Self {
        let now = Arc::new(now);
        let wall = Arc::clone(&now);
        let boot = move || Duration::try_from(wall().duration_since(Timestamp::MIN)).unwrap_or_default();
        Self { now, boot: Arc::new(boot), random }
    }

    /// Watches this clock from now on.
    pub fn guard(&self) -> ClockGuard {
        ClockGuard::new(Arc::clone(&self.now), Arc::clone(&self.boot))
    }

    /// The same sources in the form that exports take.
    pub fn for_bulk(&self) -> bulk::Clock {
        let (clock, random) = (self.clone(), self.random.clone());
        bulk::Clock {
            now: Arc::new(move || clock.now()),
            random: Arc::new(move |buffer| random.fill(buffer)),
        }
    }

    /// The time, in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        let now = (self.now)();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }
}

/// The time since the machine was started, including sleep.
fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    Duration::try_from(rustix::time::clock_gettime(clock)).unwrap_or_default()
}

/// CPU time that this thread has taken.
pub fn thread_cpu_time() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Ids of requests: a random beginning for each start of the server, and a number. They are told to callers and
/// stand in logs, and are no secret, so that no request waits for the system's randomness.
pub struct RequestIds {
    beginning: String,
    next: AtomicU64,
}

impl RequestIds {
    /// Ids of one run of the server.
    pub fn new(random: &dyn Random) -> Self {
        Self { beginning: random.id(), next: AtomicU64::new(1) }
    }

    /// The next one.
    pub fn next(&self) -> Arc<str> {
        format!("{}-{}", self.beginning, self.next.fetch_add(1, Ordering::Relaxed)).into()
    }
}

/// A new id for a resource: 128 random bits. FHIR ids have no `_`, which base64url has.
pub fn resource_id(random: &dyn Random) -> String {
    random.id().replace('_', ".")
}
