//! The tables of the database, and their migrations.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connect::Database;
use super::connection::PooledConnection;
use super::failure::failure;
use crate::StoreError;

/// A change of the tables.
struct Migration {
    sql: &'static str,
    /// Its effect, and how long that takes.
    summary: &'static str,
}

/// The migrations in order. A migration that was released never changes.
const MIGRATIONS: [Migration; 4] = [
    Migration {
        sql: include_str!("migrations/0001_store.sql"),
        summary: "creates all tables; less than a second",
    },
    Migration {
        sql: include_str!("migrations/0002_nodes.sql"),
        summary: "creates a table of the running nodes; less than a second",
    },
    Migration {
        sql: include_str!("migrations/0003_usable_from.sql"),
        summary: "adds a column of one row; less than a second",
    },
    Migration {
        sql: include_str!("migrations/0004_accepted.sql"),
        summary: "adds two columns of one row; less than a second",
    },
];

/// Version of the tables that this program creates.
const SUPPORTED: i64 = MIGRATIONS.len() as i64;
/// Version since which the tables say which programs can use them.
const SAYS_USABLE_FROM: i64 = 3;

/// The tables of a database, compared with those that this program needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablesVersion {
    /// Version of the tables; 0 if there are none.
    pub found: i64,
    /// Version that this program needs.
    pub needed: i64,
    /// Whether this program can use the tables although a later one made them.
    pub is_usable: bool,
    /// The effect of each migration that is necessary, and how long that takes.
    pub pending: Vec<&'static str>,
}

/// Reads the version of the tables. Changes nothing.
///
/// # Errors
/// [`StoreError::Unavailable`] if the database cannot be reached.
pub(super) async fn tables_version(database: &Database) -> Result<TablesVersion, StoreError> {
    let connection = database.unchecked_connection().await?;
    let number = read_number(&connection).await?;
    let count = usize::try_from(number).unwrap_or_default();
    let pending = MIGRATIONS.iter().skip(count).map(|migration| migration.summary).collect();
    let is_usable = number > SUPPORTED && is_usable(&connection, number).await?;
    Ok(TablesVersion { found: number, needed: SUPPORTED, is_usable, pending })
}

/// The number of the last migration; 0 if the database has no tables.
async fn read_number(connection: &Client) -> Result<i64, StoreError> {
    match connection.query_typed_one("SELECT number FROM migration", &[]).await {
        Ok(row) => Ok(row.get(0)),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(failure("read the version of the tables", &error)),
    }
}

/// Returns whether tables of a later version say that this program can use them.
async fn is_usable(connection: &Client, number: i64) -> Result<bool, StoreError> {
    if number < SAYS_USABLE_FROM {
        return Ok(false);
    }
    let row = connection.query_typed_one("SELECT usable_from FROM migration", &[]).await;
    let usable_from: i64 =
        row.map_err(|error| failure("read which programs can use the tables", &error))?.get(0);
    Ok(usable_from <= SUPPORTED)
}

/// Checks that this program can use the tables: they are those of its version, or of a later one that is
/// compatible.
///
/// # Errors
/// [`StoreError::Engine`] if it cannot use them, or they do not exist.
pub(super) async fn check(database: &Database) -> Result<(), StoreError> {
    let connection = database.unchecked_connection().await?;
    let number = read_number(&connection).await?;
    check_not_newer(&connection, number).await?;
    if number < SUPPORTED {
        let reason = format!(
            "the database has tables of version {number}, and this program needs version {SUPPORTED}; \
             run `trefoil migrate` as a user of the database who may change its tables"
        );
        return Err(StoreError::Engine { action: "use the tables of the store", reason });
    }
    Ok(())
}

async fn check_not_newer(connection: &Client, number: i64) -> Result<(), StoreError> {
    if number <= SUPPORTED {
        return Ok(());
    }
    if is_usable(connection, number).await? {
        tracing::info!(
            number,
            SUPPORTED,
            "a later version of the program has changed the tables, compatibly"
        );
        return Ok(());
    }
    let reason = format!(
        "the database has tables of version {number}, and this program knows version {SUPPORTED}; use a newer program"
    );
    Err(StoreError::Engine { action: "use the tables of the store", reason })
}

/// Creates the tables, or changes those of an earlier version of the program. Several nodes may start at the
/// same time: each migration locks the row with the number of the last one. Returns the number of migrations
/// that were necessary.
///
/// # Errors
/// [`StoreError::Engine`] if the tables were made by a later version of the program and cannot be used.
pub(super) async fn migrate(database: &Database) -> Result<usize, StoreError> {
    const ACTION: &str = "create the tables of the store";
    let connection = database.unchecked_connection().await?;
    let failed = |error| failure(ACTION, &error);
    // Two nodes that create the first table at the same time can fail with a violation of uniqueness in the
    // catalog of the database. The second attempt finds the table.
    let first = "CREATE TABLE IF NOT EXISTS migration (
            one boolean PRIMARY KEY DEFAULT true CHECK (one), number bigint NOT NULL);
        INSERT INTO migration (number) VALUES (0) ON CONFLICT (one) DO NOTHING;";
    if connection.batch_execute(first).await.is_err() {
        connection.batch_execute(first).await.map_err(failed)?;
    }
    for count in 0.. {
        connection.batch_execute("BEGIN").await.map_err(failed)?;
        let step = async {
            let row = connection
                .query_typed_one("SELECT number FROM migration FOR UPDATE", &[])
                .await
                .map_err(failed)?;
            let number: i64 = row.get(0);
            check_not_newer(&connection, number).await?;
            let Some(next) = MIGRATIONS.get(usize::try_from(number).unwrap_or_default()) else {
                return Ok(true);
            };
            connection.batch_execute(next.sql).await.map_err(failed)?;
            let set = "UPDATE migration SET number = $1";
            connection.execute_typed(set, &[(&(number + 1), Type::INT8)]).await.map_err(failed)?;
            Ok(false)
        };
        match step.await {
            Ok(version) => {
                connection.batch_execute("COMMIT").await.map_err(failed)?;
                if version {
                    return Ok(count);
                }
            }
            Err(error) => {
                // The transaction ends with its connection.
                drop(PooledConnection::take(connection));
                return Err(error);
            }
        }
    }
    unreachable!("there are not so many migrations")
}

/// Has the database collect the statistics of the large tables.
pub(super) async fn analyze(database: &Database) -> Result<(), StoreError> {
    for table in ["current", "history", "member", "change", "term", "ledger"] {
        let sql = format!("ANALYZE {table}");
        database.query_within(database.limits.background, "collect statistics", &sql, &[]).await?;
    }
    Ok(())
}
