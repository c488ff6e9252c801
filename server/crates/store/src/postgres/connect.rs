//! The database of a store: the pool of connections, time limits and the meaning of errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Pool, PoolError};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::connection::{Connection, ConnectionManager, PooledConnection};
use super::database_url::{DatabaseUrl, bad_url};
use super::failure::{failure, is_connection_end, too_late, unavailable};
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

/// Why the check of a connection failed.
enum CheckError {
    /// Another connection may work.
    ConnectionEnded(StoreError),
    /// The database lacks something that this node knows.
    Refused(StoreError),
    TooLate,
}

/// The database of a store: a pool of connections.
pub(super) struct Database {
    pool: Pool<ConnectionManager>,
    pub limits: DatabaseLimits,
    pub presence: Presence,
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
        let (presence, round_trips, write_fault) = Default::default();
        Ok(Self { pool, limits, presence, round_trips, write_fault })
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

    /// A connection whose database is the one that this node knows: a new connection is checked first (see
    /// [`Presence`]).
    pub async fn connection(&self) -> Result<PooledConnection, StoreError> {
        let mut attempt = 0;
        loop {
            self.presence.check()?;
            let connection = self.unchecked_connection().await?;
            if connection.is_checked() || !self.presence.is_announced() {
                return Ok(connection);
            }
            attempt += 1;
            match self.check(&connection).await {
                Ok(()) => return Ok(connection),
                Err(CheckError::ConnectionEnded(_)) if attempt <= REPEATED_READS => {
                    self.drop_ended(connection);
                }
                Err(CheckError::ConnectionEnded(error)) => return Err(error),
                Err(CheckError::Refused(error)) => {
                    self.drop_ended(connection);
                    return Err(error);
                }
                Err(CheckError::TooLate) => {
                    self.abandon(connection);
                    return Err(too_late());
                }
            }
        }
    }

    /// Compares the database behind a connection with what this node knows.
    async fn check(&self, connection: &Connection) -> Result<(), CheckError> {
        match tokio::time::timeout(self.limits.read, Box::pin(self.beat_on(connection))).await {
            Ok(Ok(())) => {
                connection.set_checked();
                Ok(())
            }
            Ok(Err(error)) if self.presence.check().is_ok() => Err(CheckError::ConnectionEnded(error)),
            Ok(Err(error)) => Err(CheckError::Refused(error)),
            Err(_) => Err(CheckError::TooLate),
        }
    }

    /// Increments the number of this node, and compares the database with what this node knows. A database
    /// that is refused is compared too, because another one may have taken its place.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, or lacks something.
    pub async fn beat(&self) -> Result<(), StoreError> {
        let connection = self.unchecked_connection().await?;
        match self.check(&connection).await {
            Ok(()) => Ok(()),
            Err(CheckError::ConnectionEnded(error) | CheckError::Refused(error)) => {
                self.drop_ended(connection);
                Err(error)
            }
            Err(CheckError::TooLate) => {
                self.abandon(connection);
                Err(too_late())
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
        let mut attempt = 0;
        loop {
            let error = match Box::pin(self.pool.get()).await {
                Ok(connection) => return Ok(connection),
                Err(PoolError::Backend(error)) => error,
                Err(PoolError::Timeout(_)) => return Err(unavailable("no connection was free in time")),
                Err(_) => return Err(unavailable("the pool of connections failed")),
            };
            let is_repeated = error.is_used_up() || error.is_ended() && attempt < REPEATED_READS;
            if !is_repeated || Instant::now() + PAUSE >= until {
                return Err(self.connections().failure(error));
            }
            attempt += 1;
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
        let (cancel, tls) = (connection.cancel_token(), connection.tls.clone());
        drop(PooledConnection::take(connection));
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
        let mut attempt = 0;
        loop {
            let connection = self.connection().await?;
            match tokio::time::timeout_at(until, connection.query_typed(sql, parameters)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_ended(&connection, &error) && attempt < REPEATED_READS => {
                    attempt += 1;
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
    connection.is_closed() || is_connection_end(error)
}
