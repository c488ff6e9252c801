//! Time and randomness. All other modules take both from here.

pub mod guard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use identity::{Random, SystemRandom};
use jiff::{SignedDuration, Timestamp};

use self::guard::{BootTime, ClockGuard};

/// A source of time and randomness. Tests use their own.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    boot: BootTime,
    /// Random bytes.
    pub random: Arc<dyn Random>,
}

impl Clock {
    /// The clock and randomness of the operating system.
    pub fn system() -> Self {
        Self::ahead(0)
    }

    /// The system clock set ahead by a number of seconds.
    pub fn ahead(seconds: i64) -> Self {
        let ahead = SignedDuration::from_secs(seconds);
        let now = Arc::new(move || Timestamp::now() + ahead);
        Self { now, boot: Arc::new(since_boot), random: Arc::new(SystemRandom) }
    }

    /// A clock with another source of time, which may jump.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, random: Arc<dyn Random>) -> Self {
        let now = Arc::new(now);
        let wall = Arc::clone(&now);
        let boot = move || Duration::try_from(wall().duration_since(Timestamp::MIN)).unwrap_or_default();
        Self { now, boot: Arc::new(boot), random }
    }

    /// A guard that watches this clock from now on.
    pub fn guard(&self) -> ClockGuard {
        ClockGuard::new(Arc::clone(&self.now), Arc::clone(&self.boot))
    }

    /// The same sources as a clock for exports.
    pub fn for_bulk(&self) -> bulk::BulkClock {
        let (clock, random) = (self.clone(), self.random.clone());
        bulk::BulkClock {
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

/// The CPU time of this thread.
pub fn thread_cpu_time() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Waits until the second of `now` has passed. Times of tokens are whole seconds, so that a token that is
/// issued after it is later than `now`.
pub async fn until_next_second(now: Timestamp) {
    let rest = SignedDuration::from_secs(1) - SignedDuration::from_nanos(now.subsec_nanosecond().into());
    tokio::time::sleep(rest.unsigned_abs()).await;
}

/// Request ids: a random prefix for each start of the server, and a number. They appear in responses and logs
/// and are not secret, so that no request waits for the randomness of the operating system.
pub struct RequestIds {
    beginning: String,
    next: AtomicU64,
}

impl RequestIds {
    /// Starts the ids of one run of the server.
    pub fn new(random: &dyn Random) -> Self {
        Self { beginning: random.id(), next: AtomicU64::new(1) }
    }

    /// The next id.
    pub fn next(&self) -> Arc<str> {
        let mut number = itoa::Buffer::new();
        [&*self.beginning, "-", number.format(self.next.fetch_add(1, Ordering::Relaxed))].concat().into()
    }
}

/// A new resource id with 128 random bits. FHIR ids cannot contain `_`, which base64url uses.
pub fn resource_id(random: &dyn Random) -> String {
    random.id().replace('_', ".")
}
