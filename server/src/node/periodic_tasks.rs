//! The periodic tasks of a node. Each one has an interval of its own, so that none delays another.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use store::blocking::run_blocking;
use store::{Ledger as _, Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::clock::guard::MAX_DIFFERENCE;
use crate::node::app::App;
use crate::records::server_log;

/// Time between two removals of expired data.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Time between two checks whether counts of a minute must be written.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two batches of traces, and the longest time for one.
const TRACE_INTERVAL: Duration = Duration::from_secs(2);
const TRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two requests for what other nodes have written.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// Time for which an expired record is kept. It exceeds the largest difference between the clocks of two
/// nodes, which is twice [`MAX_DIFFERENCE`].
const KEPT_AFTER_EXPIRY: SignedDuration = SignedDuration::from_secs(5 * MAX_DIFFERENCE.as_secs());

/// Starts the periodic tasks of a node. They end when the result is dropped.
pub fn start_tasks(app: &Arc<App>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(repeat("removing expired records", SWEEP_INTERVAL, app.clone(), remove_expired_records));
    tasks.spawn(repeat("removing expired exports", SWEEP_INTERVAL, app.clone(), remove_expired_exports));
    tasks.spawn(repeat("rotating the signing keys", SWEEP_INTERVAL, app.clone(), maintain_keys));
    tasks.spawn(repeat("reading the certificate again", SWEEP_INTERVAL, app.clone(), refresh_certificate));
    let interval = Duration::from_secs(1);
    tasks.spawn(repeat("assigning resources to Patients", interval, app.clone(), continue_assignment));
    tasks.spawn(repeat("writing the counts of events", COUNT_INTERVAL, app.clone(), write_counts));
    if app.logs.traces.are_sent() {
        tasks.spawn(repeat("sending traces", TRACE_INTERVAL, app.clone(), send_traces));
    }
    if app.audit_delivery.is_some() {
        let interval = Duration::from_secs(1);
        tasks.spawn(repeat("the delivery of audit events", interval, app.clone(), deliver_audit_events));
    }
    if app.backups.schedule.is_some() {
        let interval = Duration::from_secs(60);
        tasks.spawn(repeat("the backup", interval, app.clone(), back_up));
    }
    if app.store.is_shared() {
        tasks.spawn(repeat("following the other nodes", FOLLOW_INTERVAL, app.clone(), follow_other_nodes));
        tasks.spawn(repeat("applying terminology changes", FOLLOW_INTERVAL, app.clone(), apply_changes));
        // Often enough for leases that are shorter than usual.
        let interval = Duration::from_secs(app.bulk.lease().as_secs().clamp(1, 5).unsigned_abs());
        tasks.spawn(repeat("resuming exports of other nodes", interval, app.clone(), take_over_exports));
        if app.clock_check.follows_database {
            let interval = Duration::from_secs(5);
            tasks.spawn(repeat("asking the database for the time", interval, app.clone(), compare_clocks));
        }
        if app.terminology_sync.shares_releases() {
            let interval = Duration::from_secs(1);
            tasks.spawn(repeat("sharing releases with other nodes", interval, app.clone(), share_releases));
            let interval = Duration::from_secs(60 * 60);
            tasks.spawn(repeat(
                "repairing the releases in the bucket",
                interval,
                app.clone(),
                repair_releases,
            ));
        }
    }
    tasks
}

/// Executes a task periodically. If an execution takes long, the next ones are later. A failure that lasts is
/// logged once, and so is its end.
async fn repeat<F: Future<Output = Result<()>>>(
    name: &str,
    interval: Duration,
    app: Arc<App>,
    execute: impl Fn(Arc<App>) -> F,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    loop {
        ticks.tick().await;
        let executed = execute(app.clone()).await;
        match &executed {
            Err(error) if !is_failing => tracing::warn!("{name} failed: {error:#}"),
            Ok(()) if is_failing => tracing::info!("{name} works again"),
            _ => {}
        }
        is_failing = executed.is_err();
    }
}

/// Assigns the resources that an earlier program stored.
async fn continue_assignment(app: Arc<App>) -> Result<()> {
    Ok(app.patient_assignment.proceed(&app.store, &app.address.fhir_base, app.clock.now()).await?)
}

async fn remove_expired_records(app: Arc<App>) -> Result<()> {
    Ok(remove_expired(&app.store, app.clock.now()).await?)
}

async fn remove_expired_exports(app: Arc<App>) -> Result<()> {
    app.bulk.sweep(app.clock.now()).await?;
    Ok(())
}

/// Writes the counts of the events and log lines of strangers, and of repeated lines of the log.
async fn write_counts(app: Arc<App>) -> Result<()> {
    app.logs.audit.write_counts();
    app.logs.requests.write_counts(app.clock.now());
    app.logs.refusals.write_counts(app.clock.now());
    server_log::write_counts();
    Ok(())
}

/// Sends the spans that wait to the collector.
///
/// # Errors
/// An error if the collector does not accept them; they are lost then.
pub async fn send_traces(app: Arc<App>) -> Result<()> {
    while let Some(batch) = app.logs.traces.next_batch() {
        let items = batch.clone();
        let result = tokio::time::timeout(TRACE_TIMEOUT, app.http.send(batch)).await;
        let failure = match result {
            Ok(Ok(response)) if response.status().is_success() => continue,
            Ok(Ok(response)) => anyhow!("the collector answered {}", response.status()),
            Ok(Err(error)) => error.into(),
            Err(_) => anyhow!("the collector did not answer in time"),
        };
        app.logs.traces.count_lost(&items);
        return Err(failure);
    }
    Ok(())
}

/// Sends the audit events that wait.
///
/// # Errors
/// Why not all of them were sent. They still wait.
pub async fn deliver_audit_events(app: Arc<App>) -> Result<()> {
    match &app.audit_delivery {
        Some(delivery) => delivery.proceed().await,
        None => Ok(()),
    }
}

/// Presents a certificate that was renewed, and warns before one ends.
async fn refresh_certificate(app: Arc<App>) -> Result<()> {
    let Some(certificate) = app.certificate.get().cloned() else { return Ok(()) };
    let now = app.clock.now();
    certificate.warn_of_end(now);
    run_blocking(move || certificate.refresh(now)).await?.map(drop)
}

/// Rotates the signing keys if they are due.
async fn maintain_keys(app: Arc<App>) -> Result<()> {
    let rotate_every = app.settings().rotate_keys_every;
    if app.identity.signing_keys.maintain_keys(rotate_every, app.clock.now()).await? {
        tracing::info!("the signing keys were rotated by schedule");
    }
    Ok(())
}

/// Makes a backup if one is due.
async fn back_up(app: Arc<App>) -> Result<()> {
    app.backups.run_schedule(&app.store, || app.clock.now()).await
}

/// Follows the changes of clients, users, revocations and keys by other nodes. A node that has not succeeded
/// for a second uses no cache.
async fn follow_other_nodes(app: Arc<App>) -> Result<()> {
    Ok(app.identity.follow_other_nodes(app.clock.now()).await?)
}

/// Applies the code systems and value sets that other nodes have written. The store reads the number of the
/// last commit every 250 ms.
async fn apply_changes(app: Arc<App>) -> Result<()> {
    Ok(app.terminology_sync.apply_changes().await?)
}

/// Resumes the exports of nodes that have ended.
async fn take_over_exports(app: Arc<App>) -> Result<()> {
    Ok(app.bulk.take_over_expired(app.clock.now()).await?)
}

/// Compares the clock of this node with that of the database.
async fn compare_clocks(app: Arc<App>) -> Result<()> {
    let before = app.clock.now();
    if let Some(time) = app.store.shared_time().await? {
        app.clock_check.guard.compare(before, time);
    }
    Ok(())
}

/// Fetches the releases that other nodes have imported.
async fn share_releases(app: Arc<App>) -> Result<()> {
    app.terminology_sync.synchronize_releases(app.clock.now()).await
}

/// Uploads releases that the bucket has lost, and removes those that are not used.
async fn repair_releases(app: Arc<App>) -> Result<()> {
    app.terminology_sync.repair_releases(app.clock.now()).await
}

/// Removes all expired records in batches, so that they do not accumulate even if many are created meanwhile.
/// Expired records are kept for [`KEPT_AFTER_EXPIRY`], because they are still valid for a node whose clock is
/// behind.
async fn remove_expired(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    const AT_ONCE: usize = 1_000;
    let expired = now - KEPT_AFTER_EXPIRY;
    while store.sweep(expired, AT_ONCE).await? == AT_ONCE {}
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
        remove_expired(&store, later + KEPT_AFTER_EXPIRY).await.unwrap();
        assert_eq!(store.sweep(later, 1).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_node_with_a_fast_clock_keeps_what_a_slow_one_needs() {
        let (store, expiry) = (Store::memory(), Timestamp::from_second(60).unwrap());
        let used = || LedgerWrite::put("jti/a", "", Expect::Absent).expiring(expiry);
        let (slow, fast) = (expiry - SignedDuration::from_millis(1), expiry + 2 * MAX_DIFFERENCE);
        store.write(vec![used()], slow).await.unwrap();
        remove_expired(&store, fast).await.unwrap();
        assert!(store.write(vec![used()], slow).await.is_err(), "the assertion was accepted twice");
    }
}
