//! The presence of this node in the database: other running nodes see its base URL, and the node notices a
//! database that went back in time.
//!
//! A database that was restored from a backup, or a former primary that was not fenced, lacks writes that it
//! acknowledged: codes that were spent and tokens that were revoked would be valid again. Sequence numbers
//! alone do not tell, because the database may have assigned the same numbers again. Each node therefore
//! increments its number in the table `node` at most once a second, and remembers it (see
//! [`super::seen_state`]). New connections are checked before they are used.
//!
//! A database that lacks something is refused: nothing is read or written, until a connection leads to one
//! that has everything, or the operator accepts it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{Mutex, Notify};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::acceptance;
use super::closed_row::HAS_MOVED;
use super::connect::{Database, Parameter};
use super::connection::{Connection, PooledConnection};
use super::failure::{failure, unavailable};
use super::prefetched::time;
use super::seen_state::{AcknowledgedRounds, Comparison, Evidence, SeenState};
use crate::StoreError;

pub(super) const BEAT: Duration = Duration::from_secs(1);
/// Time in seconds after which a silent node counts as ended.
const SILENCE_S: u32 = 5;
/// Number of increments between two writes of the file.
const SAVED_BEATS: i64 = 5;

/// Result of announcing a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// `true` if the operator has accepted the database since this node has used it.
    pub is_newly_accepted: bool,
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
    /// Set while the database is refused. Nothing is read or written meanwhile.
    is_refused: AtomicBool,
    refusal: StdMutex<String>,
    /// The numbers of the last acknowledged rounds, by the id of the writer task.
    rounds: StdMutex<HashMap<String, i64>>,
    /// Set when the operator has accepted another state of the database.
    is_accepted: AtomicBool,
    /// Set when the content is in another store.
    has_moved: AtomicBool,
    changed: Arc<Notify>,
}

const ADD: &str =
    "INSERT INTO node (beat, base_url, is_running, seen_at) VALUES (0, $1, true, now()) RETURNING id::text";

impl Presence {
    /// An error while the database is refused.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.refusal() {
            None => Ok(()),
            Some(reason) => Err(unavailable(&reason)),
        }
    }

    /// Why the database is refused.
    pub fn refusal(&self) -> Option<String> {
        let is_refused = self.is_refused.load(Ordering::Acquire);
        is_refused.then(|| self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Returns whether new connections must be checked.
    pub fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Acquire)
    }

    /// Completes when the operator has accepted another state of the database.
    pub async fn wait_until_accepted(&self) {
        self.wait_for(&self.is_accepted).await;
    }

    /// Completes when the content is in another store.
    pub async fn wait_until_moved(&self) {
        self.wait_for(&self.has_moved).await;
    }

    async fn wait_for(&self, flag: &AtomicBool) {
        loop {
            let change = self.changed.notified();
            if flag.load(Ordering::Acquire) {
                return;
            }
            change.await;
        }
    }

    /// Records that the content is in another store.
    pub fn report_moved(&self) {
        if !self.has_moved.swap(true, Ordering::AcqRel) {
            tracing::warn!("the content of the database was moved to another store; this server stops");
        }
        self.changed.notify_waiters();
    }

    /// Records that a round of a writer task is acknowledged.
    pub fn acknowledge(&self, writer: &str, round: i64) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        match rounds.get_mut(writer) {
            Some(number) => *number = round,
            None => drop(rounds.insert(writer.to_owned(), round)),
        }
    }

    fn last_rounds(&self) -> AcknowledgedRounds {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.iter().map(|(writer, round)| (writer.clone(), *round)).collect()
    }

    /// Refuses the database for a reason.
    pub fn refuse(&self, reason: String) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_refused.load(Ordering::Acquire) || *refusal != reason {
            tracing::error!("the database is not used: {reason}");
        }
        *refusal = reason;
        self.is_refused.store(true, Ordering::Release);
    }

    /// Refuses a host that lacks something.
    pub fn refuse_host(&self, host: &str, evidence: &Evidence) {
        self.refuse(refusal_text(host, evidence));
    }

    fn permit(&self) {
        if self.is_refused.swap(false, Ordering::AcqRel) {
            tracing::warn!("the database has everything that this node knows, and is used again");
        }
    }

    fn report_acceptance(&self) {
        self.refuse(
            "the operator has accepted this state of the database; the services start again".to_owned(),
        );
        self.is_accepted.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

fn refusal_text(host: &str, evidence: &Evidence) -> String {
    format!(
        "host {host} went back in time, as after a restore or as a former primary: it {evidence}; start the database that \
         has these writes, or give them up with `trefoil store accept-restored`"
    )
}

impl Database {
    /// Announces this node. `file` is its memory of the database between two runs.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if a running node has another base URL, and [`StoreError::Unavailable`]
    /// if the database cannot be reached or lacks something that this node knows.
    pub async fn announce(
        &self,
        store: &str,
        base_url: &str,
        file: &Path,
    ) -> Result<Announcement, StoreError> {
        let mut nodes = self.presence.seen.lock().await;
        let memory = SeenState::read(file, store);
        let connection = self.unchecked_connection().await?;
        let failed = |error: tokio_postgres::Error| failure("announce this node", &error);
        let comparison = match &memory {
            Some(memory) => Some(memory.compare(&connection, &Vec::new()).await.map_err(failed)?),
            None => None,
        };
        let same_state = match comparison {
            None | Some(Comparison::Accepted) => None,
            Some(Comparison::Fits(state)) => Some(state),
            Some(Comparison::Lacks(evidence)) => {
                return Err(unavailable(&refusal_text(&connection.host, &evidence)));
            }
        };
        let is_newly_accepted = memory.is_some() && same_state.is_none();
        // Two nodes that start at the same time see each other: the first one locks the row.
        connection.batch_execute("BEGIN").await.map_err(failed)?;
        let announce = async {
            connection.query_typed_one("SELECT 1 FROM clock FOR UPDATE", &[]).await.map_err(failed)?;
            let own = memory.as_ref().map_or("00000000-0000-0000-0000-000000000000", |it| &it.node);
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
            let state = match same_state {
                Some(state) => {
                    let renew = "UPDATE node SET base_url = $1, is_running = true, seen_at = now() WHERE id = $2::text::uuid";
                    let parameters: &[Parameter<'_>] = &[(&base_url, Type::TEXT), (&state.node, Type::TEXT)];
                    connection.execute_typed(renew, parameters).await.map_err(failed)?;
                    state
                }
                None => {
                    let acceptance = acceptance::read(&connection).await.map_err(failed)?;
                    let row =
                        connection.query_typed_one(ADD, &[(&base_url, Type::TEXT)]).await.map_err(failed)?;
                    SeenState::new(store, row.get(0), acceptance)
                }
            };
            // Rows of nodes that ended long ago.
            let sweep = "DELETE FROM node WHERE seen_at < now() - interval '90 days'";
            connection.execute_typed(sweep, &[]).await.map_err(failed)?;
            connection.batch_execute("COMMIT").await.map_err(failed)?;
            Ok((state, Announcement { is_newly_accepted, earlier_base_url }))
        };
        let (state, announcement) = match announce.await {
            Ok(state_and_announcement) => state_and_announcement,
            Err(error) => {
                // The transaction ends with its connection.
                drop(PooledConnection::take(connection));
                return Err(error);
            }
        };
        *nodes = Some((state, file.to_owned()));
        drop(nodes);
        self.beat_on(&connection).await?;
        self.presence.is_announced.store(true, Ordering::Release);
        Ok(announcement)
    }

    /// Chooses among several hosts again, and closes the connections to another one. If two hosts cannot be
    /// distinguished, neither is used.
    pub async fn follow_host(&self) {
        match self.connections().has_other_host().await {
            Ok(false) => return,
            Ok(true) => tracing::warn!("another host of the database is used from now on"),
            Err(reason) => self.presence.refuse(reason),
        }
        self.close_unused();
    }

    /// See [`Database::beat`].
    pub async fn beat_on(&self, connection: &Connection) -> Result<(), StoreError> {
        let mut state = self.presence.seen.lock().await;
        let Some((seen, file)) = &mut *state else { return Ok(()) };
        let failed = |error: tokio_postgres::Error| failure("increment the number of this node", &error);
        let rounds = self.presence.last_rounds();
        let (comparison, has_moved) = tokio::join!(
            biased;
            seen.compare(connection, &rounds),
            connection.query_typed_one(HAS_MOVED, &[]),
        );
        match comparison.map_err(failed)? {
            Comparison::Fits(now) => {
                let is_saved = now.beat % SAVED_BEATS == 1
                    || (now.timeline, &now.acceptance) != (seen.timeline, &seen.acceptance);
                *seen = now;
                if is_saved {
                    seen.save(file);
                }
                self.presence.permit();
            }
            Comparison::Accepted => self.presence.report_acceptance(),
            Comparison::Lacks(evidence) => self.presence.refuse_host(&connection.host, &evidence),
        }
        if has_moved.map_err(failed)?.get::<_, bool>(0) {
            self.presence.report_moved();
        }
        self.presence.check()
    }

    /// Checks that the database has everything that is in the memory of a stopped node.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, or lacks something.
    pub async fn check_known(&self, store: &str, memory: &Path) -> Result<(), StoreError> {
        let Some(memory) = SeenState::read(memory, store) else { return Ok(()) };
        let connection = self.unchecked_connection().await?;
        let comparison = memory.compare(&connection, &Vec::new()).await;
        match comparison.map_err(|error| failure("compare the state of the database", &error))? {
            Comparison::Fits(_) | Comparison::Accepted => Ok(()),
            Comparison::Lacks(evidence) => Err(unavailable(&refusal_text(&connection.host, &evidence))),
        }
    }

    /// Records the decision of the operator that this database is used from now on, whatever nodes know.
    /// `memory` is the file of [`Database::announce`].
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn accept(&self, store: &str, memory: &Path) -> Result<(), StoreError> {
        let number = SeenState::read(memory, store).map_or(0, |memory| memory.acceptance.number);
        let connection = self.unchecked_connection().await?;
        let sql =
            "UPDATE clock SET accepted = greatest(accepted, $1) + 1, accepted_id = gen_random_uuid()::text";
        let write = connection.execute_typed(sql, &[(&number, Type::INT8)]).await;
        write.map(drop).map_err(|error| failure("record that the database is accepted", &error))
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
        seen.save(&file);
        if self.presence.check().is_err() {
            return;
        }
        let statement = "UPDATE node SET is_running = false WHERE id = $1::text::uuid";
        if let Ok(connection) = self.unchecked_connection().await
            && let Err(error) = connection.execute_typed(statement, &[(&seen.node, Type::TEXT)]).await
        {
            tracing::debug!(%error, "the end of this node was not recorded; it counts as ended after a few seconds");
        }
    }
}
