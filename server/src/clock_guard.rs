//! Compares the wall clock with the time since the machine was started, which counts sleep and is never set.
//!
//! A time that was given to a resource stays: `lastUpdated` never goes back. So a wall clock that jumps ahead while the
//! server runs stops all writes, until it is set right or an operator accepts it. A jump between two runs is only
//! logged: the server may have been stopped for any time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use store::StoreError;

/// The largest jump that is a correction and not a mistake.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// The time since some moment before the process was started, by a clock that is never set.
pub type BootTime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The wall clock at the moment that the boot clock was zero.
type Zero = Timestamp;

/// Watches the wall clock of one process.
pub struct ClockGuard {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    boot: BootTime,
    accepted: Mutex<Accepted>,
}

#[derive(Clone, Copy)]
struct Accepted {
    zero: Zero,
    /// Was a jump logged that still lasts?
    has_jumped: bool,
}

impl ClockGuard {
    /// Accepts the wall clock as it is now.
    pub fn new(wall: Arc<dyn Fn() -> Timestamp + Send + Sync>, boot: BootTime) -> Self {
        let zero = zero(wall(), boot());
        Self { wall, boot, accepted: Mutex::new(Accepted { zero, has_jumped: false }) }
    }

    /// Checks that the wall clock has not jumped ahead since it was accepted last. Each small correction is accepted.
    ///
    /// # Errors
    /// [`StoreError::Clock`].
    pub fn check(&self) -> Result<(), StoreError> {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let zero = zero((self.wall)(), (self.boot)());
        let ahead = zero.duration_since(accepted.zero);
        if ahead <= TOLERANCE {
            if accepted.has_jumped || ahead < -TOLERANCE {
                tracing::warn!(moved_s = ahead.as_secs(), "the clock of this machine was set back");
            }
            *accepted = Accepted { zero, has_jumped: false };
            return Ok(());
        }
        let ahead_s = ahead.as_secs();
        if !accepted.has_jumped {
            accepted.has_jumped = true;
            tracing::error!(
                ahead_s,
                "the clock of this machine has jumped ahead; writes are refused until it is set right or accepted with \
                 `trefoil clock accept`"
            );
        }
        Err(StoreError::Clock { ahead_s })
    }

    /// Accepts the wall clock as it is now; returns how far it had moved.
    pub fn accept(&self) -> SignedDuration {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let zero = zero((self.wall)(), (self.boot)());
        let moved = zero.duration_since(accepted.zero);
        *accepted = Accepted { zero, has_jumped: false };
        moved
    }
}

fn zero(wall: Timestamp, boot: Duration) -> Zero {
    let boot = SignedDuration::try_from(boot).unwrap_or(SignedDuration::MAX);
    wall.checked_sub(boot).unwrap_or(Timestamp::MIN)
}

/// Logs how the wall clock compares with the last time that was given to a write, by this or another process.
pub fn log_start(now: Timestamp, last: Timestamp) {
    let passed = now.duration_since(last);
    if passed < -TOLERANCE {
        tracing::warn!(
            %last,
            behind_s = -passed.as_secs(),
            "the clock is behind the last write of the store; new resources get the time of that write until it is reached"
        );
    } else if passed > TOLERANCE {
        tracing::info!(%last, passed_s = passed.as_secs(), "time since the last write of the store");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// Two clocks, in seconds.
    #[derive(Default)]
    struct Clocks {
        wall: AtomicI64,
        boot: AtomicI64,
    }

    impl Clocks {
        fn pass(&self, seconds: i64) {
            self.wall.fetch_add(seconds, Ordering::Relaxed);
            self.boot.fetch_add(seconds, Ordering::Relaxed);
        }

        fn set(&self, by: i64) {
            self.wall.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn guarded() -> (Arc<Clocks>, ClockGuard) {
        let clocks = Arc::new(Clocks::default());
        clocks.set(1_800_000_000);
        clocks.pass(1_000);
        let (wall, boot) = (Arc::clone(&clocks), Arc::clone(&clocks));
        let wall = move || Timestamp::from_second(wall.wall.load(Ordering::Relaxed)).unwrap();
        let boot = move || Duration::from_secs(boot.boot.load(Ordering::Relaxed).unsigned_abs());
        (clocks, ClockGuard::new(Arc::new(wall), Arc::new(boot)))
    }

    #[test]
    fn a_jump_ahead_is_refused_until_the_clock_returns_or_is_accepted() {
        let (clocks, guard) = guarded();
        guard.check().unwrap();
        // A laptop sleeps.
        clocks.pass(100_000);
        guard.check().unwrap();
        clocks.set(301);
        assert_eq!(guard.check(), Err(StoreError::Clock { ahead_s: 301 }));
        clocks.pass(60);
        assert_eq!(guard.check(), Err(StoreError::Clock { ahead_s: 301 }));
        clocks.set(-301);
        guard.check().unwrap();
        clocks.set(86_400);
        assert_eq!(guard.check(), Err(StoreError::Clock { ahead_s: 86_400 }));
        assert_eq!(guard.accept().as_secs(), 86_400);
        guard.check().unwrap();
    }

    #[test]
    fn corrections_and_steps_back_are_accepted() {
        let (clocks, guard) = guarded();
        for by in [300, -300, 1, -86_400, 299] {
            clocks.pass(10);
            clocks.set(by);
            guard.check().unwrap();
        }
        clocks.set(301);
        assert!(guard.check().is_err());
    }

    #[tokio::test]
    async fn a_store_behind_the_guard_reads_and_does_not_write() {
        use store::{Expect, Ledger as _, LedgerWrite, Store, Versions as _};
        let (clocks, guard) = guarded();
        let guard = Arc::new(guard);
        let store = Store::memory();
        let gate = Arc::clone(&guard);
        store.set_gate(Arc::new(move || gate.check()));
        let now = Timestamp::UNIX_EPOCH;
        let put = || vec![LedgerWrite::put("k", "v", Expect::Any)];
        store.write(put(), now).await.unwrap();
        clocks.set(3_600);
        let refused = Err(StoreError::Clock { ahead_s: 3_600 });
        assert_eq!(store.write(put(), now).await.map(drop), refused);
        assert_eq!(store.snapshot(now).await.map(drop), refused);
        assert_eq!(store.check_writable().await, refused);
        assert!(store.get("k", now).await.unwrap().is_some());
        guard.accept();
        store.write(put(), now).await.unwrap();
    }
}
