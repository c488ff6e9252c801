//! The clock of the machine at the start, and after it: the server refuses writes after a jump.

use std::sync::Arc;

use anyhow::{Result, bail};
use store::{Store, StoreError};

use crate::clock::Clock;
use crate::clock::guard::{self, ClockGuard};
use crate::config::{ClockJump, Config};

/// The check of the wall clock.
pub struct ClockCheck {
    /// Refuses writes after a jump of the clock.
    pub guard: Arc<ClockGuard>,
    /// The wall clock must agree with the clock of the database; not if it was set ahead for a demonstration.
    pub follows_database: bool,
}

impl ClockCheck {
    /// Compares the clock with the last write of the store and with the clock of a shared database.
    ///
    /// # Errors
    /// An error if the store cannot be read, or the clocks differ too much (see [`clock_fault`]).
    pub async fn open(config: &Config, clock: &Clock, store: &Store) -> Result<Self> {
        if let Some(last) = store.last_time().await? {
            guard::log_start(clock.now(), last);
        }
        let guard = Arc::new(clock.guard());
        // With a shared database, its clock decides, which no configuration can overrule.
        if config.clock_jump == ClockJump::Accept && !store.is_shared() {
            guard.accept_jumps();
        }
        let follows_database = config.ahead_s == 0;
        if follows_database && let Some(fault) = compare(&guard, clock, store).await? {
            bail!("{fault}");
        }
        Ok(Self { guard, follows_database })
    }
}

/// Why a server cannot start with this clock: it differs from that of a shared database.
///
/// # Errors
/// [`StoreError`] if the database cannot be asked.
pub async fn clock_fault(
    config: &Config,
    clock: &Clock,
    store: &Store,
) -> Result<Option<String>, StoreError> {
    match config.ahead_s {
        0 => compare(&clock.guard(), clock, store).await,
        _ => Ok(None),
    }
}

async fn compare(guard: &ClockGuard, clock: &Clock, store: &Store) -> Result<Option<String>, StoreError> {
    let before = clock.now();
    let Some(database) = store.shared_time().await? else { return Ok(None) };
    let ahead = guard.compare(before, database);
    Ok(ahead.map(|ahead| {
        format!(
            "the clock of this machine differs by {} s from that of the database; correct it, for example with NTP",
            ahead.as_secs()
        )
    }))
}
