//! Compares the wall clock with the time since the machine was started, which includes sleep and is never
//! set.
//!
//! `lastUpdated` of a resource never decreases. Therefore a wall clock that jumps ahead while the server runs
//! stops all writes until it is corrected or accepted: by an operator, by the setting `clock_jump`, or by a
//! database that has the same time. (The clock of a machine that was paused jumps ahead when it continues.) A
//! jump between two runs is only logged, because the server may have been stopped for any length of time.
//!
//! Nodes that share a database must agree on the time, because each compares the expiry of records that
//! others wrote with its own clock. A node whose clock differs from that of the database by more than
//! [`MAX_DIFFERENCE`] writes nothing.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use store::StoreError;

/// Largest jump that counts as a correction.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Largest accepted difference from the clock of the database.
pub const MAX_DIFFERENCE: SignedDuration = SignedDuration::from_secs(2);

/// The time since a fixed moment before the process was started, by a clock that is never set.
pub type BootTime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The wall clock at the moment when the boot clock was zero.
type BootInstant = Timestamp;

/// Watches the wall clock of one process.
pub struct ClockGuard {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    boot: BootTime,
    accepted: Mutex<AcceptedClock>,
    /// Seconds by which the wall clock is ahead of the clock of the database; 0 if the difference is
    /// accepted.
    ahead_of_database_s: AtomicI64,
    accepts_jumps: AtomicBool,
}

#[derive(Clone, Copy)]
struct AcceptedClock {
    zero: BootInstant,
    /// Set while a logged jump lasts.
    has_jumped: bool,
}

impl ClockGuard {
    /// Accepts the present time of the wall clock.
    pub fn new(wall: Arc<dyn Fn() -> Timestamp + Send + Sync>, boot: BootTime) -> Self {
        let zero = zero(wall(), boot());
        let clock_state = Mutex::new(AcceptedClock { zero, has_jumped: false });
        let (ahead_of_database_s, accepts_jumps) = (AtomicI64::new(0), AtomicBool::new(false));
        Self { wall, boot, accepted: clock_state, ahead_of_database_s, accepts_jumps }
    }

    /// Accepts all further jumps at once, and logs them.
    pub fn accept_jumps(&self) {
        self.accepts_jumps.store(true, Ordering::Relaxed);
    }

    /// Compares the wall clock with the clock of the database, which was read between `local` and now.
    /// Returns the difference if it is too large; writes are then refused until the next comparison. A late
    /// answer is not a difference. If they agree, a jump before `local` is accepted.
    pub fn compare(&self, local: Timestamp, database: Timestamp) -> Option<SignedDuration> {
        let now = (self.wall)();
        let (least, most) = (local.duration_since(database), now.duration_since(database));
        let ahead = if least > SignedDuration::ZERO { least } else { most.min(SignedDuration::ZERO) };
        let is_accepted = ahead.abs() <= MAX_DIFFERENCE;
        let ahead_s = if is_accepted { 0 } else { ahead.as_secs() };
        let before = self.ahead_of_database_s.swap(ahead_s, Ordering::AcqRel);
        if before == 0 && ahead_s != 0 {
            tracing::error!(
                ahead_s,
                "the clock of this machine differs from that of the database; writes are refused"
            );
        }
        // If the clock has jumped since `local`, the database may have been read before.
        if is_accepted && now.duration_since(local) < TOLERANCE {
            self.accept_jump("the database has the same time");
        }
        (!is_accepted).then_some(ahead)
    }

    /// Accepts a jump, if there was one.
    fn accept_jump(&self, reason: &str) {
        let mut clock_state = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let zero = zero((self.wall)(), (self.boot)());
        let ahead = zero.duration_since(clock_state.zero);
        if ahead > TOLERANCE {
            let ahead_s = ahead.as_secs();
            tracing::warn!(ahead_s, "a jump of the clock of this machine was accepted, because {reason}");
            *clock_state = AcceptedClock { zero, has_jumped: false };
        }
    }

    /// Checks that the wall clock has not jumped ahead since it was last accepted. Small corrections are
    /// accepted.
    ///
    /// # Errors
    /// [`StoreError::Clock`] after a jump, or while the clock differs from that of the database.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.ahead_of_database_s.load(Ordering::Acquire) {
            0 => {}
            ahead_s => return Err(StoreError::Clock { ahead_s }),
        }
        if self.accepts_jumps.load(Ordering::Relaxed) {
            self.accept_jump("of [server] clock_jump");
        }
        let mut clock_state = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let zero = zero((self.wall)(), (self.boot)());
        let ahead = zero.duration_since(clock_state.zero);
        if ahead <= TOLERANCE {
            if clock_state.has_jumped || ahead < -TOLERANCE {
                tracing::warn!(moved_s = ahead.as_secs(), "the clock of this machine was set back");
            }
            *clock_state = AcceptedClock { zero, has_jumped: false };
            return Ok(());
        }
        let ahead_s = ahead.as_secs();
        if !clock_state.has_jumped {
            clock_state.has_jumped = true;
            tracing::error!(
                ahead_s,
                "the clock of this machine has jumped ahead; writes are refused until it is corrected, accepted with \
                 `trefoil clock accept`, or agrees with that of a database; [server] clock_jump = \"accept\" accepts all jumps"
            );
        }
        Err(StoreError::Clock { ahead_s })
    }

    /// Accepts the present time of the wall clock, and returns how far it had moved.
    pub fn accept(&self) -> SignedDuration {
        let mut clock_state = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let zero = zero((self.wall)(), (self.boot)());
        let moved = zero.duration_since(clock_state.zero);
        *clock_state = AcceptedClock { zero, has_jumped: false };
        moved
    }
}

fn zero(wall: Timestamp, boot: Duration) -> BootInstant {
    let boot = SignedDuration::try_from(boot).unwrap_or(SignedDuration::MAX);
    wall.checked_sub(boot).unwrap_or(Timestamp::MIN)
}

/// Logs the difference between the wall clock and the time of the last write, by this or another process.
pub fn log_start(now: Timestamp, last: Timestamp) {
    let passed = now.duration_since(last);
    if passed < -TOLERANCE {
        tracing::warn!(
            %last,
            behind_s = -passed.as_secs(),
            "the clock is earlier than the last write of the store; new resources get the time of that write until it is reached"
        );
    } else if passed > TOLERANCE {
        tracing::info!(%last, passed_s = passed.as_secs(), "time since the last write of the store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clocks, in seconds.
    #[derive(Default)]
    struct FakeClocks {
        wall: AtomicI64,
        boot: AtomicI64,
    }

    impl FakeClocks {
        fn pass(&self, seconds: i64) {
            self.wall.fetch_add(seconds, Ordering::Relaxed);
            self.boot.fetch_add(seconds, Ordering::Relaxed);
        }

        fn set(&self, by: i64) {
            self.wall.fetch_add(by, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_clock_that_differs_from_the_database_refuses_writes_until_it_agrees() {
        let (clocks, guard) = guarded();
        let database = |ahead_ms| (guard.wall)() - SignedDuration::from_millis(ahead_ms);
        for (ahead_ms, refused) in [(2_000, None), (2_600, Some(2)), (-2_000, None), (-3_000, Some(-3))] {
            let jump = guard.compare((guard.wall)(), database(ahead_ms));
            assert_eq!(jump.map(|ahead| ahead.as_secs()), refused);
            let expected = refused.map_or(Ok(()), |ahead_s| Err(StoreError::Clock { ahead_s }));
            assert_eq!(guard.check(), expected, "{ahead_ms}");
        }
        clocks.pass(60);
        assert_eq!(guard.compare((guard.wall)(), database(0)), None);
        assert_eq!(guard.check(), Ok(()));
    }

    #[test]
    fn a_late_answer_of_the_database_is_not_a_difference() {
        let (_, guard) = guarded();
        let after = |ms| (guard.wall)() - SignedDuration::from_millis(ms);
        // The database was asked 4 s ago. It has read its clock at any time since.
        for read in [4_000, 2_500, 0] {
            assert_eq!(guard.compare(after(4_000), after(read)), None, "{read}");
        }
        let ahead = guard.compare(after(4_000), after(6_500));
        assert_eq!(ahead, Some(SignedDuration::from_millis(2_500)));
        assert_eq!(guard.compare(after(4_000), after(-2_500)), Some(SignedDuration::from_millis(-2_500)));
    }

    fn guarded() -> (Arc<FakeClocks>, ClockGuard) {
        let clocks = Arc::new(FakeClocks::default());
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
        // The machine sleeps.
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
    fn a_jump_is_accepted_by_a_later_comparison_with_the_database_or_by_a_setting() {
        let (clocks, guard) = guarded();
        // A machine that was paused for ten minutes.
        clocks.set(600);
        assert_eq!(guard.check(), Err(StoreError::Clock { ahead_s: 600 }));
        let now = || (guard.wall)();
        let differs = guard.compare(now(), now() - SignedDuration::from_secs(600));
        assert_eq!(differs, Some(SignedDuration::from_secs(600)));
        assert!(guard.check().is_err());
        // The database was asked before the jump.
        let local = now();
        clocks.set(600);
        assert_eq!(guard.compare(local, local), None);
        assert!(guard.check().is_err());
        assert_eq!(guard.compare(now(), now()), None);
        assert_eq!(guard.check(), Ok(()));
        clocks.set(3_600);
        assert!(guard.check().is_err());
        guard.accept_jumps();
        assert_eq!(guard.check(), Ok(()));
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
    async fn a_guarded_store_reads_and_does_not_write() {
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
        let error = Err(StoreError::Clock { ahead_s: 3_600 });
        assert_eq!(store.write(put(), now).await.map(drop), error);
        assert_eq!(store.snapshot(now).await.map(drop), error);
        assert_eq!(store.check_writable().await, error);
        assert!(store.get("k", now).await.unwrap().is_some());
        guard.accept();
        store.write(put(), now).await.unwrap();
    }
}
