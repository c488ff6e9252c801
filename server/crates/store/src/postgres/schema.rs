//! The tables of the database, and their migrations.

use deadpool_postgres::Object;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connect::Database;
use super::failure::failure;
use crate::StoreError;

/// The migrations in order. A migration that was released never changes.
const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001_store.sql"), include_str!("migrations/0002_nodes.sql")];

/// Checks that the tables are those of this version of the program.
///
/// # Errors
/// [`StoreError::Engine`] if they are not, or do not exist.
pub(super) async fn check(database: &Database) -> Result<(), StoreError> {
    let connection = database.unchecked_connection().await?;
    let number = match connection.query_typed_one("SELECT number FROM migration", &[]).await {
        Ok(row) => row.get(0),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => 0,
        Err(error) => return Err(failure("read the version of the tables", &error)),
    };
    check_not_newer(number)?;
    let supported = MIGRATIONS.len() as i64;
    if number < supported {
        let reason = format!(
            "the database has tables of version {number}, and this program needs version {supported}; \
             run `trefoil migrate` as a user of the database who may change its tables"
        );
        return Err(StoreError::Engine { action: "use the tables of the store", reason });
    }
    Ok(())
}

fn check_not_newer(number: i64) -> Result<(), StoreError> {
    let supported = MIGRATIONS.len() as i64;
    if number <= supported {
        return Ok(());
    }
    let reason = format!(
        "the database has tables of version {number}, and this program knows version {supported}; use a newer program"
    );
    Err(StoreError::Engine { action: "use the tables of the store", reason })
}

/// Creates the tables, or changes those of an earlier version of the program. Several nodes may start at the
/// same time: each migration locks the row with the number of the last one. Returns the number of migrations
/// that were necessary.
///
/// # Errors
/// [`StoreError::Engine`] if the tables were made by a later version of the program.
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
            check_not_newer(number)?;
            let Some(next) = MIGRATIONS.get(usize::try_from(number).unwrap_or_default()) else {
                return Ok(true);
            };
            connection.batch_execute(next).await.map_err(failed)?;
            let set = "UPDATE migration SET number = $1";
            connection.execute_typed(set, &[(&(number + 1), Type::INT8)]).await.map_err(failed)?;
            Ok(false)
        };
        match step.await {
            Ok(done) => {
                connection.batch_execute("COMMIT").await.map_err(failed)?;
                if done {
                    return Ok(count);
                }
            }
            Err(error) => {
                // The transaction ends with its connection.
                drop(Object::take(connection));
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
