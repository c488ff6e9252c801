//! Erasure of resources (see [`crate::erase`]).

use std::collections::HashMap;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::PostgresEngine;
use super::commits::read_newest;
use super::connect::{Database, Parameter};
use super::failure::{failure, too_late, unavailable};
use super::last_erasure::LAST_ERASURE;
use super::prefetched::text;
use super::read;
use super::reassign::remove_members;
use super::records::BLOCK;
use super::rounds::{RoundError, refusal};
use crate::{Erasure, Histories, PageLimit, ResourceKey, Seq, StoreError, Version};

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0";

/// Tables whose rows are removed or replaced.
const TABLES: [&str; 6] = ["current", "history", "member", "change", "term", "ledger"];

impl PostgresEngine {
    /// Erases resources (see [`crate::Store::erase`]).
    pub(crate) async fn erase(&self, erasures: &[Erasure]) -> Result<Seq, StoreError> {
        let connection = self.database.connection().await?;
        match tokio::time::timeout(
            self.database.limits.background,
            erase(&self.database, &connection, erasures),
        )
        .await
        {
            Ok(Ok(seq)) => Ok(seq),
            Ok(Err(error)) => {
                // The transaction ends with its connection.
                self.database.discard(connection);
                Err(match error {
                    RoundError::Database(error) => failure("erase resources", &error),
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

    /// Removes resources (see [`crate::Store::remove_replayed`]).
    pub(crate) async fn remove_replayed(&self, removed: &[Erasure]) -> Result<(), StoreError> {
        let connection = self.database.connection().await?;
        let remove = async {
            connection.batch_execute(BEGIN).await?;
            remove_rows(&connection, removed).await?;
            Ok::<_, RoundError>(connection.batch_execute("COMMIT").await?)
        };
        match tokio::time::timeout(self.database.limits.background, remove).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.database.discard(connection);
                Err(match error {
                    RoundError::Database(error) => failure("remove resources", &error),
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

    /// The resources of a compartment (see [`crate::Store::compartment_resources`]).
    pub(crate) async fn compartment_resources(
        &self,
        compartment: &str,
    ) -> Result<Vec<ResourceKey>, StoreError> {
        let sql = "SELECT DISTINCT kind, id FROM member WHERE compartment = $1 ORDER BY kind, id";
        let parameters: [Parameter<'_>; 1] = [(&compartment.as_bytes(), Type::BYTEA)];
        let limit = self.database.limits.background;
        let rows = self.database.query_within(limit, "read a compartment", sql, &parameters).await?;
        rows.iter().map(|row| Ok(ResourceKey { kind: text(row.get(0))?, id: text(row.get(1))? })).collect()
    }

    /// All versions of resources (see [`crate::Store::histories`]).
    pub(crate) async fn histories(
        &self,
        keys: &[ResourceKey],
        limit: PageLimit,
    ) -> Result<Histories, StoreError> {
        read::histories(&self.database, keys, limit).await
    }

    /// Lets the database reuse the space of removed rows. The owner of the tables may do that; for others,
    /// the database does it later by itself.
    pub(crate) async fn vacuum(&self) -> Result<(), StoreError> {
        let connection = self.database.connection().await?;
        for table in TABLES {
            let sql = format!("VACUUM {table}");
            connection.batch_execute(&sql).await.map_err(|error| failure("vacuum a table", &error))?;
        }
        Ok(())
    }
}

/// Removes all rows of the resources in one transaction, which has the next sequence number.
async fn erase(database: &Database, client: &Client, erasures: &[Erasure]) -> Result<Seq, RoundError> {
    client.batch_execute(BEGIN).await?;
    // Commits of all nodes wait for this row.
    let clock = client.query_typed_one("UPDATE clock SET seq = seq + 1 RETURNING seq", &[]).await?;
    if let Some(refusal) = refusal(database, client).await? {
        return Err(RoundError::Store(refusal));
    }
    remove_rows(client, erasures).await?;
    let seq: i64 = clock.get(0);
    let sql = "INSERT INTO ledger (key, value, revision) VALUES ($1, $2, nextval('ledger_block') * $3) \
               ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision";
    let (key, value, block) = (LAST_ERASURE.as_bytes(), seq.to_string(), BLOCK as i64);
    let value = value.as_bytes();
    let record: [Parameter<'_>; 3] = [(&key, Type::BYTEA), (&value, Type::BYTEA), (&block, Type::INT8)];
    client.execute_typed(sql, &record).await?;
    client.batch_execute("COMMIT").await?;
    Ok(Seq(seq as u64))
}

/// Removes all rows of the resources, in a transaction that has begun.
async fn remove_rows(client: &Client, erasures: &[Erasure]) -> Result<(), RoundError> {
    let versions: HashMap<ResourceKey, Version> =
        read_newest(client, erasures.iter().map(|erasure| (&erasure.key, false))).await?;
    for Erasure { key, newest, .. } in erasures {
        if versions.get(key).is_none_or(|version| version.version != *newest) {
            return Err(RoundError::Store(StoreError::Conflict { key: key.to_string() }));
        }
    }
    let kinds: Vec<&[u8]> = erasures.iter().map(|erasure| erasure.key.kind.as_bytes()).collect();
    let ids: Vec<&[u8]> = erasures.iter().map(|erasure| erasure.key.id.as_bytes()).collect();
    let keys: [Parameter<'_>; 2] = [(&kinds, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY)];
    // The versions name the rows of the change feed, which have other keys.
    let changes = "WITH k AS (SELECT * FROM unnest($1, $2) AS k (kind, id)), \
                   v AS (SELECT c.seq FROM current c JOIN k USING (kind, id) \
                   UNION ALL SELECT h.seq FROM history h JOIN k USING (kind, id)) \
                   DELETE FROM change g USING v WHERE g.seq = v.seq";
    client.execute_typed(changes, &keys).await?;
    remove_members(client, erasures.iter().map(|erasure| &erasure.key)).await?;
    let (mut terms, mut term_ids) = (Vec::<&[u8]>::new(), Vec::<&[u8]>::new());
    for Erasure { key, terms: of_resource, .. } in erasures {
        for term in of_resource {
            terms.push(term);
            term_ids.push(key.id.as_bytes());
        }
    }
    let entries: [Parameter<'_>; 2] = [(&terms, Type::BYTEA_ARRAY), (&term_ids, Type::BYTEA_ARRAY)];
    let sql = "DELETE FROM term t USING unnest($1, $2) AS k (term, id) WHERE t.term = k.term AND t.id = k.id";
    client.execute_typed(sql, &entries).await?;
    for table in ["history", "current"] {
        let sql = format!(
            "DELETE FROM {table} r USING unnest($1, $2) AS k (kind, id) WHERE r.kind = k.kind AND r.id = k.id"
        );
        client.execute_typed(&sql, &keys).await?;
    }
    Ok(())
}
