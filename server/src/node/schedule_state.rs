//! The state of the backups by schedule, as this process knows it.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Pause after the first failure. It doubles with each further one, up to the longest.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// The state of the backups by schedule, as this process knows it.
#[derive(Debug, Default)]
pub struct ScheduleState {
    /// Whether this process makes a backup.
    pub(super) has_turn: AtomicBool,
    facts: Mutex<ScheduleFacts>,
}

/// Facts about the backups by schedule.
#[derive(Debug, Default, Clone)]
pub struct ScheduleFacts {
    /// Time of the last backup in the location.
    pub last: Option<Timestamp>,
    /// Its size in bytes, without the files that earlier ones contain.
    pub bytes: u64,
    /// Time that the last backup of this process took.
    pub duration: Option<SignedDuration>,
    /// Number of failures since the start.
    pub failures: u64,
    /// Whether the store is a drill, which makes no backups.
    pub is_drill: bool,
    /// Why no backup can be made.
    pub fault: Option<String>,
    /// Failures since the last success, and the time before which no attempt is made.
    pub(super) pause: Option<(SignedDuration, Timestamp)>,
    /// Time of the last warning.
    pub(super) warned: Option<Timestamp>,
}

impl ScheduleState {
    /// The facts now.
    pub fn facts(&self) -> ScheduleFacts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the facts.
    pub(super) fn change(&self, change: impl FnOnce(&mut ScheduleFacts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether a failure was so recently that no attempt is made.
    pub(super) fn is_paused(&self, now: Timestamp) -> bool {
        self.facts().pause.is_some_and(|(_, until)| now < until)
    }

    /// Records a failure, after which the next attempt waits.
    pub(super) fn fail(&self, reason: String, now: Timestamp) {
        self.change(|facts| {
            let pause = facts.pause.map_or(FIRST_PAUSE, |(pause, _)| (pause * 2).min(LONGEST_PAUSE));
            facts.pause = Some((pause, now + pause));
            facts.failures += 1;
            facts.fault = Some(reason);
        });
    }

    /// Records that the last backup is recent: the next one is tried when it is due.
    pub(super) fn succeed(&self) {
        self.change(|facts| (facts.fault, facts.pause) = (None, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_backup_is_tried_later_and_later() {
        let state = ScheduleState::default();
        let mut now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            state.fail("no space".to_owned(), now);
            let start = now;
            while state.is_paused(now) {
                now += SignedDuration::from_mins(1);
            }
            pauses.push((now.as_second() - start.as_second()) / 60);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(state.facts().failures, 8);
    }
}
