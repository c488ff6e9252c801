//! The presence of this node in the database: other running nodes see its base URL, and the node notices a
//! database that went back in time.
//!
//! A database that was restored from a backup, or a former primary that was not fenced, lacks writes that it
//! acknowledged: codes that were spent and tokens that were revoked would be valid again. Sequence numbers
//! alone do not tell, because the database may have assigned the same numbers again. Each node therefore
//! increments its number in the table `node` at most once a second, and remembers it with the last row of the
//! table `change` that it has heard of, in memory and in a file of its data folder. A lower number, or
//! another row, means that the database went back, unless an erasure has removed the row. New connections
//! are checked before they are used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::Object;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::closed_row::HAS_MOVED;
use super::connect::{Database, Parameter};
use super::failure::{failure, too_late, unavailable};
use super::last_erasure::was_erased;
use super::prefetched::time;
use crate::StoreError;

pub(super) const BEAT: Duration = Duration::from_secs(1);
/// Time in seconds after which a silent node counts as ended.
const SILENCE_S: u32 = 5;
/// Number of increments between two writes of the file.
const SAVED_BEATS: i64 = 5;

/// A row of the table `change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ChangeRow {
    seq: i64,
    version: i64,
    updated_ms: i64,
    kind: Vec<u8>,
    id: Vec<u8>,
}

impl ChangeRow {
    fn read(row: &Row) -> Self {
        Self {
            seq: row.get(0),
            version: row.get(1),
            updated_ms: row.get(2),
            kind: row.get(3),
            id: row.get(4),
        }
    }
}

/// The state of the database that this node has seen last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenState {
    store: String,
    /// Id of this node in the table `node`.
    node: String,
    beat: i64,
    change: Option<ChangeRow>,
}

/// Result of announcing a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// `true` if the database went back since this node has used it.
    pub went_back: bool,
    /// Base URL of the node that was announced last, if it was another one.
    pub earlier_base_url: Option<String>,
}

/// A node that has used the database in the last 90 days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodePresence {
    /// Id of the node.
    pub id: String,
    /// Its base URL.
    pub base_url: String,
    /// Whether it runs.
    pub is_running: bool,
    /// Time at which it was seen last, by the clock of the database.
    pub seen: Timestamp,
}

/// Knowledge of this node about the database.
#[derive(Default)]
pub(super) struct Presence {
    /// `None` until the node is announced. Checks of several connections wait for each other.
    seen: Mutex<Option<(SeenState, PathBuf)>>,
    is_announced: AtomicBool,
    /// Set when the database went back. Nothing is read or written from then on.
    went_back: AtomicBool,
    /// Set when the content is in another store.
    has_moved: AtomicBool,
    changed: Arc<Notify>,
}

const ADD: &str =
    "INSERT INTO node (beat, base_url, is_running, seen_at) VALUES (0, $1, true, now()) RETURNING id::text";
const INCREMENT: &str = "UPDATE node SET beat = beat + 1, seen_at = now(), is_running = true \
                         WHERE id = $1::text::uuid AND beat >= $2 RETURNING beat";
const CHANGE: &str = "SELECT seq, version, updated_ms, kind, id FROM change WHERE seq = $1";
const LAST_CHANGE: &str = "SELECT seq, version, updated_ms, kind, id FROM change ORDER BY seq DESC LIMIT 1";

impl Presence {
    /// An error if the database went back.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.went_back.load(Ordering::Acquire) {
            true => Err(unavailable(
                "the database went back in time, as after a restore of a backup; this node starts again",
            )),
            false => Ok(()),
        }
    }

    /// Returns whether new connections must be checked.
    pub fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Acquire)
    }

    /// Completes when the database went back.
    pub async fn wait_until_back(&self) {
        self.wait_for(&self.went_back).await;
    }

    /// Completes when the content is in another store.
    pub async fn wait_until_moved(&self) {
        self.wait_for(&self.has_moved).await;
    }

    async fn wait_for(&self, flag: &AtomicBool) {
        loop {
            let changed = self.changed.notified();
            if flag.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }

    /// Records that the content is in another store.
    pub fn report_moved(&self) {
        if !self.has_moved.swap(true, Ordering::AcqRel) {
            tracing::warn!("the content of the database was moved to another store; this server stops");
        }
        self.changed.notify_waiters();
    }

    /// Records that the database went back.
    pub fn report_back(&self, evidence: &str) {
        if !self.went_back.swap(true, Ordering::AcqRel) {
            tracing::error!(
                evidence,
                "the database went back in time, as after a restore of a backup or with a former primary; \
                 caches are dropped, and sessions, codes and tokens of before end"
            );
        }
        self.changed.notify_waiters();
    }
}

impl Database {
    /// Announces this node. `file` is its memory of the database between two runs.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if a running node has another base URL, and [`StoreError::Unavailable`]
    /// if the database cannot be reached.
    pub async fn announce(
        &self,
        store: &str,
        base_url: &str,
        file: &Path,
    ) -> Result<Announcement, StoreError> {
        let mut seen = self.presence.seen.lock().await;
        let remembered = std::fs::read(file).ok();
        let remembered: Option<SeenState> = remembered
            .and_then(|text| serde_json::from_slice(&text).ok())
            .filter(|it: &SeenState| it.store == store);
        let connection = self.unchecked_connection().await?;
        let failed = |error: tokio_postgres::Error| failure("announce this node", &error);
        // Two nodes that start at the same time see each other: the first one locks the row.
        connection.batch_execute("BEGIN").await.map_err(failed)?;
        let announced = async {
            connection.query_typed_one("SELECT 1 FROM clock FOR UPDATE", &[]).await.map_err(failed)?;
            let own = remembered.as_ref().map_or("00000000-0000-0000-0000-000000000000", |it| &it.node);
            let others = "SELECT base_url, is_running AND seen_at > now() - $1::bigint * interval '1 second' \
                          FROM node WHERE id <> $2::text::uuid ORDER BY seen_at DESC LIMIT 100";
            let silence = i64::from(SILENCE_S);
            let parameters: &[Parameter<'_>] = &[(&silence, Type::INT8), (&own, Type::TEXT)];
            let others = connection.query_typed(others, parameters).await.map_err(failed)?;
            let others: Vec<(String, bool)> = others.iter().map(|row| (row.get(0), row.get(1))).collect();
            if let Some((other, _)) = others.iter().find(|(url, is_running)| *is_running && url != base_url) {
                let reason = format!(
                    "a running node has the base URL {other}, and this one {base_url}: the tokens of one would be invalid at the \
                     other; give both the same --base-url, or stop the other node first"
                );
                return Err(StoreError::Engine { action: "share the database", reason });
            }
            let own_row = "SELECT base_url FROM node WHERE id = $1::text::uuid";
            let own_row = connection.query_typed(own_row, &[(&own, Type::TEXT)]).await.map_err(failed)?;
            let own_row: Option<String> = own_row.first().map(|row| row.get(0));
            let earlier_base_url =
                others.first().map(|(url, _)| url.clone()).or(own_row).filter(|url| url != base_url);
            let went_back = match &remembered {
                Some(seen) => !self.is_as_seen(&connection, seen).await?,
                None => false,
            };
            let node = match &remembered {
                Some(seen) if !went_back => {
                    let renew = "UPDATE node SET base_url = $1, is_running = true, seen_at = now() WHERE id = $2::text::uuid";
                    let parameters: &[Parameter<'_>] = &[(&base_url, Type::TEXT), (&seen.node, Type::TEXT)];
                    connection.execute_typed(renew, parameters).await.map_err(failed)?;
                    seen.node.clone()
                }
                _ => {
                    let row =
                        connection.query_typed_one(ADD, &[(&base_url, Type::TEXT)]).await.map_err(failed)?;
                    row.get(0)
                }
            };
            // Rows of nodes that ended long ago.
            let sweep = "DELETE FROM node WHERE seen_at < now() - interval '90 days'";
            connection.execute_typed(sweep, &[]).await.map_err(failed)?;
            connection.batch_execute("COMMIT").await.map_err(failed)?;
            Ok((node, Announcement { went_back, earlier_base_url }))
        };
        let (node, announcement) = match announced.await {
            Ok(announced) => announced,
            Err(error) => {
                // The transaction ends with its connection.
                drop(Object::take(connection));
                return Err(error);
            }
        };
        *seen = Some((SeenState { store: store.to_owned(), node, beat: 0, change: None }, file.to_owned()));
        drop(seen);
        self.beat_on(&connection).await?;
        self.presence.is_announced.store(true, Ordering::Release);
        Ok(announcement)
    }

    /// Returns whether the database has the state that a node remembers, or a later one.
    async fn is_as_seen(&self, connection: &Object, seen: &SeenState) -> Result<bool, StoreError> {
        let failed = |error: tokio_postgres::Error| failure("compare the state of the database", &error);
        let increment: [Parameter<'_>; 2] = [(&seen.node, Type::TEXT), (&seen.beat, Type::INT8)];
        let rows = connection.query_typed(INCREMENT, &increment).await.map_err(failed)?;
        if rows.is_empty() {
            return Ok(false);
        }
        let Some(change) = &seen.change else { return Ok(true) };
        let rows = connection.query_typed(CHANGE, &[(&change.seq, Type::INT8)]).await.map_err(failed)?;
        Ok(match rows.first().map(ChangeRow::read) {
            Some(found) => found == *change,
            None => was_erased(connection, change.seq).await.map_err(failed)?,
        })
    }

    /// Increments the number of this node, and compares what it remembers of the database.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached or went back.
    pub async fn beat(&self) -> Result<(), StoreError> {
        let connection = self.connection().await?;
        match timeout(self.limits.read, self.beat_on(&connection)).await {
            Ok(done) => done,
            Err(_) => {
                self.abandon(connection);
                Err(too_late())
            }
        }
    }

    /// See [`Database::beat`].
    pub async fn beat_on(&self, connection: &Object) -> Result<(), StoreError> {
        self.presence.check()?;
        let mut state = self.presence.seen.lock().await;
        let Some((seen, file)) = &mut *state else { return Ok(()) };
        let failed = |error: tokio_postgres::Error| failure("increment the number of this node", &error);
        let increment: [Parameter<'_>; 2] = [(&seen.node, Type::TEXT), (&seen.beat, Type::INT8)];
        let known_seq = seen.change.as_ref().map_or(0, |change| change.seq);
        let parameters: [Parameter<'_>; 1] = [(&known_seq, Type::INT8)];
        // One round trip.
        let (beat, parameters, last, has_moved) = tokio::join!(
            biased;
            connection.query_typed(INCREMENT, &increment),
            connection.query_typed(CHANGE, &parameters),
            connection.query_typed(LAST_CHANGE, &[]),
            connection.query_typed_one(HAS_MOVED, &[]),
        );
        if has_moved.map_err(failed)?.get::<_, bool>(0) {
            self.presence.report_moved();
        }
        let (beat, parameters, last) =
            (beat.map_err(failed)?, parameters.map_err(failed)?, last.map_err(failed)?);
        let Some(beat) = beat.first().map(|row| row.get::<_, i64>(0)) else {
            self.presence.report_back("its number for this node is lower than before");
            return self.presence.check();
        };
        let is_kept = match (&seen.change, parameters.first().map(ChangeRow::read)) {
            (Some(change), None) => was_erased(connection, change.seq).await.map_err(failed)?,
            (Some(change), Some(found)) => found == *change,
            (None, _) => true,
        };
        if !is_kept {
            self.presence.report_back("the last write that this node has heard of is missing or another one");
            return self.presence.check();
        }
        seen.beat = beat;
        seen.change = last.first().map(ChangeRow::read);
        if beat % SAVED_BEATS == 1 {
            save(file, seen);
        }
        Ok(())
    }

    /// The id of this node, after it was announced.
    pub async fn node_id(&self) -> Option<String> {
        self.presence.seen.lock().await.as_ref().map(|(seen, _)| seen.node.clone())
    }

    /// The nodes, the running ones first.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError> {
        let sql = "SELECT id::text, base_url, is_running AND seen_at > now() - $1::bigint * interval '1 second' AS runs, \
                   (extract(epoch FROM seen_at) * 1000)::bigint FROM node ORDER BY runs DESC, seen_at DESC LIMIT 100";
        let silence = i64::from(SILENCE_S);
        let rows = self.query("list the nodes", sql, &[(&silence, Type::INT8)]).await?;
        let node = |row: &Row| {
            let (id, base_url, is_running) = (row.get(0), row.get(1), row.get(2));
            Ok(NodePresence { id, base_url, is_running, seen: time(row.get(3))? })
        };
        rows.iter().map(node).collect()
    }

    /// Marks this node as ended, so that a node with another base URL can start, and saves what it remembers.
    pub async fn depart(&self) {
        // No increment follows, which would mark the node as running again.
        let Some((seen, file)) = self.presence.seen.lock().await.take() else { return };
        if self.presence.check().is_err() {
            return;
        }
        save(&file, &seen);
        let ended = "UPDATE node SET is_running = false WHERE id = $1::text::uuid";
        if let Ok(connection) = self.unchecked_connection().await
            && let Err(error) = connection.execute_typed(ended, &[(&seen.node, Type::TEXT)]).await
        {
            tracing::debug!(%error, "the end of this node was not recorded; it counts as ended after a few seconds");
        }
    }
}

/// Writes what a node remembers. Not synchronized: an older state is still a state of this database.
fn save(file: &Path, seen: &SeenState) {
    let part = file.with_extension("part");
    let text = serde_json::to_vec(seen).expect("the state serialises to JSON");
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, file));
    if let Err(error) = written {
        tracing::debug!(%error, "what this node remembers of the database was not saved");
    }
}
