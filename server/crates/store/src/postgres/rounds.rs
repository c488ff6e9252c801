//! Writer tasks: each takes the waiting requests of one kind, decides them as one round in one transaction,
//! and answers all of them. One task writes resources, another one the ledger, so that a sign-in never waits
//! for an import.
//!
//! A connection can break while a transaction is being committed; its result is then unknown. Each
//! transaction therefore increments the number in the task's row of the table `writer`. The next attempt
//! updates the same row: it waits until the lost transaction has ended, and finds the new number if that one
//! was committed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::closed_row::{HAS_MOVED, IS_OPEN};
use super::connect::Database;
use super::connection::PooledConnection;
use super::failure::{failure, is_passing, too_late, unavailable};
use super::seen_state::Evidence;
use crate::StoreError;

/// Size in bytes at which a round takes no further requests.
const ROUND_BYTES: usize = 4 << 20;
/// Maximum number of requests in a round.
const ROUND_REQUESTS: usize = 512;
/// Number of requests that wait before a caller has to wait itself.
const QUEUE: usize = 1_024;
/// Time that a rollback may take.
const ROLLBACK: Duration = Duration::from_secs(1);
/// Time for which each round is repeated: other nodes may have changed the same records.
const CONTENTION: Duration = Duration::from_millis(250);
/// Time before a round is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// One kind of rounds.
pub(super) trait Round: Send + Sync + 'static {
    type Request: Send + Sync + 'static;
    /// The answers to the requests of a round.
    type Answers: Send;
    /// The changes that a round writes.
    type Puts: Send + Sync;

    /// The approximate size of a request in bytes.
    fn weight(request: &Self::Request) -> usize;

    /// Begins the transaction, reads what the requests depend on, and decides them.
    fn decide(
        &self,
        transaction: &RoundTransaction<'_>,
        requests: &[Self::Request],
    ) -> impl Future<Output = Result<(Self::Answers, Self::Puts), RoundError>> + Send;

    /// Writes the result in the same transaction.
    fn put(&self, client: &Client, puts: &Self::Puts) -> impl Future<Output = Result<(), RoundError>> + Send;

    fn answer(&self, requests: Vec<Self::Request>, answers: Result<Self::Answers, StoreError>);
}

/// Why an attempt to write a round failed.
pub(super) enum RoundError {
    /// The database reported an error, or the connection broke.
    Database(tokio_postgres::Error),
    /// The number in the table `writer` is not the expected one.
    Fenced {
        /// Whether it is the number of this round, because an earlier attempt was committed. Otherwise the
        /// row is gone, or belongs to an older state of the database.
        is_committed: bool,
        /// Whether the number is lower than that of a round that was acknowledged.
        is_behind: bool,
    },
    Store(StoreError),
}

impl RoundError {
    /// Returns whether the transaction was certainly not committed, because the database rejected a
    /// statement. After other errors, such as a lost connection, the result is unknown.
    fn is_certainly_rolled_back(&self) -> bool {
        match self {
            Self::Database(error) => error.code().is_some_and(|code| !is_passing(code)),
            Self::Fenced { .. } | Self::Store(_) => false,
        }
    }
}

impl From<tokio_postgres::Error> for RoundError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for RoundError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The transaction of one attempt.
pub(super) struct RoundTransaction<'a> {
    pub client: &'a Client,
    writer: &'a str,
    number: i64,
    /// Time after which the database gives up a statement, which is that of the attempt.
    limit: Duration,
    database: &'a Database,
}

impl RoundTransaction<'_> {
    /// Begins the transaction. Other statements can be sent at the same time, after it.
    pub async fn begin(&self) -> Result<(), RoundError> {
        let (limit_ms, idle_ms) = (self.limit.as_millis(), self.database.limits.idle_transaction.as_millis());
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {limit_ms}; \
             SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"
        );
        let (own_row, is_open) = ("id = $2::text::uuid AND round = $1 - 1", IS_OPEN);
        let fence = format!("UPDATE writer SET round = $1, used_at = now() WHERE {own_row} AND {is_open}");
        let parameters: &[super::connect::Parameter<'_>] =
            &[(&self.number, Type::INT8), (&self.writer, Type::TEXT)];
        let (begun, fenced) = tokio::join!(biased; self.client.batch_execute(&begin), self.client.execute_typed(&fence, parameters));
        begun?;
        if fenced? == 1 {
            return Ok(());
        }
        if let Some(refusal) = refusal(self.database, self.client).await? {
            return Err(RoundError::Store(refusal));
        }
        let round = "SELECT round FROM writer WHERE id = $1::text::uuid";
        let round = self.client.query_typed(round, &[(&self.writer, Type::TEXT)]).await?;
        let round = round.first().map(|row| row.get::<_, i64>(0));
        let is_behind = round.is_some_and(|number| number < self.number - 1);
        Err(RoundError::Fenced { is_committed: round == Some(self.number), is_behind })
    }
}

/// Starts a task for one kind of rounds. It ends when all copies of the queue are dropped.
pub(super) fn start<R: Round>(round: R, database: Arc<Database>) -> RoundQueue<R::Request> {
    let (sender, queue) = mpsc::channel(QUEUE);
    let task = WriterTask { round, database, connection: None, writer: None, failing_since: None };
    tokio::spawn(task.run(queue));
    RoundQueue(sender)
}

/// The requests that wait for a round, each with the time of its arrival.
pub(super) struct RoundQueue<T>(mpsc::Sender<(Instant, T)>);

impl<T> Clone for RoundQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> RoundQueue<T> {
    /// Adds a request. Waits while the queue is full.
    pub async fn send(&self, request: T) -> Result<(), StoreError> {
        self.0.send((Instant::now(), request)).await.map_err(|_| unavailable("the writer has ended"))
    }
}

struct WriterTask<R> {
    round: R,
    database: Arc<Database>,
    /// The connection of the last round.
    connection: Option<PooledConnection>,
    /// Id in the table `writer`, and the number of the last round.
    writer: Option<(String, i64)>,
    /// Begin of the first of the rounds that have failed since the last success.
    failing_since: Option<Instant>,
}

impl<R: Round> WriterTask<R> {
    async fn run(mut self, mut queue: mpsc::Receiver<(Instant, R::Request)>) {
        while let Some((arrived, first)) = queue.recv().await {
            let mut weight = R::weight(&first);
            let mut requests = vec![first];
            while weight < ROUND_BYTES && requests.len() < ROUND_REQUESTS {
                let Ok((_, next)) = queue.try_recv() else { break };
                weight += R::weight(&next);
                requests.push(next);
            }
            let answers = self.write(&requests, weight, arrived).await;
            self.database.write_fault.report(answers.as_ref().map(drop));
            if let Err(error) = &answers {
                tracing::warn!(%error, requests = requests.len(), "a round of writes failed");
            }
            self.round.answer(requests, answers);
        }
    }

    /// Writes a round of this size, whose first request arrived at this time. Repeats it while the database
    /// is away: until the limit after that arrival or an earlier failure, so that callers do not wait one
    /// after the other, but at least for [`CONTENTION`].
    async fn write(
        &mut self,
        requests: &[R::Request],
        weight: usize,
        arrived: Instant,
    ) -> Result<R::Answers, StoreError> {
        let start = Instant::now();
        let mut connected_until = None;
        let limit = self.database.limits.write + self.database.limits.write_mib * (weight >> 20) as u32;
        // The answers of an attempt whose commit may have succeeded.
        let mut doubtful: Option<R::Answers> = None;
        loop {
            let error = match self.attempt(requests, limit, connected_until, &mut doubtful).await {
                Ok(answers) => {
                    self.failing_since = None;
                    return Ok(answers);
                }
                Err(error @ StoreError::Unavailable { .. }) => error,
                Err(other) if doubtful.is_some() => {
                    self.writer = None;
                    return Err(unknown_result(&other));
                }
                Err(other) => return Err(other),
            };
            let since = *self.failing_since.get_or_insert(arrived);
            let until = (start + CONTENTION).max(since + self.database.limits.retry);
            if Instant::now() + PAUSE >= until {
                return Err(match doubtful {
                    Some(_) => {
                        // The number of the last round is unknown, and the next round starts with a new row.
                        self.writer = None;
                        unknown_result(&error)
                    }
                    None => error,
                });
            }
            connected_until = Some(until);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A connection. The one of the last round is not checked again.
    async fn connect(&mut self, until: Option<Instant>) -> Result<PooledConnection, StoreError> {
        self.database.presence.check()?;
        match (self.connection.take(), until) {
            (Some(open), _) if !open.is_closed() && self.database.connections().is_to_current_host(&open) => {
                Ok(open)
            }
            (_, None) => self.database.connection().await,
            (_, Some(until)) => tokio::time::timeout_at(until, self.database.connection())
                .await
                .unwrap_or_else(|_| Err(unavailable("no connection was made in time"))),
        }
    }

    async fn attempt(
        &mut self,
        requests: &[R::Request],
        limit: Duration,
        connected_until: Option<Instant>,
        doubtful: &mut Option<R::Answers>,
    ) -> Result<R::Answers, StoreError> {
        let connection = self.connect(connected_until).await?;
        let host = Arc::clone(&connection.host);
        let (writer, last) = match self.writer.take() {
            Some(registered) => registered,
            None => match tokio::time::timeout(self.database.limits.connect, register(&connection)).await {
                Ok(id) => (id?, 0),
                Err(_) => {
                    self.database.abandon(connection);
                    return Err(too_late());
                }
            },
        };
        let transaction = RoundTransaction {
            client: &connection,
            writer: &writer,
            number: last + 1,
            limit,
            database: &self.database,
        };
        let decided = tokio::time::timeout(limit, async {
            let (answers, puts) = self.round.decide(&transaction, requests).await?;
            *doubtful = Some(answers);
            let (put, committed) =
                tokio::join!(biased; self.round.put(&connection, &puts), connection.batch_execute("COMMIT"));
            // After a statement that failed, the database answers the commit with a rollback, which is not an
            // error.
            if let Err(error) = put {
                if error.is_certainly_rolled_back() {
                    *doubtful = None;
                }
                return Err(error);
            }
            Ok(committed?)
        });
        let outcome = decided.await;
        self.connection = match &outcome {
            Ok(Ok(())) => Some(connection),
            // The node is connected to a standby.
            Ok(Err(RoundError::Database(error)))
                if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) =>
            {
                self.database.abandon(connection);
                None
            }
            Ok(Err(_)) => self.rolled_back(connection).await,
            Err(_) => {
                self.database.abandon(connection);
                None
            }
        };
        let outcome = outcome.unwrap_or_else(|_| Err(RoundError::Store(too_late())));
        match outcome {
            Ok(()) => {
                self.database.presence.acknowledge(&writer, last + 1);
                self.writer = Some((writer, last + 1));
                doubtful.take().ok_or_else(|| unavailable("a round without answers"))
            }
            Err(RoundError::Fenced { is_behind: true, .. }) if self.database.presence.is_announced() => {
                self.database.presence.refuse_host(&host, &Evidence::AcknowledgedWrite);
                self.database.close_unused();
                self.database.presence.check().and(Err(unavailable("the database went back in time")))
            }
            Err(RoundError::Fenced { is_committed, .. }) => match doubtful.take() {
                // The last attempt was committed.
                Some(answers) if is_committed => {
                    self.database.presence.acknowledge(&writer, last + 1);
                    self.writer = Some((writer, last + 1));
                    Ok(answers)
                }
                // The row was removed, because it was not used for days, or a failover has lost the last
                // rounds. A commit of this round would be in the row, so the round can be repeated with
                // another row.
                _ => Err(unavailable("the row of this writer is gone")),
            },
            Err(RoundError::Database(error)) => {
                self.writer = Some((writer, last));
                Err(failure("write to the database", &error))
            }
            Err(RoundError::Store(error)) => {
                self.writer = Some((writer, last));
                Err(error)
            }
        }
    }

    /// Ends the transaction of a connection. Returns `None` if the connection is broken; the transaction ends
    /// with it then.
    async fn rolled_back(&self, connection: PooledConnection) -> Option<PooledConnection> {
        let rollback = tokio::time::timeout(ROLLBACK, connection.batch_execute("ROLLBACK")).await;
        if matches!(rollback, Ok(Ok(()))) {
            return Some(connection);
        }
        self.database.abandon(connection);
        None
    }
}

/// The error of a write that may have been done.
fn unknown_result(error: &StoreError) -> StoreError {
    let reason = match error {
        StoreError::Unavailable { reason } => reason.clone(),
        other => other.to_string(),
    };
    unavailable(&format!("{reason}; it is unknown whether the write was done"))
}

/// Adds a row for a new writer task, and removes those of tasks that ended long ago. Returns its id.
async fn register(client: &Client) -> Result<String, StoreError> {
    let add = "INSERT INTO writer (round, used_at) VALUES (0, now()) RETURNING id::text";
    let sweep = "DELETE FROM writer WHERE used_at < now() - interval '7 days'";
    let (row, swept) = tokio::join!(client.query_typed_one(add, &[]), client.execute_typed(sweep, &[]));
    let failed = |error| failure("register a writer", &error);
    swept.map_err(failed)?;
    Ok(row.map_err(failed)?.get(0))
}

/// The error of a round or an erasure that has found the database closed; `None` if it is open.
pub(super) async fn refusal(database: &Database, client: &Client) -> Result<Option<StoreError>, RoundError> {
    let is_closed = format!("SELECT NOT ({IS_OPEN})");
    if !client.query_typed_one(&is_closed, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    if client.query_typed_one(HAS_MOVED, &[]).await?.get::<_, bool>(0) {
        database.presence.report_moved();
    }
    Ok(Some(unavailable("the content of the database is being moved to another store, or was moved")))
}
