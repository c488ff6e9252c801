//! Backups by schedule. Nodes on one database take turns.

use std::sync::atomic::Ordering;

use anyhow::Result;
use backup::{BackupLocation, Manifest, StorePurpose, Succession};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use crate::config::backup::BackupSchedule;
use crate::node::backups::BackupSources;

/// Key of the record of the node that makes the backup ([`BackupTurn`]), and the longest time for which it
/// holds.
const TURN: &str = "backup/turn";
const LONGEST_TURN: SignedDuration = SignedDuration::from_hours(6);
/// Interval of the warning that no backups are made.
const WARNING_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// The node that makes a backup.
#[derive(Debug, Serialize, Deserialize)]
struct BackupTurn {
    /// Id of the node; `None` if the store belongs to one server.
    node: Option<String>,
    backup: String,
}

impl BackupSchedule {
    /// The last time before now at which a backup was due.
    fn last_due(&self, now: Timestamp) -> Timestamp {
        let Some(at) = self.at else { return now - self.every };
        let (every, at) = (self.every.as_secs(), at.as_secs());
        let periods = (now.as_second() - at).div_euclid(every);
        Timestamp::from_second(periods * every + at).unwrap_or(now)
    }
}

/// Why a restored store makes no backups by schedule; `None` if it makes them.
pub fn undecided(succession: Option<&Succession>) -> Option<String> {
    (succession?.purpose == StorePurpose::Undecided).then(|| {
        "no backups are made by schedule, because this store was restored, and its purpose was not stated; run \
         `trefoil store backups --continue` if it takes the place of the earlier store, and `trefoil store backups \
         --drill` if it is a trial"
            .to_owned()
    })
}

impl BackupSources {
    /// Makes a backup if one is due, and removes old ones. After a failure the next attempts are later and
    /// later.
    ///
    /// # Errors
    /// An error if the location or the store fails.
    pub async fn run_schedule(&self, store: &Store, now: impl Fn() -> Timestamp) -> Result<()> {
        let Some(schedule) = &self.schedule else { return Ok(()) };
        if self.state.is_paused(now()) {
            return Ok(());
        }
        let result = self.make_due_backup(store, schedule, &now).await;
        if let Err(error) = &result {
            self.state.fail(format!("the last backup by schedule failed: {error:#}"), now());
        }
        result
    }

    async fn make_due_backup(
        &self,
        store: &Store,
        schedule: &BackupSchedule,
        now: &impl Fn() -> Timestamp,
    ) -> Result<()> {
        let start = now();
        let succession = Succession::read(store, start).await?;
        if let Some(reason) = undecided(succession.as_ref()) {
            self.state.change(|facts| {
                if facts.warned.is_none_or(|warned| warned + WARNING_INTERVAL <= start) {
                    tracing::warn!("{reason}");
                    facts.warned = Some(start);
                }
                facts.fault = Some(reason);
            });
            return Ok(());
        }
        let is_drill =
            succession.as_ref().is_some_and(|succession| succession.purpose == StorePurpose::Drill);
        self.state.change(|facts| (facts.is_drill, facts.fault) = (is_drill, None));
        if is_drill {
            return Ok(());
        }
        let mut store_ids = vec![store.id()];
        store_ids.extend(succession.iter().flat_map(Succession::continued).cloned());
        let location = self.location(None, true)?;
        let backups = location.backups().await?;
        let own = || backups.iter().rev().filter(|backup| store_ids.contains(&backup.store_id));
        let last = own().next();
        self.state.change(|facts| {
            facts.last = last.map(|last| last.time);
            facts.bytes = last.map_or(0, Manifest::bytes);
        });
        if last.is_some_and(|last| last.time > schedule.last_due(start)) {
            self.state.succeed();
            return Ok(());
        }
        self.end_turn_of_ended_node(store, &location, start).await?;
        let turn = BackupTurn { node: store.node_id().await, backup: Manifest::id_at(start) };
        let turn = serde_json::to_vec(&turn).expect("a turn has string keys only");
        let turn = LedgerWrite::put(TURN, turn, Expect::Absent).expiring(start + LONGEST_TURN);
        match store.write(vec![turn], start).await {
            Err(StoreError::Conflict { .. }) => return Ok(()),
            written => drop(written?),
        }
        self.state.has_turn.store(true, Ordering::Relaxed);
        let of_this_store = own().filter(|backup| backup.store_id == store_ids[0]);
        let last_full = of_this_store.into_iter().find(|backup| backup.follows.is_none());
        let full = last_full.is_none_or(|full| full.time <= start - schedule.full_every);
        let backup_result = self.back_up(store, &location, full, start, &mut |_| {}).await;
        // If the turn cannot be ended, it ends by itself.
        drop(store.write(vec![LedgerWrite::delete(TURN, Expect::Any)], start).await);
        self.state.has_turn.store(false, Ordering::Relaxed);
        let manifest = backup_result?;
        let duration = now().duration_since(start);
        self.state.change(|facts| {
            facts.last = Some(manifest.time);
            facts.bytes = manifest.bytes();
            facts.duration = Some(duration);
        });
        self.state.succeed();
        tracing::info!(
            id = manifest.id,
            versions = manifest.versions(),
            bytes = manifest.bytes(),
            "a backup was made"
        );
        let removed = backup::remove_old(&location, &store_ids, schedule.keep, start).await?;
        if !removed.is_empty() {
            tracing::info!(ids = removed.join(", "), "old backups were removed");
        }
        Ok(())
    }

    /// Ends the turn of a node that has ended during its backup, and removes what it has written.
    async fn end_turn_of_ended_node(
        &self,
        store: &Store,
        location: &BackupLocation,
        now: Timestamp,
    ) -> Result<()> {
        let Some(record) = store.get(TURN, now).await? else { return Ok(()) };
        // A node of an earlier version has written no name: its turn ends by itself.
        let Ok(turn) = serde_json::from_slice::<BackupTurn>(&record.value) else { return Ok(()) };
        let is_running = match &turn.node {
            // No other process uses the store, and this one makes one backup at a time.
            None => self.state.has_turn.load(Ordering::Relaxed),
            Some(node) => store.nodes().await?.iter().any(|other| other.id == *node && other.is_running),
        };
        if is_running {
            return Ok(());
        }
        location.remove_partial(&turn.backup).await?;
        tracing::warn!(
            id = turn.backup,
            "a backup was interrupted by the end of its server; its files were removed"
        );
        let release = LedgerWrite::delete(TURN, Expect::Revision(record.revision));
        match store.write(vec![release], now).await {
            // Another node has ended it.
            Err(StoreError::Conflict { .. }) => Ok(()),
            release => Ok(release.map(drop)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_due_at_its_time_of_day() {
        let schedule = |every_h, at: Option<i64>| BackupSchedule {
            to: String::new(),
            every: SignedDuration::from_hours(every_h),
            at: at.map(SignedDuration::from_mins),
            full_every: SignedDuration::ZERO,
            keep: SignedDuration::ZERO,
        };
        let check = |schedule: &BackupSchedule, now: &str, due: &str| {
            assert_eq!(schedule.last_due(now.parse().unwrap()), due.parse().unwrap(), "{now}");
        };
        let daily = schedule(24, Some(150));
        check(&daily, "2026-03-01T02:29:59Z", "2026-02-28T02:30:00Z");
        check(&daily, "2026-03-01T02:30:00Z", "2026-03-01T02:30:00Z");
        check(&schedule(6, Some(150)), "2026-03-01T08:29:59Z", "2026-03-01T02:30:00Z");
        check(&schedule(6, Some(150)), "2026-03-01T21:00:00Z", "2026-03-01T20:30:00Z");
        check(&schedule(6, None), "2026-03-01T21:00:00Z", "2026-03-01T15:00:00Z");
    }
}
