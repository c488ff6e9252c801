//! Reading and replaying the whole content (see [`crate::transfer`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use super::PostgresEngine;
use super::commits::{Columns, read_newest};
use super::connect::{Database, Parameter};
use super::connection::PooledConnection;
use super::failure::{failure, too_late, unavailable};
use super::prefetched::{Prefetched, number, text};
use super::read::{RowVersion, each_row};
use super::records::{self, ADD, BLOCK};
use super::rounds::RoundError;
use crate::page::PageBuilder;
use crate::plan::{RoundPuts, StoreCounters, WriteRound};
use crate::transfer::{MOMENT_PAGE, missing_version};
use crate::{LedgerEntry, PageLimit, ReplayPart, ResourceKey, Seq, StoreError, StoreMoment, Version};

/// Number of rows that a statement reads from the log.
const LOG_ROWS: i64 = 2_000;

/// A transaction whose statements all see the same state, from which the ledger is read.
pub(crate) struct PostgresMoment {
    database: Arc<Database>,
    /// The connection of the transaction; `None` after its end.
    connection: Option<PooledConnection>,
    /// Key of the last record that was read.
    last: Vec<u8>,
}

impl Drop for PostgresMoment {
    fn drop(&mut self) {
        // The transaction ends with its connection.
        if let Some(connection) = self.connection.take() {
            self.database.discard(connection);
        }
    }
}

impl PostgresMoment {
    /// The next records (see [`crate::LedgerMoment::next_page`]).
    pub async fn next_page(&mut self) -> Result<Vec<LedgerEntry>, StoreError> {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        let sql = "SELECT key, value, revision, expires_us FROM ledger WHERE key > $1 ORDER BY key LIMIT $2";
        let limit = i64::try_from(MOMENT_PAGE).unwrap_or(i64::MAX);
        let parameters: &[Parameter<'_>] = &[(&self.last, Type::BYTEA), (&limit, Type::INT8)];
        let rows = connection.query_typed(sql, parameters);
        let rows = tokio::time::timeout(self.database.limits.background, rows).await;
        let rows = rows.map_err(|_| too_late())?.map_err(|error| failure("read the ledger", &error))?;
        match rows.last() {
            Some(last) => self.last = last.get::<_, Vec<u8>>(0),
            None => {
                let connection = self.connection.take().expect("it was there above");
                end(connection).await?;
            }
        }
        let entry = |row| records::record(row).and_then(|(key, record)| LedgerEntry::of(key, record));
        rows.iter().map(entry).collect()
    }
}

/// Ends a transaction that only read.
async fn end(connection: PooledConnection) -> Result<(), StoreError> {
    connection.batch_execute("COMMIT").await.map_err(|error| failure("end a transaction", &error))
}

impl PostgresEngine {
    /// The present moment (see [`crate::Store::moment`]).
    pub(crate) async fn moment(&self) -> Result<(StoreMoment, PostgresMoment), StoreError> {
        let database = Arc::clone(&self.database);
        let connection = database.connection().await?;
        let limit_ms = database.limits.background.as_millis();
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {limit_ms}; \
             SET LOCAL idle_in_transaction_session_timeout = {limit_ms}"
        );
        let mut moment = PostgresMoment { database, connection: None, last: Vec::new() };
        let connection = &*moment.connection.insert(connection);
        let read = async {
            connection.batch_execute(&begin).await?;
            let sql = "SELECT seq, floor_ms, (SELECT last_value FROM ledger_block) FROM clock";
            connection.query_typed_one(sql, &[]).await
        };
        let read = tokio::time::timeout(moment.database.limits.read, read).await.map_err(|_| too_late())?;
        let row = read.map_err(|error| failure("read the state of the store", &error))?;
        let (seq, floor_ms, block): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let revision = (block as u64 + 1) * BLOCK;
        Ok((StoreMoment { seq: Seq(seq as u64), revision, floor_ms }, moment))
    }

    /// A part of the log (see [`crate::Store::read_log`]).
    pub(crate) async fn read_log(
        &self,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        // The order of the first columns is that of `RowVersion`. The two tables never have the same version.
        let sql = "SELECT g.id, v.seq, v.version, v.updated_ms, v.compartments, v.body, g.kind, g.seq FROM \
                   (SELECT * FROM change WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3) g \
                   LEFT JOIN LATERAL (\
                   SELECT * FROM current c WHERE c.kind = g.kind AND c.id = g.id AND c.seq = g.seq \
                   UNION ALL \
                   SELECT * FROM history h WHERE h.kind = g.kind AND h.id = g.id AND h.seq = g.seq) v ON true \
                   ORDER BY g.seq";
        let rows = i64::try_from(limit.count).unwrap_or(i64::MAX).min(LOG_ROWS);
        let parameters: [Parameter<'_>; 3] =
            [(&number(after), Type::INT8), (&number(until), Type::INT8), (&rows, Type::INT8)];
        let mut page = PageBuilder::new(limit);
        let visit = |row: &Row| {
            let kind = text(row.get(6))?;
            let version = RowVersion::read(row)?.map(|version| version.to_version(&kind));
            let missing = || -> Result<StoreError, StoreError> {
                let key = ResourceKey { kind: kind.clone(), id: text(row.get(0))? };
                Ok(missing_version(Seq(row.get::<_, i64>(7) as u64), &key))
            };
            let Some(version) = version else { return Err(missing()?) };
            Ok(!page.push(version))
        };
        each_row(&self.database, self.database.limits.background, "read the log", sql, &parameters, visit)
            .await?;
        Ok(page.last().versions)
    }

    /// Adds a part of another store (see [`crate::Store::replay`]). No other writer may use the database.
    pub(crate) async fn replay(&self, part: ReplayPart) -> Result<(), StoreError> {
        let connection = self.database.connection().await?;
        let replayed = tokio::time::timeout(self.database.limits.background, replay(&connection, part));
        match replayed.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.database.discard(connection);
                Err(match error {
                    RoundError::Database(error) => failure("write to the database", &error),
                    RoundError::Store(error) => error,
                    RoundError::Fenced { .. } => unavailable("another program writes to the database"),
                })
            }
            Err(_) => {
                self.database.abandon(connection);
                Err(too_late())
            }
        }
    }
}

/// Writes a part in one transaction.
async fn replay(client: &Client, part: ReplayPart) -> Result<(), RoundError> {
    let limit = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0";
    client.batch_execute(limit).await?;
    let clock = client.query_typed_one("SELECT seq, floor_ms FROM clock FOR UPDATE", &[]).await?;
    let (seq, floor_ms): (i64, i64) = (clock.get(0), clock.get(1));
    let keys = part.versions.iter().map(|replayed| (&replayed.version.key, false));
    let present = Prefetched { versions: read_newest(client, keys).await?, ..Prefetched::default() };
    let counters = StoreCounters { seq: seq as u64, revision: 0, floor_ms };
    let mut round = WriteRound::new(&present, counters);
    round.replay(part)?;
    let RoundPuts { versions, records: puts, counters: after, .. } = round.into_puts();
    Columns::of(&versions).write(client).await?;
    let records: BTreeMap<_, _> = puts.into_iter().filter_map(|put| Some((put.key, put.new?))).collect();
    records::write(client, &records, ADD).await?;
    set_counters(client, after).await?;
    Ok(client.batch_execute("COMMIT").await?)
}

async fn set_counters(client: &Client, counters: StoreCounters) -> Result<(), Error> {
    let StoreCounters { seq, revision, floor_ms } = counters;
    let parameters: [Parameter<'_>; 2] = [(&number(Seq(seq)), Type::INT8), (&floor_ms, Type::INT8)];
    client.execute_typed("UPDATE clock SET seq = $1, floor_ms = $2", &parameters).await?;
    // The next block begins after the last revision.
    let sql = "SELECT setval('ledger_block', greatest(last_value, $1)) FROM ledger_block";
    let block = (revision / BLOCK + 1) as i64;
    client.query_typed(sql, &[(&block, Type::INT8)]).await.map(drop)
}
