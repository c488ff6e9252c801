//! A database whose content moves to another store. A row of the table `writer` with an id of zeros closes
//! it: from then on, no round of any node begins (see [`super::rounds`]).
//!
//! Rounds that began before end first, because their rows are changed after that. A program that has closed
//! the database renews the row; if it dies, the row expires and the nodes write again. When the move is
//! complete, one statement makes the row permanent and writes the record that names the new store.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_util::task::AbortOnDropHandle;

use super::closed_row::closed_row;
use super::connect::{Database, Parameter};
use super::failure::{failure, unavailable};
use super::records::BLOCK;
use crate::StoreError;

/// Interval at which the row is renewed. Nodes ignore a row that was not renewed for 30 s, and the program
/// that has closed the database relies on it for 12 s only, so that neither clock nor delay lets both write.
const RENEWAL: Duration = Duration::from_secs(5);

const CLOSE: &str = "INSERT INTO writer (id, round, used_at) \
     VALUES ('00000000-0000-0000-0000-000000000000', 0, now()) ON CONFLICT (id) DO UPDATE SET used_at = now() \
     WHERE writer.used_at < now() - interval '30 seconds'";
const RENEW: &str = concat!(
    "UPDATE writer SET used_at = now() WHERE ",
    closed_row!(),
    " AND used_at BETWEEN now() - interval '12 seconds' AND now()"
);
/// Makes the row permanent and writes a record of the ledger, both or none of them.
const COMPLETE: &str = concat!(
    "WITH closed AS (UPDATE writer SET used_at = 'infinity' WHERE ",
    closed_row!(),
    " AND used_at BETWEEN now() - interval '12 seconds' AND now() RETURNING 1) \
     INSERT INTO ledger (key, value, revision) SELECT $1, $2, nextval('ledger_block') * $3 FROM closed \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision"
);
const OPEN: &str = concat!("DELETE FROM writer WHERE ", closed_row!(), " AND used_at <> 'infinity'");
const REOPEN: &str = concat!("DELETE FROM writer WHERE ", closed_row!());
/// Ends the rounds that began before: this waits for the rows that they have locked, and a round that waits
/// for its row finds another number. It is not the next number, which would look like its own.
const END_ROUNDS: &str = concat!("UPDATE writer SET round = round + 1000000000000 WHERE NOT ", closed_row!());
/// Ends an erasure, which locks this row instead.
const END_ERASURE: &str = "UPDATE clock SET seq = seq";

/// A database that is closed for the writes of all nodes until this value is dropped.
pub(crate) struct ClosedDatabase {
    database: Arc<Database>,
    _renewal: AbortOnDropHandle<()>,
    is_complete: bool,
}

/// Closes a database (see [`crate::Store::close`]).
pub(super) async fn close(database: &Arc<Database>) -> Result<ClosedDatabase, StoreError> {
    let connection = database.connection().await?;
    let failed = |error: tokio_postgres::Error| failure("close the database for writes", &error);
    if connection.execute_typed(CLOSE, &[]).await.map_err(failed)? == 0 {
        return Err(unavailable("another program is moving the content of the database"));
    }
    let renewed = Arc::clone(database);
    let renewal = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(RENEWAL).await;
            // If this fails for too long, the completion fails.
            let Ok(connection) = renewed.connection().await else { continue };
            drop(connection.execute_typed(RENEW, &[]).await);
        }
    }));
    let closed_database =
        ClosedDatabase { database: Arc::clone(database), _renewal: renewal, is_complete: false };
    connection.execute_typed(END_ROUNDS, &[]).await.map_err(failed)?;
    connection.execute_typed(END_ERASURE, &[]).await.map_err(failed)?;
    Ok(closed_database)
}

/// Opens a database whose content was moved (see [`crate::Store::reopen`]).
pub(super) async fn reopen(database: &Database) -> Result<(), StoreError> {
    let connection = database.unchecked_connection().await?;
    let result = connection.execute_typed(REOPEN, &[]).await;
    result.map(drop).map_err(|error| failure("open the database for writes", &error))
}

impl ClosedDatabase {
    /// Closes the database for good, and writes a record of the ledger in the same step.
    pub async fn complete(mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let connection = self.database.connection().await?;
        let (key, block) = (key.as_bytes(), BLOCK as i64);
        let parameters: [Parameter<'_>; 3] =
            [(&key, Type::BYTEA), (&value, Type::BYTEA), (&block, Type::INT8)];
        let result = connection.execute_typed(COMPLETE, &parameters).await;
        if result.map_err(|error| failure("mark the database as moved", &error))? == 0 {
            return Err(unavailable(
                "it could not be reached for 12 s while its content was moved, so that other programs may have written \
                 to it; remove the target's store and start again",
            ));
        }
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for ClosedDatabase {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let database = Arc::clone(&self.database);
        // If this fails, the row expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(connection) = database.connection().await {
                    drop(connection.execute_typed(OPEN, &[]).await);
                }
            });
        }
    }
}
