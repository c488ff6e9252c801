//! The system's clock and randomness. Nobody else asks for the time.

use std::sync::Arc;

use identity::{Random, SystemRandom};
use jiff::{SignedDuration, Timestamp};

/// What time it is and what chance says; tests pass their own.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Random bytes.
    pub random: Arc<dyn Random>,
}

impl Clock {
    /// The system's.
    pub fn system() -> Self {
        Self { now: Arc::new(Timestamp::now), random: Arc::new(SystemRandom) }
    }

    /// The system's, so many seconds ahead.
    pub fn ahead(seconds: i64) -> Self {
        let ahead = SignedDuration::from_secs(seconds);
        Self::new(move || Timestamp::now() + ahead, Arc::new(SystemRandom))
    }

    /// Any other source of time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, random: Arc<dyn Random>) -> Self {
        Self { now: Arc::new(now), random }
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

/// A new id for a resource: 128 random bits. FHIR ids have no `_`, which base64url has.
pub fn resource_id(random: &dyn Random) -> String {
    random.id().replace('_', ".")
}
