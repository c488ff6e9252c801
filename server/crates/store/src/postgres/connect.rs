//! The database of a store: the pool of connections, time limits and the meaning of errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Pool, PoolError};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::connection::{ConnectionManager, PooledConnection};
use super::database_url::{DatabaseUrl, bad_url};
use super::failure::{failure, too_late, unavailable};
use super::limits::DatabaseLimits;
use super::presence::Presence;
use super::write_fault::WriteFault;
use crate::{DatabaseUsage, StoreError};

/// A parameter of a statement with its type. Statements are sent unnamed with their types, in one round trip,
/// because a pooler in transaction mode has no prepared statements.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Time between two attempts to get a connection.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of times that a read or a check is repeated whose connection turns out to be broken.
pub(super) const REPEATED_READS: usize = 8;

/// Why a connection was not checked.
pub(super) enum CheckError {
    /// It ended meanwhile; another one may work.
    ConnectionEnded(StoreError),
    Other(StoreError),
}

impl From<CheckError> for StoreError {
    fn from(error: CheckError) -> Self {
        let (CheckError::ConnectionEnded(error) | CheckError::Other(error)) = error;
        error
    }
}

/// The database of a store: a pool of connections.
pub(super) struct Database {
    pool: Pool<ConnectionManager>,
    pub limits: DatabaseLimits,
    pub presence: Presence,
    /// The number of connections that were made before the last check (see [`Presence`]).
    checked: AtomicU64,
    checking: tokio::sync::Mutex<()>,
    /// How often a connection was used.
    round_trips: AtomicU64,
    pub write_fault: WriteFault,
}

impl Database {
    /// Prepares the connections to a database. Opens none yet.
    pub fn at(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<Self, StoreError> {
        let pool = Pool::builder(ConnectionManager::new(url.clone(), limits)?)
            .max_size(limits.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(limits.connect))
            .create_timeout(Some(limits.connect))
            .build()
            .map_err(|error| bad_url(&error.to_string()))?;
        let presence = Presence::default();
        let (checked, checking, round_trips, write_fault) = Default::default();
        Ok(Self { pool, limits, presence, checked, checking, round_trips, write_fault })
    }

    /// Makes and chooses the connections.
    pub fn connections(&self) -> &ConnectionManager {
        self.pool.manager()
    }

    /// The connections that are open now, and the number of times that one was used.
    pub fn usage(&self) -> DatabaseUsage {
        let status = self.pool.status();
        DatabaseUsage {
            open: status.size,
            idle: status.available,
            waiting: status.waiting,
            round_trips: self.round_trips.load(Ordering::Relaxed),
        }
    }

    /// A connection. After a new connection was made, the database may be another one: it is checked first.
    pub async fn connection(&self) -> Result<PooledConnection, StoreError> {
        let mut repeated = 0;
        loop {
            self.presence.check()?;
            let connection = self.unchecked_connection().await?;
            let made = self.connections().made();
            if !self.presence.is_announced() || self.checked.load(Ordering::Acquire) >= made {
                return Ok(connection);
            }
            // One check for all requests of a burst.
            let _turn = self.checking.lock().await;
            if self.checked.load(Ordering::Acquire) >= made {
                return Ok(connection);
            }
            match self.checked(connection, made).await {
                Err(CheckError::ConnectionEnded(_)) if repeated < REPEATED_READS => repeated += 1,
                Err(CheckError::ConnectionEnded(error) | CheckError::Other(error)) => return Err(error),
                Ok(connection) => return Ok(connection),
            }
        }
    }

    /// Checks a connection, with all those that were `made` before. If the database is not the one that this
    /// node knows, closes the unused ones.
    pub async fn checked(
        &self,
        connection: PooledConnection,
        made: u64,
    ) -> Result<PooledConnection, CheckError> {
        match tokio::time::timeout(self.limits.read, Box::pin(self.beat_on(&connection))).await {
            Ok(Ok(())) => {
                self.checked.fetch_max(made, Ordering::AcqRel);
                Ok(connection)
            }
            Ok(Err(error)) => {
                let is_refused = self.presence.check().is_err();
                self.drop_ended(connection);
                match error {
                    StoreError::Unavailable { .. } if !is_refused => Err(CheckError::ConnectionEnded(error)),
                    _ => Err(CheckError::Other(error)),
                }
            }
            Err(_) => {
                self.abandon(connection);
                Err(CheckError::Other(too_late()))
            }
        }
    }

    /// Drops a connection that has ended, and the unused ones, which have probably ended too. It may not be
    /// known as closed yet.
    pub fn drop_ended(&self, connection: PooledConnection) {
        drop(PooledConnection::take(connection));
        self.close_unused();
    }

    /// Closes the unused connections.
    pub fn close_unused(&self) {
        drop(self.pool.retain(|_, _| false));
    }

    /// A connection without a check. If the database has no connection left for this node, waits for one that
    /// another request returns; if it ends the connection at once, makes another one.
    pub async fn unchecked_connection(&self) -> Result<PooledConnection, StoreError> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let until = Instant::now() + self.limits.connect;
        let mut repeated = 0;
        loop {
            let error = match Box::pin(self.pool.get()).await {
                Ok(connection) => return Ok(connection),
                Err(PoolError::Backend(error)) => error,
                Err(PoolError::Timeout(_)) => return Err(unavailable("no connection was free in time")),
                Err(_) => return Err(unavailable("the pool of connections failed")),
            };
            let is_repeated = error.is_used_up() || error.is_ended() && repeated < REPEATED_READS;
            if !is_repeated || Instant::now() + PAUSE >= until {
                return Err(self.connections().failure(error));
            }
            repeated += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Closes a connection that has not answered in time, and cancels its statement. Closes the unused
    /// connections too, because the link has probably stalled: the next request notices sooner that a new
    /// connection fails.
    pub fn abandon(&self, connection: PooledConnection) {
        self.discard(connection);
        self.close_unused();
    }

    /// Closes a connection whose statement is still running, and cancels the statement.
    pub fn discard(&self, connection: PooledConnection) {
        let cancel = PooledConnection::take(connection).cancel_token();
        let Ok(tls) = self.connections().tls_for_cancel() else { return };
        let limit = self.limits.connect;
        // The statement may have ended meanwhile, and the request to cancel it may fail as well.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { tokio::time::timeout(limit, cancel.cancel_query(tls)).await });
        }
    }

    /// Runs a query that only reads, within the time limit of requests, and returns all its rows. Repeats it
    /// if its connection turns out to be broken, for example because the database was restarted or has ended
    /// the connection.
    pub async fn query(
        &self,
        action: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.query_within(self.limits.read, action, sql, parameters).await
    }

    /// Runs a query as [`query`](Self::query) does, with another time limit.
    pub async fn query_within(
        &self,
        limit: Duration,
        action: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let until = Instant::now() + limit;
        let mut repeated = 0;
        loop {
            let connection = self.connection().await?;
            match tokio::time::timeout_at(until, connection.query_typed(sql, parameters)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_ended(&connection, &error) && repeated < REPEATED_READS => {
                    repeated += 1;
                    self.drop_ended(connection);
                }
                Ok(Err(error)) => return Err(failure(action, &error)),
                Err(_) => {
                    self.abandon(connection);
                    return Err(too_late());
                }
            }
        }
    }
}

/// Returns whether a statement failed because its connection has ended.
pub(super) fn is_ended(connection: &PooledConnection, error: &tokio_postgres::Error) -> bool {
    let ended = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];
    connection.is_closed() || error.is_closed() || error.code().is_some_and(|code| ended.contains(code))
}
