//! The periodic tasks of a node. Each one has an interval of its own, so that none delays another.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use store::{Ledger as _, Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::node::app::App;

/// Time between two removals of expired data.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Starts the periodic tasks of a node. They end when the result is dropped.
pub fn start_tasks(app: &Arc<App>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep_records(app.clone()));
    tasks.spawn(sweep_exports(app.clone()));
    tasks.spawn(maintain_keys(app.clone()));
    if app.store.is_shared() {
        tasks.spawn(follow_other_nodes(app.clone()));
        tasks.spawn(apply_terminology_changes(app.clone()));
        tasks.spawn(take_over_exports(app.clone()));
        if app.follows_database_clock {
            tasks.spawn(compare_clocks(app.clone()));
        }
        if app.terminology_sync.shares_releases() {
            tasks.spawn(synchronize_releases(app.clone()));
        }
    }
    tasks
}

/// Returns an interval. If one execution of a task takes long, the next ones are later.
fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Remembers whether the last execution of a task has failed, so that a failure that lasts is logged once.
#[derive(Default)]
struct TaskFailure(bool);

impl TaskFailure {
    /// Records whether an execution has failed. Returns `true` if it is the first failure, or the first success after failures.
    fn is_new(&mut self, is_failing: bool) -> bool {
        std::mem::replace(&mut self.0, is_failing) != is_failing
    }
}

/// Follows the changes of clients, users, revocations and keys by other nodes. A node that has not succeeded for a second
/// uses no cache.
async fn follow_other_nodes(app: Arc<App>) {
    let mut every = every(Duration::from_millis(250));
    let mut failure = TaskFailure::default();
    loop {
        every.tick().await;
        let followed = app.identity.follow_other_nodes(app.clock.now()).await;
        let is_new = failure.is_new(followed.is_err());
        match followed {
            Ok(()) if is_new => tracing::info!("the database is available again"),
            Err(error) if is_new => {
                tracing::error!(%error, "what other nodes have written is unknown; nothing is served from a cache");
            }
            _ => {}
        }
    }
}

/// Applies the code systems and value sets that other nodes have written. The store reads the number of the last commit
/// once a second.
async fn apply_terminology_changes(app: Arc<App>) {
    let mut every = every(Duration::from_millis(250));
    let mut failure = TaskFailure::default();
    loop {
        every.tick().await;
        let applied = app.terminology_sync.apply_changes().await;
        let is_new = failure.is_new(applied.is_err());
        match applied {
            Ok(()) if is_new => tracing::info!("changes of the terminology are applied again"),
            Err(error) if is_new => tracing::warn!(%error, "changes of the terminology are not applied yet"),
            _ => {}
        }
    }
}

/// Resumes the exports of nodes that have ended. The interval is 5 s, or less if leases are shorter.
async fn take_over_exports(app: Arc<App>) {
    let mut every = every(Duration::from_secs(app.bulk.lease().as_secs().clamp(1, 5).unsigned_abs()));
    let mut failure = TaskFailure::default();
    loop {
        every.tick().await;
        let checked = app.bulk.take_over_expired(app.clock.now()).await;
        let is_new = failure.is_new(checked.is_err());
        match checked {
            Ok(()) if is_new => tracing::info!("exports of other nodes are checked again"),
            Err(error) if is_new => tracing::warn!(%error, "exports of other nodes were not checked"),
            _ => {}
        }
    }
}

/// Compares the clock of this node with that of the database.
async fn compare_clocks(app: Arc<App>) {
    let mut every = every(Duration::from_secs(5));
    loop {
        every.tick().await;
        let asked = app.clock.now();
        if let Ok(Some(time)) = app.store.shared_time().await {
            app.clock_guard.compare(asked, time);
        }
    }
}

/// Fetches the releases that other nodes have imported.
async fn synchronize_releases(app: Arc<App>) {
    let mut every = every(Duration::from_secs(1));
    let mut failure = TaskFailure::default();
    loop {
        every.tick().await;
        let synchronized = app.terminology_sync.synchronize_releases(app.clock.now()).await;
        let is_new = failure.is_new(synchronized.is_err());
        match synchronized {
            Ok(()) if is_new => tracing::info!("releases are shared with other nodes again"),
            Err(error) if is_new => tracing::error!("releases are not shared with other nodes: {error:#}"),
            _ => {}
        }
    }
}

/// Removes expired records.
async fn sweep_records(app: Arc<App>) {
    let mut every = every(SWEEP_INTERVAL);
    loop {
        every.tick().await;
        if let Err(error) = remove_expired(&app.store, app.clock.now()).await {
            tracing::warn!(%error, "expired records were not removed");
        }
    }
}

/// Removes expired exports.
async fn sweep_exports(app: Arc<App>) {
    let mut every = every(SWEEP_INTERVAL);
    loop {
        every.tick().await;
        if let Err(error) = app.bulk.sweep(app.clock.now()).await {
            tracing::warn!(%error, "expired exports were not removed");
        }
    }
}

/// Rotates the signing keys when they are due.
async fn maintain_keys(app: Arc<App>) {
    let mut every = every(SWEEP_INTERVAL);
    loop {
        every.tick().await;
        let keys = &app.identity.signing_keys;
        match keys.maintain_keys(app.settings().rotate_keys_every, app.clock.now()).await {
            Ok(true) => tracing::info!("the signing keys were rotated by schedule"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the signing keys were not checked"),
        }
    }
}

/// Removes all expired records in batches, so that they do not accumulate even if many are created meanwhile.
async fn remove_expired(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    const AT_ONCE: usize = 1_000;
    while store.sweep(now, AT_ONCE).await? == AT_ONCE {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::{Expect, LedgerWrite};

    use super::*;

    #[tokio::test]
    async fn one_sweep_takes_away_however_many_have_expired() {
        let store = Store::memory();
        let [made, later] = [0, 60].map(|second| Timestamp::from_second(second).unwrap());
        let expired = |n: usize| LedgerWrite::Put {
            key: format!("jti/{n}"),
            value: "true".into(),
            expires: Some(later),
            expect: Expect::Absent,
        };
        store.write((0..2_500).map(expired).collect(), made).await.unwrap();
        remove_expired(&store, later).await.unwrap();
        assert_eq!(store.sweep(later, 1).await.unwrap(), 0);
    }
}
